"""Collectives and messages as a program asks for them: checked, announced on the board, recorded."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.errors import TimedOut
from paceline.algorithms.core.operations import Receive, Send
from paceline.algorithms.core.values import Group, Message, nbytes
from paceline.algorithms.runtime.collective_matching import Collective, check_collective, sent_bytes, signature
from paceline.algorithms.runtime.program_errors import check_peer, message_wanted, timed_out
from paceline.backend.devices.accelerator import Accelerator
from paceline.backend.rank.handles import Pending
from paceline.backend.rank.rank_context import Station, Thread
from paceline.backend.status.recorder import Heard
from paceline.backend.transports.agreement import Agreement
from paceline.backend.transports.collectives import Collectives, Flying
from paceline.backend.transports.inbox import Claim, Envelope
from paceline.backend.transports.mail import Mail
from paceline.backend.transports.shared_collectives import InMemory, SharedMemory


class Communication:
    """A rank's dealings with the others."""

    def __init__(self, station: Station, mail: Mail, collectives: Collectives, memory: SharedMemory | None) -> None:
        self.station, self.mail, self._collectives, self._memory = station, mail, collectives, memory
        self._agreement = Agreement(station.board, station.me.rank)
        self._named: dict[tuple[Group, str], tuple[str, str]] = {}

    def perform(self, thread: Thread, op: Collective) -> Any:
        """A collective's answer, once it is there."""
        return self.issue(thread, op).finish()

    def issue(self, thread: Thread, op: Collective, *, started: bool = False) -> Pending:
        """Begins a collective, after checking on the board that the others have begun the same one there.

        Inside a node it goes through the memory that its ranks share, otherwise by gloo. The board is told of a wait
        once: for the one that is called here, since a group's first collective connects its members; for one that is
        started by whoever waits for it.
        """
        station, place, step = self.station, thread.place, thread.step
        check_collective(op, station.me.rank)
        start, words = station.clock.now(), signature(op)
        position = self._collectives.position(op.group, thread.stream)
        order, members = self._words(op.group, thread.stream)
        direct = self._direct(op, thread.stream)
        words += " on GPUs" * direct
        what = f"{words} over {members}"
        station.board.enter(station.me.rank, op.group.ranks, order, position, words, place)
        station.waiting(thread, f"in {what}", place)
        with self._agreement.failing(op.group, order, position):
            flying = self._collectives.issue_direct(op) if direct else self._begin(op, thread.stream, started)
        if started:
            station.moving(thread)

        def finish() -> Any:
            with self._agreement.failing(op.group, order, position):
                answer = flying.finish()
            self._agreement.reach(op.group, order, position)
            if not started:
                station.moving(thread)
            sent, key = sent_bytes(op, station.me.rank), f"{order}/{position} {op.key}"
            station.span(thread, "collective", start, step=step, bytes=sent, key=key)
            return answer

        return Pending(flying.done, finish, f"{what}, started at {place}")

    def _words(self, group: Group, stream: str) -> tuple[str, str]:
        """A name for the group's and stream's order of collectives, and the group in words."""
        if (found := self._named.get((group, stream))) is None:
            found = self._named[group, stream] = f"{group}{stream}", str(group)
        return found

    def _direct(self, op: Collective, stream: str) -> bool:
        """Whether a collective goes from GPU to GPU: where its vectors lie on GPUs, and NCCL takes the group.

        That of the program itself only: started sub-programs may issue theirs in any order among each other, in which
        kernels of several NCCL groups can wait for each other for ever.
        """
        on_device = self.station.accelerator.holds(getattr(op, "value", None))
        return on_device and not stream and self._collectives.direct(op.group)

    def _begin(self, op: Collective, stream: str, started: bool) -> Flying | InMemory | Returning:
        """Begins a collective in the host's memory; what lies on a GPU is copied there, and the answer back."""
        device = self.station.accelerator
        returning = device.holds(getattr(op, "value", None))
        op = device.out(op) if returning else op
        line = None if self._memory is None else self._memory.line(op.group, stream)
        flying = self._collectives.issue(op, stream) if line is None else line.issue(op, started=started)
        return Returning(flying, device) if returning else flying

    def leave(self, stream: str) -> None:
        """The lane of this stream has ended: there will be no more collectives of its."""
        if self._memory is not None:
            self._memory.leave(stream)

    def send(self, thread: Thread, op: Send) -> None:
        """Hands a message over."""
        check_peer(op, self.station.me.world)
        start = self.station.clock.now()
        self.mail.send(op.to, Envelope(self.station.me.rank, op.tag, self.station.accelerator.out(op.value), start))
        self.station.span(thread, "send", start, bytes=nbytes(op.value))

    def receive(self, thread: Thread, op: Receive) -> Message:
        """The oldest message that fits, once it is there."""
        check_peer(op, self.station.me.world)
        start = self.station.clock.now()
        self.station.waiting(thread, f"to receive from {message_wanted(op)}")
        claim = thread.claim or Claim(self.mail.inbox)
        try:
            with self.station.busy() if op.timeout_s is not None else nullcontext():  # a time-out is no deadlock
                envelope = self.mail.inbox.get(op.source, op.tag, op.timeout_s, claim)
        except TimedOut:
            self.station.moving(thread)
            self.station.recorder.add("heard", Heard(claim.turn, None, thread.line))
            raise timed_out(op, self.station.standing(thread)) from None
        value = self.station.accelerator.into(envelope.value)
        self.station.moving(thread)
        self.station.span(thread, "receive", start, bytes=nbytes(envelope.value), ready_s=envelope.sent_s)
        self.station.recorder.add("heard", Heard(claim.turn, envelope.source, thread.line))
        return Message(envelope.source, value, envelope.tag)


@dataclass(frozen=True, slots=True)
class Returning:
    """A collective under way in the host's memory, whose answer belongs on a device."""

    flying: Flying | InMemory
    device: Accelerator

    def done(self) -> bool:
        return self.flying.done()

    def finish(self) -> Any:
        return self.device.into(self.flying.finish())
