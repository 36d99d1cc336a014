"""A planted bug: one exact piece of one file, replaced by another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One bug, and the tests that must find it.

    Args:
        name: the bug in two to four words, with hyphens.
        file: the file to change, relative to the checkout.
        old: what stands there now; it occurs exactly once.
        new: what replaces it.
        bug: what is wrong then, in one sentence.
        tests: files of tests, relative to ``tests/``, at least one of which fails with this bug.
    """

    name: str
    file: str
    old: str
    new: str
    bug: str
    tests: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        """The files of tests, relative to the checkout."""
        return [f"tests/{test}" for test in self.tests]

    def mutated(self, root: Path) -> str:
        """The text of the mutated file.

        Args:
            root: a checkout without mutants.

        Raises:
            ValueError: the old text does not occur exactly once.
        """
        text = (root / self.file).read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.file} has the old text {count} times, expected once")
        return text.replace(self.old, self.new)
