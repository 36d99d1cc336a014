"""Networks: how long messages and collectives take. A cluster's graph, this machine as measured, and none at all.

Rules of this file:

* A network answers with events and knows nothing of programs. Each answer is an event that is still to come.
* A network object serves one run: `attach` gives it that run's clock.
* Messages and collectives share the links of a graph with each other, whoever they belong to.
* Links that fail during a run are `outages`' business; without any, nothing here knows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import simpy

from paceline.algorithms.core.operations import Broadcast, Reduce
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.simulator.collectives.contention import Contention
from paceline.simulator.collectives.plan import CollectivePlan
from paceline.simulator.collectives.protocols import transport_of
from paceline.simulator.collectives.tuning import Tuner
from paceline.simulator.flows.fabric import GraphFabric, Path
from paceline.simulator.flows.flow_engine import Flows, Port
from paceline.simulator.kernel.clock import Clock
from paceline.simulator.kernel.lanes import Steps
from paceline.simulator.kernel.simpy_events import after, come, upon
from paceline.simulator.network.outages import Outages
from paceline.topologies.cluster import Cluster
from paceline.topologies.faults.link_faults import changes
from paceline.topologies.graphs.routing import Rule

Cost = Callable[[str, int, int], float]
"""seconds of a collective, from the operation's name, members and bytes"""
NOWHERE = Path((), 0.0)
"""of a message that has not set out"""


class Network(Protocol):
    """What the interpreter asks of a network."""

    def attach(self, env: simpy.Environment) -> None:
        """Takes the clock of the run that it is to serve."""
        ...

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        """Comes when the message has arrived; the interpreter sees to the order of one pair's messages."""
        ...

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        """Comes when the collective is done; asked once, when its last member has entered.

        `nbytes` is the n of the closed forms. Collectives of one group in one `stream` (a lane's program order) are
        served one after the other.
        """
        ...

    def standing(self) -> list[str]:
        """What keeps messages from going on for ever, for whoever asks why nothing happens any more."""
        ...


@runtime_checkable
class ByMember(Protocol):
    """A network that some collectives' members enter, and leave, one by one."""

    def enter(self, rank: Rank, op: Collective, stream: str) -> simpy.Event | None:
        """Comes when this member may leave; None where all wait for the last one, and `collective` is asked then."""
        ...


class Channels:
    """Serial channels, one for each group and stream: first come, first served."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._free_s: dict[tuple[Group, str], float] = {}

    def serve(self, group: Group, stream: str, seconds: float) -> simpy.Event:
        """Comes when the channel has been free for so many seconds: start = max(now, end of the one before)."""
        now = self._env.now
        end = max(now, self._free_s.get((group, stream), 0.0)) + seconds
        self._free_s[group, stream] = end
        return self._env.timeout(end - now)


class NoCost:
    """Everything arrives at once: for oracles, and for a prediction that leaves out what messages cost."""

    def attach(self, env: simpy.Environment) -> None:
        self._env = env

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        return self._env.event().succeed()

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        return self._env.event().succeed()

    def standing(self) -> list[str]:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemory:
    """What goes through memory that ranks share, and what it costs there.

    Args:
        collective_s: seconds from the last entry, from the operation's name, members and bytes.
        holds: whether a group's collectives are such.
        message_s: seconds of one message, one way, from its bytes.
        joins: whether messages from one rank to another are such.
    """

    collective_s: Cost
    holds: Callable[[Group], bool]
    message_s: Callable[[int], float]
    joins: Callable[[Rank, Rank], bool]


class MeasuredNetwork:
    """A machine whose costs have been measured: nothing is shared, all contention is in the figures already.

    Args:
        collective_s: seconds from the last entry, from the operation's name ("AllReduce", …), members and bytes.
        message_s: seconds of one message, one way, from its bytes.
        memory: what of it goes through memory instead; None if nothing does.
    """

    def __init__(self, collective_s: Cost, message_s: Callable[[int], float], memory: InMemory | None = None) -> None:
        self._collective_s, self._message_s, self._memory = collective_s, message_s, memory

    def attach(self, env: simpy.Environment) -> None:
        self._env, self._channels = env, Channels(env)

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        memory = self._memory
        cost_s = memory.message_s if memory is not None and memory.joins(source, to) else self._message_s
        return self._env.timeout(cost_s(nbytes))

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        memory = self._memory
        cost_s = memory.collective_s if memory is not None and memory.holds(op.group) else self._collective_s
        return self._channels.serve(op.group, stream, cost_s(type(op).__name__, len(op.group), nbytes))

    def standing(self) -> list[str]:
        return []


class ClusterNetwork:
    """A cluster's graph: a message takes α + n β, and more where it shares a link or waits for a processor.

    Messages share links max-min fairly. Of α, the sender's and the receiver's part are work of their processors, which
    serve one message at a time. One pair's messages follow each other, as on one connection.

    Args:
        cluster: the graph, and which ranks sit where.
        allreduce_algorithm: the pattern of an all-reduce; "auto" is whatever is predicted to be quickest.
        routing: which way messages go; "auto" as networks of such a kind do.
        library: whose protocols collectives go by.
        fabric: what messages cross, where that is more than the graph.
    """

    def __init__(
        self,
        cluster: Cluster,
        collective: str = "auto",
        routing: Rule = "auto",
        library: str = "plain",
        fabric: GraphFabric | None = None,
    ) -> None:
        self.fabric = fabric or GraphFabric(cluster, routing)
        self.tuner = Tuner(self.fabric, collective, library, transport_of(cluster.graph))
        self._changes = changes(cluster.graph, cluster.link_faults)

    def attach(self, env: simpy.Environment) -> None:
        self._env, self._flows = env, Flows(env, self.fabric.capacity)
        self._contention = Contention(env, self.fabric, self._carry)
        self._last: dict[tuple[Rank, Rank], Trip] = {}
        """the last message of each pair"""
        self._queues: dict[tuple[Group, str], simpy.Event] = {}
        """the last collective of each group and stream"""
        self._sending, self._receiving = Processors(), Processors()
        self._outages: Outages | None = None
        if self._changes:
            assert isinstance(env, Clock), "links that fail need a clock whose moments keep no run alive"
            self._outages = Outages(env, self._changes, self.fabric, self._flows, self._contention, self.tuner)

    @property
    def carried_bytes(self) -> Mapping[Port, float]:
        """What messages, and collectives that shared ports, have moved through each port so far."""
        return self._flows.carried_bytes

    def _carry(self, source: Rank, to: Rank, nbytes: float, path: Path) -> simpy.Event:
        if self._outages is not None:
            return self._outages.carry(source, to, nbytes, path)
        return self._flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    def standing(self) -> list[str]:
        return [] if self._outages is None else self._outages.standing()

    # --- messages -------------------------------------------------------------------------------------------------

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        before = self._last.get((source, to))
        trip = self._last[source, to] = Trip(source, to, nbytes, self._env.event())
        if before is None or before.through:
            self._set_out(trip)
        else:
            before.follower = trip
        return trip.arrival

    def _set_out(self, trip: Trip) -> None:
        """The message before it is through: the sender's processor takes it, then the ports do."""
        env, trip.path = self._env, self.fabric.path(trip.source, trip.to, trip.nbytes)
        if seconds := trip.path.send_s:
            after(env, self._sending.serve(trip.source, env.now, seconds) - env.now, lambda _: self._move(trip))
        else:
            self._move(trip)

    def _move(self, trip: Trip) -> None:
        path = trip.path
        moving = self._carry(trip.source, trip.to, trip.nbytes, path)
        self._contention.message(moving, path.ports)
        upon(moving, lambda _: self._passed(trip, moving))

    def _passed(self, trip: Trip, moving: simpy.Event) -> None:
        """It has passed the ports: the latency at the end, and the receiver's processor; the next one sets out."""
        path, trip.through = trip.path, True
        self._contention.passed(moving)
        latency_s = max(0.0, path.latency_s - path.send_s - path.receive_s)
        if path.receive_s:
            after(self._env, latency_s, lambda _: self._take(trip))
        else:
            come(trip.arrival, latency_s)
        if trip.follower is not None:
            self._set_out(trip.follower)

    def _take(self, trip: Trip) -> None:
        now = self._env.now
        come(trip.arrival, self._receiving.serve(trip.to, now, trip.path.receive_s) - now)

    # --- collectives ----------------------------------------------------------------------------------------------

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        before = self._queues.get((op.group, stream))
        done = self._queues[op.group, stream] = self._env.process(self._perform(before, op, nbytes))
        return done

    def _perform(self, before: simpy.Event | None, op: Collective, nbytes: int) -> Steps:
        if before is not None and not before.processed:
            yield before
        yield self._contention.start(self.plan(op, nbytes))

    def plan(self, op: Collective, nbytes: int) -> CollectivePlan:
        """What carries out a collective operation."""
        root = op.group.ranks.index(op.root) if isinstance(op, Reduce | Broadcast) else 0
        return self.tuner.plan(type(op).__name__, op.group, nbytes, root)  # type: ignore[arg-type]


@dataclass(eq=False, slots=True)
class Trip:
    """A message on its way."""

    source: Rank
    to: Rank
    nbytes: int
    arrival: simpy.Event
    path: Path = NOWHERE
    through: bool = False
    """whether it has passed the ports, and the next of its pair may set out"""
    follower: Trip | None = None
    """who waits for that"""


class Processors:
    """What each rank does for messages, one at a time, first come first served."""

    def __init__(self) -> None:
        self._free_s: dict[Rank, float] = {}

    def serve(self, rank: Rank, now: float, seconds: float) -> float:
        """The time at which it is done with one that has come now."""
        end = self._free_s[rank] = max(now, self._free_s.get(rank, 0.0)) + seconds
        return end
