"""The status board: shared memory of one host in which ranks report their state and agree on the last step.

Rules of this file:

* The board is a file in the run's folder in memory: forked ranks inherit it, and ranks that a launcher has started map
  it. The lock under which the last step is agreed is released when its holder is killed (`HostLock`).
* Code outside this package accesses rows only through `StatusBoard.ranks`, never the arrays behind them.
* If a run has several hosts, each has a board with a row for every rank. The rows of the other hosts' ranks are copied
  regularly (`host_sync`), and steps are granted by leases (`host_sync`).
* No training data passes through the board. It serves progress reports, the messages of deadlocks and mismatched
  collectives, and the agreement on the step at which all ranks stop.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from paceline.algorithms.core.job import Reason
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.program_errors import mismatch
from paceline.algorithms.runtime.stop_rule import NEVER, StopRule
from paceline.backend.posix.processes import HostLock
from paceline.backend.status.progress_counters import Scored, Totals
from paceline.backend.status.rank_status import (
    BUCKETS,
    COMMON,
    LOSS_TEXT,
    ROW,
    SLOTS,
    TEXT,
    RankState,
    RankStatus,
    integer,
    mapped,
    real,
)

Lost = Callable[[Iterable[Rank]], Rank | None]
"""returns the dead rank for which a wait for the given ranks can never end; None if there is none"""


class RunState(IntEnum):
    """State of a run whose processes a launcher has started."""

    RUNNING, DONE, FAILED = range(3)


@dataclass(frozen=True, slots=True)
class Bound:
    """The step up to which a host's ranks may proceed, and the reason if the run ends there."""

    steps: int
    closed: Reason | None = None


class StepGrants(Protocol):
    """Grants steps to the ranks of a host, in agreement with the other hosts; see `host_sync`."""

    def extend(self, reached: int) -> Bound:
        """Asks for more steps when the host has used up its own."""
        ...

    def close(self, why: Reason, reached: int) -> Bound | None:
        """Ends the run after the granted steps; returns None if these are the whole budget anyway."""
        ...


class SharedGrants:
    """The steps that the owners of weights have begun, in the board's memory; changed only under its lock.

    Args:
        granted: the steps that each rank may begin, by rank.
        stop_at: the first step that no rank may begin.
        reason: why the run ends there.
        owners: the ranks whose steps count.
        together: whether the steps of all owners are added up.
    """

    def __init__(
        self, granted: Any, stop_at: memoryview[int], reason: Any, owners: Sequence[int], *, together: bool
    ) -> None:
        self._granted, self._stop_at, self._reason = granted, stop_at, reason
        self._owners, self._together = owners, together

    @property
    def begun(self) -> int:
        """Steps that owners have begun: the largest number of any owner, or the sum if they are counted together."""
        begun = self._granted[self._owners]
        return int(begun.sum() if self._together else begun.max())

    @property
    def stop_at(self) -> int:
        """The first step that no rank may begin because the run was ended; `NEVER` before that."""
        return self._stop_at[0]

    def note(self, rank: Rank, steps: int) -> None:
        """Records that an owner has begun so many steps."""
        self._granted[rank] = max(self._granted[rank], steps)

    def end(self, at: int, why: Reason) -> None:
        """Ends the run before step `at`."""
        self._stop_at[0], self._reason[0] = at, why.encode()


class StatusBoard:
    """One row per rank, and the fields of the whole run.

    Args:
        ranks: the number of ranks.
        owners: the ranks that own weights, whose steps are granted.
        limit: the number of steps to grant; None without such a limit.
        together: whether the steps of all owners are added up, instead of counted for each.
        spare: how many ranks the run can lose and continue.
        folder: the run's folder on this host, in which the first process creates the board; None: the board is for this
            process and those that it forks.
        grants: how the hosts agree on steps, if owners are on several hosts.
    """

    def __init__(
        self,
        ranks: int,
        owners: Sequence[Rank],
        *,
        limit: int | None = None,
        together: bool = False,
        spare: int = 0,
        folder: Path | None = None,
        grants: StepGrants | None = None,
    ) -> None:
        self.spare = spare
        self._memory, made = mapped(ranks, folder)
        rows: Any = np.frombuffer(self._memory, dtype=ROW, count=ranks)
        common: Any = np.frombuffer(self._memory, dtype=COMMON, count=1, offset=ranks * ROW.itemsize)
        self.ranks = tuple(RankStatus(Rank(rank), rows[rank : rank + 1]) for rank in range(ranks))
        """the row of each rank"""
        self.collectives = CollectiveEntries(rows["collectives"])
        """the latest collectives that each rank has entered"""
        self._states, self._dead = rows["state"], rows["dead"]
        self._progress, self._quiet_s, self._stopped, self._sums = (
            rows[name] for name in ("progress", "quiet_s", "stopped", "sums")
        )
        self._stop_at, self._leased = integer(common, "stop_at"), integer(common, "leased")
        self._lost, self._lost_at, self._losses = (integer(common, name) for name in ("lost", "lost_at", "losses"))
        self._start_s, self._run_state = real(common, "start_s"), integer(common, "run_state")
        self._loss, self._accuracy = real(common, "loss"), real(common, "accuracy")
        self._evaluations = integer(common, "evaluations")
        self._stop_reason, self._loss_text = common["stop_reason"], common["loss_text"]
        if made:
            self._stop_at[0], self._lost[0], self._lost_at[0] = NEVER, -1, NEVER
            rows["collectives"]["position"] = -1
        self._owners = [int(rank) for rank in owners]
        self._limit, self._grants = NEVER if limit is None else limit, grants
        self._steps = SharedGrants(rows["granted"], self._stop_at, self._stop_reason, self._owners, together=together)
        self._rule = StopRule(limit, together=together, grants=self._steps)
        self._lock = HostLock(None if folder is None else folder / "board.lock")

    # --- stopping -------------------------------------------------------------------------------------------------

    def grant(self, rank: Rank, step: int, until: int = NEVER) -> bool:
        """Returns whether an owner may begin this step. All owners may then begin it, unless steps are counted
        together.

        No rank may begin step `until`, at which all pause, unless a rank was lost before any rank reached it.

        Args:
            rank: the owner.
            step: the step to begin.
            until: the step of the next checkpoint; `NEVER` without one.
        """
        with self._lock:
            pause = until if until <= self._lost_at[0] else NEVER
            reached = self._rule.position(step)
            if self._grants is not None and min(self._rule.end, pause) > reached >= self._leased[0]:
                self._agree(self._grants.extend(reached))
                if reached >= self._leased[0]:
                    return False
            return self._rule.grant(rank, step, pause)

    def stop(self, reason: Reason) -> None:
        """Ends the run after the last step that any owner has begun, unless it ends there anyway.

        With several hosts: after the last step that any owner may begin without asking.
        """
        with self._lock:
            self._stop(reason)

    def stop_if_free(self, reason: Reason) -> bool:
        """Calls `stop`, unless a rank holds the board's lock: a stopped process may hold it for ever.

        Returns:
            Whether the run was ended. A supervisor tries again later, and never waits for a rank.
        """
        if not self._lock.acquire(0.0):
            return False
        try:
            self._stop(reason)
        finally:
            self._lock.release()
        return True

    def _stop(self, reason: Reason) -> None:
        if self._grants is not None:
            if (bound := self._grants.close(reason, self._steps.begun)) is not None:
                self._agree(bound)
        else:
            self._rule.stop(reason)

    def ends_before(self, until: int) -> bool:
        """Whether programs that have returned have ended rather than paused: the same on every rank at any time.

        A stop takes effect after the last step that was begun. So if it comes while all ranks pause, it is not before
        `until`; all programs are then entered again and end at once.
        """
        return self._limit <= until or min(self._stop_at[0], self._lost_at[0]) < until

    def resume(self, granted: Sequence[int], ranks: Sequence[Rank]) -> None:
        """Restores the granted steps of these ranks from a checkpoint."""
        for rank in ranks:
            self.ranks[rank].granted = self.ranks[rank].step = granted[rank]

    def _agree(self, bound: Bound) -> None:
        """Records what the hosts have agreed on."""
        self._leased[0] = bound.steps
        if bound.closed is not None and not self.stopping:
            self._steps.end(bound.steps, bound.closed)

    @property
    def stop_reason(self) -> Reason | None:
        """Why the run was ended before its limit; None if it was not."""
        reason = self._stop_reason[0].decode()
        return cast("Reason", reason) if reason else None

    @property
    def stopping(self) -> bool:
        """Whether the run was ended before its limit."""
        return self._stop_at[0] != NEVER

    @property
    def weights_owner(self) -> Rank:
        """The first living rank that owns the weights being learned; the first owner if none lives."""
        living = (rank for rank in self._owners if not self.ranks[rank].dead)
        return Rank(next(living, self._owners[0]))

    # --- the start and the end ------------------------------------------------------------------------------------

    @property
    def start_s(self) -> float:
        """The common start on the host's monotonic clock; 0 before it is set."""
        return self._start_s[0]

    def start(self, at_s: float) -> None:
        """Sets the common start time."""
        self._start_s[0] = at_s

    @property
    def run_state(self) -> RunState:
        """Whether the run continues; set only in runs whose processes a launcher has started."""
        return RunState(self._run_state[0])

    @run_state.setter
    def run_state(self, state: RunState) -> None:
        self._run_state[0] = state

    @property
    def all_ready(self) -> bool:
        """Whether every rank has connected."""
        return bool((self._states >= RankState.READY).all())

    @property
    def all_drained(self) -> bool:
        """Whether every living rank has ended. A failed rank has not, even before it is marked dead."""
        return bool(((self._states == RankState.DRAINED) | self._dead).all())

    # --- progress of all ranks ------------------------------------------------------------------------------------

    @property
    def progress(self) -> int:
        """The sum of all ranks' progress counts."""
        return int(self._progress.sum())

    @property
    def longest_quiet_s(self) -> float:
        """The longest time for which any rank has shown no activity, in seconds."""
        return float(self._quiet_s.max())

    @property
    def any_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped a rank's process."""
        return bool(self._stopped.any())

    def totals(self, owner: Rank, elapsed_s: float) -> Totals:
        """Returns the sums of all ranks' progress counters, with the step and the samples of the weights' owner."""
        steps = [rank.step for rank in self.ranks]
        return Totals.of(self._sums, owner, steps=steps, elapsed_s=elapsed_s, scored=self.scored)

    @property
    def scored(self) -> Scored | None:
        """The last evaluation of the weights; None before the first one."""
        return Scored(self._loss[0], self._accuracy[0]) if self._evaluations[0] else None

    @scored.setter
    def scored(self, scored: Scored) -> None:
        self._loss[0], self._accuracy[0] = scored
        self._evaluations[0] += 1

    # --- losses ---------------------------------------------------------------------------------------------------

    def lose(self, rank: Rank, *, ends: bool = True) -> None:
        """Marks a rank as dead.

        Args:
            rank: the dead rank.
            ends: whether the run ends with it: every wait of any rank then raises `PeerFailed`. Otherwise only waits
                that need this rank do, and other owners may take a step that it had begun.
        """
        self.ranks[rank].dead = True
        with self._lock:
            self._lost_at[0] = min(self._lost_at[0], self._steps.begun)
            if ends:
                self._lost[0] = rank
            else:
                self.ranks[rank].granted = min(self.ranks[rank].granted, self.ranks[rank].step)
        self._losses[0] += 1

    def lost(self, needed: Iterable[Rank] = ()) -> Rank | None:
        """Returns the dead rank for which a wait for any of these ranks can never end; None if there is none.

        After a death that ends the run, no wait can end.
        """
        if not self._losses[0]:
            return None
        if (rank := self._lost[0]) >= 0:
            return Rank(rank)
        return next((rank for rank in needed if self.ranks[rank].dead), None)

    @property
    def loss_text(self) -> str:
        """Why the rank whose loss ends the run was lost; empty if this is not known."""
        return bytes(self._loss_text[0]).decode(errors="replace")

    def lose_because(self, rank: Rank, text: str) -> None:
        """Calls `lose` with a reason, if no rank was lost before."""
        if self.lost() is None:
            self._loss_text[0] = text.encode()[:LOSS_TEXT]
            self.lose(rank)


# A rank writes only its own entries, and reads the others' afterwards. So if two members enter different collectives,
# the second one sees the mismatch and does not issue its own.


class CollectiveEntries:
    """The entries of all ranks.

    Args:
        entries: array of shape (ranks, buckets, slots).
    """

    def __init__(self, entries: Any) -> None:
        # columns, looked up once
        self._turns, self._streams = entries["turn"], entries["stream"]
        self._positions, self._texts = entries["position"], entries["text"]
        self._writing = threading.Lock()
        """for the threads of this process: each process has its own lock"""

    def enter(self, rank: Rank, members: Sequence[Rank], stream: str, position: int, what: str, place: str) -> None:
        """Records a collective before it is issued.

        gloo matches collectives by their order alone: two collectives of equal size in the wrong order are added up
            without
        an error, and two of unequal size abort the process.

        Args:
            rank: the rank that enters.
            members: the members of the collective.
            stream: the name of the sequence in which it is issued.
            position: its position in this sequence.
            what: describes the collective; equal for all members.
            place: the line of the program, for messages.

        Raises:
            ProgramError: another member has entered a different collective at this position.
        """
        check = zlib.crc32(stream.encode())
        bucket, slot, name = check % BUCKETS, position % SLOTS, check | len(stream) << 32
        entry, said = (rank, bucket, slot), what.encode()
        with self._writing:
            self._turns[entry] += 1  # odd while it is being written: streams may share a bucket, and so an entry
            self._streams[entry], self._positions[entry] = name, position
            self._texts[entry] = b"\1".join((said, place.encode()))[:TEXT]
            self._turns[entry] += 1
        for other in members:
            if other == rank or (other_entry := self._read((other, bucket, slot), name, position)) is None:
                continue
            theirs_said, _, their_place = other_entry.partition(b"\1")
            if theirs_said != said[:TEXT]:
                their_line, their_words = their_place.decode(errors="replace"), theirs_said.decode(errors="replace")
                raise mismatch(rank, place, what, other, their_line, their_words)

    def absent(self, rank: Rank, words: str, members: Sequence[Rank]) -> list[Rank]:
        """Returns the members that have not entered the last collective of this description that a rank has entered.

        Only entries of ranks on this host are known.

        Args:
            rank: a rank that has entered it.
            words: describes the collective, as in `enter`.
            members: the members of the collective.
        """
        own = self._texts[rank]
        places = np.argwhere(np.char.startswith(own, (words.encode() + b"\1")[:TEXT]))
        if not len(places):
            return []
        bucket, slot = max(map(tuple, places), key=lambda at: int(self._positions[(rank, *at)]))
        key = self._streams[rank, bucket, slot], self._positions[rank, bucket, slot]
        return [member for member in members if self._read((member, bucket, slot), *key) is None]

    def _read(self, at: tuple[int, int, int], name: int, position: int) -> bytes | None:
        """Returns the text of an entry; None if it belongs to another collective or was being written.

        A rank that is writing its entry reads the others' afterwards, so the mismatch is still found.
        """
        turn = self._turns[at]
        if turn % 2 or self._positions[at] != position or self._streams[at] != name:
            return None
        text = bytes(self._texts[at])
        return text if turn == self._turns[at] else None
