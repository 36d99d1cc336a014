"""Operations that a rank's program has started and not yet waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.operations import Handle
from paceline.algorithms.runtime.handles import HandleTable, Promise
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


class RankHandles(HandleTable[Promise]):
    """The handles of a real rank, whose lanes are threads."""

    def __init__(self, station: Station) -> None:
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
