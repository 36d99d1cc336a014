"""A planted bug: a method with one mistake, and the method without it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.algorithms.core.method import Method


@dataclass(frozen=True, kw_only=True)
class PlantedBug:
    """One mistake, and the verdicts that may report it.

    Args:
        method: the method with the mistake; its name is the name of the bug.
        original: the method without it, which keeps all its guarantees.
        violates: the guarantees of which at least one must be reported as violated.
        only_simulated: whether the mistake has no effect in the any-order interpreter, because it depends on fractions
            of a second or on equal times.
    """

    method: Method
    original: Method
    violates: frozenset[str]
    only_simulated: bool = False

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def sentence(self) -> str:
        """The mistake in one sentence: the first line of the docstring of its class."""
        return (type(self.method).__doc__ or "").partition("\n")[0]


def planted(method: Method, original: Method, *violates: str, only_simulated: bool = False) -> PlantedBug:
    """Returns a planted bug; arguments as in `PlantedBug`."""
    return PlantedBug(method=method, original=original, violates=frozenset(violates), only_simulated=only_simulated)
