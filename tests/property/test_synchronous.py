"""Invariants of the synchronous family (numbers as in docs/invariants.md), in every order of moves.

Where values are compared exactly, that is because reductions go in rank order whoever comes first.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import find
from paceline.algorithms.delayed import Agd, LayerwiseAgd
from paceline.algorithms.job import Budget, Job
from paceline.algorithms.layerwise import LayerwiseSgd, LayerwiseSgdLazy, LayerwiseSgdNextForward
from paceline.algorithms.method import Method
from paceline.algorithms.operations import AllReduce
from paceline.algorithms.periodic import HbsSgd
from paceline.algorithms.values import Rank
from paceline.checking.anyorder import AnyOrder
from paceline.checking.strategies import drawn
from paceline.workloads import build
from tests.exact import ExactBowl, applied
from tests.support import job_of

LAYERWISE = [LayerwiseSgd(), LayerwiseSgdLazy(), LayerwiseSgdNextForward()]
LAG_FREE: list[Method] = [find("sync-sgd")(), *LAYERWISE, Agd(delay=0), LayerwiseAgd(delay=0)]
NODES = st.lists(st.integers(1, 3), min_size=1, max_size=3)


def placed(counts: list[int]) -> list[list[int]]:
    """Consecutive ranks on nodes of these sizes."""
    ranks = iter(range(sum(counts)))
    return [[next(ranks) for _ in range(count)] for count in counts]


@pytest.mark.parametrize("method", LAG_FREE, ids=lambda method: method.name)
@given(data=st.data(), workers=st.integers(1, 4), steps=st.integers(0, 4))
def test_no_lag_and_equal_replicas_after_every_step(
    data: st.DataObject, method: Method, workers: int, steps: int
) -> None:
    """Number 1."""
    run = AnyOrder(job_of(method, workers, steps=steps))
    trace = run.run(drawn(data))
    assert {row.staleness for row in trace.updates} <= {0}
    histories = [[op.weights for op in applied(run, Rank(rank))] for rank in range(workers)]
    for history in histories:
        assert [weights.version for weights in history] == list(range(steps))
        for mine, first in zip(history, histories[0], strict=True):
            np.testing.assert_array_equal(mine.vector, first.vector)


@given(
    data=st.data(), workers=st.integers(1, 5), batch=st.integers(1, 4), seed=st.integers(0, 99), steps=st.integers(1, 5)
)
def test_workers_with_small_batches_are_one_worker_with_the_union(
    data: st.DataObject, workers: int, batch: int, seed: int, steps: int
) -> None:
    """Number 2. The sums are taken in another order: 1e-12 of the scale covers the roundings of a few steps."""
    learner = build("quadratic", data=None, learning="quadratic", seed=seed, population=64)
    budget = Budget(samples=steps * workers * batch)
    many = Job.of(find("sync-sgd")(), [[Rank(r)] for r in range(workers)], learner, batch=batch, budget=budget)
    one = Job.of(find("sequential-sgd")(), [[Rank(0)]], learner, batch=workers * batch, budget=budget)
    found, expected = AnyOrder(many).run(drawn(data)).weights, AnyOrder(one).run().weights
    assert not np.array_equal(expected, learner.initial())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@given(data=st.data(), counts=NODES, k1=st.integers(1, 3), times=st.integers(1, 3), steps=st.integers(1, 9))
def test_averages_keep_the_mean_and_close_the_spread(
    data: st.DataObject, counts: list[int], k1: int, times: int, steps: int
) -> None:
    """Number 5, exactly, in fractions: no average moves the mean of its members, and after it they are all equal."""
    method: Any = HbsSgd(k1=k1, k2=k1 * times, rate=Fraction(1, 10))  # type: ignore[arg-type]
    job = job_of(method, nodes=placed(counts), steps=steps, learner=ExactBowl())
    run = AnyOrder(job)
    run.run(drawn(data))
    averages: dict[tuple[Any, str], list[tuple[Any, Any]]] = {}
    for entry in run.log:
        if isinstance(entry.op, AllReduce):
            averages.setdefault((entry.op.group, entry.op.key), []).append((entry.op.value, entry.answer))
    for (group, _), met in averages.items():
        assert len(met) == len(group)
        before, after = np.array([value for value, _ in met]), np.array([answer for _, answer in met])
        assert (before.sum(axis=0) == after.sum(axis=0)).all()
        assert (after == after[0]).all()
    world = [key for group, key in averages if key.startswith("everyone")]
    assert len(world) == steps // (k1 * times)


def test_the_spread_before_an_average_is_not_0() -> None:
    """Guards number 5 against being empty."""
    run = AnyOrder(job_of(HbsSgd(k1=2, k2=4), nodes=placed([2, 2]), steps=2, learner=ExactBowl()))
    run.run()
    near: list[Any] = [
        entry.op.value for entry in run.log if isinstance(entry.op, AllReduce) and Rank(0) in entry.op.group
    ]
    assert (near[0] != near[1]).any()
