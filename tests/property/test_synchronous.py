"""Invariants of the synchronous family (numbers as in docs/invariants.md), in every order of moves.

Values are compared exactly where reductions add in rank order, independent of the order of arrival.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import find
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.delayed import Agd, LayerwiseAgd
from paceline.algorithms.methods.layerwise import LayerwiseSgd, LayerwiseSgdLazy, LayerwiseSgdNextForward
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import drawn
from paceline.workloads import build
from tests.exact import applied
from tests.support import job_of
from tests.thorough import examples

LAYERWISE = [LayerwiseSgd(bucket=None), LayerwiseSgdLazy(bucket=None), LayerwiseSgdNextForward(bucket=None)]
LAG_FREE: list[Method] = [find("sync-sgd")(), *LAYERWISE, Agd(delay=0), LayerwiseAgd(delay=0, bucket=None)]


@pytest.mark.parametrize("method", LAG_FREE, ids=lambda method: method.name)
@given(data=st.data(), workers=st.integers(1, 4), steps=st.integers(0, 4))
@examples(10, 200)
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
    learner = build("quadratic", dataset=None, learning="quadratic", seed=seed, num_samples=64)
    budget = Budget(samples=steps * workers * batch)
    many = Job.of(find("sync-sgd")(), [[Rank(r)] for r in range(workers)], learner, batch=batch, budget=budget)
    one = Job.of(find("sequential-sgd")(), [[Rank(0)]], learner, batch=workers * batch, budget=budget)
    found, expected = AnyOrder(many).run(drawn(data)).weights, AnyOrder(one).run().weights
    assert not np.array_equal(expected, learner.initial())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
