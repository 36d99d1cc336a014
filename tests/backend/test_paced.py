"""Gradients of paced runs never take less time than their devices would.

How much more they take depends on the machine and on its load, which `benchmarks/machine.py` measures. That a device
adds nothing itself is tested with a fake clock in `tests/unit/test_device.py`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import find
from paceline.algorithms.core.errors import TimedOut
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Cancel, Gradient, Handle, Load, Receive, Start
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.records.trace import Trace
from paceline.testing.contract.programs import ContractProgram
from tests.backend.jobs import UNLIKE, Steps, run_for_real
from tests.support import Bowl, job_of
from tests.thorough import sampled

pytestmark = pytest.mark.backend

STEPS = 40


def durations(trace: Trace) -> dict[int, list[float]]:
    """Returns the seconds of each rank's gradients; one with layers lasts from its first start to its last end."""
    spans: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for span in trace.spans:
        if span.activity == "compute":
            spans[span.rank, span.step].append(span)
    lasted: dict[int, list[float]] = defaultdict(list)
    for (rank, _), parts in spans.items():
        lasted[rank].append(max(part.end_s for part in parts) - min(part.start_s for part in parts))
    return lasted


@pytest.mark.parametrize("name", sampled(["async-sgd", "sync-sgd", "layerwise-sgd"], ["async-sgd", "layerwise-sgd"]))
def test_gradients_last_as_long_as_the_device_would(name: str) -> None:
    steps = STEPS * 4 if name == "async-sgd" else STEPS
    trace = run_for_real(job_of(find(name)(), 4, steps=steps))
    lasted = durations(trace)
    assert set(lasted) == {0, 1, 2, 3}
    for rank, seconds in lasted.items():
        assert min(seconds) >= UNLIKE.seconds[rank]
    assert trace.notes["pace_late_s"] > 0.0


@dataclass(frozen=True)
class Heavy(Bowl):
    """A gradient that computes for 5 ms, whatever the requested pace."""

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        until = time.monotonic() + 0.005
        while time.monotonic() < until:
            pass
        return super().gradient(vector, data)


def test_a_device_that_is_too_fast_for_this_machine_is_noticed() -> None:
    trace = run_for_real(job_of(find("sequential-sgd")(), 1, steps=10, learner=Heavy()), pace=Steps((0.001,)))
    assert min(durations(trace)[0]) >= 0.005
    assert trace.notes["pace_late_s"] >= 0.004


@pytest.mark.parametrize("name", sampled(["sync-sgd", "async-sgd", "layerwise-sgd"], ["sync-sgd"]))
def test_without_a_pace_a_run_waits_for_no_device(name: str) -> None:
    """The fastest gradient of a rank, which is a few subtractions, takes less than any paced one."""
    trace = run_for_real(job_of(find(name)(), 2, steps=STEPS), pace=None)
    assert {rank: min(seconds) < 0.002 for rank, seconds in durations(trace).items()} == {0: True, 1: True}
    assert len(trace.updates) >= STEPS
    assert trace.notes["pace_late_s"] == 0.0


def test_a_pace_changes_no_weights() -> None:
    job = job_of(find("sync-sgd")(), 4, steps=15)
    np.testing.assert_array_equal(run_for_real(job).weights, run_for_real(job, pace=None).weights)


LONG_S = 30.0


@dataclass(frozen=True)
class Noted(Bowl):
    """Notes in its process that a gradient was begun."""

    begun: list[bool] = field(default_factory=list)

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        self.begun.append(True)
        return super().gradient(vector, data)


@dataclass(frozen=True, kw_only=True)
class GivesUp(ContractProgram):
    """Three gradients of half a minute, cancelled one after the other once the first of them has begun."""

    learner: Noted = field(default_factory=Noted)

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[bool]]:
        batch = yield from Load(step.samples)
        handles: list[Handle[Any]] = []
        for _ in range(3):
            handles.append((yield from Start(Gradient(state.weights, batch))))
        while not self.learner.begun:
            yield from self.waits()
        in_time = []
        for handle in (handles[2], *handles[:2]):
            yield from self.waits()
            in_time.append((yield from Cancel(handle)))
        return in_time

    @program
    def waits(self) -> Program[None]:
        with pytest.raises(TimedOut):
            yield from Receive(timeout_s=0.2)


def test_a_cancelled_gradient_frees_its_device_at_once() -> None:
    """The second begins when the first is cancelled, the third never; the device time until then is recorded."""
    case = GivesUp()
    trace = run_for_real(job_of(case, 1, steps=1, learner=case.learner), pace=Steps((LONG_S,)))
    assert trace.states[Rank(0)].optimizer_state == [True, True, True]
    assert trace.outcomes == {(0, ""): [True, True, True]}
    spans = [span for span in trace.spans if span.activity == "compute"]
    assert 1 <= len(spans) <= 2
    assert trace.wall_s < LONG_S, "no gradient lasted its time"
