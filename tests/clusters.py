"""Small clusters with round numbers, and programs defined inside a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.program import Routine
from paceline.algorithms.core.values import Rank
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.interpreter.loading import Supply
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import MeasuredNetwork, NetworkModel, NoCost
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import ClusterModel, on_a_star
from paceline.topologies.graphs.links import LinkModel
from tests.support import FixedTiming, job_of


def star(
    *workers: int, latency_s: float = 0.0, bytes_per_s: float = 1000.0, local_bytes_per_s: float = 8000.0
) -> ClusterModel:
    """Returns a cluster with this many workers on each node, a NIC of 1000 bytes a second and a local link of 8000."""
    nic = LinkModel(name="nic", latency_s=latency_s, bytes_per_s=bytes_per_s, provenance="a test's own")
    local = LinkModel(name="local", latency_s=latency_s, bytes_per_s=local_bytes_per_s, provenance="a test's own")
    device = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)
    return on_a_star([(device, count) for count in workers], link=nic, local=local)


def joined(first: ClusterModel, second: ClusterModel) -> ClusterModel:
    """Joins two stars into one: every node keeps its link."""
    both = star(*(node.workers for node in (*first.nodes, *second.nodes)))
    links = [connection.link for connection in (*first.graph.connections, *second.graph.connections)]
    wires = [replace(wire, link=link) for wire, link in zip(both.graph.connections, links, strict=True)]
    return replace(both, graph=replace(both.graph, connections=tuple(wires)))


@dataclass(frozen=True, kw_only=True)
class Written(Method):
    """A method with the programs of a test: one for rank 0, one for all others."""

    name = "written"
    staleness_kind = StalenessKind.STEPS
    source = "a test"
    guarantees = frozenset()

    first: Callable[[RankContext, Replica], Routine[Any]]
    others: Callable[[RankContext, Replica], Routine[Any]] | None = None

    def worker(self, me: RankContext, state: Replica) -> Routine[Any]:
        return (self.first if me.rank == 0 or self.others is None else self.others)(me, state)


def played(
    first: Callable[[RankContext, Replica], Routine[Any]],
    others: Callable[[RankContext, Replica], Routine[Any]] | None = None,
    *,
    workers: int = 1,
    timing: Timing | None = None,
    network: NetworkModel | None = None,
    nodes: list[list[int]] | None = None,
    supply: Supply | None = None,
) -> Trace:
    """Simulates programs; the result of a program is its rank's state in the trace."""
    job = job_of(Written(first=first, others=others), workers, nodes=nodes)
    return simulate_job(
        job, timing or FixedTiming(), network or NoCost(), Schedule(every=1), hosts=HostCosts(supply=supply)
    )


def fixed_costs(*, collective_s: float = 0.0, message_s: float = 0.0) -> MeasuredNetwork:
    """Every collective and every message takes the same time."""
    return MeasuredNetwork(lambda *_: collective_s, lambda _: message_s)


def answer(trace: Trace, rank: int = 0) -> Any:
    """Returns the result of a rank's program."""
    return trace.states[Rank(rank)]


def measured_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures `this-machine` with small matrices and vectors, as far as the test goes."""
    monkeypatch.setattr("paceline.topologies.catalogue.device_names.SIDE", 256)
    monkeypatch.setattr("paceline.topologies.catalogue.device_names.COPY_BYTES", 2**22)
