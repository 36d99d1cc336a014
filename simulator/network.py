"""Networks: how long messages and collectives take. An α–β star, this machine as measured, and none at all.

Rules of this file:

* A network answers with events and knows nothing of programs. Each answer is an event that is still to come.
* A network object serves one run: `attach` gives it that run's clock.
* A star shares its ports fairly among messages. Its collectives take their closed forms, as if they were alone; that
  they share links with messages and with each other is the network engine's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Literal, Protocol

import simpy

from paceline.algorithms.errors import InputError
from paceline.algorithms.meeting import Collective
from paceline.algorithms.operations import AllGather, AllReduce, Barrier
from paceline.algorithms.values import Group, Rank
from paceline.simulator.fabric import GraphFabric, Path
from paceline.simulator.flows import Flows, Port
from paceline.simulator.strands import Steps
from paceline.topologies import collectives as forms
from paceline.topologies.cluster import Cluster
from paceline.topologies.routing import Rule

AllReduceName = Literal["ring", "recursive-doubling", "halving-doubling", "binomial-tree"]
CollectiveName = Literal["auto", AllReduceName]
ALL_REDUCE: dict[AllReduceName, Callable[[int, float, float, float], float]] = {
    "ring": forms.ring_all_reduce_s,
    "recursive-doubling": forms.recursive_doubling_s,
    "halving-doubling": forms.halving_doubling_s,
    "binomial-tree": forms.tree_all_reduce_s,
}


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


class MeasuredNetwork:
    """A machine whose costs have been measured: nothing is shared, all contention is in the figures already.

    Args:
        collective_s: seconds from the last entry, from the operation's name ("AllReduce", …), members and bytes.
        message_s: seconds of one message, one way, from its bytes.
    """

    def __init__(self, collective_s: Callable[[str, int, int], float], message_s: Callable[[int], float]) -> None:
        self._collective_s, self._message_s = collective_s, message_s

    def attach(self, env: simpy.Environment) -> None:
        self._env, self._channels = env, Channels(env)

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        return self._env.timeout(self._message_s(nbytes))

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        return self._channels.serve(op.group, stream, self._collective_s(type(op).__name__, len(op.group), nbytes))


class ClusterNetwork:
    """A cluster's graph: a message takes α + n β, and more where it shares a link or waits for a processor.

    Messages share links max-min fairly. Of α, the sender's and the receiver's part are work of their processors, which
    serve one message at a time. One pair's messages follow each other, as on one connection.

    Args:
        cluster: the graph, and which ranks sit where.
        collective: how all-reduce is done; "auto" is whatever is predicted to be quickest.
        routing: which way messages go.
    """

    def __init__(self, cluster: Cluster, collective: CollectiveName = "auto", routing: Rule = "shortest") -> None:
        if collective != "auto" and collective not in ALL_REDUCE:
            raise InputError(f"found the collective {collective!r}; there are auto, {', '.join(ALL_REDUCE)}")
        self.fabric = GraphFabric(cluster, routing)
        self._forms = list(ALL_REDUCE.values()) if collective == "auto" else [ALL_REDUCE[collective]]

    def attach(self, env: simpy.Environment) -> None:
        self._env, self._channels, self._flows = env, Channels(env), Flows(env, self.fabric.capacity)
        self._last: dict[tuple[Rank, Rank], simpy.Event] = {}
        """the last transfer of each pair"""
        self._sending, self._receiving = Processors(), Processors()

    @property
    def carried_bytes(self) -> Mapping[Port, float]:
        """What messages have moved through each port so far."""
        return self._flows.carried_bytes

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        before, through = self._last.get((source, to)), self._env.event()
        self._last[source, to] = through
        return self._env.process(self._travel(before, source, to, nbytes, through))

    def _travel(self, before: simpy.Event | None, source: Rank, to: Rank, nbytes: int, through: simpy.Event) -> Steps:
        """A message: after the one before it, through the ports, and the latency at the end."""
        if before is not None:
            yield before
        path, env = self.fabric.path(source, to, nbytes), self._env
        if path.send_s:
            yield env.timeout(self._sending.serve(source, env.now, path.send_s) - env.now)
        yield self._flows.begin(path.ports, nbytes, path.limit_bytes_per_s)
        through.succeed()
        yield env.timeout(max(0.0, path.latency_s - path.send_s - path.receive_s))
        if path.receive_s:
            yield env.timeout(self._receiving.serve(to, env.now, path.receive_s) - env.now)

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        return self._channels.serve(op.group, stream, self.collective_s(op, nbytes))

    def collective_s(self, op: Collective, nbytes: int) -> float:
        """The closed form with the slowest way from a member to the next."""
        members = len(op.group)
        pairs = pairwise([*op.group, *op.group][: members + 1]) if members > 1 else ()
        paths = [self.fabric.path(one, other, nbytes) for one, other in pairs]
        alpha_s = max((path.latency_s for path in paths), default=0.0)
        beta_s_per_byte = max((1 / self._rate(path) for path in paths), default=0.0)
        match op:
            case AllReduce():
                return min(form(members, nbytes, alpha_s, beta_s_per_byte) for form in self._forms)
            case AllGather():
                return forms.ring_all_gather_s(members, nbytes, alpha_s, beta_s_per_byte)
            case Barrier():
                return forms.barrier_s(members, alpha_s)
            case _:
                return forms.binomial_tree_s(members, nbytes, alpha_s, beta_s_per_byte)

    def _rate(self, path: Path) -> float:
        return min(path.limit_bytes_per_s, *(self.fabric.capacity[port] for port in path.ports))


class Processors:
    """What each rank does for messages, one at a time, first come first served."""

    def __init__(self) -> None:
        self._free_s: dict[Rank, float] = {}

    def serve(self, rank: Rank, now: float, seconds: float) -> float:
        """The time at which it is done with one that has come now."""
        end = self._free_s[rank] = max(now, self._free_s.get(rank, 0.0)) + seconds
        return end
