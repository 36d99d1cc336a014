"""Invariants of elastic averaging (numbers as in docs/invariants.md), in fractions where they are exact.

Number 10 and the mutations that it must kill are in `test_elastic_sum` and `test_elastic_sum_async`, stability (number
16's second half) in `test_elastic_stability`, 12 and 13 in `test_elastic_limits`, 14 and 15 in `test_elastic_same`.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import find
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.async_elastic import AsyncEasgd
from paceline.algorithms.methods.elastic import Easgd
from paceline.algorithms.methods.sync_elastic import SyncEasgd3
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import RoundRobin, Shuffled, drawn, first
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.elastic import ALPHAS, exact_job, matrix_of
from tests.exact import ExactBowl, SyncEasgd3Apart
from tests.support import FixedTiming, job_of
from tests.thorough import examples


@given(data=st.data(), workers=st.integers(2, 4), alpha=ALPHAS, steps=st.integers(1, 5))
def test_synchronous_easgd_contracts(data: st.DataObject, workers: int, alpha: Fraction, steps: int) -> None:
    """Number 11: at every step mean(x) − c shrinks by 1 − α − pα and x_i − x_j by 1 − α; c + Σ x stays (number 10)."""
    job = exact_job(SyncEasgd3Apart, workers, steps, learning_rate=Fraction(0), elastic=alpha)
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


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_moving_rate_is_shared_by_the_workers(workers: int) -> None:
    """α = β / P: the same steps as with this elastic rate itself."""
    shared, given_itself = SyncEasgd3(moving_rate=0.6), SyncEasgd3(elastic=0.6 / workers)
    np.testing.assert_allclose(matrix_of(shared, workers, 3), matrix_of(given_itself, workers, 3), rtol=1e-12)


def test_a_delta_is_as_old_as_the_centre_that_it_was_computed_from() -> None:
    """In turns, each of the other workers moves the centre at most once in between, in runs of any length."""
    trace = AnyOrder(job_of(AsyncEasgd(sends="delta"), 3, steps=30)).run(RoundRobin())
    assert len(trace.updates) == 30
    assert {row.staleness for row in trace.updates} <= {0, 1, 2}


@given(data=st.data(), workers=st.integers(1, 5), steps=st.integers(0, 12))
def test_exchanges_come_in_rank_order(data: st.DataObject, workers: int, steps: int) -> None:
    """Number 16: each worker has ⌊T/P⌋ or ⌈T/P⌉ exchanges, in turn, whatever the speeds."""
    trace = AnyOrder(job_of(Easgd(), workers, steps=steps)).run(drawn(data))
    assert [row.rank for row in trace.updates] == [step % workers for step in range(steps)]
    assert [row.step for row in trace.updates] == [step // workers for step in range(steps)]


@pytest.mark.parametrize("name", ["easgd", "sync-easgd1", "sync-easgd2", "sync-easgd3"])
@examples(10, 200)
@given(data=st.data(), speeds=st.permutations([1.0, 1.5, 2.25, 4.0]))
def test_deterministic_easgd_does_not_see_speeds(name: str, data: st.DataObject, speeds: list[float]) -> None:
    """Number 17: the same weights, bit for bit, for any permutation of speeds and any order of moves."""
    job = job_of(find(name)(), 4, steps=6)
    timing = FixedTiming(compute=lambda rank, _step: speeds[rank])
    in_time = simulate_job(job, timing, NoCost(), Schedule(every=1))
    expected = AnyOrder(job).run().weights
    np.testing.assert_array_equal(AnyOrder(job).run(drawn(data)).weights, expected)
    np.testing.assert_array_equal(in_time.weights, expected)


def test_asynchronous_sgd_does_see_the_order() -> None:
    """The counterpart of number 17, without which the first could hold because all weights are equal."""
    job = job_of(find("async-sgd")(), 4, steps=12)
    assert (AnyOrder(job).run(first).weights != AnyOrder(job).run(Shuffled(5)).weights).any()
