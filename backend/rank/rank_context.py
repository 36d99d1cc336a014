"""The shared context of one rank's interpreter: its identity, clock, record, device, and status."""

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
from paceline.backend.posix.waits import RunClock
from paceline.backend.status.rank_status import RankState, RankStatus
from paceline.backend.status.recorder import FileRecorder
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.transports.messages import ReceiveClaim
from paceline.records.trace import Activity

Turn = Callable[[], None]
"""runs a program as far as possible without waiting"""
Behind = Callable[[Turn], None]
"""a computation that calls the program's turn regularly"""


@dataclass
class Thread:
    """A lane of the rank's program, run by one thread of its process."""

    name: str
    stream: str = ""
    """names the lane's own sequence of collectives"""
    lane: Lane | None = None
    """the lane of a routine; None for a single started operation"""
    step: int = 0
    line: str = ""
    """its name by `Branches`"""
    started_at: str = ""
    """the line at which a single operation was started, which has no line of its own"""
    leave: Callable[[Behind], None] | None = None
    """schedules a computation in this thread after the lane's next advance; None for a single started operation"""
    claim: ReceiveClaim | None = None
    """the claim of a single started receive, which `Cancel` gives up"""
    given_up: threading.Event | None = None
    """set by a `Cancel` of any other single started operation"""

    @property
    def place(self) -> str:
        """The current line of the program."""
        return self.lane.where() if self.lane is not None else self.started_at


@dataclass(frozen=True)
class RankStation:
    """The objects that all parts of the interpreter share."""

    me: RankContext
    board: StatusBoard
    recorder: FileRecorder
    clock: RunClock
    accelerator: Accelerator = field(default_factory=Processor)
    """the device of the rank"""
    status: RankStatus = field(init=False)
    """the rank's row of the board, looked up once because every operation updates it"""
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", self.board.ranks[self.me.rank])

    def span(self, thread: Thread, activity: Activity, start_s: float, *, step: int | None = None, **more: Any) -> None:
        """Records an activity of the thread that ends now."""
        layer, at = more.pop("layer", None), thread.step if step is None else step
        self.recorder.span(self.me.rank, thread.name, activity, layer, at, start_s, self.clock.now(), **more)

    def standing(self, thread: Thread) -> str:
        """Describes the rank, its lane, the line of its program and the step, for messages."""
        return place_of(self.me, thread.name, thread.place, thread.step)

    def waiting(self, thread: Thread, what: str, place: str = "") -> None:
        """Reports that the rank's program waits for others; deadlock messages quote this.

        Args:
            thread: the lane that waits.
            what: what it waits for, beginning with a preposition.
            place: the line of the lane, if the caller has it already.
        """
        if thread.name == "main":
            place_text = place_of(self.me, thread.name, place or thread.place, thread.step)
            self.status.report(RankState.BLOCKED, f"{place_text}: waits {what}")

    def moving(self, thread: Thread) -> None:
        """Reports that the lane continues."""
        if thread.name == "main":
            self.status.report(RankState.RUNNING)
        else:
            self.status.note_progress()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Counts the rank as busy during the block, even if its program waits."""
        self._count(+1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, by: int) -> None:
        with self._counting:  # several lanes may begin and end at the same time
            self.status.add_busy(by)
