"""The board: shared memory of one host in which every rank says what it is doing, and where a stop is agreed.

Rules of this file:

* The board lies in a file of the run's folder in the host's memory: forked ranks inherit it, ranks that were started by
  others map it. A rank writes its own row only; what is seen of it from outside (quiet, stopped) its neighbours write.
  The stop has a lock that a killed rank cannot keep.
* Where a run has several hosts, each has a board with a row for everybody; what the rows of other hosts' ranks say
  comes from there now and then (`mirror`), and steps are granted by leases (`leases`).
* Nothing a rank needs for its arithmetic goes through here. The board is for progress, for deadlocks and mismatches to
  be reported in words, and for everybody to stop at the same step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.backend.posix.host_lock import HostLock
from paceline.backend.status.board_layout import COMMON, MARKS, ROW, TEXT, mapped
from paceline.backend.status.collective_entries import Entries
from paceline.backend.status.leases import Across, Bound
from paceline.backend.status.progress_counters import Tally, Totals
from paceline.records.trace import Reason

NEVER = np.iinfo(np.int64).max
Lost = Callable[[Iterable[Rank]], Rank | None]
"""names the dead rank that a wait for these ranks is in vain for, if there is one"""


class Doing(IntEnum):
    """What a rank's program is doing."""

    STARTING, CONNECTING, READY, RUNNING, BLOCKED, ENDED, DRAINED, FAILED = range(8)


class Mark(IntEnum):
    """What a member says of a collective, where that is asked for."""

    HAS_IT, GIVEN_UP = 1, 2


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
        spare: how many ranks the run can lose and go on.
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
        spare: int = 0,
        folder: Path | None = None,
        across: Across | None = None,
    ) -> None:
        self.spare = spare
        self._memory, made = mapped(ranks, folder)
        self.rows: Any = np.frombuffer(self._memory, dtype=ROW, count=ranks)
        self.common: Any = np.frombuffer(self._memory, dtype=COMMON, count=1, offset=ranks * ROW.itemsize)
        if made:
            self.common["stop_at"], self.common["lost"], self.common["lost_at"] = NEVER, -1, NEVER
            self.rows["collectives"]["position"] = -1
        # columns, looked up once: a step says some twenty things here
        self._doing, self._moves, self._texts = self.rows["doing"], self.rows["moves"], self.rows["text"]
        self._busy, self._grants = self.rows["busy"], self.rows["granted"]
        self.enter = Entries(self.rows["collectives"]).enter
        self._keepers = [int(rank) for rank in keepers]
        self._limit, self._together, self._across = NEVER if limit is None else limit, together, across
        self._lock = HostLock(None if folder is None else folder / "board.lock")
        self._writing = threading.Lock()
        """of the lanes of one rank: each process has its own"""

    # --- stopping -------------------------------------------------------------------------------------------------

    def grant(self, rank: Rank, step: int, until: int = NEVER) -> bool:
        """Whether a keeper may begin this step; once granted, everyone may, unless their steps count together.

        Nobody may begin step `until`, before which everybody pauses, unless a rank was lost before anyone came there.
        """
        with self._lock:
            reached = self._granted if self._together else step
            end = min(self._end, until if until <= self.common["lost_at"][0] else NEVER)
            if self._across is not None and end > reached >= self.common["leased"][0]:
                self._agree(self._across.extend(reached))
                if reached >= self.common["leased"][0]:
                    return False
                end = min(end, self._end)
            if reached >= end:
                return False
            self._grants[rank] = max(self._grants[rank], step + 1)
            return True

    def stop(self, why: Reason) -> None:
        """Ends the run after the last step that any keeper has begun, if it does not end there anyway.

        Between hosts: after the last step that any keeper may begin without asking.
        """
        with self._lock:
            self._stop(why)

    def stop_if_free(self, why: Reason) -> bool:
        """As `stop`, unless a rank is at the board's lock: one that is stopped may be there for ever.

        Returns whether that was done; who looks after ranks asks again, and never waits for one.
        """
        if not self._lock.acquire(0.0):
            return False
        try:
            self._stop(why)
        finally:
            self._lock.release()
        return True

    def _stop(self, why: Reason) -> None:
        if self._across is not None:
            if (bound := self._across.close(why, self._granted)) is not None:
                self._agree(bound)
        elif self._granted < self._end:
            self.common["stop_at"], self.common["why"] = self._granted, why.encode()

    def over(self, until: int) -> bool:
        """Whether programs that have returned have ended, and do not pause: the same on every rank, whenever it asks.

        A stop comes after the last step that was begun. So one that comes while all pause is no earlier than `until`;
        all are then entered again, and end at once.
        """
        return bool(self._limit <= until or min(self.common["stop_at"][0], self.common["lost_at"][0]) < until)

    def resume(self, granted: Sequence[int], ranks: Sequence[Rank]) -> None:
        """Goes on from a checkpoint: each of these ranks had been let into so many steps."""
        for rank in ranks:
            self.rows["granted"][rank] = self.rows["step"][rank] = granted[rank]

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
        granted = self._grants[self._keepers]
        return int(granted.sum() if self._together else granted.max())

    @property
    def why(self) -> Reason | None:
        """Why the run was ended before its limit, if it was."""
        why = self.common["why"][0].decode()
        return cast("Reason", why) if why else None

    @property
    def weights_owner(self) -> Rank:
        """The first of those that keep the weights being learned who has not died; the very first if all have."""
        living = (rank for rank in self._keepers if not self.rows["dead"][rank])
        return Rank(next(living, self._keepers[0]))

    @property
    def stopping(self) -> bool:
        return bool(self.common["stop_at"][0] != NEVER)

    # --- what everybody does --------------------------------------------------------------------------------------

    def say(self, rank: Rank, doing: Doing, text: str = "") -> None:
        """Notes what a rank is doing, in words when it waits for others."""
        self._moves[rank] += 1
        if text:
            self._texts[rank] = text.encode()[:TEXT]
        self._doing[rank] = doing

    def fail(self, rank: Rank, words: str = "") -> None:
        """Notes that a rank has failed; with its error in words, where its record cannot take that."""
        self._texts[rank] = words.encode()[:TEXT]
        self.say(rank, Doing.FAILED)

    def failure(self, rank: int) -> str:
        """The words that `fail` has noted; empty where there are none."""
        return self.waits(rank) if self.doing(rank) is Doing.FAILED else ""

    def move(self, rank: Rank) -> None:
        """Notes that something the rank's program has started goes on."""
        self._moves[rank] += 1

    def doing(self, rank: int) -> Doing:
        return Doing(int(self.rows["doing"][rank]))

    def waits(self, rank: int) -> str:
        """What a blocked rank said it waits for."""
        return bytes(self.rows["text"][rank]).decode(errors="replace")

    def tally(self, rank: Rank) -> Tally:
        """A rank's own sums, for it to add to."""
        return Tally(memoryview(self.rows["sums"][rank]).cast("B").cast("d"))

    def totals(self, keeper: Rank, elapsed_s: float) -> Totals:
        """All ranks' sums now."""
        return Totals.of(self.rows["sums"], keeper, step=int(self.rows["step"][keeper]), elapsed_s=elapsed_s)

    def busy(self, rank: Rank, by: int) -> None:
        """Notes that the rank begins (+1) or ends (−1) to do what needs nobody else, whatever its program waits for."""
        self._busy[rank] += by

    @property
    def all_ready(self) -> bool:
        return bool((self.rows["doing"] >= Doing.READY).all())

    @property
    def all_drained(self) -> bool:
        """Whether all that live have come to their end; a rank that has failed has not, also before it is lost."""
        return bool(((self.rows["doing"] == Doing.DRAINED) | self.rows["dead"]).all())

    @property
    def start_s(self) -> float:
        """The common start on the host's monotonic clock; 0 before it is set."""
        return float(self.common["start_s"][0])

    def start(self, at_s: float) -> None:
        self.common["start_s"] = at_s

    def lose(self, rank: Rank, *, ends: bool = True) -> None:
        """Notes that a rank is gone.

        Args:
            rank: who is.
            ends: whether the run cannot do without it: every wait of anybody then ends with `PeerFailed`. Otherwise
                those end that need this rank, and a step that it had begun is everybody's again.
        """
        self.rows["dead"][rank] = True
        with self._lock:
            self.common["lost_at"] = min(self.common["lost_at"][0], self._granted)
            if ends:
                self.common["lost"] = rank
            else:
                self.rows["granted"][rank] = min(self.rows["granted"][rank], self.rows["step"][rank])
        self.common["losses"] += 1

    def lost(self, needed: Iterable[Rank] = ()) -> Rank | None:
        """The dead rank that a wait for any of these ranks is in vain for, if there is one.

        Where the run cannot do without somebody who has died, every wait is in vain.
        """
        if not self.common["losses"][0]:
            return None
        if (rank := int(self.common["lost"][0])) >= 0:
            return Rank(rank)
        return next((rank for rank in needed if self.rows["dead"][rank]), None)

    def dead(self, rank: Rank) -> bool:
        return bool(self.rows["dead"][rank])

    def mark(self, rank: Rank, name: int, position: int, mark: Mark) -> None:
        """Says what came of a collective at a rank."""
        with self._writing:
            row = self.rows[rank]
            entry = row["marks"][row["marked"] % MARKS]
            entry["mark"] = 0
            entry["name"], entry["position"] = name, position
            entry["mark"] = mark
            row["marked"] += 1

    def marked(self, rank: Rank, name: int, position: int) -> Mark | None:
        """What another rank has said of a collective, if it has."""
        marks = self.rows["marks"][rank]
        found = np.flatnonzero((marks["name"] == name) & (marks["position"] == position) & (marks["mark"] != 0))
        return Mark(int(marks["mark"][found[0]])) if len(found) else None
