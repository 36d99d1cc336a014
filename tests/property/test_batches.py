"""Batches of several workers: every sample counts as much, in every method and every interpreter.

Numbers are those of docs/invariants.md.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS, find
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank, Samples
from paceline.algorithms.methods.baseline import ChipPartitionedSgd, SequentialSgd, SyncSgd, part_of
from paceline.algorithms.methods.layerwise import (
    Agd,
    LayerwiseAgd,
    LayerwiseSgd,
    LayerwiseSgdLazy,
    LayerwiseSgdNextForward,
)
from paceline.checking.anyorder import AnyOrder
from paceline.checking.cases.case import Case, from_json, to_json
from paceline.checking.cases.gradient_weights import is_measured, wrong_weights
from paceline.checking.check_guarantees import broken
from paceline.checking.moves import Shuffled
from paceline.records.trace import Schedule
from paceline.simulator.cohort.simulate import simulate_cohort
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.workloads import build
from paceline.workloads.sampling import positions, stream_start
from tests.exact import applied
from tests.support import FixedTiming, built, job_of, nodes_for
from tests.thorough import FAMILIES, examples, sampled

ORDERS = st.integers(0, 2**16).map(Shuffled)

BOWL = build("quadratic", learning="quadratic", seed=5)
BATCHES = (3, 7, 2, 4)
SAME = sorted(
    name for name, kind in METHODS.items() if Guarantee.SAME_AS_SYNC_SGD in kind.guarantees or name == "sync-sgd"
)
TAKING = sorted(name for name, kind in METHODS.items() if not kind.divides_batch and not kind.alone)


def job(name: str, batches: Any = BATCHES, steps: int = 6) -> Job:
    return job_of(built(name), nodes=nodes_for(built(name)), steps=steps, batch=batches, learner=BOWL)


@pytest.mark.parametrize("name", SAME)
def test_workers_with_different_batches_compute_what_one_worker_does_with_all_samples(name: str) -> None:
    made = job(name)
    rates = {key: getattr(made.method, key) for key in ("learning_rate", "momentum", "weight_decay", "lars")}
    alone = job_of(SequentialSgd(**rates), 1, steps=6, batch=sum(BATCHES), learner=BOWL)
    expected, found = AnyOrder(alone).run().weights, AnyOrder(made).run(Shuffled(3)).weights
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)
    plain = AnyOrder(job(name, (4, 4, 4, 4))).run().weights
    np.testing.assert_allclose(plain, expected, rtol=1e-13, atol=1e-13)


def test_a_global_batch_is_covered_once() -> None:
    made = job("sync-sgd")
    parts = [made.samples(me, 2) for me in made.team]
    assert [(one.before, one.count, one.together) for one in parts] == [
        (0, 3, 16), (3, 7, 16), (10, 2, 16), (12, 4, 16),
    ]  # fmt: skip
    assert sum(one.weight for one in parts) == len(parts)


@pytest.mark.parametrize("name", sampled(TAKING, FAMILIES))
def test_every_method_keeps_its_guarantees_and_its_budget(name: str) -> None:
    made = job(name)
    trace = AnyOrder(made).run(Shuffled(8))
    assert broken(made, trace) == []
    assert {(int(row.rank), row.samples) for row in trace.updates} <= {(r, b) for r, b in enumerate(BATCHES)}


@pytest.mark.parametrize("name", sampled(TAKING, FAMILIES))
def test_the_weight_of_every_gradient_is_that_of_its_samples(name: str) -> None:
    case = Case(method=built(name), nodes=tuple(map(len, nodes_for(built(name)))), steps=2, batches=BATCHES)
    if not is_measured(case):
        pytest.skip("its weights are no linear function of the gradients")
    assert list(wrong_weights(case)) == []


@pytest.mark.parametrize("name", ["sync-sgd", "layerwise-sgd", "agd", "slowmo", "hbs-sgd", "k-avg"])
def test_the_vectorised_simulation_has_the_same_bits(name: str) -> None:
    made, timing = job(name), FixedTiming(compute=lambda rank, _: 1.0 + rank / 7)
    expected = simulate_job(made, timing, NoCost(), Schedule(every=2))
    found = simulate_cohort(made, timing, NoCost(), Schedule(every=2))
    assert np.array_equal(found.weights, expected.weights)
    assert found.wall_s == expected.wall_s
    assert sorted(found.updates) == sorted(expected.updates)


def test_equal_batches_given_one_by_one_are_the_same_job() -> None:
    one, many = job("sync-sgd", 4), job("sync-sgd", (4, 4, 4, 4))
    assert one.batches == many.batches
    assert many.samples(many.team[1], 3) == one.samples(one.team[1], 3)
    assert np.array_equal(AnyOrder(one).run().weights, AnyOrder(many).run().weights)


def test_a_budget_of_updates_of_single_gradients_counts_the_mean_batch() -> None:
    made = job_of(find("async-sgd")(), 2, steps=5, batch=(2, 5))
    assert made.limit == 5
    assert replace(made, budget=Budget(samples=7)).limit == 2
    assert replace(made, budget=Budget(samples=8)).limit == 3


def test_a_case_with_batches_is_stored() -> None:
    case = Case(method=find("sync-sgd")(), nodes=(1, 1), steps=2, batches=(1, 4))
    assert from_json(to_json(case)) == case
    assert case.job().batches == (1, 4)


def test_micro_batches_of_batches_that_differ_cover_the_global_batch_once() -> None:
    made = job_of(SyncSgd(accumulate=3), nodes=nodes_for(built("sync-sgd")), batch=BATCHES, learner=BOWL)
    parts = [part for me in made.team for part in made.samples(me, 1).micro_batches(3)]
    covered = [(part.before or 0) + at for part in parts for at in range(part.count)]
    assert covered == list(range(3 * sum(BATCHES)))
    alone = job_of(SequentialSgd(), 1, batch=3 * sum(BATCHES), learner=BOWL)
    np.testing.assert_allclose(AnyOrder(made).run().weights, AnyOrder(alone).run().weights, rtol=1e-13, atol=1e-13)


# --- numbers 1 and 2 --------------------------------------------------------------------------------------------------


LAYERWISE = [LayerwiseSgd(bucket=None), LayerwiseSgdLazy(bucket=None), LayerwiseSgdNextForward(bucket=None)]
LAG_FREE: list[Method] = [find("sync-sgd")(), *LAYERWISE, Agd(delay=0), LayerwiseAgd(delay=0, bucket=None)]


@pytest.mark.parametrize("method", LAG_FREE, ids=lambda method: method.name)
@given(order=ORDERS, workers=st.integers(1, 4), steps=st.integers(0, 4))
@examples(10, 200)
def test_no_lag_and_equal_replicas_after_every_step(order: Shuffled, method: Method, workers: int, steps: int) -> None:
    """Number 1."""
    run = AnyOrder(job_of(method, workers, steps=steps))
    trace = run.run(order)
    assert {row.staleness for row in trace.updates} <= {0}
    histories = [[op.weights for op in applied(run, Rank(rank))] for rank in range(workers)]
    for history in histories:
        assert [weights.version for weights in history] == list(range(steps))
        for weights, first in zip(history, histories[0], strict=True):
            np.testing.assert_array_equal(weights.vector, first.vector)


@given(
    order=ORDERS, workers=st.integers(1, 5), batch=st.integers(1, 4), seed=st.integers(0, 99), steps=st.integers(1, 5)
)
def test_workers_with_small_batches_are_one_worker_with_the_union(
    order: Shuffled, workers: int, batch: int, seed: int, steps: int
) -> None:
    """Number 2. The sums are taken in another order: 1e-12 of the scale covers the roundings of a few steps."""
    learner = build("quadratic", dataset=None, learning="quadratic", seed=seed, num_samples=64)
    budget = Budget(samples=steps * workers * batch)
    many = Job.of(find("sync-sgd")(), [[Rank(r)] for r in range(workers)], learner, batch=batch, budget=budget)
    one = Job.of(find("sequential-sgd")(), [[Rank(0)]], learner, batch=workers * batch, budget=budget)
    found, expected = AnyOrder(many).run(order).weights, AnyOrder(one).run().weights
    assert not np.array_equal(expected, learner.initial())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


# --- the parts of a chip ----------------------------------------------------------------------------------------------


PARTS = st.integers(1, 6)


@given(parts=PARTS, spare=st.integers(0, 20), index=st.integers(0, 40), seed=st.integers(0, 99))
def test_parts_are_the_chips_batch_without_a_gap(parts: int, spare: int, index: int, seed: int) -> None:
    whole = Samples(worker=0, workers=1, index=index, count=parts + spare)
    cut = [part_of(replace(whole, worker=part, workers=parts)) for part in range(parts)]
    counts = [part.count for part in cut]
    assert sum(counts) == whole.count
    assert max(counts) - min(counts) <= 1

    def lie(samples: Samples) -> list[int]:
        return list(positions(samples, num_samples=60, seed=seed))

    assert [place for part in cut for place in lie(part)] == lie(whole)
    assert stream_start(cut[0]) == stream_start(whole)
    assert all(stream_start(one) + one.count == stream_start(other) for one, other in pairwise(cut))
    assert stream_start(cut[-1]) + cut[-1].count == stream_start(replace(whole, index=index + 1))


def test_a_part_without_samples_is_refused() -> None:
    with pytest.raises(InputError, match="batch_per_worker: 3 samples do not make 4 parts; give 4 or more"):
        part_of(Samples(worker=0, workers=4, index=0, count=3))


def test_one_chip_is_one_node() -> None:
    nodes = [[Rank(0), Rank(1)], [Rank(2)]]
    (found,) = ChipPartitionedSgd().problems(nodes)
    assert "found 2 nodes; put all workers on one node" in found
    assert ChipPartitionedSgd().problems(nodes[:1]) == []
