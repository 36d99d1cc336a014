"""Operations that a rank's program has started and not yet waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.operations import Handle
from paceline.algorithms.runtime.handles import HandleTable
from paceline.algorithms.runtime.program_errors import cancelled
from paceline.backend.rank.rank_context import Station, Thread

POLL_S = 0.0002
"""interval of polling in a wait for some of several operations: gloo cannot wait for any of several"""


@dataclass(eq=False)
class Pending:
    """A started operation: whether it is done, and a function that waits for its answer and is called once."""

    done: Callable[[], bool]
    finish: Callable[[], Any]
    what: str
    give_up: Callable[[], object] | None = None
    """ends the operation early, if that is possible; returns False if it was done already"""
    cancelled: bool = False
    _answer: tuple[Any] | None = None

    @property
    def settled(self) -> bool:
        return self.cancelled or self._answer is not None or self.done()

    def result(self) -> Any:
        if self.cancelled:
            raise cancelled(self.what)
        return self.answer()

    def cancel(self) -> bool:
        if self.settled or (self.give_up is not None and self.give_up() is False):
            return False
        self.cancelled = True
        return True

    def answer(self) -> Any:
        """Waits and returns the answer; may be called again, as a handle may be waited for again."""
        if self._answer is None:
            self._answer = (self.finish(),)
        return self._answer[0]


class Handles:
    """The handles of a rank's program."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._table = HandleTable[Pending](station.me.rank, partial(station.recorder.outcome, station.me.rank))
        self._unanswered: dict[Pending, None] = {}
        """operations whose answer or failure the program has not received"""

    def keep(self, pending: Pending) -> Handle[Any]:
        """Adds an operation and returns its handle."""
        self._unanswered[pending] = None
        return self._table.give(pending)

    def all_done(self, handles: Sequence[Handle[Any]]) -> bool:
        """Whether a wait for all of these would return at once."""
        return self._table.is_over(handles, len(handles))

    def wait(self, thread: Thread, handles: Sequence[Handle[Any]], least: int) -> tuple[tuple[int, Any], ...]:
        """Waits until `least` are done; returns (index, answer) of all that are done by then."""
        pendings = self._table.awaited(handles, least)
        if least < len(pendings):
            self._until_done(thread, pendings, least)
            found = tuple(index for index, pending in enumerate(pendings) if pending.settled)
        else:
            for pending in (*pendings[-1:], *pendings):  # the last one first: one wake-up instead of one for each
                self._finish(thread, pending)
            found = tuple(range(len(pendings)))
        for index in found:
            self._unanswered.pop(pendings[index], None)
        return self._table.answers(thread.line, pendings, least, found)

    def _finish(self, thread: Thread, pending: Pending) -> None:
        """Waits until it is done, failed or cancelled."""
        if pending.settled:
            return
        self._unanswered.pop(pending, None)
        self._station.waiting(thread, f"for {pending.what}")
        pending.answer()
        self._station.moving(thread)

    def _until_done(self, thread: Thread, pendings: Sequence[Pending], least: int) -> None:
        self._station.waiting(thread, f"for {least} of {len(pendings)}: " + ", ".join(p.what for p in pendings))
        while sum(pending.settled for pending in pendings) < least:
            if (dead := self._station.board.lost()) is not None:
                raise PeerFailed(f"rank {dead} died", dead)
            time.sleep(POLL_S)
        self._station.moving(thread)

    def cancel(self, thread: Thread, handle: Handle[Any]) -> bool:
        """Cancels an operation; returns True if that was in time."""
        in_time = self._table.cancel(thread.line, handle)
        if in_time:
            self._unanswered.pop(self._table.entry(handle), None)
        return in_time

    def complete(self, thread: Thread) -> None:
        """Completes operations in flight after the program has ended, oldest first: sub-programs still start and wait.

        Operations that can never complete after a death that the run survives are dropped.
        """
        while unanswered := list(self._unanswered):
            self._station.waiting(thread, f"for {unanswered[0].what}, which it has started and not waited for")
            try:
                unanswered[0].answer()
            except PeerFailed:
                if self._station.board.lost() is not None:
                    raise
            self._unanswered.pop(unanswered[0], None)

    def answer(self, handle: Handle[Any]) -> Any:
        """Returns the answer of a complete operation, for a checkpoint."""
        return self._table.entry(handle).answer()

    def restore(self, answers: Mapping[Handle[Any], Any]) -> None:
        """Restores the handles of a checkpoint with their answers; new handles are numbered after them."""
        self._table.restore({handle: _answered(answer) for handle, answer in answers.items()})


def _answered(answer: Any) -> Pending:
    """Returns an operation from before a checkpoint, with its answer."""
    return Pending(lambda: True, lambda: answer, "an operation from before the checkpoint")
