"""Collectives and messages of a program (checked, announced on the board, and recorded), and operations in flight."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.algorithms.core.errors import PeerFailed, TimedOut
from paceline.algorithms.core.operations import Handle, Receive, Send
from paceline.algorithms.core.values import Group, Message, Rank, nbytes
from paceline.algorithms.runtime.collective_matching import Collective, check_collective, sent_bytes, signature
from paceline.algorithms.runtime.handles import HandleTable, Promise
from paceline.algorithms.runtime.mail import Envelope
from paceline.algorithms.runtime.program_errors import check_peer, message_wanted, timed_out
from paceline.backend.devices.accelerator import Accelerator
from paceline.backend.posix.waits import Backoff
from paceline.backend.rank.rank_context import RankStation, Thread
from paceline.backend.status.rank_status import Vote
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.transports.collectives import Flying, TorchCollectives
from paceline.backend.transports.mail import RankMail
from paceline.backend.transports.messages import ReceiveClaim
from paceline.backend.transports.shared_collectives import FlyingInMemory, MemoryCollectives

POLL_S = 0.0002
"""interval of polling in a wait for some of several operations: gloo cannot wait for any of several"""


@dataclass(eq=False, kw_only=True)
class Fetched(Promise):
    """A promise whose outcome is fetched by those who wait for it, from a thread or a transport."""

    done: Callable[[], bool]
    """whether `finish` returns at once"""
    finish: Callable[[], Any]
    """waits for the answer, or raises the failure"""

    @property
    def over(self) -> bool:
        return self.settled or self.done()

    def result(self) -> Any:
        """Waits for the outcome, and returns or raises it."""
        if not self.settled:
            try:
                self.end(self.finish())
            except Exception as error:
                self.end(failure=error)
        return super().result()


class RankHandles(HandleTable[Promise]):
    """The handles of a real rank, whose lanes are threads."""

    def __init__(self, station: RankStation) -> None:
        super().__init__(station.me.rank, partial(station.recorder.outcome, station.me.rank))
        self._station = station
        self._unanswered: dict[Promise, None] = {}
        """operations whose answer or failure the program has not received"""

    def give(self, promise: Promise) -> Handle[Any]:
        self._unanswered[promise] = None
        return super().give(promise)

    def wait(self, thread: Thread, handles: Sequence[Handle[Any]], least: int) -> tuple[tuple[int, Any], ...]:
        """Waits until `least` are done; returns (index, answer) of all that are done by then."""
        promises = self.awaited(handles, least)
        if least < len(promises):
            self._until_over(thread, promises, least)
        else:
            for promise in (*promises[-1:], *promises):  # the last one first: one wake-up instead of one for each
                self._finish(thread, promise)
        over = tuple(index for index, promise in enumerate(promises) if promise.over)
        for index in over:
            self._unanswered.pop(promises[index], None)
        return self.answers(thread.line, promises, least, over)

    def _finish(self, thread: Thread, promise: Promise) -> None:
        """Waits until it is over, unless it fails."""
        if promise.over:
            return
        self._unanswered.pop(promise, None)
        self._station.waiting(thread, f"for {promise.what()}")
        promise.result()
        self._station.moving(thread)

    def _until_over(self, thread: Thread, promises: Sequence[Promise], least: int) -> None:
        words = ", ".join(promise.what() for promise in promises)
        self._station.waiting(thread, f"for {least} of {len(promises)}: {words}")
        while sum(promise.over for promise in promises) < least:
            if (dead := self._station.board.lost()) is not None:
                raise PeerFailed(f"rank {dead} died", dead)
            time.sleep(POLL_S)
        self._station.moving(thread)

    def cancel(self, lane: str, handle: Handle[Any]) -> bool:
        in_time = super().cancel(lane, handle)
        if in_time:
            self._unanswered.pop(self.promise(handle), None)
        return in_time

    def complete(self, thread: Thread) -> None:
        """Completes operations in flight after the program has ended, oldest first: sub-programs still start and wait.

        Operations that can never complete after a death that the run survives are dropped.
        """
        while unanswered := list(self._unanswered):
            self._station.waiting(thread, f"for {unanswered[0].what()}, which it has started and not waited for")
            try:
                unanswered[0].result()
            except PeerFailed:
                if self._station.board.lost() is not None:
                    raise
            self._unanswered.pop(unanswered[0], None)


# Rationale:
# * Invariant: survivors continue with the same outcome. After a death, some members may have the result of a
#   collective and others not, and their programs would diverge. So in a run that can lose ranks, each member votes
#   COMMIT or ABORT on the status board and waits for the other votes. The collective is aborted if any member votes
#   ABORT.
# * Why no lock or coordinator is needed: each member writes only its own row, once per collective. A vote stays
#   readable after its member has died, and dead members do not vote. So every survivor that reads the board after all
#   members have voted or died finds the same votes.
# * Rejected: two-phase commit, whose coordinator may die between the phases. Rejected: repeating the collective among
#   the survivors, since members that already have the result would have to take part again. A run that cannot lose a
#   rank skips the vote.
# * Source: the agreement of MPI's User-Level Failure Mitigation (MPI_Comm_agree; Bland et al. 2013). Shared memory
#   makes it simple here: votes are never lost and all members see a death.


LONGEST_S = 1e-3
"""the longest sleep while waiting for votes"""


class Agreement:
    """The agreement as one rank takes part in it."""

    def __init__(self, board: StatusBoard, rank: Rank) -> None:
        self._board, self._status = board, board.ranks[rank]

    @contextmanager
    def failing(self, group: Group, stream: str, position: int) -> Iterator[None]:
        """Votes ABORT if the block fails because a rank died."""
        try:
            yield
        except PeerFailed:
            if self._board.spare:
                self._status.vote(name_of(stream), position, Vote.ABORT)
            raise

    def reach(self, group: Group, stream: str, position: int) -> None:
        """Votes COMMIT and waits for the votes of all survivors.

        Raises:
            PeerFailed: a member has voted ABORT, or the run ends.
        """
        if not self._board.spare:
            return
        name, backoff = name_of(stream), Backoff(LONGEST_S)
        self._status.vote(name, position, Vote.COMMIT)
        others = [rank for rank in group if rank != self._status.rank]
        while others:
            # read before the votes: a rank that is dead here cannot change its vote afterwards
            dead = [rank for rank in others if self._board.ranks[rank].dead]
            votes = {rank: self._board.ranks[rank].vote_on(name, position) for rank in others}
            if Vote.ABORT in votes.values():
                raise self._failure(group)
            others = [rank for rank in others if votes[rank] is None and rank not in dead]
            if others and (lost := self._board.lost()) is not None:
                raise PeerFailed(f"rank {lost} died", lost)
            if others:
                backoff.pause()

    def _failure(self, group: Group) -> PeerFailed:
        """Returns the error that names the rank whose death aborted the collective."""
        lost = self._board.lost(group)
        return PeerFailed("a collective was aborted" if lost is None else f"rank {lost} died", lost)


def name_of(stream: str) -> int:
    """Returns a number that identifies a group and stream."""
    return zlib.crc32(stream.encode()) | len(stream) << 32


class Communication:
    """The collectives and messages of a rank."""

    def __init__(
        self, station: RankStation, mail: RankMail, collectives: TorchCollectives, memory: MemoryCollectives | None
    ) -> None:
        self.station, self.mail, self._collectives, self._memory = station, mail, collectives, memory
        self._agreement = Agreement(station.board, station.me.rank)
        self._named: dict[tuple[Group, str], tuple[str, str]] = {}
        self._used: set[str] = set()
        """the transports over which collectives have been issued"""

    def transports(self) -> dict[str, list[str]]:
        """Returns the transports of this rank's collectives and messages."""
        return {"collectives": sorted(self._used), "messages": sorted(self.mail.used)}

    def perform(self, thread: Thread, op: Collective) -> Any:
        """Performs a collective and returns its answer."""
        return self.issue(thread, op).finish()

    def issue(self, thread: Thread, op: Collective, *, started: bool = False) -> Fetched:
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
        if direct:
            self._used.add("NCCL")
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
            station.span(thread, "collective", start, step=step, nbytes=sent, key=key)
            return answer

        return Fetched(lambda: f"{what}, started at {place}", done=flying.done, finish=finish)

    def _words(self, group: Group, stream: str) -> tuple[str, str]:
        """Returns a name for the sequence of collectives of the group and stream, and the group as text."""
        if (names := self._named.get((group, stream))) is None:
            names = self._named[group, stream] = f"{group}{stream}", str(group)
        return names

    def _direct(self, op: Collective, stream: str) -> bool:
        """Whether a collective goes from GPU to GPU: its vectors are on GPUs and NCCL can serve the group.

        Only for collectives of the program itself: started sub-programs may issue theirs in any order relative to each
        other, in which case kernels of several NCCL groups can wait for each other for ever.
        """
        on_device = self.station.accelerator.holds(getattr(op, "value", None))
        return on_device and not stream and self._collectives.direct(op.group)

    def _begin(self, op: Collective, stream: str, started: bool) -> Flying | FlyingInMemory | Returning:
        """Starts a collective in host memory; a vector on a GPU is copied there, and the answer back."""
        device = self.station.accelerator
        returning = device.holds(getattr(op, "value", None))
        op = device.out(op) if returning else op
        line = None if self._memory is None else self._memory.line(op.group, stream)
        self._used.add("gloo" if line is None else "shared memory")
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
        value = self.station.accelerator.out(op.value)
        self.mail.send(Envelope(self.station.me.rank, op.to, op.tag, value, start))
        self.station.span(thread, "send", start, nbytes=nbytes(op.value))

    def receive(self, thread: Thread, op: Receive) -> Message:
        """Returns the oldest matching message; waits for it if necessary."""
        check_peer(op, self.station.me.world)
        start = self.station.clock.now()
        self.station.waiting(thread, f"to receive from {message_wanted(op)}")
        claim = thread.claim or ReceiveClaim(self.mail.inbox)
        try:
            with self.station.busy() if op.timeout_s is not None else nullcontext():  # a timeout is not a deadlock
                envelope = self.mail.inbox.get(op.source, op.tag, op.timeout_s, claim)
        except TimedOut:
            self.station.moving(thread)
            self.station.recorder.heard(self.station.me.rank, None, thread.line, turn=claim.turn)
            raise timed_out(op, self.station.standing(thread)) from None
        value = self.station.accelerator.into(envelope.value)
        self.station.moving(thread)
        self.station.span(thread, "receive", start, nbytes=nbytes(envelope.value), ready_s=envelope.sent_s)
        self.station.recorder.heard(self.station.me.rank, envelope.source, thread.line, turn=claim.turn)
        return Message(envelope.source, value, envelope.tag)


@dataclass(frozen=True, slots=True)
class Returning:
    """A collective in flight in host memory, whose answer is then copied to a device."""

    flying: Flying | FlyingInMemory
    device: Accelerator

    def done(self) -> bool:
        return self.flying.done()

    def finish(self) -> Any:
        return self.device.into(self.flying.finish())
