"""The record of a probe in real processes: each piece of work is a span with its own activity."""

from __future__ import annotations

from collections import defaultdict

import pytest

from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.probes import STARTED, ProbeCollectives, ProbeMessages
from paceline.backend.calibration.recorded_costs import Cost, costs
from paceline.records.trace import Trace
from paceline.topologies.catalogue.machine_profile import Asked
from tests.backend.jobs import UNLIKE, run_for_real
from tests.support import job_of

pytestmark = pytest.mark.backend

NBYTES = 32
"""of the weights"""


def activities(trace: Trace) -> list[str]:
    """Of worker 0, step by step, in the order in which they began."""
    steps: dict[int, list[str]] = defaultdict(list)
    for span in sorted(trace.spans, key=lambda span: span.start_s):
        if span.rank == 0:
            steps[span.step].append(span.activity)
    return [" ".join(steps[step]) for step in sorted(steps)]


def test_messages_are_probed_at_once_and_behind_a_gradient() -> None:
    job = job_of(ProbeMessages(), 1, steps=6)
    trace = run_for_real(job)
    at_once, behind = "load compute send receive update", "send load compute receive update send"
    assert activities(trace)[:4] == [at_once, behind, at_once, behind]
    found = costs(job, trace, UNLIKE, inside=True)
    assert len(found[Cost("send", 2, NBYTES, inside=True)]) >= 6
    assert 1 <= len(found[Cost("receive", 2, NBYTES, inside=True)]) <= 3  # fewer if the server is late
    assert len(found[Cost("send", 2, 0, inside=True)]) == 3
    assert len(found[Cost("message", 2, NBYTES, inside=True)]) >= 3
    assert {cost.operation for cost, times in found.items() if times} == {
        "load with a server", "late", "rest with a server", "update", "serve", "send", "receive", "message",
        "step", "compute",
    }  # fmt: skip


def test_collectives_are_probed_at_once_and_now_and_then_behind_an_update() -> None:
    asked = (Asked("AllReduce", 2, NBYTES, ((0, 1),)),)
    job = job_of(ProbeCollectives(asked=asked), 2, steps=2 * STARTED)
    trace = run_for_real(job)
    assert activities(trace) == 2 * (STARTED * ["load compute collective update update"])  # all weights, then a few
    assert len(trace.now_s[Rank(0)]) == 2 * 2
    found = costs(job, trace, UNLIKE)
    entered = 2 * (STARTED - 1) - 1  # of each worker; the first of ten steps is left out
    assert len(found[Cost("AllReduce", 2, NBYTES)]) == 2 * entered
    assert len(found[Cost("start", 2, NBYTES)]) == len(found[Cost("lane")]) == 2 * 2
    assert len(found[Cost("rest")]) == 2 * entered
