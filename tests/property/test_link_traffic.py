"""Bytes are conserved on links: what ranks send leaves their hosts, and what enters a switch leaves it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from paceline.algorithms import METHODS
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import links_of
from tests.clusters import star
from tests.property.test_simulated import COMPUTE, COUNTS, LATENCY, job_on, times
from tests.support import FixedTiming
from tests.thorough import FAMILIES, examples, sampled

BY_RINGS = ("sync-sgd", "layerwise-sgd", "agd", "k-avg")
"""methods with all-reduces only; the record counts their bytes as those of rings"""
BY_MESSAGES = [name for name, method in METHODS.items() if method.has_server and name != "sync-easgd1"]


@pytest.mark.parametrize("name", [*BY_RINGS, *sampled(BY_MESSAGES, FAMILIES)])
@given(counts=COUNTS, compute=COMPUTE, latency_s=LATENCY)
@examples(10, 100)
def test_what_ranks_send_leaves_them(name: str, counts: list[int], compute: list[float], latency_s: float) -> None:
    job, counts = job_on(counts, name)
    network = ClusterNetwork(star(*counts, latency_s=latency_s), "ring")
    trace = simulate_job(job, FixedTiming(compute=times(compute)), network, Schedule(every=2))
    links = links_of(network)
    assert links is not None
    out, into, inside = Counter[str](), Counter[str](), 0.0
    for source, target, nbytes in zip(links.source, links.target, links.nbytes.tolist(), strict=True):
        if target == "switch":
            out[source] += nbytes
        elif source == "switch":
            into[target] += nbytes
        elif source.startswith("rank"):
            inside += nbytes
    sent = sum(span.bytes for span in trace.spans if span.activity in ("send", "collective"))
    messages = sum(span.activity in ("send", "collective") for span in trace.spans)
    assert sum(out.values()) + inside == pytest.approx(sent, abs=messages)  # the record rounds to whole bytes
    assert sum(out.values()) == pytest.approx(sum(into.values()))
    if set(counts) == {1} and job.method.has_server is False:
        mine = Counter[int]()
        for span in trace.spans:
            mine[span.rank] += span.bytes if span.activity == "collective" else 0
        assert {f"host{rank}": pytest.approx(nbytes, abs=messages) for rank, nbytes in mine.items()} == dict(out)
