"""The shared context of one rank's interpreter: its identity, clock, record, device, status, and speed reference."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.program import Lane
from paceline.algorithms.runtime.program_errors import place_of
from paceline.backend.devices.accelerator import Accelerator, Processor
from paceline.backend.posix.waits import RunClock
from paceline.backend.status.rank_status import RankState, RankStatus
from paceline.backend.status.recorder import FileRecorder
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.transports.messages import ReceiveClaim
from paceline.records.machine import busy_and_stolen_s
from paceline.records.machine_speed import SpeedSample
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

    def span(
        self, thread: Thread, activity: Activity, start_s: float, *, step: int | None = None, **more: Any
    ) -> float:
        """Records an activity of the thread that ends now; returns this time."""
        layer, at, end_s = more.pop("layer", None), thread.step if step is None else step, self.clock.now()
        self.recorder.span(self.me.rank, thread.name, activity, layer, at, start_s, end_s, **more)
        return end_s

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


# The speed reference: a short fixed piece of arithmetic and of memory traffic, which every rank times between steps.
#
# The speed of a shared machine changes by tens of per cent within seconds, because other virtual machines use the same
# processors. The reference shows it, in calibrations and in runs alike, without a look at what they measure.
#
# * Both pieces are timed in processor time of their own thread, so that one that was interrupted is no slower. What
#   interruptions cost is recorded beside them: how long the thread was ready but had no core, from Linux's `schedstat`,
#   and which part of the time a hypervisor has stolen from this machine's processors.
# * Each piece is performed once before it is timed, so that its data are in the caches whatever the step has used.
# * A sample takes about 0.1 ms and follows the last one after `EVERY_S` at the earliest: half a per cent of the time.


EVERY_S = 0.02
"""the shortest time between two samples; provenance: ours, for a cost below 1 %"""
COUNT_S = 0.25
"""the shortest time between two readings of the machine's counters, which count in hundredths of a second"""
SIDE = 96
"""rows and columns of the two matrices whose product is the arithmetic; provenance: ours. Over 60 s on a shared virtual
machine, its time varied as that of a perceptron's gradients: exponent 0.9 to 1.3, correlation 0.92 to 0.98"""
COPIED_BYTES = 128 * 2**10
"""bytes of the vector that is copied: more than the first cache of a core holds; provenance: ours"""

WAITED = Path("/proc/thread-self/schedstat")
"""nanoseconds on a core, nanoseconds of waiting for one, and time slices; source: Linux, Documentation/scheduler/
sched-stats.rst"""


class SpeedReference:
    """The speed reference of one rank.

    Call `sample` between two steps. A rank makes one sample at its first step and one at its end at least.

    >>> reference = SpeedReference()
    >>> first = reference.sample(0.0)
    >>> first is not None and first.arithmetic_s > 0, reference.sample(0.001)
    (True, None)
    """

    def __init__(self) -> None:
        self._left, self._right, self._product = (torch.full((SIDE, SIDE), 0.5) for _ in range(3))
        self._vector = torch.ones(COPIED_BYTES // 4)
        self._copy = torch.empty_like(self._vector)
        self._due_s = self._counted_s = float("-inf")
        self._counts = 0.0, 0.0

    def sample(self, now_s: float, *, last: bool = False) -> SpeedSample | None:
        """Times both pieces; returns None if the last sample is too recent.

        Args:
            now_s: the time on the run's clock.
            last: whether the rank's run ends here.
        """
        if now_s < self._due_s and not last:
            return None
        self._due_s = now_s + EVERY_S
        if now_s >= self._counted_s + COUNT_S or last:
            self._counted_s, self._counts = now_s, busy_and_stolen_s()
        arithmetic_s, memory_s = _timed(self._multiply), _timed(self._move)
        return SpeedSample(now_s, arithmetic_s, memory_s, _waited_s(), *self._counts)

    def _multiply(self) -> None:
        torch.mm(self._left, self._right, out=self._product)

    def _move(self) -> None:
        self._copy.copy_(self._vector)


def _timed(piece: Callable[[], None]) -> float:
    """Returns the seconds of processor time that a piece takes when it is repeated."""
    piece()
    begun_s = time.thread_time()
    piece()
    return time.thread_time() - begun_s


def _waited_s() -> float:
    """Returns the seconds for which the calling thread was ready but had no core; 0 where the system counts none."""
    try:
        _, waited_ns, _ = WAITED.read_text(encoding="ascii").split()
    except OSError:
        return 0.0
    return 1e-9 * int(waited_ns)
