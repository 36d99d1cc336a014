"""The network of a real run whose hosts are emulated: the scenario's lines, and what this machine adds to a message.

Rules of this file:

* Rates and latencies are those that the lines were given, stretched as they were. Nothing is fitted to a run that is
  predicted: what this machine adds comes from messages and all-reduces of a few numbers, and from runs without a
  network.
* Between hosts, packets cross lines as the emulation has them do (`store_and_forward`), and collectives send what gloo
  sends (`gloo`). Everything that arrives, announcements too, takes what gloo's threads add.
* A message is a rendezvous of gloo's: it says that it is there, is asked for, and comes. A rank takes one at a time.
* Inside a host, messages and the collectives of its ranks alone cost what they cost on this machine without a network.
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
from paceline.simulator.kernel.clock import Clock
from paceline.simulator.kernel.simpy_events import after, happen, upon
from paceline.simulator.network.gloo import WORD_BYTES, ProcessGroups
from paceline.simulator.network.network import MeasuredNetwork
from paceline.simulator.network.store_and_forward import StoreAndForward
from paceline.topologies.catalogue.machine_profile import MESSAGE_LEGS, EmulatedProfile
from paceline.topologies.packet_lines import Lines, lines_of


class EmulatedNetwork:
    """What predicts a plan's run on an emulated network.

    Args:
        plan: what is run.
        profile: what this machine adds.
        here: what messages and collectives inside a host cost.
    """

    def __init__(self, plan: Plan, profile: EmulatedProfile, here: MeasuredNetwork) -> None:
        self._plan, self._profile, self._here = plan, profile, here
        routing = plan.scenario.cluster.network.routing
        self._lines = lines_of(plan.cluster, [me.rank for me in plan.job.team], routing, plan.time_dilation)
        self._leg_s = leg_s(plan, profile, self._lines)
        self._message_s = max(0.0, profile.message_s - MESSAGE_LEGS * self._leg_s)

    def attach(self, env: simpy.Environment) -> None:
        self._env = env
        self._here.attach(env)
        self._carrier = Carrier(env, self._lines, self._profile.packet_bytes, self._leg_s)
        self._groups = ProcessGroups(env, self._carrier.carry, self._profile.start_s)
        self._inboxes = defaultdict[Rank, Inbox](Inbox)

    def standing(self) -> list[str]:
        return []

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        """A rendezvous: it says that it is there, waits for its turn at the receiver, is asked for, and comes."""
        carry, inbox = self._carrier.carry, self._inboxes[to]
        if not self._carrier.apart(source, to):
            if self._plan.scenario.train.shared_memory:
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

    def _through(self, source: Rank, to: Rank, nbytes: int, inbox: Inbox) -> simpy.Event:
        """Inside a host by gloo: it takes its turn at the receiver, and what was measured."""
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
        assert self._inside(op), "members of other groups enter one by one"
        return self._here.collective(op, nbytes, stream)

    def _inside(self, op: Collective) -> bool:
        """Whether it stays inside a host."""
        ranks = op.group.ranks
        return self._plan.inside(op.group) or not any(self._carrier.apart(ranks[0], rank) for rank in ranks)


class Carrier:
    """Brings bytes from rank to rank: over the lines between their hosts, or at once inside one.

    Args:
        leg_s: what gloo's threads add to everything that arrives.
    """

    def __init__(self, env: simpy.Environment, lines: Lines, packet_bytes: int, leg_s: float) -> None:
        self._env, self._places, self._leg_s = env, lines.places, leg_s
        self.wires = StoreAndForward(env, lines, packet_bytes)

    def apart(self, source: Rank, to: Rank) -> bool:
        """Whether two ranks are on different hosts."""
        return self._places[source] != self._places[to]

    def carry(self, source: Rank, to: Rank, nbytes: int, then: Callable[[], None]) -> None:
        """Calls `then` when the bytes are there and have been noticed."""

        def noticed() -> None:
            after(self._env, self._leg_s, lambda _: then())

        if self.apart(source, to):
            self.wires.send(self._places[source], self._places[to], nbytes, noticed)
        else:
            noticed()


@dataclass(slots=True)
class Inbox:
    """A rank's posted receive: it takes one message at a time, in the order in which they have asked."""

    waiting: deque[Callable[[], None]]
    busy: bool

    def __init__(self) -> None:
        self.waiting, self.busy = deque(), False

    def add(self, take: Callable[[], None]) -> None:
        """A message that waits to be taken; whoever takes it says when it is through by `next`."""
        self.waiting.append(take)
        if not self.busy:
            self.next()

    def next(self) -> None:
        """The one before is through."""
        self.busy = bool(self.waiting)
        if self.waiting:
            self.waiting.popleft()()


def leg_s(plan: Plan, profile: EmulatedProfile, lines: Lines) -> float:
    """What gloo's threads add to everything that arrives: of the probed all-reduce, what its lines do not account for.

    A ring of P members has 4 (P − 1) legs one after the other: in each step an announcement, and what was announced.
    """
    workers = plan.job.team[0].workers
    if len(workers) < 2:
        return 0.0
    leads_s = profile.leads_s or (0.0,) * len(workers)
    bare_s = all_reduce_s(plan, profile, lines, leads_s)
    return max(0.0, profile.all_reduce_s - bare_s) / (4 * (len(workers) - 1))


def all_reduce_s(plan: Plan, profile: EmulatedProfile, lines: Lines, leads_s: Sequence[float]) -> float:
    """The probed all-reduce by its lines alone: from the last entry to a member's exit, on the mean.

    Args:
        leads_s: of each member: how long before the last one it enters.
    """
    clock, group = Clock(), plan.job.team[0].workers
    groups = ProcessGroups(clock, Carrier(clock, lines, profile.packet_bytes, 0.0).carry)
    item_bytes = int(plan.job.learner.initial().nbytes) // plan.job.learner.layout.size
    op = AllReduce(value=Null(profile.few_bytes // item_bytes, item_bytes), group=group, key="few")
    last_s, exits_s = max(leads_s), list[float]()

    def enter(rank: Rank) -> None:
        upon(groups.enter(rank, op, ""), lambda _: exits_s.append(clock.now))

    for rank, lead_s in zip(group, leads_s, strict=True):
        after(clock, last_s - lead_s, lambda _, rank=rank: enter(rank))  # type: ignore[misc]
    clock.run()
    return sum(max(0.0, exit_s - last_s) for exit_s in exits_s) / len(exits_s)
