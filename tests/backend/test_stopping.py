"""The end of real runs: all ranks stop at the same step, no operation is left in flight, and the record is complete."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method
from paceline.records.targets import Goal
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.testing.contract.methods import waiting_samples
from tests.backend.jobs import run_for_real
from tests.support import TWO_BY_TWO, FixedTiming, built, job_of, nodes_for
from tests.thorough import sampled

pytestmark = pytest.mark.backend

METHODS_BUILT = {name: built(name) for name in METHODS}
BY_TIME = ["sync-sgd", "async-sgd", "hogwild-sgd", "easgd"]
BY_GOAL = ["layerwise-sgd", "async-sgd", "gossip", "ad-psgd"]
"""methods that end in different ways, each with one of the two reasons, and a server with both"""
ENDLESS = 100_000
BY_SECONDS: dict[str, Any] = {"seconds": 0.3}
SOON = 10
"""steps that a rank may begin after the time: up to two periods of four between its exchanges, and those in flight"""
BY_ACCURACY: dict[str, Any] = {"accuracy": 0.4}
"""the worker's losses have a common minimum of accuracy below 1 for rank 0's own, so this is passed in mid-run"""


def endless(method: Method, **budget: Any) -> Job:
    return job_of(method, nodes=nodes_for(method), steps=ENDLESS, **budget)


def check_whole(job: Job, trace: Trace) -> None:
    """All ranks ended by their programs, and everything that was sent was received."""
    assert set(trace.states) == {me.rank for me in job.team}
    sent = Counter(span.rank for span in trace.spans if span.activity == "send")
    assert Counter(source for _, source in trace.heard) == sent
    if not job.method.independent:  # where the first worker may have stopped before the last one
        assert trace.snapshots[-1].version >= max(update.version_applied for update in trace.updates)
    np.testing.assert_array_equal(trace.snapshots[-1].vector, trace.weights)
    assert trace.wall_s >= max(span.end_s for span in trace.spans)


def check_ends(job: Job, trace: Trace) -> None:
    """All owners of weights stopped at one step, unless they step independently; all gradients are recorded."""
    steps = [trace.states[rank].step for rank in job.owners]
    assert job.method.independent or len(set(steps)) == 1
    assert 0 < max(steps) < ENDLESS
    if job.method.even_steps:
        taken = sum(steps) if job.method.independent else steps[0]
        applied = sum(update.samples for update in trace.updates)
        assert applied + waiting_samples(job, trace) == job.samples_in(taken)


def check_ends_soon(trace: Trace, seconds: float) -> None:
    """After the time a rank begins only the steps that the furthest one had begun; they are counted, not timed."""
    late = {
        rank: {span.step for span in trace.spans if span.rank == rank and span.start_s > seconds} for rank in range(4)
    }
    assert max(map(len, late.values())) <= SOON, late


@cache
def ended_by_seconds(name: str) -> tuple[Job, Trace]:
    """Returns a method's run that its seconds have ended; one for all tests."""
    job = endless(METHODS_BUILT[name], **BY_SECONDS)
    return job, run_for_real(job)


@pytest.mark.parametrize("name", sampled(METHODS_BUILT, BY_TIME))
def test_seconds_end_everybody_at_the_same_step(name: str) -> None:
    job, trace = ended_by_seconds(name)
    assert trace.stop_reason == "seconds"
    check_ends(job, trace)
    check_whole(job, trace)
    assert trace.wall_s >= BY_SECONDS["seconds"]
    check_ends_soon(trace, BY_SECONDS["seconds"])


@pytest.mark.parametrize("name", sampled(METHODS_BUILT, BY_GOAL))
def test_an_accuracy_ends_everybody_at_the_same_step(name: str) -> None:
    slow = {"learning_rate": 0.05}  # at the default rate it reaches the target in less than ten steps, and ends at once
    job = endless(replace(METHODS_BUILT[name], **slow), **BY_ACCURACY)  # all have a rate
    trace = run_for_real(job)
    check_ends(job, trace)
    check_whole(job, trace)
    accuracies = [job.learner.evaluate(shot.vector).accuracy or 0.0 for shot in trace.snapshots]
    assert accuracies[0] < BY_ACCURACY["accuracy"] <= max(accuracies)


def test_a_server_says_goodbye_to_every_worker() -> None:
    """The last message to each worker is from the server; no worker is left waiting for it."""
    job, trace = ended_by_seconds("async-sgd")
    replies = Counter(receiver for receiver, _ in trace.heard if receiver != job.weights_owner)
    pushes = Counter(source for receiver, source in trace.heard if receiver == job.weights_owner)
    applied = Counter(update.rank for update in trace.updates)
    assert replies == pushes
    for rank in job.team[0].workers.ranks:
        assert pushes[rank] == applied[rank] + 1


def test_a_budget_of_seconds_that_is_spent_already_trains_nothing() -> None:
    trace = run_for_real(endless(METHODS["sync-sgd"](), seconds=0.0))
    assert trace.updates == []
    assert len(trace.snapshots) == 1


def test_a_loss_and_a_divergence_end_a_run_by_the_rules_of_a_simulated_one() -> None:
    """The weights of sync-sgd are the same in both; the launcher gets an evaluation a moment after it was due."""
    cases: list[tuple[Any, Any, str]] = [
        ({"learning_rate": 0.05}, {"loss": 6.0}, "loss"),
        ({"learning_rate": 2.5}, {"divergence": True}, "divergence"),
    ]
    for rate, budget, why in cases:
        job = endless(replace(METHODS_BUILT["sync-sgd"], **rate), **budget)
        real, simulated = run_for_real(job), simulate_job(job, FixedTiming(), NoCost(), Schedule(1))
        assert real.stop_reason == simulated.stop_reason == why
        check_whole(job, real)
        shots = simulated.snapshots
        assert 2 < len(shots) <= len(real.snapshots) < ENDLESS
        for one, other in zip(shots, real.snapshots, strict=False):
            np.testing.assert_allclose(one.vector, other.vector, rtol=1e-12)
        assert Goal(job.budget).reached(job.learner.evaluate(real.snapshots[0].vector)) is None


def test_a_run_says_that_its_budget_was_spent() -> None:
    assert run_for_real(job_of(METHODS["async-sgd"](), steps=12, divergence=True)).stop_reason == "samples"


def test_an_accuracy_that_is_never_reached_does_not_end_the_run() -> None:
    trace = run_for_real(job_of(METHODS["sync-sgd"](), nodes=TWO_BY_TWO, steps=12, accuracy=2.0))
    assert len(trace.updates) == 12 * 4
