"""Every method in every interpreter: it ends where it should, and keeps what it promises."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.delayed import Agd
from paceline.algorithms.guarantees import Guarantee
from paceline.algorithms.job import Job
from paceline.algorithms.method import Method
from paceline.algorithms.periodic import HbsSgd
from paceline.checking.anyorder import AnyOrder
from paceline.records.trace import Trace
from tests.contract.cases import Interpreter
from tests.exact import EasgdApart, SyncEasgd3Apart
from tests.support import job_of

NODES = [[0, 1], [2], [3, 4]]
STEPS = 17  # no multiple of the number of workers, of k1, or of k2
EVERY_METHOD = pytest.mark.parametrize("name", METHODS)


def job_for(name: str, steps: int = STEPS) -> Job:
    return job_of(METHODS[name](), steps=steps, nodes=NODES)


def promising(guarantee: Guarantee) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name, method in METHODS.items() if guarantee in method.guarantees])


def final_weights(trace: Trace, job: Job) -> list[Any]:
    return [trace.states[me.rank].weights.vector for me in job.team if me.role == "worker"]


@EVERY_METHOD
def test_it_runs_to_its_budget(interpreter: Interpreter, name: str) -> None:
    """The keeper's role takes its steps; each applied gradient is one row. AGD leaves its last `delay` in flight."""
    job = job_for(name)
    trace = interpreter(job)
    keepers = [me.rank for me in job.team if me.role == job.method.keeper]
    assert [trace.states[rank].step for rank in keepers] == [STEPS] * len(keepers)
    in_flight = job.method.delay if isinstance(job.method, Agd) else 0
    rows = STEPS if job.method.has_server else (STEPS - in_flight) * job.workers
    assert len(trace.updates) == rows
    assert {row.samples for row in trace.updates} == {job.batch}
    assert set(trace.states) == {me.rank for me in job.team}


@EVERY_METHOD
def test_it_does_nothing_on_an_empty_budget(interpreter: Interpreter, name: str) -> None:
    job = job_for(name, steps=0)
    trace = interpreter(job)
    assert trace.updates == []
    np.testing.assert_array_equal(trace.weights, job.learner.initial())


@EVERY_METHOD
def test_gradients_are_applied_at_most_once_and_never_before_they_are_computed(
    interpreter: Interpreter, name: str
) -> None:
    trace = interpreter(job_for(name))
    times = Counter((row.rank, row.step) for row in trace.updates)
    assert set(times.values()) == {1}
    assert all(row.version_read <= row.version_applied and row.staleness >= 0 for row in trace.updates)


@EVERY_METHOD
def test_the_clock_of_the_trace_never_goes_back(interpreter: Interpreter, name: str) -> None:
    job = job_for(name)
    trace = interpreter(job)
    times = [snapshot.time_s for snapshot in trace.snapshots]
    assert times == sorted(times)
    assert all(0 <= span.start_s <= span.end_s <= trace.wall_s for span in trace.spans)
    assert {span.rank for span in trace.spans if span.activity == "compute"} == set(job.team[0].workers.ranks)


@promising(Guarantee.SYNCHRONOUS)
def test_synchronous_means_staleness_0(interpreter: Interpreter, name: str) -> None:
    assert {row.staleness for row in interpreter(job_for(name)).updates} == {0}


@promising(Guarantee.EXACT_DELAY)
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_an_exact_delay_is_the_staleness_of_every_update(interpreter: Interpreter, name: str, delay: int) -> None:
    method: Any = METHODS[name]
    trace = interpreter(job_of(method(delay=delay), nodes=NODES, steps=STEPS))
    assert {row.staleness for row in trace.updates} == {delay}


@promising(Guarantee.REPLICAS_EQUAL)
def test_equal_replicas_end_equal_bit_for_bit(interpreter: Interpreter, name: str) -> None:
    job = job_for(name)
    first, *others = final_weights(interpreter(job), job)
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize(("steps", "meet"), [(8, True), (16, True), (12, False)])
def test_replicas_that_meet_are_equal_after_an_average_of_everyone(
    interpreter: Interpreter, steps: int, meet: bool
) -> None:
    """Unlike learners drift apart in between (steps = 12), or the test would prove nothing."""
    job = job_of(HbsSgd(k1=2, k2=8), nodes=NODES, steps=steps)
    vectors = final_weights(interpreter(job), job)
    assert (np.ptp(vectors, axis=0) == 0).all() == meet


@promising(Guarantee.ROUND_ROBIN)
def test_round_robin_means_exchanges_in_rank_order(interpreter: Interpreter, name: str) -> None:
    assert [row.rank for row in interpreter(job_for(name)).updates] == [step % 5 for step in range(STEPS)]


@promising(Guarantee.CONSERVES_MESSAGES)
def test_what_is_sent_is_applied_or_dropped(interpreter: Interpreter, name: str) -> None:
    """Every push reaches the server: it is applied, or is one of at most one a worker that a stopped server dropped."""
    job = job_for(name)
    trace = interpreter(job)
    pushes = Counter(span.rank for span in trace.spans if span.activity == "send" and span.rank != job.keeper)
    heard = Counter(source for receiver, source in trace.heard if receiver == job.keeper)
    applied = Counter(row.rank for row in trace.updates)
    assert heard == pushes
    assert all(0 <= pushes[rank] - applied[rank] <= 1 for rank in job.team[0].workers)


@promising(Guarantee.DETERMINISTIC)
def test_deterministic_means_the_same_weights_in_every_interpreter(interpreter: Interpreter, name: str) -> None:
    """Number 57. An interpreter may sum in another order: hence 1e-12 of the weights' scale."""
    job = job_for(name)
    expected = AnyOrder(job).run().weights
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(interpreter(job).weights, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("method", [EasgdApart(rate=0.0, elastic=0.15), SyncEasgd3Apart(rate=0.0, elastic=0.15)])
def test_without_gradients_elastic_averaging_conserves_the_sum(interpreter: Interpreter, method: Method) -> None:
    """Number 10, to 1e-12 of the sum's scale: float64, about a hundred roundings."""
    job = job_of(method, nodes=NODES, steps=STEPS)
    trace = interpreter(job)
    vectors = [me_state.weights.vector for _, me_state in sorted(trace.states.items())]
    before = [method.begin(me, job.learner.initial()).weights.vector for me in job.team]
    if not method.has_server:
        vectors.append(trace.weights)
        before.append(before[0])  # the master's centre begins where it does
    total = np.sum(before, axis=0)
    assert np.abs(vectors[1] - before[1]).min() > 0.1
    np.testing.assert_allclose(np.sum(vectors, axis=0), total, rtol=0, atol=1e-12 * total.max())
