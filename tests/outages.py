"""Clusters whose links fail, and the end times of requests on them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from paceline.algorithms.core.operations import AllReduce
from paceline.algorithms.core.values import Group, Null, Rank
from paceline.simulator.collectives.execution import EventDriver
from paceline.simulator.kernel.clock import VirtualClock
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import ClusterModel, Node
from paceline.topologies.faults.link_faults import LinkFaultModel
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.links import LinkModel
from tests.traffic import CountedNetwork

WIRE = LinkModel(name="wire", latency_s=0.0, bytes_per_s=1000.0, provenance="a test's own")


def on(graph: Graph, *faults: LinkFaultModel, ranks: int | None = None) -> ClusterModel:
    """A rank on each host of a graph."""
    device = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)
    hosts = graph.of_kind("host")[:ranks]
    nodes = tuple(Node(name=host, device=device, seats=(host,), host=host, intra_node_link=WIRE) for host in hosts)
    return ClusterModel(nodes=nodes, graph=graph, link_faults=faults)


def fault(one: str, other: str, at_s: float, lasts_s: float = inf, rate: float = 0.0) -> LinkFaultModel:
    return LinkFaultModel(between=(one, other), at_s=at_s, lasts_s=lasts_s, rate=rate)


def ends(
    cluster: ClusterModel,
    messages: Sequence[tuple[float, int, int, int]] = (),
    collectives: Sequence[tuple[float, int, *tuple[int, ...]]] = (),
    *,
    carried_out: bool = False,
) -> list[float]:
    """Returns when each message (begin, source, to, bytes), then each ring all-reduce (begin, bytes, members) is over.

    Without members, an all-reduce is among all.
    """
    return played(cluster, messages, collectives, carried_out=carried_out)[0]


def played(
    cluster: ClusterModel,
    messages: Sequence[tuple[float, int, int, int]] = (),
    collectives: Sequence[tuple[float, int, *tuple[int, ...]]] = (),
    *,
    carried_out: bool = False,
) -> tuple[list[float], CountedNetwork]:
    """Returns the result of `ends`, and the network."""
    network, clock = CountedNetwork(cluster, "ring"), VirtualClock()
    network.attach(clock)
    if carried_out:
        network._contention.start = lambda plan: EventDriver(clock, network._carry, plan).done  # type: ignore[method-assign]
    times = [inf] * (len(messages) + len(collectives))

    def begin(at: int) -> None:
        if at < len(messages):
            _, source, to, nbytes = messages[at]
            over = network.message(Rank(source), Rank(to), nbytes)
        else:
            _, nbytes, *members = collectives[at - len(messages)]
            group = Group(tuple(map(Rank, members or range(cluster.workers))))
            over = network.collective(AllReduce(value=Null(nbytes), group=group, key=""), nbytes, str(at))
        assert over.callbacks is not None
        over.callbacks.append(lambda _: times.__setitem__(at, clock.now))

    for at, (begin_s, *_) in enumerate([*messages, *collectives]):
        timer = clock.timeout(begin_s, at)
        assert timer.callbacks is not None
        timer.callbacks.append(lambda timer: begin(timer.value))
    clock.run()
    return times, network
