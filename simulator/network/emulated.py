"""Predicts the network of a real run with emulated hosts: the scenario's lines, plus the overheads of this machine.

* Rates and latencies are those of the emulated lines, with the run's time dilation. Nothing is fitted to a run that is
  predicted: the overheads come from probes with messages and all-reduces of a few numbers, and from runs without a
  network.
* Between hosts, packets cross lines as in the emulation (`store_and_forward`), and collectives send the messages that
  gloo sends (`gloo`). gloo's threads add a delay to everything that arrives, announcements included.
* A message is a gloo rendezvous: the sender announces it, the receiver asks for it, and it is sent. A rank receives one
  at a time.
* Inside a host, messages and collectives cost what they cost on this machine without a network.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import simpy

from paceline.algorithms.core.operations import AllReduce
from paceline.algorithms.core.values import Null, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.simpy_events import after, happen, upon
from paceline.simulator.network.gloo import WORD_BYTES, ProcessGroups
from paceline.simulator.network.network import MeasuredNetwork
from paceline.topologies.catalogue.machine_profile import MESSAGE_LEGS, EmulationCosts
from paceline.topologies.packet_lines import HEADERS, Lines

#     departure = max(arrival, the line's last departure) + bytes / rate;   at the next line: departure + latency
# * A line is a first-in-first-out queue. Messages do not share it fairly: packets are served in the order of arrival,
#   as in the forwarder and before a token bucket.
# * A message is cut into packets that are sent at once, because TCP's window is larger than the bytes in flight, and
#   the queue of a line is larger than a window. Acknowledgements are left out; they take about 2 % of the other
#   direction.


Then = Callable[[], None]


class StoreAndForward:
    """The lines between hosts, for one run.

    Args:
        env: the run's clock.
        lines: the rates and latencies of lines, and the route between each two hosts.
        packet_bytes: bytes of the largest packet, with its headers.
    """

    def __init__(self, env: simpy.Environment, lines: Lines, packet_bytes: int) -> None:
        self._env, self._lines = env, lines
        self._payload = packet_bytes - HEADERS
        share = packet_bytes / self._payload
        self._rate = [line.bytes_per_s * share for line in lines.lines]
        self._latency_s = [line.latency_s for line in lines.lines]
        self._free_s = [0.0] * len(lines.lines)
        self.carried_bytes = [0] * len(lines.lines)
        """bytes that each line has received, with the headers of packets"""

    def send(self, source: int, to: int, nbytes: int, then: Then) -> None:
        """Sends bytes from one host to another.

        Args:
            source: the sending host.
            to: the receiving host.
            nbytes: the bytes.
            then: called when the last of them has arrived.
        """
        route = self._lines.routes[source, to]
        for first in range(0, nbytes, self._payload):
            last = first + self._payload >= nbytes
            self._cross(route, 0, min(self._payload, nbytes - first) + HEADERS, then if last else None)

    def _cross(self, route: tuple[int, ...], hop: int, size: int, then: Then | None) -> None:
        """Processes the arrival of a packet at a line of its route."""
        line, now = route[hop], self._env.now
        self.carried_bytes[line] += size
        departure_s = self._free_s[line] = max(now, self._free_s[line]) + size / self._rate[line]
        there_s = departure_s + self._latency_s[line] - now
        if hop + 1 < len(route):
            after(self._env, there_s, lambda _: self._cross(route, hop + 1, size, then))
        elif then is not None:
            after(self._env, there_s, lambda _: then())


class EmulatedNetwork:
    """The network for a prediction of a plan's run on emulated hosts.

    Args:
        plan: the run.
        emulation: the overheads of this machine.
        here: the costs of messages and collectives inside a host.
    """

    def __init__(self, plan: Plan, emulation: EmulationCosts, here: MeasuredNetwork) -> None:
        self._plan, self._emulation, self._here = plan, emulation, here
        self._lines = plan.lines
        self._leg_s = leg_s(plan, emulation, self._lines)
        self._message_s = max(0.0, emulation.message_s - MESSAGE_LEGS * self._leg_s)

    def attach(self, env: simpy.Environment) -> None:
        self._env = env
        self._here.attach(env)
        self._carrier = Carrier(env, self._lines, self._emulation.packet_bytes, self._leg_s)
        self._groups = ProcessGroups(env, self._carrier.carry, self._emulation.start_s)
        self._inboxes = defaultdict[Rank, PostedReceive](PostedReceive)

    def standing(self) -> list[str]:
        return []

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        """Sends by rendezvous: an announcement, a wait for the receiver, its request, and the message."""
        carry, inbox = self._carrier.carry, self._inboxes[to]
        if not self._carrier.apart(source, to):
            if self._plan.real.shared_memory:
                return self._here.message(source, to, nbytes)
            return self._through(source, to, nbytes, inbox)
        arrival = self._env.event()

        def arrive() -> None:
            inbox.next()
            happen(arrival)

        def come() -> None:
            carry(source, to, WORD_BYTES + nbytes, arrive)

        def take() -> None:
            after(self._env, self._message_s, lambda _: carry(to, source, WORD_BYTES, come))

        carry(source, to, WORD_BYTES, lambda: inbox.add(take))
        return arrival

    def _through(self, source: Rank, to: Rank, nbytes: int, inbox: PostedReceive) -> simpy.Event:
        """Sends by gloo inside a host: a wait for the receiver, and the measured time."""
        arrival = self._env.event()

        def arrive(_: simpy.Event) -> None:
            inbox.next()
            happen(arrival)

        def take() -> None:
            upon(self._here.message(source, to, nbytes), arrive)

        inbox.add(take)
        return arrival

    def enter(self, rank: Rank, op: Collective, stream: str) -> simpy.Event | None:
        if self._inside(op):
            return None
        return self._groups.enter(rank, op, stream)

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        assert self._inside(op), "members of groups on several hosts enter one by one"
        return self._here.collective(op, nbytes, stream)

    def _inside(self, op: Collective) -> bool:
        """Returns whether a collective stays inside a host."""
        ranks = op.group.ranks
        return self._plan.inside(op.group) or not any(self._carrier.apart(ranks[0], rank) for rank in ranks)


class Carrier:
    """Moves bytes from rank to rank: over the lines between their hosts, or at once inside a host.

    Args:
        env: the run's clock.
        lines: the emulated lines.
        packet_bytes: bytes of the largest packet, with its headers.
        leg_s: the seconds that gloo's threads add to everything that arrives.
    """

    def __init__(self, env: simpy.Environment, lines: Lines, packet_bytes: int, leg_s: float) -> None:
        self._env, self._places, self._leg_s = env, lines.places, leg_s
        self.wires = StoreAndForward(env, lines, packet_bytes)

    def apart(self, source: Rank, to: Rank) -> bool:
        """Returns whether two ranks are on different hosts."""
        return self._places[source] != self._places[to]

    def carry(self, source: Rank, to: Rank, nbytes: int, then: Callable[[], None]) -> None:
        """Moves bytes from one rank to another.

        Args:
            source: the sender.
            to: the receiver.
            nbytes: the bytes.
            then: called when they have arrived and gloo's thread has noticed it.
        """

        def noticed() -> None:
            after(self._env, self._leg_s, lambda _: then())

        if self.apart(source, to):
            self.wires.send(self._places[source], self._places[to], nbytes, noticed)
        else:
            noticed()


@dataclass(slots=True)
class PostedReceive:
    """The posted receive of a rank: it receives one message at a time, in the order of their announcements."""

    waiting: deque[Callable[[], None]]
    busy: bool

    def __init__(self) -> None:
        self.waiting, self.busy = deque(), False

    def add(self, take: Callable[[], None]) -> None:
        """Adds a message; `take` is called when the receiver is free, and calls `next` when the message has arrived."""
        self.waiting.append(take)
        if not self.busy:
            self.next()

    def next(self) -> None:
        """Lets the receiver proceed with the next message."""
        self.busy = bool(self.waiting)
        if self.waiting:
            self.waiting.popleft()()


def leg_s(plan: Plan, emulation: EmulationCosts, lines: Lines) -> float:
    """Returns the seconds that gloo's threads add to everything that arrives.

    This is the part of the probed all-reduce that its lines do not account for, divided by the number of its legs. A
    ring of P members has 4 (P − 1) legs one after the other: in each step an announcement and the announced data.

    Args:
        plan: the run.
        emulation: the probes of this machine.
        lines: the emulated lines.
    """
    workers = plan.job.team[0].workers
    if len(workers) < 2:
        return 0.0
    leads_s = emulation.leads_s or (0.0,) * len(workers)
    bare_s = all_reduce_s(plan, emulation, lines, leads_s)
    return max(0.0, emulation.all_reduce_s - bare_s) / (4 * (len(workers) - 1))


def all_reduce_s(plan: Plan, emulation: EmulationCosts, lines: Lines, leads_s: Sequence[float]) -> float:
    """Returns the time of the probed all-reduce due to its lines alone: the mean from the last entry to an exit.

    Args:
        plan: the run.
        emulation: the probes of this machine.
        lines: the emulated lines.
        leads_s: for each member, how long before the last one it enters, seconds.
    """
    clock, group = VirtualClock(), plan.job.team[0].workers
    groups = ProcessGroups(clock, Carrier(clock, lines, emulation.packet_bytes, 0.0).carry)
    item_bytes = int(plan.job.learner.initial().nbytes) // plan.job.learner.layout.size
    op = AllReduce(value=Null(emulation.few_bytes // item_bytes, item_bytes), group=group, key="few")
    last_s, exits_s = max(leads_s), list[float]()

    def enter(rank: Rank) -> None:
        upon(groups.enter(rank, op, ""), lambda _: exits_s.append(clock.now))

    for rank, lead_s in zip(group, leads_s, strict=True):
        after(clock, last_s - lead_s, lambda _, rank=rank: enter(rank))  # type: ignore[misc]
    clock.run()
    return sum(max(0.0, exit_s - last_s) for exit_s in exits_s) / len(exits_s)
