"""One rank's own affairs: who it is, its clock, its record, and what it says on the board while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.program import Lane
from paceline.backend.devices.accelerator import Accelerator, Processor
from paceline.backend.posix.precise_wait import Clock
from paceline.backend.status.recorder import Recorder
from paceline.backend.status.status_board import Board, Doing
from paceline.backend.transports.inbox import Claim
from paceline.records.trace import Activity, Span

Turn = Callable[[], None]
"""lets a program go on as far as it can without waiting for anybody"""
Behind = Callable[[Turn], None]
"""a computation, which gives the program its turn now and then"""


@dataclass
class Thread:
    """A lane of the rank's program, performed by one thread of its process."""

    name: str
    stream: str = ""
    """names the lane's own order of collectives"""
    lane: Lane | None = None
    """of a routine; a single started operation has none"""
    step: int = 0
    line: str = ""
    """its name by `Branches`"""
    leave: Callable[[Behind], None] | None = None
    """has something computed by this thread as soon as the lane has gone on; a single started operation has none"""
    claim: Claim | None = None
    """of a single started receive: what a `Cancel` takes away"""
    given_up: threading.Event | None = None
    """of any other single started operation: set by a `Cancel`"""

    @property
    def place(self) -> str:
        """The program line at which it stands."""
        return self.lane.where() if self.lane is not None else self.name


@dataclass(frozen=True)
class Station:
    """What all parts of the interpreter share."""

    me: RankContext
    board: Board
    recorder: Recorder
    clock: Clock
    accelerator: Accelerator = field(default_factory=Processor)
    """what the rank computes on"""
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def span(self, thread: Thread, activity: Activity, start_s: float, *, step: int | None = None, **more: Any) -> None:
        """Records an activity of the thread that ends now."""
        layer, at = more.pop("layer", None), thread.step if step is None else step
        self.recorder.add(
            "span", Span(self.me.rank, thread.name, activity, layer, at, start_s, self.clock.now(), **more)
        )

    def standing(self, thread: Thread) -> str:
        """Who stands where, for messages."""
        return f"rank {self.me.rank} ({self.me.role}) at {thread.place}, step {thread.step}"

    def waiting(self, thread: Thread, what: str, place: str = "") -> None:
        """Says on the board that the rank's program waits for others: what a deadlock report is made of.

        Args:
            thread: the lane that waits.
            what: for what.
            place: where it stands, for those who know it already.
        """
        if thread.name == "main":
            who = f"rank {self.me.rank} ({self.me.role}) at {place or thread.place}, step {thread.step}"
            self.board.say(self.me.rank, Doing.BLOCKED, f"{who}: waits {what}")

    def moving(self, thread: Thread) -> None:
        """Says that it goes on."""
        if thread.name == "main":
            self.board.say(self.me.rank, Doing.RUNNING)
        else:
            self.board.move(self.me.rank)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While it lasts the rank does not count as waiting, whatever its program waits for."""
        self._count(+1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, by: int) -> None:
        with self._counting:  # lanes begin and end at once
            self.board.busy(self.me.rank, by)
