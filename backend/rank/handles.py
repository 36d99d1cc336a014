"""Operations that a rank's program has started and not yet waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.operations import Handle
from paceline.algorithms.runtime.handles import HandleTable, Promise, answered
from paceline.backend.rank.rank_context import Station, Thread

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


class Handles:
    """The handles of a rank's program."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._table = HandleTable[Promise](station.me.rank, partial(station.recorder.outcome, station.me.rank))
        self._unanswered: dict[Promise, None] = {}
        """operations whose answer or failure the program has not received"""

    def keep(self, promise: Promise) -> Handle[Any]:
        """Adds an operation and returns its handle."""
        self._unanswered[promise] = None
        return self._table.give(promise)

    def all_done(self, handles: Sequence[Handle[Any]]) -> bool:
        """Whether a wait for all of these would return at once."""
        return self._table.is_over(handles, len(handles))

    def wait(self, thread: Thread, handles: Sequence[Handle[Any]], least: int) -> tuple[tuple[int, Any], ...]:
        """Waits until `least` are done; returns (index, answer) of all that are done by then."""
        promises = self._table.awaited(handles, least)
        if least < len(promises):
            self._until_over(thread, promises, least)
        else:
            for promise in (*promises[-1:], *promises):  # the last one first: one wake-up instead of one for each
                self._finish(thread, promise)
        over = tuple(index for index, promise in enumerate(promises) if promise.over)
        for index in over:
            self._unanswered.pop(promises[index], None)
        return self._table.answers(thread.line, promises, least, over)

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

    def cancel(self, thread: Thread, handle: Handle[Any]) -> bool:
        """Cancels an operation; returns True if that was in time."""
        in_time = self._table.cancel(thread.line, handle)
        if in_time:
            self._unanswered.pop(self._table.promise(handle), None)
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

    def answer(self, handle: Handle[Any]) -> Any:
        """Returns the answer of a complete operation, for a checkpoint."""
        return self._table.promise(handle).result()

    def restore(self, answers: Mapping[Handle[Any], Any]) -> None:
        """Restores the handles of a checkpoint with their answers; new handles are numbered after them."""
        self._table.restore(answered(answers))
