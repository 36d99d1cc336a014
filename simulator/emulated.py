"""The network of a real run whose hosts are emulated: the scenario's lines, and what this machine adds to a message.

Rules of this file:

* Rates and latencies are those that the lines were given, stretched as they were. Nothing is fitted to a run that is
  predicted: what this machine adds comes from messages and all-reduces of a few numbers, and from runs without a
  network.
* Between hosts, a collective's step takes its way's latency and what gloo adds to each step. A receiver announces that
  it waits, and a sender waits for that: so a ring goes at the pace of its slowest hop, inside hosts too.
* A message is a rendezvous of gloo's: its way is gone three times, and a rank takes one message at a time.
* A line passes a packet on when it has all of it.
* Inside a host, everything costs what it costs on this machine without a network.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import simpy

from paceline.algorithms.meeting import Collective
from paceline.algorithms.values import Group, Rank
from paceline.scenarios.plan import Plan
from paceline.simulator.clock import after, happen
from paceline.simulator.fabric import GraphFabric, Path
from paceline.simulator.network import ClusterNetwork, MeasuredNetwork
from paceline.topologies.cluster import Cluster
from paceline.topologies.graph import Graph
from paceline.topologies.links import Link
from paceline.topologies.profile import EmulatedProfile
from paceline.topologies.routing import Rule

LEAST_S = 1e-6
"""inside a host, a whole vector takes so much longer than a few numbers, even where two medians say otherwise"""


class Packets(GraphFabric):
    """A graph that is crossed in packets, by messages that somebody has to handle.

    Args:
        cluster: the graph, and who sits where.
        routing: which way messages go.
        packet_bytes: of the largest packet.
        step_s: added to every message between hosts.
    """

    def __init__(self, cluster: Cluster, routing: Rule, packet_bytes: float, step_s: float) -> None:
        super().__init__(cluster, routing)
        self._cluster_of, self._packet_bytes, self._step_s = cluster, packet_bytes, step_s
        ranks = [Rank(rank) for rank in range(cluster.workers)]
        paths = [super(Packets, self).path(one, other, 0) for one, other in pairwise(ranks) if self.apart(one, other)]
        self._longest_s = max((path.latency_s for path in paths), default=0.0)

    def apart(self, source: Rank, to: Rank) -> bool:
        """Whether two ranks are on different hosts."""
        return self._cluster_of.vertex_of(source) != self._cluster_of.vertex_of(to)

    def path(self, source: Rank, to: Rank, nbytes: float, flow: int = 0) -> Path:
        path = super().path(source, to, nbytes, flow)
        if not self.apart(source, to):  # a hop of a collective that has others between hosts, which set its pace
            return replace(path, latency_s=max(path.latency_s, self._longest_s + self._step_s))
        passing = sorted(min(nbytes, self._packet_bytes) / self.capacity[port] for port in path.ports)
        return replace(path, latency_s=path.latency_s + self._step_s + sum(passing[:-1]))


class EmulatedNetwork(ClusterNetwork):
    """What predicts a plan's run on an emulated network.

    Args:
        plan: what is run.
        profile: what this machine adds.
        here: what messages and collectives inside a host cost.
    """

    def __init__(self, plan: Plan, profile: EmulatedProfile, here: MeasuredNetwork) -> None:
        self._here, self._plan, self._profile = here, plan, profile
        routing = plan.scenario.cluster.network.routing
        cluster = emulated_cluster(plan, profile)
        bare = Packets(cluster, routing, profile.packet_bytes, 0.0)
        self._step_s = step_s(plan, profile, ClusterNetwork(cluster, "ring", fabric=bare))
        fabric = Packets(cluster, routing, profile.packet_bytes, self._step_s)
        super().__init__(cluster, "ring", fabric=fabric)
        self._packets = fabric

    def attach(self, env: simpy.Environment) -> None:
        super().attach(env)
        self._here.attach(env)
        self._inboxes = defaultdict[Rank, Inbox](Inbox)

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        """A rendezvous: it is asked for, waits for its turn at the receiver, is answered, and comes.

        In memory it just comes.
        """
        apart = self._packets.apart(source, to)
        if not apart and self._plan.scenario.train.shared_memory:
            return self._here.message(source, to, nbytes)
        arrival = self._env.event()
        way_s = self._packets.path(source, to, 0).latency_s - self._step_s if apart else 0.0
        added_s = max(0.0, self._profile.message_s - self._step_s)

        def arrive(_: simpy.Event) -> None:
            self._inboxes[to].next()
            happen(arrival)

        def take() -> None:
            if apart:
                after(self._env, way_s + added_s, lambda _: then(ClusterNetwork.message(self, source, to, nbytes)))
            else:
                then(self._here.message(source, to, nbytes))

        def then(coming: simpy.Event) -> None:
            assert coming.callbacks is not None, "a network answers with an event that is still to come"
            coming.callbacks.append(arrive)

        after(self._env, way_s, lambda _: self._inboxes[to].add(take))
        return arrival

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        ranks = op.group.ranks
        if self._plan.inside(op.group) or not any(self._packets.apart(ranks[0], rank) for rank in ranks):
            return self._here.collective(op, nbytes, stream)
        return super().collective(op, nbytes, stream)


class Inbox:
    """A rank's posted receive: it takes one message at a time, as they have asked."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False

    def add(self, take: Callable[[], None]) -> None:
        """A message that waits to be taken; whoever takes it says when it is through by `next`."""
        self._waiting.append(take)
        if not self._busy:
            self.next()

    def next(self) -> None:
        """The one before is through."""
        self._busy = bool(self._waiting)
        if self._waiting:
            self._waiting.popleft()()


def emulated_cluster(plan: Plan, profile: EmulatedProfile) -> Cluster:
    """The plan's cluster with the lines that its hosts have: plain, stretched; inside hosts, this machine."""
    cluster, workers = plan.cluster, plan.job.workers
    steps = max(1, 2 * (workers - 1))
    nbytes = int(plan.job.learner.initial().nbytes)
    whole_s = profile.machine.collective_s("AllReduce", workers, nbytes) - profile.local_all_reduce_s
    inside = Link(
        name="inside a host",
        latency_s=profile.local_all_reduce_s / steps,
        bytes_per_s=steps / max(1, workers) * nbytes / max(whole_s, LEAST_S),
        provenance="probed",
        medium="memory",
    )
    nodes = tuple(replace(node, local=inside) for node in cluster.nodes)
    return replace(cluster, nodes=nodes, graph=stretched(cluster.graph, plan.stretch), link_faults=())


def stretched(graph: Graph, factor: float) -> Graph:
    """The graph on a clock that is slower by a factor; its links have one latency and one rate for all sizes."""
    return replace(
        graph,
        connections=tuple(
            replace(
                one,
                link=replace(
                    one.link,
                    latency_s=one.link.latency_s * factor,
                    bytes_per_s=one.link.bytes_per_s / factor,
                    pieces=(),
                    send_s=0.0,
                    receive_s=0.0,
                ),
            )
            for one in graph.connections
        ),
        parts=(),
    )


def step_s(plan: Plan, profile: EmulatedProfile, bare: ClusterNetwork) -> float:
    """What gloo adds to a step of a collective: of the probed all-reduce, what its way does not account for.

    (measured − by the lines alone) / (2 (P − 1))
    """
    everyone: Group = plan.job.team[0].workers
    if len(everyone) < 2:
        return 0.0
    way_s = bare.tuner.predicted_s(bare.tuner.play("AllReduce", everyone, profile.few_bytes))
    return max(0.0, profile.all_reduce_s - way_s) / (2 * (len(everyone) - 1))
