"""What all parts of one rank's interpreter share: its identity, clock, record, device, and status."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.program import Lane
from paceline.algorithms.runtime.program_errors import place_of
from paceline.backend.devices.accelerator import Accelerator, Processor
from paceline.backend.posix.precise_wait import Clock
from paceline.backend.status.rank_status import RankState, RankStatus
from paceline.backend.status.recorder import Recorder
from paceline.backend.status.status_board import StatusBoard
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
    started_at: str = ""
    """the line at which a single operation was started: it has no line of its own"""
    leave: Callable[[Behind], None] | None = None
    """has something computed by this thread as soon as the lane has gone on; a single started operation has none"""
    claim: Claim | None = None
    """of a single started receive: what a `Cancel` takes away"""
    given_up: threading.Event | None = None
    """of any other single started operation: set by a `Cancel`"""

    @property
    def place(self) -> str:
        """The program line at which it stands."""
        return self.lane.where() if self.lane is not None else self.started_at


@dataclass(frozen=True)
class Station:
    """What all parts of the interpreter share."""

    me: RankContext
    board: StatusBoard
    recorder: Recorder
    clock: Clock
    accelerator: Accelerator = field(default_factory=Processor)
    """what the rank computes on"""
    status: RankStatus = field(init=False)
    """the rank's row of the board, looked up once because every operation updates it"""
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", self.board.ranks[self.me.rank])

    def span(self, thread: Thread, activity: Activity, start_s: float, *, step: int | None = None, **more: Any) -> None:
        """Records an activity of the thread that ends now."""
        layer, at = more.pop("layer", None), thread.step if step is None else step
        self.recorder.add(
            "span", Span(self.me.rank, thread.name, activity, layer, at, start_s, self.clock.now(), **more)
        )

    def standing(self, thread: Thread) -> str:
        """The rank, its lane, the line of its program and the step, for messages."""
        return place_of(self.me, thread.name, thread.place, thread.step)

    def waiting(self, thread: Thread, what: str, place: str = "") -> None:
        """Reports that the rank's program waits for others; deadlock messages quote this.

        Args:
            thread: the lane that waits.
            what: it waits for, with a preposition.
            place: where the lane stands, if the caller knows it already.
        """
        if thread.name == "main":
            who = place_of(self.me, thread.name, place or thread.place, thread.step)
            self.status.report(RankState.BLOCKED, f"{who}: waits {what}")

    def moving(self, thread: Thread) -> None:
        """Reports that the lane goes on."""
        if thread.name == "main":
            self.status.report(RankState.RUNNING)
        else:
            self.status.note_progress()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """During the block the rank counts as busy, even if its program waits."""
        self._count(+1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, by: int) -> None:
        with self._counting:  # lanes begin and end at once
            self.status.add_busy(by)
