"""Invariants of delayed gradients (numbers 39 and 40 of docs/invariants.md)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from math import pi, sin
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import find
from paceline.algorithms.core.values import Rank, Samples, Weights
from paceline.algorithms.methods.delayed import Agd, LayerwiseAgd
from paceline.algorithms.methods.layerwise import BucketsInFlight, Landing, Shares
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import drawn
from tests.exact import ExactBowl, applied
from tests.support import Bowl, job_of
from tests.thorough import sampled


@dataclass(frozen=True)
class Parabola(Bowl):
    """f = x²/2 for every worker: curvature 1."""

    def initial(self) -> Any:
        return np.ones(self.size)

    def load(self, samples: Samples) -> Any:
        return np.zeros(self.size)


DELAYED = pytest.mark.parametrize("delayed", [Agd, LayerwiseAgd])


@pytest.mark.parametrize(("delayed", "workers"), [(Agd, 1), (Agd, 3), (LayerwiseAgd, 1)])
@pytest.mark.parametrize("delay", sampled(range(6), [0, 4]))
def test_the_rate_limit_of_a_delay(delayed: type[Agd], delay: int, workers: int) -> None:
    """Number 39: on f = hx²/2, AGD-d converges iff ηh < 2 sin(π / (2(2d + 1))): 2, 1, 0.618, 0.445, 0.347, 0.285.

    2 % off the limit, 600 steps part the two sides by more than a factor of two either way.
    """
    limit = 2 * sin(pi / (2 * (2 * delay + 1)))
    peaks = {}
    for side in (0.98, 1.02):
        run = AnyOrder(job_of(delayed(delay=delay, learning_rate=side * limit), workers, steps=600, learner=Parabola()))
        run.run()
        sizes = [float(np.abs(op.weights.vector).max()) for op in applied(run, Rank(0))]
        peaks[side] = max(sizes[:60]), max(sizes[-60:])
    assert peaks[0.98][1] < 0.5 * peaks[0.98][0]
    assert peaks[1.02][1] > 2 * peaks[1.02][0]


@DELAYED
@given(data=st.data(), workers=st.integers(1, 3), delay=st.integers(0, 3), steps=st.integers(0, 6))
def test_the_delay_is_exact_and_replicas_are_equal(
    delayed: type[Agd], data: st.DataObject, workers: int, delay: int, steps: int
) -> None:
    """Number 40, exactly: x_{t+1} = x_t − η mean g(x_{t−d}); the first d steps change nothing; replicas are equal."""
    method: Any = delayed(delay=delay, learning_rate=Fraction(1, 10))  # type: ignore[arg-type]
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


@DELAYED
@given(data=st.data(), workers=st.integers(1, 3), steps=st.integers(0, 5))
def test_no_delay_is_synchronous_sgd(delayed: type[Agd], data: st.DataObject, workers: int, steps: int) -> None:
    """Number 40: d = 0, bit for bit."""
    without = AnyOrder(job_of(delayed(delay=0), workers, steps=steps)).run(drawn(data))
    expected = AnyOrder(job_of(find("sync-sgd")(), workers, steps=steps)).run()
    np.testing.assert_array_equal(without.weights, expected.weights)


@given(data=st.data(), workers=st.integers(1, 3), delay=st.integers(0, 3), momentum=st.sampled_from([0.0, 0.5]))
def test_layer_by_layer_is_the_same_in_value(data: st.DataObject, workers: int, delay: int, momentum: float) -> None:
    """Number 40, bit for bit, with the velocity: each layer has had the same means in the same order."""
    layered, flat = (
        AnyOrder(job_of(method(delay=delay, momentum=momentum), workers, steps=5)) for method in (LayerwiseAgd, Agd)
    )
    np.testing.assert_array_equal(layered.run(drawn(data)).weights, flat.run().weights)


@dataclass(frozen=True, kw_only=True)
class LandsElsewhere(LayerwiseAgd):
    """Applies each layer's mean to another layer."""

    def landings(self, shares: Shares, flight: BucketsInFlight, weights: Weights, memory: Any) -> list[Landing]:
        return super().landings(shares, dataclasses.replace(flight, means=flight.means[::-1]), weights, memory)


def test_number_40_is_broken_by_layers_that_land_in_each_others_place() -> None:
    layered, flat = (
        AnyOrder(job_of(method, 2, steps=5)).run() for method in (LandsElsewhere(delay=1, bucket=None), Agd(delay=1))
    )
    assert (layered.weights != flat.weights).any()
