"""Invariants of delayed gradients (numbers 39 and 40 of docs/invariants.md)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import pi, sin
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import find
from paceline.algorithms.delayed import Agd
from paceline.algorithms.values import Rank, Samples
from paceline.checking.anyorder import AnyOrder
from paceline.checking.strategies import drawn
from tests.exact import ExactBowl, applied
from tests.support import Bowl, job_of


@dataclass(frozen=True)
class Parabola(Bowl):
    """f = x²/2 for every worker: curvature 1."""

    def initial(self) -> Any:
        return np.ones(self.size)

    def load(self, samples: Samples) -> Any:
        return np.zeros(self.size)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("delay", range(6))
def test_the_rate_limit_of_a_delay(delay: int, workers: int) -> None:
    """Number 39: on f = hx²/2, AGD-d converges iff ηh < 2 sin(π / (2(2d + 1))): 2, 1, 0.618, 0.445, 0.347, 0.285.

    2 % off the limit, 600 steps part the two sides by more than a factor of two either way.
    """
    limit = 2 * sin(pi / (2 * (2 * delay + 1)))
    peaks = {}
    for side in (0.98, 1.02):
        run = AnyOrder(job_of(Agd(delay=delay, rate=side * limit), workers, steps=600, learner=Parabola()))
        run.run()
        sizes = [float(np.abs(op.weights.vector).max()) for op in applied(run, Rank(0))]
        peaks[side] = max(sizes[:60]), max(sizes[-60:])
    assert peaks[0.98][1] < 0.5 * peaks[0.98][0]
    assert peaks[1.02][1] > 2 * peaks[1.02][0]


@given(data=st.data(), workers=st.integers(1, 3), delay=st.integers(0, 3), steps=st.integers(0, 6))
def test_the_delay_is_exact_and_replicas_are_equal(data: st.DataObject, workers: int, delay: int, steps: int) -> None:
    """Number 40, exactly: x_{t+1} = x_t − η mean g(x_{t−d}); the first d steps change nothing; replicas are equal."""
    method: Any = Agd(delay=delay, rate=Fraction(1, 10))  # type: ignore[arg-type]
    learner = ExactBowl()
    run = AnyOrder(job_of(method, workers, steps=steps, learner=learner))
    trace = run.run(drawn(data))
    assert {row.staleness for row in trace.updates} <= {delay}
    x = [learner.initial()]
    for t in range(steps):
        change: Any = 0
        if t >= delay:
            batches = [Samples(worker=r, workers=workers, index=t - delay, count=8) for r in range(workers)]
            gradients = [learner.gradient(x[t - delay], learner.load(batch))[0] for batch in batches]
            change = Fraction(1, 10) * sum(gradients) / workers
        x.append(x[t] - change)
    for rank in range(workers):
        history = [op.weights.vector for op in applied(run, Rank(rank))]
        assert len(history) == steps
        assert all((mine == expected).all() for mine, expected in zip(history, x[1:], strict=True))


@given(data=st.data(), workers=st.integers(1, 3), steps=st.integers(0, 5))
def test_no_delay_is_synchronous_sgd(data: st.DataObject, workers: int, steps: int) -> None:
    """Number 40: d = 0, bit for bit."""
    without = AnyOrder(job_of(Agd(delay=0), workers, steps=steps)).run(drawn(data))
    expected = AnyOrder(job_of(find("sync-sgd")(), workers, steps=steps)).run()
    np.testing.assert_array_equal(without.weights, expected.weights)
