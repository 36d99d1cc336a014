"""Clusters whose links fail or vary over time, and the end times of requests on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import inf

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import AllReduce, Receive, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Group, Null, Rank
from paceline.simulator.collectives.execution import EventDriver
from paceline.simulator.kernel.clock import VirtualClock
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import ClusterModel, Node
from paceline.topologies.faults.link_faults import LinkFaultModel
from paceline.topologies.graphs.graph import Ends, Graph
from paceline.topologies.graphs.links import LinkModel, VariationModel
from tests.clusters import star
from tests.traffic import CountedNetwork

WIRE = LinkModel(name="wire", latency_s=0.0, bytes_per_s=1000.0, provenance="a test's own")


@program
def sender(me: RankContext, state: Replica) -> Program[int]:
    """Sends 2000 bytes to rank 1."""
    yield from Send(value=Null(500), to=Rank(1))
    return 0


@program
def receiver(me: RankContext, state: Replica) -> Program[int]:
    """Returns the size of a message from rank 0."""
    return int((yield from Receive(Rank(0))).value.nbytes)


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


# --- links that vary --------------------------------------------------------------------------------------------------


RATE = 1000.0
"""mean bytes per second of the links"""


def varying_star(*hosts: int, latency_s: float = 0.0, **variations: VariationModel) -> ClusterModel:
    """Returns a star of hosts with these numbers of workers, of which the named links vary: host0=Variation(cv=0.3)."""
    cluster = star(*hosts, latency_s=latency_s, bytes_per_s=RATE)
    return varied(cluster, {("switch", host): variation for host, variation in variations.items()})


def varied(cluster: ClusterModel, variations: Mapping[Ends, VariationModel]) -> ClusterModel:
    wires = (
        replace(wire, link=replace(wire.link, variation=variations.get(wire.ends)))
        for wire in cluster.graph.connections
    )
    return replace(cluster, graph=replace(cluster.graph, connections=tuple(wires)))


def end_of(nbytes: float, *variations: VariationModel | None, names: tuple[str, ...], seed: int = 0) -> float:
    """Returns when so many bytes have passed links one after the other, by integrating the smallest of their factors.

    The variations have the same interval.
    """
    paths = [
        variation.factors(seed, name)
        for variation, name in zip(variations, names, strict=True)
        if variation is not None
    ]
    every_s = next(variation.every_s for variation in variations if variation is not None)
    for number in count():
        rate = RATE * min(1.0 if None in variations else float("inf"), *(next(path) for path in paths))
        if nbytes <= rate * every_s:
            return number * every_s + nbytes / rate
        nbytes -= rate * every_s
    raise AssertionError
