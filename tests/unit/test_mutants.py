"""The list of mutants is valid: every old text is at its place, and every mutated file compiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import paceline
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import Mutant

ROOT = Path(paceline.__file__).parents[1]
FEWEST = 48


def _problems(mutant: Mutant) -> Iterator[str]:
    try:
        compile(mutant.mutated(ROOT), mutant.file, "exec")
    except (OSError, ValueError, SyntaxError) as error:
        yield f"{mutant.name}: {error}"
    if mutant.new == mutant.old:
        yield f"{mutant.name}: changes nothing"
    for path in mutant.paths:
        if not (ROOT / path).is_file():
            yield f"{mutant.name}: there is no {path}"


def test_every_mutant_can_be_planted() -> None:
    names = Counter(mutant.name for mutant in CATALOGUE)
    problems = [f"{name}: {times} mutants have this name" for name, times in names.items() if times > 1]
    problems += [problem for mutant in CATALOGUE for problem in _problems(mutant)]
    assert len(CATALOGUE) >= FEWEST
    assert not problems, "\n".join(problems)
