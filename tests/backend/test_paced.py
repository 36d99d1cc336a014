"""Paced runs last as long as their devices would; others as long as they take."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import find
from paceline.algorithms.errors import TimedOut
from paceline.algorithms.method import Me, Replica
from paceline.algorithms.operations import Cancel, Gradient, Handle, Load, Receive, Start
from paceline.algorithms.program import Program, program
from paceline.algorithms.values import Rank, Step
from paceline.records.trace import Trace
from tests.backend.jobs import UNLIKE, Steps, run_for_real
from tests.contract.cases import Case
from tests.support import Bowl, job_of

pytestmark = pytest.mark.backend

STEPS = 40


def durations(trace: Trace) -> dict[int, list[float]]:
    """Seconds of each rank's gradients; one of several layers lasts from its first start to its last end."""
    spans: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for span in trace.spans:
        if span.activity == "compute":
            spans[span.rank, span.step].append(span)
    lasted: dict[int, list[float]] = defaultdict(list)
    for (rank, _), parts in spans.items():
        lasted[rank].append(max(part.end_s for part in parts) - min(part.start_s for part in parts))
    return lasted


@pytest.mark.parametrize("name", ["async-sgd", "sync-sgd", "layerwise-sgd"])
def test_gradients_last_as_long_as_the_device_would(name: str) -> None:
    steps = STEPS * 4 if name == "async-sgd" else STEPS
    trace = run_for_real(job_of(find(name)(), 4, steps=steps))
    lasted = durations(trace)
    assert set(lasted) == {0, 1, 2, 3}
    for rank, seconds in lasted.items():
        assert min(seconds) >= UNLIKE.seconds[rank]
        assert median(seconds) - UNLIKE.seconds[rank] < 0.5e-3
    assert trace.notes["pace_late_s"] < 1.0


def test_layers_are_handed_out_at_their_shares_of_the_time() -> None:
    """Forward is a third; each of the two layers takes a third of the whole in backward, the last layer first."""
    trace = run_for_real(job_of(find("layerwise-sgd")(), 2, steps=20), pace=Steps((0.012, 0.012)))
    spans = [span for span in trace.spans if span.activity == "compute" and span.rank == 0]
    assert [span.layer for span in spans[:2]] == ["second", "first"]
    second = [span.end_s - span.start_s for span in spans if span.layer == "second"]
    first = [span.end_s - span.start_s for span in spans if span.layer == "first"]
    assert median(second) == pytest.approx(0.008, abs=0.5e-3)
    assert median(first) == pytest.approx(0.004, abs=0.5e-3)


@dataclass(frozen=True)
class Heavy(Bowl):
    """A gradient that takes 5 ms of computing, whatever it is asked to be paced to."""

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        until = time.monotonic() + 0.005
        while time.monotonic() < until:
            pass
        return super().gradient(vector, data)


def test_a_device_that_is_too_fast_for_this_machine_is_noticed() -> None:
    trace = run_for_real(job_of(find("sequential-sgd")(), 1, steps=10, learner=Heavy()), pace=Steps((0.001,)))
    assert min(durations(trace)[0]) >= 0.005
    assert trace.notes["pace_late_s"] >= 0.004


def test_the_true_gradient_is_within_the_paced_time() -> None:
    """5 ms of computing and a pace of 8 ms make 8 ms, not 13."""
    trace = run_for_real(job_of(find("sequential-sgd")(), 1, steps=15, learner=Heavy()), pace=Steps((0.008,)))
    assert median(durations(trace)[0]) == pytest.approx(0.008, abs=0.5e-3)


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd", "layerwise-sgd"])
def test_without_a_pace_a_run_is_as_fast_as_the_machine(name: str) -> None:
    trace = run_for_real(job_of(find(name)(), 2, steps=STEPS), pace=None)
    assert {rank: median(seconds) < 0.002 for rank, seconds in durations(trace).items()} == {0: True, 1: True}
    assert len(trace.updates) >= STEPS


def test_a_pace_changes_no_weights() -> None:
    job = job_of(find("sync-sgd")(), 4, steps=15)
    np.testing.assert_array_equal(run_for_real(job).weights, run_for_real(job, pace=None).weights)


@dataclass(frozen=True, kw_only=True)
class GivesUp(Case):
    """Three gradients of three seconds, given up a fifth of a second after the first of them has begun."""

    @program
    def body(self, me: Me, step: Step, state: Replica) -> Program[list[bool]]:
        batch = yield from Load(step.samples)
        handles: list[Handle[Any]] = []
        for _ in range(3):
            handles.append((yield from Start(Gradient(state.weights, batch))))
        in_time = []
        for handle in (handles[2], *handles[:2]):
            with pytest.raises(TimedOut):
                yield from Receive(timeout_s=0.2)
            in_time.append((yield from Cancel(handle)))
        return in_time


def test_a_cancelled_gradient_frees_its_device_at_once() -> None:
    """The second begins when the first is given up, the third never; what a device did until then is recorded."""
    trace = run_for_real(job_of(GivesUp(), 1, steps=1), pace=Steps((3.0,)))
    assert trace.states[Rank(0)].memory == [True, True, True]
    assert trace.outcomes == {(0, ""): [True, True, True]}
    spans = [span for span in trace.spans if span.activity == "compute"]
    assert 1 <= len(spans) <= 2
    assert all(span.end_s - span.start_s < 1.5 for span in spans)
    assert trace.wall_s < 3.0
    assert trace.notes["pace_late_s"] < 1.0
