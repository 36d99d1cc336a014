"""A stand-in has the timing of the model: the same spans, messages, updates and staleness, without values."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS, PowerSgd, TopK
from paceline.algorithms.core import arrays
from paceline.algorithms.core.dct_top_k import DctTopK
from paceline.algorithms.core.job import Job, Learner
from paceline.algorithms.core.values import Null, Samples, join, length, nbytes, norm
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.decoupled_momentum import SparseLoCo
from paceline.algorithms.runtime.mail import Snapshots
from paceline.algorithms.runtime.sized import RepresentedSize, Sized
from paceline.records.trace import Schedule, Trace
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.workloads import build
from paceline.workloads.learners.stand_in import StandIn
from tests.support import Bowl, FixedTiming, built, job_of, nodes_for, placed
from tests.thorough import FAMILIES, sampled

BATCH, FEWER = 8, 2


def uneven_s(rank: int, step: int) -> float:
    return 1.0 + ((7 * rank + 5 * step) % 11) / 10


def traced(job: Job) -> Trace:
    layers = len(job.learner.layout.layers)
    timing = FixedTiming(
        compute=uneven_s,
        work=0.01,
        load=0.02,
        access=lambda _, nbytes: nbytes * 1e-7,
        forward=[1 / 3 / layers] * layers,
        backward=[2 / 3 / layers] * layers,
    )
    wires = MeasuredNetwork(lambda _, ranks, size: 1e-4 * ranks + 2e-7 * size, lambda size: 1e-4 + 2e-7 * size)
    return simulate_job(job, timing, wires, Schedule(math.inf))


def facts(trace: Trace) -> dict[str, Any]:
    """Returns everything that a run records except its values."""
    names = ("spans", "updates", "heard", "hearers", "outcomes", "now_s", "wall_s", "lost_updates")
    return {name: getattr(trace, name) for name in names}


@pytest.mark.parametrize("name", sampled(METHODS, FAMILIES))
def test_every_method_does_the_same_at_the_same_times(name: str) -> None:
    method, model = built(name), build("lenet", learning="none", seed=1)
    job = job_of(method, nodes=nodes_for(method, placed([3, 2])), steps=12, learner=model)
    stand_in = StandIn(Bowl(), model.layout, BATCH, FEWER)
    trace = traced(dataclasses.replace(job, learner=stand_in))
    assert facts(trace) == facts(traced(job))
    assert not np.allclose(trace.weights.numbers, stand_in.initial().numbers), "nothing was learned"


@pytest.mark.parametrize("compression", [TopK(ratio=0.3), PowerSgd(), DctTopK(k=1)], ids=lambda one: one.kind)
def test_a_compressed_average_too(compression: Any) -> None:
    model = build("lenet", learning="none", seed=1)
    job = job_of(SyncSgd(compression=compression), nodes=placed([3, 2]), steps=12, learner=model)
    trace = traced(dataclasses.replace(job, learner=StandIn(Bowl(), model.layout, BATCH, FEWER)))
    assert facts(trace) == facts(traced(job))
    assert np.isfinite(trace.weights.numbers).all() and trace.weights.numbers.all(), "not every number was learned"


@pytest.mark.parametrize("bits", [2, None])
def test_sparse_chunks_too(bits: Any) -> None:
    model, method = build("lenet", learning="none", seed=1), SparseLoCo(period=2, chunk=4, k=2, bits=bits)
    job = job_of(method, nodes=placed([3, 2]), steps=12, learner=model)
    trace = traced(dataclasses.replace(job, learner=StandIn(Bowl(), model.layout, BATCH, FEWER)))
    assert facts(trace) == facts(traced(job))
    assert np.isfinite(trace.weights.numbers).all() and trace.weights.numbers.any(), "nothing was learned"


def test_the_sizes_are_what_times_depend_on() -> None:
    """The test above can fail: the bare problem, with its own few bytes, has other times."""
    model = build("lenet", learning="none", seed=1)
    job = job_of(METHODS["async-sgd"](), 3, steps=12, learner=model)
    bare = dataclasses.replace(job, learner=Bowl())
    assert facts(traced(bare)) != facts(traced(job))


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd", "hbs-sgd", "layerwise-sgd"])
def test_on_a_clusters_graph_too(name: str) -> None:
    scenario = load(
        {
            "name": "small",
            "algorithms": [name],
            "workload": {"model": "resnet50", "learning": "none"},
            "cluster": {"system": "minsky", "nodes": 2, "step_time": {"distribution": "lognorm", "sigma": 0.1}},
            "stop": {"samples": 1024},
        }
    )
    (plan,) = scenario.plans()
    stand_in = StandIn(Bowl(), plan.job.learner.layout, 32, 1)
    assert facts(on_graph(plan, stand_in)) == facts(on_graph(plan, plan.job.learner))


def on_graph(plan: Plan, learner: Learner) -> Trace:
    job = dataclasses.replace(plan.job, learner=learner)
    return simulate_job(job, PlanTiming(plan), ClusterNetwork(plan.cluster), Schedule(math.inf))


@given(st.integers(1, 40), st.integers(1, 200), st.lists(st.integers(0, 200), max_size=6))
def test_parts_of_a_sized_vector_hold_every_number_once(numbers: int, count: int, cuts: list[int]) -> None:
    whole = RepresentedSize(numbers, count).dress(np.arange(float(numbers)))
    edges = sorted({0, count, *(cut for cut in cuts if cut < count)})
    parts = [whole[start:stop] for start, stop in pairwise(edges)]
    null = Null(count)
    assert [part.nbytes for part in parts] == [null[a:b].nbytes for a, b in pairwise(edges)]
    assert np.concatenate([part.numbers for part in parts]).tolist() == whole.numbers.tolist()
    again = join(parts)
    assert again.numbers.tolist() == whole.numbers.tolist() and again.nbytes == length(null) * 4
    for start, part in zip(edges, parts, strict=False):  # a part of a part is the same part of the whole
        assert whole[start:][: len(part)].numbers.tolist() == part.numbers.tolist()


@given(st.integers(1, 40), st.integers(4, 200), st.data())
def test_parts_that_are_not_adjacent_can_be_joined_and_taken_apart(
    numbers: int, count: int, data: st.DataObject
) -> None:
    whole = RepresentedSize(numbers, count).dress(np.arange(float(numbers)))
    first, second, third = sorted(data.draw(st.lists(st.integers(0, count), min_size=3, max_size=3)))
    head, middle, tail = whole[:first], whole[first:second], whole[third:]
    outer = join([head, tail])
    assert len(outer) == first + count - third
    assert outer[:first].numbers.tolist() == head.numbers.tolist()
    assert outer[first:].numbers.tolist() == tail.numbers.tolist()
    again = join([outer[:first], middle, whole[second:third], outer[first:]])
    assert again.numbers.tolist() == whole.numbers.tolist() and again.runs == whole.runs


def test_signs_and_limits_are_those_of_the_numbers() -> None:
    vector = RepresentedSize(3, 300).dress(np.array([-2.0, 0.0, 0.5]))
    assert arrays.sign(vector).numbers.tolist() == [-1.0, 0.0, 1.0]
    assert arrays.clipped(vector, 1.0).numbers.tolist() == [-1.0, 0.0, 0.5]


def test_arithmetic_is_that_of_the_numbers() -> None:
    fit, array = RepresentedSize(3, 300), np.array([1.0, 2.0, 4.0])
    one, two = fit.dress(array), fit.dress(array + 1)
    for made, right in (
        (one + two, 2 * array + 1),
        (two - one, np.ones(3)),
        (np.float64(0.5) * one, array / 2),
        (one / 4, array / 4),
        (0 + one, array),
        (1 - one, 1 - array),
        ((one * one) ** 0.5, array),
    ):
        assert isinstance(made, Sized) and made.numbers.tolist() == right.tolist() and nbytes(made) == 1200
    assert norm(one) == pytest.approx(np.linalg.norm(array))


@given(st.integers(1, 8), st.lists(st.integers(1, 64), min_size=1, max_size=8))
def test_the_parts_of_a_batch_that_is_cut_unevenly_make_the_whole(stand_for: int, counts: list[int]) -> None:
    learner = StandIn(Bowl(), Bowl().layout, BATCH, stand_for)
    together, before, seen = sum(counts), 0, list[Samples]()
    for worker, count in enumerate(counts):
        seen.append(learner.scaled(Samples(worker, len(counts), 0, count, before, together)))
        before += count
    assert all(one.count >= 1 and (one.before or 0) + one.count <= (one.together or 0) for one in seen)
    if all(count * stand_for >= BATCH for count in counts):
        assert sum(one.count for one in seen) == seen[0].together == together * stand_for // BATCH


def test_even_batches_are_the_problems_own() -> None:
    learner = StandIn(Bowl(), Bowl().layout, 32, 2)
    assert learner.scaled(Samples(3, 4, 7, 32)) == Samples(3, 4, 7, 2)
    assert learner.num_samples == 64 * 16


def test_the_stand_in_of_one_worker_learns_what_the_problem_learns() -> None:
    """The values are those of the problem, bit for bit: only sizes were added."""
    bowl = build("quadratic", learning="quadratic", seed=3)
    job = job_of(METHODS["sync-sgd"](), 2, steps=6, learner=bowl)
    stand_in = StandIn(bowl, build("lenet", learning="none", seed=1).layout, BATCH, BATCH)
    assert traced(dataclasses.replace(job, learner=stand_in)).weights.numbers.tolist() == traced(job).weights.tolist()


def test_a_message_with_a_stand_in_has_a_copy_of_its_numbers_and_equal_messages_have_the_same() -> None:
    """A server sends its weights to all workers: they are copied once."""
    weights, snapshots = RepresentedSize(numbers=2, count=1000).dress(np.zeros(2)), Snapshots()
    first, again = snapshots.of(weights), snapshots.of(weights)
    assert isinstance(first, Sized) and first.nbytes == 4000 and first.numbers is again.numbers
    weights.numbers[:] = 1.0
    assert first.numbers.tolist() == [0.0, 0.0] and snapshots.of(weights).numbers.tolist() == [1.0, 1.0]
