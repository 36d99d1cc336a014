"""Complete traces with their times, compared literally: `pytest tests/golden --update-golden` writes them anew.

Four workers of unequal speed on two nodes, a star of 1000 bytes a second, four steps of each method, or eight of its
server, on a bowl of four numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.algorithms import METHODS
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork
from tests.clusters import star
from tests.support import FixedTiming, built, job_of, nodes_for

HERE = Path(__file__).parent
TIMING = FixedTiming(compute=lambda rank, step: 1.0 + 0.25 * rank + 0.125 * step, work=0.0625, load=0.03125)


def written(trace: Trace) -> str:
    """Returns a trace as text: spans, updates, snapshots, one per line, in the order in which they were recorded."""
    lines = ["rank lane activity layer step start_s end_s bytes ready_s key"]
    for s in trace.spans:
        seconds = [f"{time_s:.6f}" for time_s in (s.start_s, s.end_s)]
        ready = "-" if s.ready_s is None else f"{s.ready_s:.6f}"
        fields = [s.rank, s.lane, s.activity, s.layer or "-", s.step, *seconds, s.bytes, ready, s.key or "-"]
        lines.append(" ".join(map(str, fields)))
    lines.append("time_s rank step version_read version_applied staleness samples")
    for u in trace.updates:
        fields = [f"{u.time_s:.6f}", u.rank, u.step, u.version_read, u.version_applied, u.staleness, u.samples]
        lines.append(" ".join(map(str, fields)))
    lines.append("time_s version samples weights")
    for shot in trace.snapshots:
        numbers = ",".join(f"{number:.9f}" for number in shot.vector)
        lines.append(f"{shot.time_s:.6f} {shot.version} {shot.samples} {numbers}")
    return "\n".join([*lines, f"wall_s {trace.wall_s:.6f}", ""])


@pytest.mark.parametrize("name", METHODS)
def test_the_trace_is_as_it_was(name: str, request: pytest.FixtureRequest) -> None:
    method = built(name)
    nodes = nodes_for(method)
    job = job_of(method, nodes=nodes, steps=8 if method.has_server or method.independent else 4)
    trace = simulate_job(job, TIMING, ClusterNetwork(star(*map(len, nodes), latency_s=0.015625)), Schedule(1))
    golden = HERE / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(written(trace))
    assert written(trace) == golden.read_text()
