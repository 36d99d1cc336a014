"""Collectives in virtual time: `Meetings` matches them, the network times them from the entry of the last member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import simpy

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.operations import AllGather, Barrier
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective, Meetings, Room, outcome, sent_bytes
from paceline.records.recorder import Recorder
from paceline.simulator.interpreter.device_copies import DeviceCopies, copied_bytes, when_ended
from paceline.simulator.kernel.lanes import SimulatedTask, Steps
from paceline.simulator.kernel.simpy_events import upon
from paceline.simulator.network.network import ByMember, NetworkModel


@dataclass(eq=False, slots=True)
class PendingCollective:
    """The event that all members of a collective wait for, and the collective's key in the record."""

    key: str
    group: Group
    event: simpy.Event
    copies: list[simpy.Event] = field(default_factory=list)
    """the copies of its members' values to the hosts, which it waits for"""
    nbytes: int = 0
    """the n of the closed forms, once all members have entered"""
    full_s: float | None = None
    """when the last member entered; None if all spans are kept, from which it is known"""


class SimulatedCollectives:
    """All collectives of a run. The members of one share a single event, which keeps large groups cheap.

    Args:
        env: the run's clock.
        network: times collectives.
        recorder: writes the run's record.
        copies: copies values between hosts and devices; None: no library needs copies.
    """

    def __init__(
        self, env: simpy.Environment, network: NetworkModel, recorder: Recorder, copies: DeviceCopies | None = None
    ) -> None:
        self._env, self._network, self._recorder, self._copies = env, network, recorder, copies
        self._by_member = network if isinstance(network, ByMember) else None  # checked once: it is slow
        self._begun: dict[tuple[Group, str], simpy.Event] = {}
        """the last collective of each group and stream that waited for copies: until it has begun"""
        self._meetings = Meetings()
        self._pending: dict[int, PendingCollective] = {}
        """by the identity of each room that is not full yet, because a room is mutable and cannot be a key"""
        self._running: dict[PendingCollective, None] = {}
        """the collectives that a death would interrupt, in the order of their first entries"""
        self._lost: set[Rank] = set()
        """ranks that are known to be dead"""

    def enter(self, task: SimulatedTask, op: Collective) -> Steps:
        """Enters a collective at once, in program order, and returns its result when the network is done."""
        rank, start = task.me.rank, self._env.now
        if self._lost and (dead := next((member for member in op.group if member in self._lost), None)) is not None:
            raise failed(task, op, dead)
        room = self._meetings.enter(rank, op, task.where, task.stream)
        kind = type(op).__name__
        if (pending := self._pending.get(id(room))) is None:
            key = f"{kind} {op.key} over {op.group}{task.stream}"
            pending = self._pending[id(room)] = PendingCollective(key, op.group, self._env.event())
            self._running[pending] = None
        if self._copies is not None:
            sent, _ = copied_bytes(op, rank, 0)
            if (copy := self._copies.before(rank, task.step, sent)) is not None:
                pending.copies.append(copy)
        exit_event = None if self._by_member is None else self._by_member.enter(rank, op, task.stream)
        if room.full:
            del self._pending[id(room)]
            pending.full_s = None if self._recorder.trace.keeping.whole else start
            if exit_event is None:
                self._begin(room, op, task.stream, pending)
            else:
                self._end(pending, outcome(room))
        task.blocked = lambda: f"waits in {kind} {op.key!r} over {op.group} for {Group(tuple(room.missing))}"
        answers: Mapping[Rank, Any] | Rank = yield pending.event
        if isinstance(answers, int):
            raise failed(task, op, answers)
        if exit_event is not None:
            yield exit_event
        if self._copies is not None:
            _, received = copied_bytes(op, rank, pending.nbytes)
            if (copy := self._copies.after(rank, task.step, received)) is not None:
                yield copy
        sent, step = sent_bytes(op, rank), task.step
        now = self._env.now
        self._recorder.span(rank, task.name, "collective", None, step, start, now, sent, pending.full_s, pending.key)
        return answers[rank]

    def _begin(self, room: Room, op: Collective, stream: str, pending: PendingCollective) -> None:
        """Begins a collective that all members have entered: after the copies of their values, and in their order."""
        answers, pending.nbytes = outcome(room), payload(room)

        def begin() -> None:
            upon(self._network.collective(op, pending.nbytes, stream), lambda _: self._end(pending, answers))

        before = self._begun.get((op.group, stream))
        if before is not None and not before.processed:
            pending.copies.append(before)
        if pending.copies:
            self._begun[op.group, stream] = self._env.process(when_ended(pending.copies, begin))
        else:
            begin()

    def lose(self, rank: Rank) -> None:
        """Interrupts the collectives that have a dead rank as a member; later ones fail when they are entered."""
        self._lost.add(rank)
        for pending in [collective for collective in self._running if rank in collective.group]:
            self._end(pending, rank)

    def _end(self, pending: PendingCollective, answers: Mapping[Rank, Any] | Rank) -> None:
        """Ends a collective, unless it has ended: with the answers of its members, or with the dead rank."""
        if self._running.pop(pending, self) is None:
            pending.event.succeed(answers)


def failed(task: SimulatedTask, op: Collective, dead: Rank) -> PeerFailed:
    """Returns the failure of a collective that needs a dead rank, and notes it as what the task waits for."""
    task.blocked = lambda: f"waits in {type(op).__name__} {op.key!r} over {op.group}, which needs rank {dead}"
    return PeerFailed(f"rank {dead} died", dead)


def payload(room: Room) -> int:
    """Returns the n of the closed forms: the bytes of one value, or for an all-gather of the gathered result."""
    sizes = [0 if isinstance(op, Barrier) else op.value.nbytes for op in room.came.values()]
    return sum(sizes) if isinstance(room.came[room.first], AllGather) else sizes[0]
