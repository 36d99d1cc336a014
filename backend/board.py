"""The board: shared memory of one host in which every rank says what it is doing, and where a stop is agreed.

Rules of this file:

* The board lies in a file of the run's folder in the host's memory: forked ranks inherit it, ranks that were started by
  others map it. Ranks write their own row only, except for the stop, which has a lock that a killed rank cannot keep.
* Where a run has several hosts, each has a board with a row for everybody; what the rows of other hosts' ranks say
  comes from there now and then (`mirror`), and steps are granted by leases (`leases`).
* Nothing a rank needs for its arithmetic goes through here. The board is for progress, for deadlocks and mismatches to
  be reported in words, and for everybody to stop at the same step.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

import numpy as np

from paceline.algorithms.errors import ProgramError
from paceline.algorithms.values import Rank
from paceline.backend.hostlock import HostLock
from paceline.backend.leases import Across, Bound
from paceline.records.trace import Reason

BUCKETS, SLOTS, TEXT = 8, 64, 240
NEVER = np.iinfo(np.int64).max
Lost = Callable[[Iterable[Rank]], Rank | None]
"""names the dead rank that a wait for these ranks is in vain for, if there is one; none given: a wait for anyone"""


class Doing(IntEnum):
    """What a rank's program is doing."""

    STARTING, READY, RUNNING, BLOCKED, ENDED, DRAINED, FAILED = range(7)


class Over(IntEnum):
    """Whether a run of joined ranks goes on."""

    NO, DONE, FAILED = range(3)


class Board:
    """One row per rank.

    Args:
        ranks: how many there are.
        keepers: those whose steps are granted.
        limit: steps after which none is granted; None without such a limit.
        together: the keepers' steps count together, not each one's for itself.
        folder: of the run on this host, where whoever comes first makes the board; None: for this process and those
            that it forks.
        across: where keepers are on several hosts: what these agree on about steps.
    """

    def __init__(
        self,
        ranks: int,
        keepers: Sequence[Rank],
        *,
        limit: int | None = None,
        together: bool = False,
        folder: Path | None = None,
        across: Across | None = None,
    ) -> None:
        entry = np.dtype([("turn", "u8"), ("stream", "u8"), ("position", "i8"), ("text", f"S{TEXT}")])
        row = np.dtype(
            [
                ("doing", "u1"),
                ("moves", "i8"),
                ("step", "i8"),
                ("busy", "i4"),
                ("granted", "i8"),
                ("text", f"S{TEXT}"),
                ("collectives", entry, (BUCKETS, SLOTS)),
            ]
        )
        common = np.dtype(
            [
                ("stop_at", "i8"),
                ("leased", "i8"),
                ("lost", "i8"),
                ("start_s", "f8"),
                ("why", "S16"),
                ("over", "u1"),
                ("text", f"S{TEXT}"),
            ]
        )
        room = ranks * row.itemsize
        with tempfile.TemporaryFile() if folder is None else (folder / "board").open("a+b") as file:
            made = file.seek(0, os.SEEK_END) == 0
            if made:
                file.truncate(room + common.itemsize)
            self._memory = mmap.mmap(file.fileno(), room + common.itemsize)
        self.rows: Any = np.frombuffer(self._memory, dtype=row, count=ranks)
        self.common: Any = np.frombuffer(self._memory, dtype=common, count=1, offset=room)
        if made:
            self.common["stop_at"], self.common["lost"] = NEVER, -1
            self.rows["collectives"]["position"] = -1
        self._keepers = [int(rank) for rank in keepers]
        self._limit, self._together, self._across = NEVER if limit is None else limit, together, across
        self._lock = HostLock(None if folder is None else folder / "board.lock")
        self._writing = threading.Lock()
        """of the lanes of one rank: each process has its own"""

    # --- stopping -------------------------------------------------------------------------------------------------

    def grant(self, rank: Rank, step: int) -> bool:
        """Whether a keeper may begin this step; once granted, everyone may, unless their steps count together."""
        with self._lock:
            reached = self._granted if self._together else step
            if self._across is not None and self._end > reached >= self.common["leased"][0]:
                self._agree(self._across.extend(reached))
                if reached >= self.common["leased"][0]:
                    return False
            if reached >= self._end:
                return False
            self.rows["granted"][rank] = max(self.rows["granted"][rank], step + 1)
            return True

    def stop(self, why: Reason) -> None:
        """Ends the run after the last step that any keeper has begun, if it does not end there anyway.

        Between hosts: after the last step that any keeper may begin without asking.
        """
        with self._lock:
            if self._across is not None:
                if (bound := self._across.close(why, self._granted)) is not None:
                    self._agree(bound)
            elif self._granted < self._end:
                self.common["stop_at"], self.common["why"] = self._granted, why.encode()

    @property
    def _end(self) -> int:
        """The step that nobody begins."""
        return min(self._limit, int(self.common["stop_at"][0]))

    def _agree(self, bound: Bound) -> None:
        """Notes what the hosts have agreed on."""
        self.common["leased"] = bound.steps
        if bound.closed is not None and not self.stopping:
            self.common["stop_at"], self.common["why"] = bound.steps, bound.closed.encode()

    @property
    def _granted(self) -> int:
        """Steps that keepers have begun: the furthest one's, or all of theirs where they count together."""
        granted = self.rows["granted"][self._keepers]
        return int(granted.sum() if self._together else granted.max())

    @property
    def why(self) -> Reason | None:
        """Why the run was ended before its limit, if it was."""
        why = self.common["why"][0].decode()
        return cast("Reason", why) if why else None

    @property
    def stopping(self) -> bool:
        return bool(self.common["stop_at"][0] != NEVER)

    # --- what everybody does --------------------------------------------------------------------------------------

    def say(self, rank: Rank, doing: Doing, text: str = "") -> None:
        """Notes what a rank is doing, in words when it waits for others."""
        row = self.rows[rank]
        row["moves"] += 1
        if text:
            row["text"] = text.encode()[:TEXT]
        row["doing"] = doing

    def move(self, rank: Rank) -> None:
        """Notes that something the rank's program has started goes on."""
        self.rows["moves"][rank] += 1

    def doing(self, rank: int) -> Doing:
        return Doing(int(self.rows["doing"][rank]))

    def waits(self, rank: int) -> str:
        """What a blocked rank said it waits for."""
        return bytes(self.rows["text"][rank]).decode(errors="replace")

    def busy(self, rank: Rank, by: int) -> None:
        """Notes that the rank begins (+1) or ends (−1) to do what needs nobody else, whatever its program waits for."""
        self.rows["busy"][rank] += by

    @property
    def all_ready(self) -> bool:
        return bool((self.rows["doing"] >= Doing.READY).all())

    @property
    def all_drained(self) -> bool:
        return bool((self.rows["doing"] >= Doing.DRAINED).all())

    @property
    def start_s(self) -> float:
        """The common start on the host's monotonic clock; 0 before it is set."""
        return float(self.common["start_s"][0])

    def start(self, at_s: float) -> None:
        self.common["start_s"] = at_s

    def lose(self, rank: Rank) -> None:
        """Notes that a rank is gone; every wait for others ends with `PeerFailed`."""
        self.common["lost"] = rank

    def lost(self, needed: Iterable[Rank] = ()) -> Rank | None:
        """The dead rank that a wait for these ranks is in vain for, if there is one; none given: a wait for anyone.

        Nobody goes on without a rank: whoever has died ends every wait.
        """
        rank = int(self.common["lost"][0])
        return None if rank < 0 else Rank(rank)

    # --- collectives ----------------------------------------------------------------------------------------------

    def enter(self, rank: Rank, members: Sequence[Rank], stream: str, position: int, what: str, place: str) -> None:
        """Notes a collective before it is issued; raises `ProgramError` where another member issued something else.

        gloo matches collectives by their order alone: a swapped pair of equal size is silently added up, one of unequal
        size aborts the process. Whoever comes second sees the difference here and does not issue.
        """
        bucket, slot = zlib.crc32(stream.encode()) % BUCKETS, position % SLOTS
        name = zlib.crc32(stream.encode()) | len(stream) << 32
        mine = self.rows["collectives"][rank, bucket, slot : slot + 1]
        said = what.encode()
        with self._writing:
            mine["turn"] += 1  # odd while it is being written: streams may share a bucket, and so an entry
            mine["stream"], mine["position"], mine["text"] = name, position, b"\1".join((said, place.encode()))[:TEXT]
            mine["turn"] += 1
        for other in members:
            theirs = None if other == rank else _read(self.rows["collectives"][other, bucket, slot : slot + 1])
            if theirs is None or theirs["stream"] != name or theirs["position"] != position:
                continue
            theirs_said, _, their_place = bytes(theirs["text"]).partition(b"\1")
            if theirs_said != said[:TEXT]:
                raise ProgramError(
                    f"mismatched collectives: rank {rank} at {place} enters {what}, where rank {other} at "
                    f"{their_place.decode(errors='replace')} entered {theirs_said.decode(errors='replace')}; "
                    "all members must issue the same collectives in the same order"
                )


def _read(entry: Any) -> Any | None:
    """A copy of somebody's entry; None if it was being written meanwhile: whoever writes looks at the others after."""
    turn = int(entry["turn"][0])
    copy = entry.copy()[0]
    return copy if turn % 2 == 0 and turn == int(entry["turn"][0]) else None
