"""The values that a violated guarantee compares: what was found beside what is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.operations import NextStep
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.weights_owner import Update
from paceline.checking.cases.performing import Outcome, reference_of
from paceline.checking.check_guarantees import (
    CHECKS,
    Difference,
    as_sync_sgd,
    reference_weights,
    rounding,
    total_weights,
)
from paceline.checking.counterexamples.recording import OperationRecord, RecordedOperation, numbers
from paceline.records.figures import digits_apart, significant

LABEL_DIGITS = 6
"""significant digits of a value in a diagram at most, whose columns are narrow; provenance: ours"""


@dataclass(frozen=True, slots=True)
class Focus:
    """What a story is about.

    Args:
        element: the element of the weights that differs at the end; None: no values are followed.
        update: the input of an update that violates the guarantee, with which the story ends; None: it has no such end.
        digits: significant digits of the element's values, which show where they differ.
    """

    element: int | None = None
    update: Update | None = None
    digits: int = 3

    def decides(self, row: Update) -> bool:
        """Whether this input of an update is the one that violates the guarantee, at any time."""
        return self.update is not None and row[1:] == self.update[1:]

    def words(self, request: RecordedOperation) -> str:
        """Returns the element's value in the weights of an operation; empty if it has none."""
        value = self._value(request)
        return "" if value is None else f"weights[{self.element}] = {significant(value, self.digits)}"

    def label(self, request: RecordedOperation) -> str:
        """Returns the same in fewer characters, for a diagram."""
        value = self._value(request)
        return "" if value is None else f"w[{self.element}] = {significant(value, min(self.digits, LABEL_DIGITS))}"

    def _value(self, request: RecordedOperation) -> float | None:
        vector = request.vector
        return (
            None
            if self.element is None or vector is None or self.element >= len(vector)
            else float(vector[self.element])
        )


MOST = 3
"""elements of a vector that are listed"""
Compare = Callable[[Outcome], "Found"]
Compared = tuple[str, Mapping[str, NDArray[Any]], int]
"""what an element is, the vectors that have it, and its index"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a violated guarantee compares.

    Args:
        differences: the values.
        element: the index of the first element of the weights that differs; None if no weights are compared.
        update: the first input of an update that violates the guarantee; None if it is not about updates.
        digits: significant digits with which values of the element that differ are written differently.
    """

    differences: tuple[Difference, ...] = ()
    element: int | None = None
    update: Update | None = None
    digits: int = 3


def differing_values(guarantee: str, outcome: Outcome, record: OperationRecord) -> Found:
    """Returns the values that differ.

    Args:
        guarantee: the name of the violated guarantee.
        outcome: the run.
        record: its operations.
    """
    if guarantee in VECTORS:
        names = VECTORS[guarantee](outcome)
        elements = _elements(names, exact=guarantee.startswith("replicas"))
        compared = [
            *_first_step(guarantee, record, elements),
            *((f"weights[{index}] at the end", names, index) for index in elements[:MOST]),
        ]
        differences = [_difference(*item) for item in compared]
        if len(elements) > MOST:
            differences.append(Difference(what="elements that differ", values=(("", str(len(elements))),)))
        digits = max((_digits(vectors, index) for _, vectors, index in compared), default=3)
        return Found(differences=tuple(differences), element=elements[0] if elements else None, digits=digits)
    if guarantee in ROWS:
        return ROWS[guarantee](outcome)
    breaches = BY_NAME[guarantee](outcome.job, outcome.trace) if guarantee in BY_NAME else ()
    breach = next(iter(breaches), None)
    if breach is None:
        return Found()
    return Found(differences=() if breach.difference is None else (breach.difference,), update=breach.update)


# --- vectors ---------------------------------------------------------------------------------------------------------


def _elements(vectors: Mapping[str, NDArray[Any]], *, exact: bool = True) -> list[int]:
    """Returns the indices at which vectors differ; if not exact, by more than rounding explains."""
    first, *others = vectors.values() or [np.zeros(0)]
    same = [other for other in others if other.shape == first.shape]
    most = 0.0 if exact else rounding(first)
    return sorted({int(index) for other in same for index in np.flatnonzero(~(np.abs(first - other) <= most))})


def _digits(vectors: Mapping[str, NDArray[Any]], index: int) -> int:
    return digits_apart(float(vector[index]) for vector in vectors.values())


def _difference(what: str, vectors: Mapping[str, NDArray[Any]], index: int) -> Difference:
    """Returns an element of several vectors, with the digits that show where they differ."""
    digits = _digits(vectors, index)
    return Difference(
        what=what, values=tuple((name, significant(float(vector[index]), digits)) for name, vector in vectors.items())
    )


def _first_step(guarantee: str, record: OperationRecord, elements: Sequence[int]) -> list[Compared]:
    """Returns the first step after which the replicas of ranks differ, from the states of their `NextStep`."""
    if guarantee != "replicas-equal" or not elements:
        return []
    after: dict[int, dict[Rank, NDArray[Any]]] = {}
    for moment in record.moments:
        request = moment.request
        if request is None or moment.kind != "requested" or request.vector is None:
            continue
        if isinstance(request.op, NextStep) and request.me.role == "worker":
            after.setdefault(request.step, {})[request.me.rank] = request.vector
    for step, vectors in sorted(after.items()):
        named = {f"rank {rank}": vector for rank, vector in sorted(vectors.items())}
        if differing := _elements(named):
            return [(f"first difference, when step {step - 1} ends: weights[{differing[0]}]", named, differing[0])]
    return []


def _replicas(outcome: Outcome) -> dict[str, NDArray[Any]]:
    states = outcome.trace.states
    vectors = {rank: numbers(getattr(states.get(rank), "weights", None)) for rank in outcome.job.team[0].workers}
    return {f"rank {rank}": vector for rank, vector in vectors.items() if vector is not None}


def _other_order(outcome: Outcome) -> dict[str, NDArray[Any]]:
    return _ends(outcome, "in the order of ranks", reference_weights(outcome.job))


def _sync_sgd(outcome: Outcome) -> dict[str, NDArray[Any]]:
    return _ends(outcome, "sync-sgd", reference_weights(as_sync_sgd(outcome.job)))


def _not_stopped(outcome: Outcome) -> dict[str, NDArray[Any]]:
    whole = reference_of(dataclasses.replace(outcome.case, choices=(), stops=()))
    return _ends(outcome, "without a stop", whole.trace.weights)


def _ends(outcome: Outcome, name: str, other: Any) -> dict[str, NDArray[Any]]:
    """Returns the weights at the end of a run and of the run that it is compared with."""
    weights = outcome.trace.weights
    return {} if weights is None or other is None else {"here": np.array(weights), name: np.array(other)}


def _totals(outcome: Outcome) -> dict[str, NDArray[Any]]:
    job = outcome.job
    if outcome.trace.states.keys() != {me.rank for me in job.team}:
        return {}
    before = {me.rank: job.method.begin(me, job.learner.initial()) for me in job.team}
    return {
        "sum at the beginning": np.array(total_weights(job, before)),
        "sum at the end": np.array(total_weights(job, outcome.trace.states)),
    }


VECTORS: dict[str, Callable[[Outcome], dict[str, NDArray[Any]]]] = {
    "replicas-equal": _replicas,
    "replicas-meet": _replicas,
    "deterministic": _other_order,
    "same-as-sync-sgd": _sync_sgd,
    "complete-state": _not_stopped,
    "conserves-sum": _totals,
    "conserves-mean": _totals,
}
"""guarantees that compare vectors"""


# --- updates ---------------------------------------------------------------------------------------------------------


def _applied_twice(outcome: Outcome) -> Found:
    """Lists the updates of the first gradient that was applied several times."""
    versions: dict[tuple[Rank, int], list[str]] = {}
    for row in outcome.trace.updates:
        applied = versions.setdefault((row.rank, row.step), [])
        applied.append(str(row.version_applied))
        if len(applied) > 1:
            what = f"gradient of rank {row.rank}, step {row.step}"
            values = (("applied in updates", " and ".join(applied)),)
            return Found(differences=(Difference(what=what, values=values),), update=row)
    return Found()


def _versions(outcome: Outcome) -> Found:
    versions = ", ".join(str(shot.version) for shot in outcome.trace.snapshots)
    return Found(differences=(Difference(what="versions of the weights", values=(("in order", versions),)),))


def _steps_taken(outcome: Outcome) -> Found:
    """Lists the steps of the ranks that own the weights beside the budget."""
    job, states = outcome.job, outcome.trace.states
    owners = job.owners
    taken = tuple((f"rank {rank}", str(getattr(states.get(rank), "step", "no state"))) for rank in owners)
    words = "budget of all together" if job.method.independent else "budget"
    return Found(differences=(Difference(what="steps taken", values=(*taken, (words, str(job.limit)))),))


ROWS: dict[str, Compare] = {
    "gradients-once": _applied_twice,
    "versions-by-one": _versions,
    "spends-budget": _steps_taken,
}
"""invariants that compare numbers"""
BY_NAME = {guarantee.slug: check for guarantee, check in CHECKS.items()}
