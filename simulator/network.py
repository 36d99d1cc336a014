"""Networks: how long messages and collectives take. An α–β star, this machine as measured, and none at all.

Rules of this file:

* A network answers with events and knows nothing of programs. Each answer is an event that is still to come.
* A network object serves one run: `attach` gives it that run's clock.
* A star shares its ports fairly among messages. Its collectives take their closed forms, as if they were alone; that
  they share links with messages and with each other is the network engine's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import simpy

from paceline.algorithms.errors import InputError
from paceline.algorithms.meeting import Collective
from paceline.algorithms.operations import AllGather, AllReduce, Barrier
from paceline.algorithms.values import Group, Rank
from paceline.simulator.flows import Flows, Port
from paceline.simulator.strands import Steps
from paceline.topologies import collectives as forms
from paceline.topologies.cluster import Cluster

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


class StarNetwork:
    """Nodes around one switch: a message takes α + n β, and more where it shares a port.

    Each node's NIC has one port up and one down, and the node a local link in between its ranks; the messages through
    one share it max-min fairly. One pair's messages follow each other, as on one connection. Where two nodes' links
    differ, the higher latency and the lower bandwidth count.

    Args:
        cluster: the nodes with their links, and which ranks sit where.
        collective: how all-reduce is done; "auto" is whatever the closed forms say is quickest. Broadcast and reduction
            go by a binomial tree, all-gather around a ring, barriers by dissemination.
    """

    def __init__(self, cluster: Cluster, collective: CollectiveName = "auto") -> None:
        if collective != "auto" and collective not in ALL_REDUCE:
            raise InputError(f"found the collective {collective!r}; there are auto, {', '.join(ALL_REDUCE)}")
        self._cluster = cluster
        self._forms = list(ALL_REDUCE.values()) if collective == "auto" else [ALL_REDUCE[collective]]
        self._capacity: dict[Port, float] = {}
        for index, node in enumerate(cluster.nodes):
            self._capacity[f"up {index}"] = self._capacity[f"down {index}"] = node.link.bytes_per_s
            self._capacity[f"local {index}"] = node.local.bytes_per_s

    def attach(self, env: simpy.Environment) -> None:
        self._env, self._channels, self._flows = env, Channels(env), Flows(env, self._capacity)
        self._last: dict[tuple[Rank, Rank], simpy.Event] = {}
        """the last transfer of each pair"""

    @property
    def carried_bytes(self) -> Mapping[Port, float]:
        """What messages have moved through each port of each node so far."""
        return self._flows.carried_bytes

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        here, there = self._cluster.node_of(source), self._cluster.node_of(to)
        if here == there:
            latency_s, ports = self._cluster.nodes[here].local.latency_s, [f"local {here}"]
        else:
            latency_s = max(self._cluster.nodes[node].link.latency_s for node in (here, there))
            ports = [f"up {here}", f"down {there}"]
        before, through = self._last.get((source, to)), self._env.event()
        self._last[source, to] = through
        return self._env.process(self._travel(before, tuple(ports), nbytes, through, latency_s))

    def _travel(
        self, before: simpy.Event | None, ports: tuple[Port, ...], nbytes: int, through: simpy.Event, latency_s: float
    ) -> Steps:
        """A message: after the one before it, through the ports, and the latency at the end."""
        if before is not None:
            yield before
        yield self._flows.begin(ports, nbytes)
        through.succeed()
        yield self._env.timeout(latency_s)

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        return self._channels.serve(op.group, stream, self.collective_s(op, nbytes))

    def collective_s(self, op: Collective, nbytes: int) -> float:
        """The closed form with the slowest link among the group's nodes: the local one where all sit on one node."""
        members = len(op.group)
        places = dict.fromkeys(self._cluster.node_of(rank) for rank in op.group)
        nodes = [self._cluster.nodes[index] for index in places]
        links = [nodes[0].local] if len(nodes) == 1 else [node.link for node in nodes]
        alpha_s = max(link.latency_s for link in links)
        beta_s_per_byte = max(1 / link.bytes_per_s for link in links)
        match op:
            case AllReduce():
                return min(form(members, nbytes, alpha_s, beta_s_per_byte) for form in self._forms)
            case AllGather():
                return forms.ring_all_gather_s(members, nbytes, alpha_s, beta_s_per_byte)
            case Barrier():
                return forms.barrier_s(members, alpha_s)
            case _:
                return forms.binomial_tree_s(members, nbytes, alpha_s, beta_s_per_byte)
