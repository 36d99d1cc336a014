"""Collectives and messages of a program: checked, announced on the board, and recorded."""

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
    """The collectives and messages of a rank."""

    def __init__(self, station: Station, mail: Mail, collectives: Collectives, memory: SharedMemory | None) -> None:
        self.station, self.mail, self._collectives, self._memory = station, mail, collectives, memory
        self._agreement = Agreement(station.board, station.me.rank)
        self._named: dict[tuple[Group, str], tuple[str, str]] = {}

    def perform(self, thread: Thread, op: Collective) -> Any:
        """Performs a collective and returns its answer."""
        return self.issue(thread, op).finish()

    def issue(self, thread: Thread, op: Collective, *, started: bool = False) -> Pending:
        """Starts a collective, after checking on the board that the other members have started the same one.

        Inside a node it uses shared memory, otherwise gloo. The wait is reported on the board once: here if the
        collective is called, since a group's first collective connects its members; at the wait for its handle if it
        was started.
        """
        station, place, step = self.station, thread.place, thread.step
        check_collective(op, station.me.rank)
        start, words = station.clock.now(), signature(op)
        position = self._collectives.position(op.group, thread.stream)
        order, members = self._words(op.group, thread.stream)
        direct = self._direct(op, thread.stream)
        words += " on GPUs" * direct
        what = f"{words} over {members}"
        station.board.collectives.enter(station.me.rank, op.group.ranks, order, position, words, place)
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
        """Returns a name for the sequence of collectives of the group and stream, and the group as text."""
        if (found := self._named.get((group, stream))) is None:
            found = self._named[group, stream] = f"{group}{stream}", str(group)
        return found

    def _direct(self, op: Collective, stream: str) -> bool:
        """Whether a collective goes from GPU to GPU: its vectors are on GPUs and NCCL can serve the group.

        Only for collectives of the program itself: started sub-programs may issue theirs in any order relative to each
        other, in which case kernels of several NCCL groups can wait for each other for ever.
        """
        on_device = self.station.accelerator.holds(getattr(op, "value", None))
        return on_device and not stream and self._collectives.direct(op.group)

    def _begin(self, op: Collective, stream: str, started: bool) -> Flying | InMemory | Returning:
        """Starts a collective in host memory; a vector on a GPU is copied there, and the answer back."""
        device = self.station.accelerator
        returning = device.holds(getattr(op, "value", None))
        op = device.out(op) if returning else op
        line = None if self._memory is None else self._memory.line(op.group, stream)
        flying = self._collectives.issue(op, stream) if line is None else line.issue(op, started=started)
        return Returning(flying, device) if returning else flying

    def leave(self, stream: str) -> None:
        """Ends the stream of a lane, which will issue no more collectives."""
        if self._memory is not None:
            self._memory.leave(stream)

    def send(self, thread: Thread, op: Send) -> None:
        """Hands a message over."""
        check_peer(op, self.station.me.world)
        start = self.station.clock.now()
        self.mail.send(op.to, Envelope(self.station.me.rank, op.tag, self.station.accelerator.out(op.value), start))
        self.station.span(thread, "send", start, bytes=nbytes(op.value))

    def receive(self, thread: Thread, op: Receive) -> Message:
        """Returns the oldest matching message; waits for it if necessary."""
        check_peer(op, self.station.me.world)
        start = self.station.clock.now()
        self.station.waiting(thread, f"to receive from {message_wanted(op)}")
        claim = thread.claim or Claim(self.mail.inbox)
        try:
            with self.station.busy() if op.timeout_s is not None else nullcontext():  # a timeout is not a deadlock
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
    """A collective in flight in host memory, whose answer is then copied to a device."""

    flying: Flying | InMemory
    device: Accelerator

    def done(self) -> bool:
        return self.flying.done()

    def finish(self) -> Any:
        return self.device.into(self.flying.finish())
