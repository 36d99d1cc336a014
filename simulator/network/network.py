"""Networks compute how long messages and collectives take: a cluster's graph, a measured machine, or no cost at all.

* A network returns SimPy events that have not been processed yet. It does not know programs.
* `attach` gives a network the clock of a run. A cluster's network may serve several runs one after the other, and keeps
  the plans of their collectives. If links fail or vary over time, it serves one run, because links change during it.
* All messages and collectives of a run share the links of a graph.
* `outages` handles links that fail during a run, `varying_links` those whose bandwidth varies; each is used only if
  there are such links.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol, runtime_checkable

import numpy as np
import simpy
from numpy.typing import NDArray

from paceline.algorithms.core.operations import Broadcast, Reduce
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.simulator.collectives.contention import Alone, Contention, LinkTraffic, alone_on, bytes_of_plans
from paceline.simulator.collectives.patterns import Kind
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.collectives.tuning import Tuner, transport_of
from paceline.simulator.flows.fabric import GraphFabric, host_buffers
from paceline.simulator.flows.flow_engine import Flows, Port
from paceline.simulator.flows.path_tables import Path
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.lanes import Steps
from paceline.simulator.kernel.simpy_events import EagerProcess, after, come, upon
from paceline.simulator.network.outages import Outages, VaryingLinks
from paceline.topologies.catalogue.libraries import LATEST, LIBRARIES
from paceline.topologies.cluster import ClusterModel
from paceline.topologies.faults.link_faults import changes
from paceline.topologies.graphs.routing import Rule

Cost = Callable[[str, int, int], float]
"""seconds of a collective, given the operation's name, the number of members and the bytes"""


NOWHERE = Path((), 0.0)
"""the path of a message that has not started"""


class NetworkModel(Protocol):
    """The interface between the interpreter and a network."""

    def attach(self, env: simpy.Environment) -> None:
        """Sets the clock of the run."""
        ...

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        """Sends a message. The interpreter ensures that messages of one pair are delivered in order.

        Args:
            source: the sender.
            to: the receiver.
            nbytes: bytes of the message.

        Returns:
            An event for the arrival.
        """
        ...

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        """Starts a collective; called once, when its last member has entered.

        Args:
            op: the operation of one member.
            nbytes: the n of the closed forms.
            stream: the program order that it belongs to. Collectives of one group and stream are served one after the
                other.

        Returns:
            An event for the time when it is done.
        """
        ...

    def standing(self) -> list[str]:
        """Returns descriptions of what blocks messages for ever, for the message of a deadlock."""
        ...


@runtime_checkable
class ByMember(Protocol):
    """A network in which the members of some collectives enter and leave one by one."""

    def enter(self, rank: Rank, op: Collective, stream: str) -> simpy.Event | None:
        """Lets a member enter a collective.

        Args:
            rank: the member.
            op: its operation.
            stream: the program order that it belongs to.

        Returns:
            An event for the time when this member may leave; None if all wait for the last member and `collective` is
            called then.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A collective of several groups at once, each on links that nothing else uses.

    Args:
        seconds: the time that it takes in each group; infinity while a link is broken.
        ports: the ports that it uses in each group.
        by_port: returns the bytes that each port carries if every group performs it once.
        from_entry: whether its end is computed as a delay from its last entry, which rounds in another way.
    """

    seconds: NDArray[np.float64]
    ports: Sequence[Collection[Port]] = ()
    by_port: Callable[[], Mapping[Port, float]] = dict
    from_entry: bool = False


@runtime_checkable
class PricesAhead(Protocol):
    """A network that states how long collectives take if nothing disturbs them, so that they need not be simulated."""

    def price_ahead(self, traffic: LinkTraffic) -> str | None:
        """Begins a run whose collectives are not simulated.

        Args:
            traffic: counts what the links carry.

        Returns:
            Why this is impossible, as the end of a sentence; None if it is possible.
        """
        ...

    def priced(self, kind: Kind, groups: Sequence[Group], nbytes: int, roots: Sequence[int]) -> Priced:
        """Returns what a collective takes.

        Args:
            kind: the name of the operation.
            groups: the members of each group.
            nbytes: the n of the closed forms.
            roots: the place of the root in each group; 0 without roots.
        """
        ...


class Served:
    """Servers that serve one request at a time, first come, first served: ranks' processors, or serial channels."""

    def __init__(self) -> None:
        self._free_s: dict[Hashable, float] = {}

    def end_s(self, server: Hashable, now: float, seconds: float) -> float:
        """Adds a request, and returns when it has been served.

        Args:
            server: the server, such as a rank or a group with its stream.
            now: the present time.
            seconds: how long the request occupies the server.
        """
        end_s = self._free_s[server] = max(now, self._free_s.get(server, 0.0)) + seconds
        return end_s


class NoCost:
    """A network on which everything arrives at once: for tests, and for predictions without communication costs."""

    def attach(self, env: simpy.Environment) -> None:
        self._env = env

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        return self._env.event().succeed()

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        return self._env.event().succeed()

    def price_ahead(self, traffic: LinkTraffic) -> str | None:
        return None

    def priced(self, kind: Kind, groups: Sequence[Group], nbytes: int, roots: Sequence[int]) -> Priced:
        return Priced(np.zeros(len(groups)))

    def standing(self) -> list[str]:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemoryCosts:
    """The costs of communication through memory that ranks share.

    Args:
        collective_s: seconds of a collective from the last entry, given the operation's name, members and bytes.
        holds: returns whether the collectives of a group use shared memory.
        message_s: seconds of one message, one way, given its bytes.
        joins: returns whether messages from one rank to another use shared memory.
    """

    collective_s: Cost
    holds: Callable[[Group], bool]
    message_s: Callable[[int], float]
    joins: Callable[[Rank, Rank], bool]


class MeasuredNetwork:
    """A machine whose costs were measured. No links are shared, because the measured costs include contention.

    Args:
        collective_s: seconds of a collective from the last entry, given the operation's name ("AllReduce", …), members
            and bytes.
        message_s: seconds of one message, one way, given its bytes.
        memory: the costs of communication through shared memory; None if there is none.
    """

    def __init__(
        self, collective_s: Cost, message_s: Callable[[int], float], memory: InMemoryCosts | None = None
    ) -> None:
        self._collective_s, self._message_s, self._memory = collective_s, message_s, memory

    def attach(self, env: simpy.Environment) -> None:
        self._env, self._channels = env, Served()

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        return self._env.timeout(self.message_seconds(source, to, nbytes))

    def message_seconds(self, source: Rank, to: Rank, nbytes: int) -> float:
        """Returns the seconds of a message; arguments as in `message`."""
        memory = self._memory
        cost_s = memory.message_s if memory is not None and memory.joins(source, to) else self._message_s
        return cost_s(nbytes)

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        now, seconds = self._env.now, self.collective_cost_s(type(op).__name__, op.group, nbytes)
        return self._env.timeout(self._channels.end_s((op.group, stream), now, seconds) - now)

    def collective_cost_s(self, kind: str, group: Group, nbytes: int) -> float:
        """Returns the seconds of a collective from its last entry.

        Args:
            kind: the name of the operation.
            group: its members.
            nbytes: the n of the closed forms.
        """
        memory = self._memory
        cost_s = memory.collective_s if memory is not None and memory.holds(group) else self._collective_s
        return cost_s(kind, len(group), nbytes)

    def price_ahead(self, traffic: LinkTraffic) -> str | None:
        return None

    def priced(self, kind: Kind, groups: Sequence[Group], nbytes: int, roots: Sequence[int]) -> Priced:
        seconds = [self.collective_cost_s(kind, group, nbytes) for group in groups]
        return Priced(np.array(seconds, dtype=np.float64), from_entry=True)

    def standing(self) -> list[str]:
        return []


class ClusterNetwork:
    """A cluster's graph: a message takes α + n β, and longer if it shares a link or waits for a processor.

    Messages share links max-min fairly. The sender's and the receiver's part of α are work of their processors, which
    process one message at a time. Messages of one pair of ranks follow each other, as on one connection.

    Args:
        cluster: the graph, and the placement of ranks.
        collective: the pattern of an all-reduce; with "auto", the fastest predicted one.
        routing: the rule that chooses paths; with "auto", the rule that is usual for this kind of graph.
        library: the library whose protocols collectives use.
        fabric: ports and paths, if they are not simply those of the graph.
        seed: the seed of the run, from which links whose bandwidth varies draw it.
        version: (major, minor) of the library; the latest by default.
    """

    def __init__(
        self,
        cluster: ClusterModel,
        collective: str = "auto",
        routing: Rule = "auto",
        library: str = "plain",
        fabric: GraphFabric | None = None,
        seed: int = 0,
        version: tuple[int, int] = LATEST,
    ) -> None:
        transport = transport_of(cluster.graph)
        buffers = host_buffers(cluster, LIBRARIES[library], transport) if library in LIBRARIES else None
        self.fabric = fabric or GraphFabric(cluster, routing, buffers=buffers)
        self.tuner = Tuner(self.fabric, collective, library, transport, version)
        self.cluster, self._seed = cluster, seed
        self._changes = changes(cluster.graph, cluster.link_faults)
        self._alone: dict[CollectivePlan, Alone] = {}
        self.traffic: LinkTraffic | None = None
        """what the links carry in the present run; None before a run, and if its interpreter does not count it"""

    def attach(self, env: simpy.Environment) -> None:
        varying = VaryingLinks(self.fabric, self.cluster.graph.varying, self._seed)
        self._env, self._flows = env, Flows(env, self.fabric.capacity)
        traffic = self.traffic = LinkTraffic()
        self._on_route = traffic.routes
        changing = bool(self._changes or self.cluster.graph.varying)
        take_back = None if changing else self._take_back
        self._contention = Contention(env, self.fabric, self._carry, self._alone, traffic, take_back)
        self._last: dict[tuple[Rank, Rank], PendingMessage] = {}
        """the last message of each pair"""
        self._queues: dict[tuple[Group, str], simpy.Event] = {}
        """the last collective of each group and stream"""
        self._sending, self._receiving = Served(), Served()
        self._outages: Outages | None = None
        if self._changes:
            assert isinstance(env, VirtualClock), "link faults need a clock with background callbacks"
            self._outages = Outages(env, self._changes, self.fabric, self._flows, self._contention, self.tuner, traffic)
        if self.cluster.graph.varying:
            assert isinstance(env, VirtualClock), "links that vary need a clock with background callbacks"
            varying.run(env, self._flows, self._contention, self._awaits_repair)

    def _carry(self, source: Rank, to: Rank, nbytes: float, path: Path) -> simpy.Event:
        self._on_route[path.ports] += nbytes
        if self._outages is not None:
            return self._outages.carry(source, to, nbytes, path)
        return self._flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    def _take_back(self, transfer: simpy.Event) -> float:
        """Ends a transfer that has begun, whatever is left of it; returns how much that is."""
        if transfer.triggered:
            return 0.0
        left = self._flows.remaining(transfer)
        self._on_route[self._flows.route(transfer)] -= left
        self._flows.cancel(transfer)
        return left

    def standing(self) -> list[str]:
        return [] if self._outages is None else self._outages.standing()

    def _awaits_repair(self) -> bool:
        return self._outages is not None and self._outages.awaited()

    # --- memory ---------------------------------------------------------------------------------------------------

    def copy(
        self, ports: tuple[Port, ...], nbytes: float, limit_bytes_per_s: float = inf, *, slows_collectives: bool = True
    ) -> simpy.Event:
        """Begins a flow that is not a message, such as an access to a node's memory.

        Args:
            ports: the ports that it passes.
            nbytes: its bytes.
            limit_bytes_per_s: its largest rate.
            slows_collectives: whether collectives on these ports are simulated message by message meanwhile.

        Returns:
            An event for its end.
        """
        self._on_route[ports] += nbytes
        flow = self._flows.begin(ports, nbytes, limit_bytes_per_s)
        if slows_collectives:
            self._contention.message(flow, ports)
            upon(flow, self._contention.passed)
        return flow

    def left(self, flow: simpy.Event) -> float:
        """Returns the bytes that are left of a flow that `copy` has begun."""
        return self._flows.remaining(flow)

    def cancel_copy(self, flow: simpy.Event) -> None:
        """Ends a flow that `copy` has begun, whatever is left of it."""
        if not flow.triggered:
            self._take_back(flow)
            self._contention.passed(flow)

    # --- messages -------------------------------------------------------------------------------------------------

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        before = self._last.get((source, to))
        pending = self._last[source, to] = PendingMessage(source, to, nbytes, self._env.event())
        if before is None or before.through:
            self._set_out(pending)
        else:
            before.follower = pending
        return pending.arrival

    def _set_out(self, pending: PendingMessage) -> None:
        """Starts a message, after the one before it: first the sender's processor, then the ports."""
        env, pending.path = self._env, self.fabric.path(pending.source, pending.to, pending.nbytes)
        if seconds := pending.path.send_s:
            after(env, self._sending.end_s(pending.source, env.now, seconds) - env.now, lambda _: self._move(pending))
        else:
            self._move(pending)

    def _move(self, pending: PendingMessage) -> None:
        path = pending.path
        moving = self._carry(pending.source, pending.to, pending.nbytes, path)
        self._contention.message(moving, path.ports)
        upon(moving, lambda _: self._passed(pending, moving))

    def _passed(self, pending: PendingMessage, moving: simpy.Event) -> None:
        """Processes the end of a transfer: the latency and the receiver's processor follow; the next message starts."""
        path, pending.through = pending.path, True
        self._contention.passed(moving)
        latency_s = max(0.0, path.latency_s - path.send_s - path.receive_s)
        if path.receive_s:
            after(self._env, latency_s, lambda _: self._take(pending))
        else:
            come(pending.arrival, latency_s)
        if pending.follower is not None:
            self._set_out(pending.follower)

    def _take(self, pending: PendingMessage) -> None:
        now = self._env.now
        come(pending.arrival, self._receiving.end_s(pending.to, now, pending.path.receive_s) - now)

    # --- collectives ----------------------------------------------------------------------------------------------

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        before = self._queues.get((op.group, stream))
        done = self._queues[op.group, stream] = EagerProcess(self._env, self._perform(before, op, nbytes))
        return done

    def _perform(self, before: simpy.Event | None, op: Collective, nbytes: int) -> Steps:
        if before is not None and not before.processed:
            yield before
        yield self._contention.start(self.plan(op, nbytes))

    def alone(self, kind: Kind, group: Group, nbytes: int, root: int) -> Alone:
        """Returns the ports of a collective, and the seconds that it takes if nothing else uses them.

        Args:
            kind: the name of the operation.
            group: its members.
            nbytes: the n of the closed forms.
            root: the place of the root in the group.
        """
        plan = self.tuner.plan(kind, group, nbytes, root)
        if plan not in self._alone:
            self._alone[plan] = alone_on(plan, self.fabric)
        return self._alone[plan]

    def price_ahead(self, traffic: LinkTraffic) -> str | None:
        if self.cluster.link_faults:
            return "links fail during it"
        if self.cluster.graph.varying:
            return "the bandwidths of links vary during it"
        self.traffic = traffic
        return None

    def priced(self, kind: Kind, groups: Sequence[Group], nbytes: int, roots: Sequence[int]) -> Priced:
        """Returns what a collective takes; of groups with alike paths, only the first is planned."""
        alike = self.fabric.alike([group.ranks for group in groups]) if len(groups) > 1 else None
        seconds, ports, counted = [], [], []
        for number, (group, root) in enumerate(zip(groups, roots, strict=True)):
            like = number if alike is None else alike.like[number]
            if roots[like] != root:
                like = number
            used, alone_s = self.alone(kind, groups[like], nbytes, root)
            names = None
            if alike is not None and like != number:
                self.tuner.copy_choice(kind, groups[like], group, nbytes)
                used, names = alike.renamed(number, used), partial(alike.names, number)
            seconds.append(alone_s)
            ports.append(used)
            counted.append((self.tuner.plan(kind, groups[like], nbytes, root), names))
        return Priced(np.array(seconds), ports, lambda: bytes_of_plans(counted))

    def plan(self, op: Collective, nbytes: int) -> CollectivePlan:
        """Returns the plan of a collective operation, given the n of the closed forms."""
        root = op.group.ranks.index(op.root) if isinstance(op, Reduce | Broadcast) else 0
        return self.tuner.plan(type(op).__name__, op.group, nbytes, root)  # type: ignore[arg-type]


@dataclass(eq=False, slots=True)
class PendingMessage:
    """A message in flight, or waiting for the one before it."""

    source: Rank
    to: Rank
    nbytes: int
    arrival: simpy.Event
    path: Path = NOWHERE
    through: bool = False
    """whether it has passed the ports, so that the next message of its pair may start"""
    follower: PendingMessage | None = None
    """the next message of its pair"""
