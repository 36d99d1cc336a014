"""Collectives inside a node: in the memory that its ranks share, without sockets.

Rules of this file:

* Collectives of one group and stream are performed in the order of the program. One that is called is performed by the
  caller itself; one that is started, by a thread of that group and stream, and so is what is called before it is done.
* Any group whose ranks are of one node is served, and the streams of started sub-programs, as long as there are
  channels; the others go by gloo. The members agree on it by the segment's table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from paceline.algorithms.meeting import Collective
from paceline.algorithms.values import Group, Rank
from paceline.backend.board import Lost
from paceline.backend.channel import Channel
from paceline.backend.segment import Segment


class SharedMemory:
    """One rank's collectives in its node's memory."""

    def __init__(self, segment: Segment, rank: Rank, lost: Lost) -> None:
        self._segment, self._rank, self._lost = segment, rank, lost
        self._lines: dict[tuple[Group, str], Line | None] = {}

    def line(self, group: Group, stream: str = "") -> Line | None:
        """Where collectives of this group and stream are performed; None where gloo has to do it."""
        if not self._segment.holds(group):
            return None
        if (group, stream) not in self._lines:
            number = self._segment.claim(group, stream, self._lost)
            self._lines[group, stream] = (
                None if number is None else Line(Channel(self._segment, number, group, self._rank, self._lost))
            )
        return self._lines[group, stream]

    def leave(self, stream: str) -> None:
        """The stream has ended: its channels are given back, once what was started in it is done."""
        for group, _ in [key for key in list(self._lines) if key[1] == stream]:
            line = self._lines.pop((group, stream))

            def give_back(group: Group = group) -> None:
                self._segment.leave(group, stream, self._lost)

            give_back() if line is None else line.close(give_back)

    def close(self) -> None:
        """Ends the threads of what has been started, once it is done: nothing is issued any more."""
        for line in self._lines.values():
            if line is not None:
                line.close(lambda: None)


class Line:
    """A group's and stream's collectives at one rank, in their order. One thread at a time issues them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._jobs: SimpleQueue[Callable[[], object] | None] | None = None
        """of the thread; there is none before something is started"""
        self._last: Future[Any] | None = None

    @property
    def _idle(self) -> bool:
        return self._last is None or self._last.done()

    def issue(self, op: Collective, *, started: bool) -> InMemory:
        """Begins a collective; one that is not started begins when its answer is asked for."""
        if not started and self._idle:
            return InMemory(lambda: False, lambda: self._channel.perform(op))
        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(self._channel.perform(op))
            except BaseException as error:
                future.set_exception(error)

        self._last = future
        self._hand_over(job)
        return InMemory(future.done, future.result)

    def _hand_over(self, job: Callable[[], object]) -> None:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), daemon=True, name="collectives").start()
        self._jobs.put(job)

    def close(self, then: Callable[[], None]) -> None:
        """Calls `then` when all is done; nothing is issued any more."""
        if self._jobs is None:
            then()
        else:
            self._jobs.put(then)
            self._jobs.put(None)


def _work(jobs: SimpleQueue[Callable[[], object] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()


@dataclass(frozen=True, slots=True)
class InMemory:
    """A collective under way."""

    done: Callable[[], bool]
    finish: Callable[[], Any]
    """waits, and answers; asked once"""
