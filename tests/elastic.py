"""Common parts of the tests of elastic averaging: the property of the sum, and the methods as matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Layer, Layout, Rank, Weights
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import drawn
from tests.exact import ExactBowl
from tests.support import Bowl, job_of
from tests.thorough import cases

ALPHAS = st.fractions(Fraction(1, 20), Fraction(19, 20), max_denominator=20)


def exact_job(method: Callable[..., Any], workers: int, steps: int, *, learner: Any = None, **parameters: Any) -> Job:
    """A job in fractions."""
    return job_of(method(**parameters), workers, steps=steps, learner=learner or ExactBowl())


def check_the_sum(method: Callable[..., Any], **parameters: Any) -> None:
    """Number 10, exactly, in fractions: once every exchange has been applied, the sum is the initial one."""

    # a mutation need only be found, not made small
    @settings(max_examples=cases(12, 200), database=None, phases=[Phase.generate])
    @given(data=st.data(), workers=st.integers(1, 4), alpha=ALPHAS, steps=st.integers(0, 9))
    def conserved(data: st.DataObject, workers: int, alpha: Fraction, steps: int) -> None:
        job = exact_job(method, workers, steps, learning_rate=Fraction(0), elastic=alpha, **parameters)
        start = {me.rank: job.method.begin(me, job.learner.initial()) for me in job.team}
        end = AnyOrder(job).run(drawn(data)).states
        assert (total(start) == total(end)).all(), "the sum has moved"

    conserved()


def total(states: dict[Any, Any]) -> Any:
    """Workers and centre; where no server holds the centre, rank 0 holds both."""
    vectors = [state.weights.vector for state in states.values()]
    if hasattr(states[0], "centre"):
        vectors.append(states[0].centre.vector)
    return sum(vectors)


@dataclass(frozen=True)
class Line(Bowl):
    """f = h x² / 2 for every worker."""

    curvature: float = 1.0

    @property
    def layout(self) -> Layout:
        return Layout((Layer("first", 0, 1), Layer("second", 1, self.size)))

    def load(self, samples: Any) -> Any:
        return np.zeros(self.size)

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return self.curvature * vector, 0.0


class FromTheAxes:
    """Rank i starts at the i-th unit vector, and the centre at the last: where all end is a matrix, row by row."""

    def begin(self, me: RankContext, vector: Any) -> Any:
        axes = np.eye(len(vector))
        state = super().begin(me, vector)  # type: ignore[misc]
        state = replace(state, weights=Weights(axes[me.rank], 0))
        return replace(state, centre=Weights(axes[-1], 0)) if hasattr(state, "centre") else state


def matrix_of(method: Any, workers: int, steps: int, *, curvature: float = 1.0) -> Any:
    """Returns the linear map of so many steps of a method on (x_1, …, x_P, c) for f = h x² / 2."""
    axed: Any = dataclass(frozen=True)(type("Axed", (FromTheAxes, type(method)), {}))
    learner = Line(size=workers + 1, curvature=curvature)
    job = job_of(axed(**vars(method)), workers, steps=steps, learner=learner)
    trace = AnyOrder(job).run()
    rows = [trace.states[Rank(rank)].weights.vector for rank in range(workers)]
    return np.array([*rows, trace.weights])


def radius(matrix: Any) -> float:
    """The largest modulus of an eigenvalue: errors die out if and only if it is below 1."""
    return float(np.abs(np.linalg.eigvals(matrix)).max())
