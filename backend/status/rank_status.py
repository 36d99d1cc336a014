"""One rank's row of the status board: its memory layout, and what the rank reports and votes in it.

Rules of this file:

* Every number is aligned, because other processes read it while it is written: a number that crosses a cache line could
  be seen half written.
* The rank itself writes its row, except for `quiet_s` and `stopped`, which its supervisor writes.
* Every number is read and written through a memoryview of one item, because a rank updates its row at every operation
  and indexing a structured NumPy array takes about twice as long.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.backend.posix.reserve import reserve, shared_file
from paceline.backend.status.progress_counters import FIELDS, ProgressCounters

BUCKETS, SLOTS, TEXT = 8, 64, 240
LOSS_TEXT = 8 * TEXT
"""bytes of the message why a rank is lost, including what the other ranks waited for"""
VOTES = 64
"""how many of a rank's last votes others can still read; no rank is further ahead of another one"""
VOTE = np.dtype([("name", "u8"), ("position", "i8"), ("vote", "u1")], align=True)
ENTRY = np.dtype([("turn", "u8"), ("stream", "u8"), ("position", "i8"), ("text", f"S{TEXT}")], align=True)
ROW = np.dtype(
    [
        ("state", "u1"),
        ("progress", "i8"),
        ("step", "i8"),
        ("busy", "i4"),
        ("granted", "i8"),
        ("sums", "f8", (len(FIELDS),)),
        ("text", f"S{TEXT}"),
        ("dead", "?"),
        ("quiet_s", "f8"),
        ("stopped", "?"),
        ("vote_count", "i8"),
        ("votes", VOTE, (VOTES,)),
        ("collectives", ENTRY, (BUCKETS, SLOTS)),
    ],
    align=True,
)
COMMON = np.dtype(
    [
        ("stop_at", "i8"),
        ("leased", "i8"),
        ("lost", "i8"),
        ("lost_at", "i8"),
        ("losses", "i8"),
        ("start_s", "f8"),
        ("evaluations", "i8"),
        ("loss", "f8"),
        ("accuracy", "f8"),
        ("stop_reason", "S16"),
        ("run_state", "u1"),
        ("loss_text", f"S{LOSS_TEXT}"),
    ],
    align=True,
)


def integer(record: Any, field: str) -> memoryview[int]:
    """Returns an integer or truth value of an array with one record as a memoryview with one item."""
    return memoryview(record[field])


def real(record: Any, field: str) -> memoryview[float]:
    """Returns a real number of an array with one record as a memoryview with one item."""
    view: Any = memoryview(record[field])
    return cast("memoryview[float]", view)


def mapped(ranks: int, folder: Path | None) -> tuple[mmap.mmap, bool]:
    """Maps the memory of a board.

    Args:
        ranks: the number of rows.
        folder: the run's folder, in which the board is a file; None for memory without a name.

    Returns:
        The memory, and whether it is new.

    Raises:
        RunFailed: the file system has no space for it.
    """
    size, path = ranks * ROW.itemsize + COMMON.itemsize, (folder or Path(tempfile.gettempdir())) / "board"
    with tempfile.TemporaryFile() if folder is None else shared_file(path) as file:
        new = os.fstat(file.fileno()).st_size == 0
        reserve(file.fileno(), path, 0, size, f"the board of {ranks} ranks")
        return mmap.mmap(file.fileno(), size), new


class RankState(IntEnum):
    """What a rank's program is doing. A rank passes the states in this order, except BLOCKED, RUNNING and FAILED."""

    STARTING, CONNECTING, READY, RUNNING, BLOCKED, ENDED, DRAINED, FAILED = range(8)


class Vote(IntEnum):
    """A member's vote on a collective, in runs that continue after a rank has died."""

    COMMIT, ABORT = 1, 2


class StatusValues(NamedTuple):
    """The part of a row that hosts exchange, in numbers and text that JSON can represent."""

    state: int
    text: str
    progress: int
    step: int
    busy: int
    quiet_s: float
    stopped: bool
    sums: tuple[float, ...] = (0.0,) * len(FIELDS)
    """the progress counters"""


class RankStatus:
    """One rank's row.

    Args:
        rank: the rank of the row.
        row: array of one record of the type `ROW`.
    """

    __slots__ = (
        "_busy", "_dead", "_granted", "_progress", "_quiet_s", "_state", "_step", "_stopped", "_sums", "_text",
        "_vote_count", "_votes", "_voting", "rank",
    )  # fmt: skip

    def __init__(self, rank: Rank, row: Any) -> None:
        self.rank = rank
        self._state, self._progress, self._step = (integer(row, name) for name in ("state", "progress", "step"))
        self._busy, self._granted, self._dead = (integer(row, name) for name in ("busy", "granted", "dead"))
        self._quiet_s, self._stopped = real(row, "quiet_s"), integer(row, "stopped")
        self._text = row["text"]
        self._sums = row["sums"][0]
        self._votes, self._vote_count = row["votes"][0], integer(row, "vote_count")
        self._voting = threading.Lock()
        """for the threads of this process: each process has its own lock, and only the rank itself votes"""

    # --- state and progress ---------------------------------------------------------------------------------------

    def report(self, state: RankState, text: str = "") -> None:
        """Sets the rank's state and counts it as progress.

        Args:
            state: the new state.
            text: what a blocked rank waits for; an empty string leaves the text unchanged.
        """
        self._progress[0] += 1
        if text:
            self._text[0] = text.encode()[:TEXT]
        self._state[0] = state  # last: a reader that sees the state finds its text

    @property
    def state(self) -> RankState:
        """The rank's state. The setter does not count as progress; the rank itself calls `report`."""
        return RankState(self._state[0])

    @state.setter
    def state(self, state: RankState) -> None:
        self._state[0] = state

    @property
    def text(self) -> str:
        """What a blocked rank waits for, or the error of a failed one."""
        return bytes(self._text[0]).decode(errors="replace")

    @property
    def progress(self) -> int:
        """Increases whenever the rank's program, or an operation that it has started, makes progress."""
        return self._progress[0]

    def note_progress(self) -> None:
        """Counts progress of an operation that the rank's program has started."""
        self._progress[0] += 1

    @property
    def step(self) -> int:
        """The step that the rank's program has reached."""
        return self._step[0]

    @step.setter
    def step(self, step: int) -> None:
        self._step[0] = step

    @property
    def granted(self) -> int:
        """How many steps the rank may begin."""
        return self._granted[0]

    @granted.setter
    def granted(self, steps: int) -> None:
        self._granted[0] = steps

    @property
    def busy(self) -> bool:
        """Whether the rank computes or loads, which needs no other rank, even if its program waits."""
        return self._busy[0] > 0

    def add_busy(self, change: int) -> None:
        """Records that such an activity begins (+1) or ends (-1)."""
        self._busy[0] += change

    @property
    def counters(self) -> ProgressCounters:
        """The rank's own progress counters, to which it adds."""
        return ProgressCounters(memoryview(self._sums).cast("B").cast("d"))

    # --- failure --------------------------------------------------------------------------------------------------

    def fail(self, message: str = "") -> None:
        """Sets the state FAILED, with the message if the rank's record has no space for the error."""
        self._text[0] = message.encode()[:TEXT]
        self.report(RankState.FAILED)

    @property
    def failure(self) -> str:
        """The message that `fail` has recorded; empty if there is none."""
        return self.text if self.state is RankState.FAILED else ""

    @property
    def dead(self) -> bool:
        """Whether the rank's process has ended or has been declared dead."""
        return bool(self._dead[0])

    @dead.setter
    def dead(self, dead: bool) -> None:
        self._dead[0] = dead

    # --- written by supervisors -----------------------------------------------------------------------------------

    @property
    def quiet_s(self) -> float:
        """Seconds without progress and without use of a processor, as the host's supervisor measures them."""
        return self._quiet_s[0]

    @quiet_s.setter
    def quiet_s(self, seconds: float) -> None:
        self._quiet_s[0] = seconds

    @property
    def stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the rank's process."""
        return bool(self._stopped[0])

    @stopped.setter
    def stopped(self, stopped: bool) -> None:
        self._stopped[0] = stopped

    @property
    def values(self) -> StatusValues:
        """Returns the part of the row that other hosts receive."""
        return StatusValues(
            self._state[0],
            self.text,
            self.progress,
            self.step,
            self._busy[0],
            self.quiet_s,
            self.stopped,
            tuple(self._sums.tolist()),
        )

    def update(self, values: StatusValues) -> None:
        """Copies what another host has sent about the rank; the state last, as in `report`."""
        self._text[0] = values.text.encode()[:TEXT]
        self._progress[0], self._step[0], self._busy[0] = values.progress, values.step, values.busy
        self._quiet_s[0], self._stopped[0] = values.quiet_s, values.stopped
        self._sums[:] = values.sums
        self._state[0] = values.state

    # --- votes ----------------------------------------------------------------------------------------------------

    def vote(self, name: int, position: int, vote: Vote) -> None:
        """Votes on a collective: the one at `position` of the group and stream that `name` identifies.

        Args:
            name: identifies the group and stream; see `communication.name_of`.
            position: the position of the collective in the stream.
            vote: the vote.
        """
        with self._voting:
            entry = self._votes[self._vote_count[0] % VOTES]
            entry["vote"] = 0  # no vote while the entry is half written
            entry["name"], entry["position"] = name, position
            entry["vote"] = vote
            self._vote_count[0] += 1

    def vote_on(self, name: int, position: int) -> Vote | None:
        """Returns the rank's vote on a collective; None if it has not voted."""
        votes = self._votes
        indices = np.flatnonzero((votes["name"] == name) & (votes["position"] == position) & (votes["vote"] != 0))
        return Vote(int(votes["vote"][indices[0]])) if len(indices) else None
