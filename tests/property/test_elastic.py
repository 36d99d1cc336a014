"""Invariants of elastic averaging (numbers as in docs/invariants.md), in fractions where they are exact.

Number 10 and the mutations that it must kill are in `test_elastic_sum`.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import find
from paceline.algorithms.elastic import Easgd
from paceline.algorithms.sync_elastic import SyncEasgd3
from paceline.algorithms.values import Rank
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, first
from paceline.checking.strategies import drawn
from paceline.records.trace import Schedule
from paceline.simulator.interpreter import simulate_job
from paceline.simulator.network import NoCost
from tests.exact import EasgdApart, ExactBowl, SyncEasgd3Apart, applied
from tests.support import Bowl, FixedTiming, job_of

ALPHAS = st.fractions(Fraction(1, 20), Fraction(19, 20), max_denominator=20)


class Parabola(Bowl):
    """f = x²/2 for every worker."""

    def initial(self) -> Any:
        return np.arange(1.0, 5.0)

    def load(self, samples: Any) -> Any:
        return np.zeros(4)


def without_gradients(method: Any, alpha: Fraction) -> Any:
    return method(rate=Fraction(0), elastic=alpha)


@given(data=st.data(), workers=st.integers(2, 4), alpha=ALPHAS, steps=st.integers(1, 5))
def test_synchronous_easgd_contracts(data: st.DataObject, workers: int, alpha: Fraction, steps: int) -> None:
    """Number 11: at every step mean(x) − c shrinks by 1 − α − pα and x_i − x_j by 1 − α; c + Σ x stays (number 10)."""
    job = job_of(without_gradients(SyncEasgd3Apart, alpha), workers, steps=steps, learner=ExactBowl())
    history = [[job.method.begin(me, job.learner.initial()) for me in job.team]]
    for stop in range(1, steps + 1):
        shorter = job_of(job.method, workers, steps=stop, learner=ExactBowl())
        states = AnyOrder(shorter).run(drawn(data) if stop == steps else first).states
        history.append([states[Rank(rank)] for rank in range(workers)])
    for before, after in pairwise(history):
        x, y = ([state.weights.vector for state in states] for states in (before, after))
        c, d = before[0].centre.vector, after[0].centre.vector
        assert (sum(y) + d == sum(x) + c).all()
        assert (sum(y) / workers - d == (1 - alpha - workers * alpha) * (sum(x) / workers - c)).all()
        assert (y[1] - y[0] == (1 - alpha) * (x[1] - x[0])).all()


@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize(("side", "stable"), [(0.99, True), (1.01, False)])
def test_synchronous_easgd_is_stable_iff_alpha_is_small(workers: int, side: float, stable: bool) -> None:
    """Number 11: stable iff α (1 + p) < 2. The gap is multiplied by 1 − α(1 + p) at every step: ±0.98 or ±1.02."""
    method: Any = SyncEasgd3Apart
    alpha = side * 2 / (1 + workers)
    gaps = []
    for steps in (1, 201):
        states = AnyOrder(job_of(method(rate=0.0, elastic=alpha), workers, steps=steps, learner=Bowl())).run().states
        mean = np.mean([states[Rank(rank)].weights.vector for rank in range(workers)], axis=0)
        gaps.append(np.abs(mean - states[Rank(0)].centre.vector).max())
    assert (gaps[1] < 0.02 * gaps[0]) == stable
    assert (gaps[1] > 50 * gaps[0]) != stable


@given(data=st.data(), alpha=ALPHAS, rate=st.fractions(0, 1, max_denominator=10), steps=st.integers(1, 5))
def test_with_one_worker_original_and_synchronous_agree(
    data: st.DataObject, alpha: Fraction, rate: Fraction, steps: int
) -> None:
    """Number 13, step by step (asynchronous EASGD waits for its method)."""
    original: Any = Easgd(rate=rate, elastic=alpha)  # type: ignore[arg-type]
    synchronous: Any = SyncEasgd3(rate=rate, elastic=alpha)  # type: ignore[arg-type]
    one, two = (AnyOrder(job_of(method, 1, steps=steps, learner=ExactBowl())) for method in (original, synchronous))
    first_states, second_states = one.run(drawn(data)).states, two.run(drawn(data)).states
    centres = [
        [op.weights.vector.tolist() for op in applied(run, rank)] for run, rank in ((one, Rank(1)), (two, Rank(0)))
    ]
    assert centres[0] == centres[1] and len(centres[0]) == steps
    assert (first_states[Rank(0)].weights.vector == second_states[Rank(0)].weights.vector).all()


@given(data=st.data(), workers=st.integers(1, 5), steps=st.integers(0, 12))
def test_exchanges_come_in_rank_order(data: st.DataObject, workers: int, steps: int) -> None:
    """Number 16: each worker has ⌊T/P⌋ or ⌈T/P⌉ exchanges, in turn, whoever is fast."""
    trace = AnyOrder(job_of(Easgd(), workers, steps=steps)).run(drawn(data))
    assert [row.rank for row in trace.updates] == [step % workers for step in range(steps)]
    assert [row.step for row in trace.updates] == [step // workers for step in range(steps)]


@pytest.mark.parametrize("rate", [0.1, 1.0, 1.9])
@pytest.mark.parametrize(
    ("workers", "side", "stable"), [(1, 0.98, True), (2, 0.98, True), (4, 0.98, True), (1, 1.05, False)]
)
def test_round_robin_stability_on_a_parabola(workers: int, rate: float, side: float, stable: bool) -> None:
    """Number 16: on f = x²/2 it converges for every α below (4 − 2η) / (4 − η), which is sharp for one worker."""
    alpha = side * (4 - 2 * rate) / (4 - rate)
    method: Any = EasgdApart(rate=rate, elastic=alpha)
    sizes = []
    for turns in (60, 500):
        states = AnyOrder(job_of(method, workers, steps=turns * workers, learner=Parabola())).run().states
        sizes.append(max(np.abs(state.weights.vector).max() for state in states.values()))
    if stable:
        assert sizes[1] < 0.5 * sizes[0] or sizes[1] < 1e-12
    else:
        assert sizes[1] > 2 * sizes[0]


@given(data=st.data(), speeds=st.permutations([1.0, 1.5, 2.25, 4.0]), name=st.sampled_from(["easgd", "sync-easgd3"]))
def test_deterministic_easgd_does_not_see_speeds(data: st.DataObject, speeds: list[float], name: str) -> None:
    """Number 17: the same weights, bit for bit, for any permutation of speeds and any order of moves."""
    job = job_of(find(name)(), 4, steps=6)
    timing = FixedTiming(compute=lambda rank, _step: speeds[rank])
    in_time = simulate_job(job, timing, NoCost(), Schedule(every=1))
    expected = AnyOrder(job).run().weights
    np.testing.assert_array_equal(AnyOrder(job).run(drawn(data)).weights, expected)
    np.testing.assert_array_equal(in_time.weights, expected)


def test_asynchronous_sgd_does_see_the_order() -> None:
    """Number 17's other half, without which the first could hold for want of any difference."""
    job = job_of(find("async-sgd")(), 4, steps=12)
    assert (AnyOrder(job).run(first).weights != AnyOrder(job).run(Shuffled(5)).weights).any()
