"""Collectives inside a node, in memory that its ranks share, without sockets.

Rules of this file:

* Collectives of one group and stream are performed in the order of the program. The calling thread performs a
  collective that is called. One that is started is performed by a thread of that group and stream, or by the thread
  that waits for
  it if that comes sooner: with nothing to overlap, a switch of threads would only cost time.
* Any group of ranks of one node is served, and the streams of started sub-programs, as long as there are free channels;
  the others use gloo. The members agree on this by the segment's table.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.backend.posix.worker_thread import WorkerThread
from paceline.backend.status.status_board import Lost
from paceline.backend.transports.channel import Channel
from paceline.backend.transports.shared_segment import Segment


class SharedMemory:
    """The collectives of one rank in its node's shared memory."""

    def __init__(self, segment: Segment, rank: Rank, lost: Lost) -> None:
        self._segment, self._rank, self._lost = segment, rank, lost
        self._lines: dict[tuple[Group, str], Line | None] = {}

    def line(self, group: Group, stream: str = "") -> Line | None:
        """Returns the line of this group and stream, or None if they use gloo."""
        if not self._segment.holds(group):
            return None
        if (group, stream) not in self._lines:
            number = self._segment.claim(group, stream)
            self._lines[group, stream] = (
                None if number is None else Line(Channel(self._segment, number, group, self._rank, self._lost))
            )
        return self._lines[group, stream]

    def leave(self, stream: str) -> None:
        """Releases the channels of a stream that has ended, after the collectives started in it."""
        for group, _ in [key for key in list(self._lines) if key[1] == stream]:
            line = self._lines.pop((group, stream))

            def give_back(group: Group = group) -> None:
                self._segment.leave(group, stream)

            give_back() if line is None else line.close(give_back)

    def close(self) -> None:
        """Ends the threads of started collectives after those that are pending; nothing may be issued afterwards."""
        for line in self._lines.values():
            if line is not None:
                line.close(lambda: None)


class Line:
    """The collectives of a group and stream at one rank, in order. One thread at a time issues them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._due: deque[Issued] = deque()
        self._turn = threading.Lock()
        """held by the thread that performs one"""
        self._helper: WorkerThread | None = None
        """None until a collective is started"""

    def issue(self, op: Collective, *, started: bool) -> InMemory:
        """Issues a collective; one that is not started is performed when its result is requested."""
        issued = Issued(op)
        self._due.append(issued)
        if started:
            if self._helper is None:
                self._helper = WorkerThread("collectives")
            self._helper.put(self._next)
        return InMemory(lambda: issued.done, lambda: self._finish(issued))

    def _next(self) -> None:
        """Performs the oldest pending one, unless a waiting thread has done so."""
        with self._turn:
            if self._due:
                self._due.popleft().perform(self._channel)

    def _finish(self, issued: Issued) -> Any:
        """Performs the pending ones up to this one, as far as the helper has not, and returns its result."""
        with self._turn:
            while not issued.done:
                self._due.popleft().perform(self._channel)
        return issued.answer()

    def close(self, then: Callable[[], None]) -> None:
        """Calls `then` when all are done; nothing may be issued afterwards."""
        if self._helper is None:
            then()
        else:
            self._helper.put(then)
            self._helper.close()


@dataclass(slots=True)
class Issued:
    """A collective and its outcome."""

    op: Collective | None
    done: bool = False
    _answer: Any = None
    _failure: BaseException | None = None

    def perform(self, channel: Channel) -> None:
        """Performs it and releases its value."""
        assert self.op is not None, "each is performed once"
        op, self.op = self.op, None
        try:
            self._answer = channel.perform(op)
        except BaseException as error:
            self._failure = error
        self.done = True

    def answer(self) -> Any:
        """Returns the result, or raises the failure."""
        if self._failure is not None:
            raise self._failure
        return self._answer


@dataclass(frozen=True, slots=True)
class InMemory:
    """A collective in flight."""

    done: Callable[[], bool]
    finish: Callable[[], Any]
    """waits and returns the result; called once"""
