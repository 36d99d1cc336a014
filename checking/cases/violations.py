"""Violations: what a case violates, of the invariants of all methods and of the guarantees of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paceline.algorithms.core.guarantees import Guarantee
from paceline.checking.cases.case import Case
from paceline.checking.cases.invariants import violated
from paceline.checking.cases.outcomes import Outcome
from paceline.checking.cases.worst_values import Measured, measured
from paceline.checking.check_guarantees import broken, conserved
from paceline.checking.reference_runs import REFERENCES, too_distant

LAST = frozenset({"gradient-weights", "newest-weights", "no-shared-state"})
"""invariants whose words come after those of all others, which name the place of a mistake more closely"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A guarantee that a case violates.

    Args:
        guarantee: its name, such as ``bounded-staleness`` or, for every method, ``no-deadlock``.
        words: what was found, and what is right.
        case: the case that shows it.
    """

    guarantee: str
    words: str
    case: Case


def violations(
    outcome: Outcome, *, costly: bool = True, values: Mapping[str, Measured] | None = None
) -> list[Violation]:
    """Lists what a case violates: invariants of all methods, then guarantees that its method promises.

    Args:
        outcome: of the case.
        costly: whether invariants are checked for which the case has to run again.
        values: the result of `worst_values.measured`, if it is known.

    >>> from paceline.algorithms import find
    >>> from paceline.checking.cases import performed
    >>> violations(performed(Case(method=find("ssp")(), nodes=(1, 1), steps=3)))
    []
    """
    found = [*violated(outcome, costly=costly)]
    if outcome.error is None and not outcome.case.deaths:
        found += _declared(outcome, values)
    found.sort(key=lambda one: one[0] in LAST)
    return [Violation(guarantee=name, words=words, case=outcome.case) for name, words in found]


def _declared(outcome: Outcome, values: Mapping[str, Measured] | None) -> Iterator[tuple[str, str]]:
    job, trace = outcome.job, outcome.trace
    built_in = {one for one in job.method.guarantees if isinstance(one, Guarantee)}
    compared = built_in & set(REFERENCES)
    lines = broken(job, trace, built_in - compared) if outcome.case.gradients else conserved(job, trace)
    found = [_split(line) for line in lines]
    if outcome.case.gradients:
        known = measured(outcome, compared) if values is None else values
        found += [(one.slug, words) for one in compared for words in _too_distant(one, known[one.slug])]
    yield from sorted(found, key=lambda one: one[0])
    if not outcome.case.gradients:
        return
    for guarantee in sorted(job.method.guarantees - set(built_in), key=lambda one: one.slug):
        try:
            yield from ((guarantee.slug, words) for words in guarantee(job, trace))  # type: ignore[operator]
        except Exception as error:  # of any kind: the check is the user's
            yield guarantee.slug, f"its check failed: {type(error).__name__}: {error}"


def _too_distant(guarantee: Guarantee, value: Measured) -> Iterator[str]:
    assert value.bound is not None, "a comparison of weights has one"
    return too_distant(guarantee, value.value, value.bound)


def _split(line: str) -> tuple[str, str]:
    """Returns the name of a guarantee and the words of a line of `broken`."""
    name, _, words = line.partition(": ")
    return name, words
