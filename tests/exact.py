"""Arithmetic without rounding, for properties that hold exactly: vectors of fractions, and a learner with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from paceline.algorithms.core.job import Evaluation
from paceline.algorithms.core.method import Method, RankContext
from paceline.algorithms.core.operations import AllReduce, RecordUpdate
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Chooser, first
from paceline.testing.contract.programs import job_of


def fractions(numbers: Iterable[Any]) -> Any:
    """A vector whose arithmetic is exact."""
    return np.array([Fraction(number) for number in numbers], dtype=object)


@dataclass(frozen=True)
class ExactBowl:
    """Loss h |w − a|² / 2, where a differs from batch to batch; every number is a fraction."""

    curvature: Fraction = Fraction(1)
    spread: Fraction = Fraction(1)
    size: int = 2
    num_samples: int = 64

    @property
    def layout(self) -> Layout:
        return Layout((Layer("first", 0, 1), Layer("second", 1, self.size)))

    def initial(self) -> Any:
        return fractions(range(1, self.size + 1))

    def load(self, samples: Samples) -> Any:
        """Small whole numbers that depend on the worker and the step."""
        number = samples.index * samples.workers + samples.worker
        return self.spread * fractions((number * 7 + 3 * i) % 11 - 5 for i in range(self.size))

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        away = vector - data
        return self.curvature * away, float((away * away).sum())

    def evaluate(self, vector: Any) -> Evaluation:
        return Evaluation(float((vector * vector).sum()), None)


@dataclass(frozen=True)
class UnlikeBowl(ExactBowl):
    """As `ExactBowl`, but the curvature also differs from batch to batch: local steps are not those of the mean."""

    def load(self, samples: Samples) -> Any:
        number = samples.index * samples.workers + samples.worker
        return Fraction(1 + number % 3, 3), super().load(samples)

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        curvature, target = data
        gradient, loss = super().gradient(vector, target)
        return curvature * gradient, loss


def exact_run(method: Any, workers: int, steps: int, choose: Chooser = first, learner: Any = UnlikeBowl()) -> AnyOrder:
    """A run in some order of moves; exact if the learner and the numbers of the method are."""
    run = AnyOrder(job_of(method, workers, steps=steps, learner=learner))
    run.run(choose)
    return run


def applied(run: AnyOrder, rank: Rank) -> list[RecordUpdate]:
    """Returns the updates that a rank applied as a whole, in order, without those of single layers."""
    ops = [entry.op for entry in run.log if isinstance(entry.op, RecordUpdate) and entry.move.rank == rank]
    return [op for op in ops if op.layer is None]


def assert_everyone_applies(run: AnyOrder, expected: Sequence[Any]) -> None:
    """Every worker's weights after its updates of whole rounds are these, exactly."""
    for rank in run.job.team[0].workers:
        history = [op.weights.vector for op in applied(run, rank) if op.advance]
        assert len(history) == len(expected)
        assert all((vector == other).all() for vector, other in zip(history, expected, strict=True))


def ends(run: AnyOrder) -> Any:
    """Every worker's weights at the end, one row each."""
    return np.array([run.trace.states[rank].weights.vector for rank in run.job.team[0].workers])


def averages(run: AnyOrder) -> dict[Any, list[tuple[Any, Any]]]:
    """Returns the inputs and the result of each all-reduce, by member."""
    met: dict[Any, list[tuple[Any, Any]]] = {}
    for entry in run.log:
        if isinstance(entry.op, AllReduce):
            met.setdefault((entry.op.group, entry.op.key), []).append((entry.op.value, entry.answer))
    return met


class Apart:
    """Workers start in different places, so that there is a sum to conserve and a distance to reduce."""

    def begin(self, me: RankContext, vector: Any) -> Any:
        return super().begin(me, vector + me.rank**2)  # type: ignore[misc]


def apart(method: type[Any]) -> Any:
    """The method from different places."""
    return dataclass(frozen=True, kw_only=True)(type(f"{method.__name__}Apart", (Apart, method), {}))


def still(method: Method) -> Any:
    """The method from different places and without gradients."""
    given = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    return apart(type(method))(**given | {"learning_rate": 0.0})
