"""Synchronises the status boards of several hosts through the store, and grants steps to the hosts by leases.

Rules of this file:

* The first living process of each host is its coordinator: it publishes what the host's ranks report on their board.
  The coordinator of host 0 reads the reports of all hosts and decides: the start, that all have drained, that a rank is
  lost, and the end. The other coordinators read its decisions. Each key has one writer, so no decision is made twice.
* Each host's board has a row for every rank, but only the board of host 0 has current rows of the other hosts.
* Every message contains a heartbeat, an increasing number. A host has failed when its heartbeat has not changed for
  `VANISHED_S`. If the host's first process has closed its connection, which means that it has ended, the next process
  has `SUCCESSION_S` to send a heartbeat.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from paceline.algorithms.core.job import Reason
from paceline.algorithms.core.values import Rank
from paceline.backend.multihost.rank_mapping import RankMapping
from paceline.backend.status.rank_status import RankState, StatusValues
from paceline.backend.status.status_board import Bound, RunState, StatusBoard

SYNC_S = 0.05
"""seconds between two exchanges"""
VANISHED_S = 15.0
"""seconds without a heartbeat after which a host, including host 0, is declared failed; chosen by us"""
LATE_S = 1.0
"""seconds without a heartbeat after which a host may be stopped"""
SUCCESSION_S = 2.0
"""seconds in which a host's next process must send a heartbeat; it checks every 0.1 s whether it is the first"""


class HostSync:
    """The coordinator of one host.

    Args:
        store: the store of this run.
        board: the board of this host.
        mapping: which rank runs where.
        here: the number of this host; host 0 decides.
        ahead_s: how far host 0's clock is ahead of this host's, in seconds.
        closed: returns whether a host's first process has closed its connection.
        gone: hosts that have been declared failed; more are added.
    """

    def __init__(
        self,
        store: Any,
        board: StatusBoard,
        mapping: RankMapping,
        here: int,
        ahead_s: float,
        *,
        closed: Callable[[int], bool],
        gone: set[int],
    ) -> None:
        self._store, self._board, self._mapping, self._here, self._ahead_s = store, board, mapping, here, ahead_s
        self._closed, self._gone = closed, gone
        self._others = [index for index in range(len(mapping.hosts)) if index != here] if here == 0 else [0]
        self._heartbeat = 0
        self._heard: dict[int, tuple[int, float]] = {}
        """of each host that has sent one: its last heartbeat, and when that was received"""
        self._closed_s: dict[int, float] = {}
        """since when a host's first process is known to have closed its connection"""
        self._due_s = 0.0

    def exchange(self, *, at_once: bool = False) -> None:
        """Writes this host's report and reads the others', if it is time."""
        if time.monotonic() < self._due_s and not at_once:
            return
        self._due_s = time.monotonic() + SYNC_S
        self._heartbeat += 1
        if self._here == 0:
            self._read_hosts()
            self._store.set("state", json.dumps(self._decisions()))
        else:
            self._store.set(f"host{self._here}", json.dumps(self._report()))
            self._read_decisions()

    @property
    def late(self) -> bool:
        """Whether a host has sent no heartbeat for a while, so that its rows may be old."""
        return any(time.monotonic() - since_s > LATE_S for _, since_s in self._heard.values())

    # --- host 0 ---------------------------------------------------------------------------------------------------

    def _decisions(self) -> dict[str, Any]:
        board = self._board
        return {
            "heartbeat": self._heartbeat,
            "start_s": board.start_s,
            "drained": board.all_drained,
            "run_state": int(board.run_state),
            **self._loss(),
        }

    def _read_hosts(self) -> None:
        for host in self._reporting(self._others):
            report = json.loads(self._store.get(f"host{host}"))
            self._note_heartbeat(host, report["heartbeat"])
            for rank, *values in report["ranks"]:
                self._board.ranks[rank].update(StatusValues(*values))
            self._note_loss(report)

    def _reporting(self, hosts: Sequence[int]) -> list[int]:
        """Returns the hosts that have written something in this run; others may still be busy with an earlier one.

        What a host wrote before it was declared failed is not read again.
        """
        there = (host for host in hosts if host not in self._gone)
        return [host for host in there if host in self._heard or self._store.check([f"host{host}"])]

    # --- the other hosts ------------------------------------------------------------------------------------------

    def _report(self) -> dict[str, Any]:
        ranks = [(int(rank), *self._board.ranks[rank].values) for rank in self._mapping.on(self._here)]
        return {"heartbeat": self._heartbeat, "ranks": ranks, **self._loss()}

    def _read_decisions(self) -> None:
        if 0 not in self._heard and not self._store.check(["state"]):
            return
        decided, board = json.loads(self._store.get("state")), self._board
        self._note_heartbeat(0, decided["heartbeat"])
        if decided["start_s"] and not board.start_s:
            board.start(decided["start_s"] - self._ahead_s)
        if decided["drained"]:
            local_ranks = self._mapping.on(self._here)
            for me in self._mapping.team:
                if me.rank not in local_ranks:
                    board.ranks[me.rank].state = RankState.DRAINED
        self._note_loss(decided)
        if decided["run_state"]:
            board.run_state = RunState(decided["run_state"])

    # --- both -----------------------------------------------------------------------------------------------------

    def _loss(self) -> dict[str, Any]:
        rank = self._board.lost()
        return {"lost": None if rank is None else int(rank), "text": self._board.loss_text}

    def _note_loss(self, message: dict[str, Any]) -> None:
        if message["lost"] is not None:
            self._board.lose_because(Rank(message["lost"]), message["text"])

    def _note_heartbeat(self, host: int, heartbeat: int) -> None:
        """Records a host's heartbeat; declares the host failed if its heartbeat has not changed for too long."""
        before, since_s = self._heard.get(host, (-1, 0.0))
        if heartbeat != before:
            self._heard[host] = heartbeat, time.monotonic()
        elif self._board.run_state is RunState.RUNNING and host not in self._gone:
            quiet_s, name = time.monotonic() - since_s, f"host {host} ({self._mapping.hosts[host].name})"
            if quiet_s > VANISHED_S:
                self._give_up(host, f"no heartbeat from {name} for {VANISHED_S:g} s")
            elif self._left(host):
                self._give_up(host, f"{name} is gone: it has closed its connection")

    def _left(self, host: int) -> bool:
        """Whether a host's first process has ended and no other one sends heartbeats in its place.

        The first process may have been stopped, and so silent, long before it was killed. So only the time after it has
        closed its connection counts.
        """
        if not self._closed(host):
            return False
        closed_s = self._closed_s.setdefault(host, time.monotonic())
        quiet_s = time.monotonic() - max(closed_s, self._heard[host][1])
        return len(self._mapping.hosts[host].processes) == 1 or quiet_s > SUCCESSION_S

    def _give_up(self, host: int, reason: str) -> None:
        self._gone.add(host)
        ranks = self._mapping.on(host)
        for rank in ranks:
            self._board.ranks[rank].state = RankState.FAILED
        self._board.lose_because(ranks[0] if ranks else Rank(0), reason)
        if host == 0:  # no other host can end the run
            self._board.run_state = RunState.FAILED


# --- leases: steps that several hosts with owners of weights may begin without asking each other ----------------------

# Rationale:
# * Invariant: the store holds the only authoritative state, and only atomic operations change it. So hosts that ask at
#   the same moment cannot be granted more than the budget, and a run stops at the same step on all hosts.
# * A host asks the store once for several steps, which its ranks then begin without asking. The number follows the
#   pace: as many steps as took about `AHEAD_S`.
# * If all owners take the same steps (`Lease`), the store has the step up to which all may proceed. The host that ends
#   the run closes the lease in the store. All hosts then proceed to the end of the longest lease and no further, so
#   they stop at the same step.
# * If the steps of the owners are counted together (`Shares`), each host takes some of the remaining steps, fewer
#   towards the end, so that no host has many left when the others have none. The host that ends the run closes the
#   counter; a host still takes the steps that it was granted before.
# * Rejected: asking the store at every step, which costs a network round trip per step. Rejected: announcing a last
#   step in advance, since a rank on another host may have passed it before the announcement arrives.
# * Source: leases as in Gray and Cheriton (1989), here counted in steps and not in time; guided self-scheduling
#   (Polychronopoulos and Kuck 1987) for the shrinking shares.


AHEAD_S = 0.1
"""how long a grant of steps lasts, and about how long a run may continue after it was ended; chosen by us"""
MOST = 64
"""the most steps of one grant"""


class Leasing:
    """What both kinds of leases share: the number of steps to ask for follows the pace of the host.

    Args:
        store: the store of torch.distributed, with a connection of this process's own.
        limit: the budget in steps.
    """

    def __init__(self, store: Any, limit: int) -> None:
        self._store, self._limit = store, limit
        self._ahead, self._asked_s = 1, -math.inf

    def _pace(self) -> int:
        """Returns how many steps to ask for: twice the last number if it was used up too soon, half if too late."""
        now_s = time.monotonic()
        if now_s - self._asked_s < AHEAD_S / 2:
            self._ahead = min(2 * self._ahead, MOST)
        elif now_s - self._asked_s > 2 * AHEAD_S:
            self._ahead = max(self._ahead // 2, 1)
        self._asked_s = now_s
        return self._ahead


class Lease(Leasing):
    """Steps that all owners take. The store has "12" if open up to step 12, and "12 accuracy" if closed there."""

    def extend(self, reached: int) -> Bound:
        ahead = self._pace()
        known = self._swap("", "0")
        while True:
            steps, why = _parse(known)
            if why is not None or steps > reached:
                return Bound(steps, why)
            wanted = str(min(max(reached, steps) + ahead, self._limit))
            if wanted == known or (known := self._swap(known, wanted)) == wanted:
                return Bound(int(wanted))

    def close(self, why: Reason, reached: int) -> Bound | None:
        known = self._swap("", "0")
        while True:
            steps, before = _parse(known)
            if before is not None:
                return Bound(steps, before)
            if steps >= self._limit:
                return None
            if (known := self._swap(known, wanted := f"{steps} {why}")) == wanted:
                return Bound(steps, why)

    def _swap(self, known: str, wanted: str) -> str:
        """Compares and sets the lease; returns its value in the store afterwards."""
        return cast("bytes", self._store.compare_set("lease", known, wanted)).decode()


class Shares(Leasing):
    """Steps of all owners, counted together.

    Args:
        hosts: how many hosts have owners.
    """

    def __init__(self, store: Any, limit: int, hosts: int) -> None:
        super().__init__(store, limit)
        self._hosts = hosts
        self._taken = 0
        """steps that all hosts have taken, as far as this host knows"""

    def extend(self, reached: int) -> Bound:
        if (why := self._closed()) is not None:
            return Bound(reached, why)
        fair = max((self._limit - self._taken) // (4 * self._hosts), 1)
        share = min(self._pace(), fair)
        self._taken = int(self._store.add("taken", share))
        over = max(self._taken - self._limit, 0)
        return Bound(reached + max(share - over, 0))

    def close(self, why: Reason, reached: int) -> Bound | None:
        if int(self._store.add("taken", 0)) >= self._limit:
            return None
        said = cast("bytes", self._store.compare_set("closed", "", why)).decode()
        return Bound(reached, cast("Reason", said))

    def _closed(self) -> Reason | None:
        said = cast("bytes", self._store.compare_set("closed", "", "")).decode()
        return cast("Reason", said) if said else None


def _parse(text: str) -> tuple[int, Reason | None]:
    """Parses a lease.

    >>> _parse("12"), _parse("12 accuracy")
    ((12, None), (12, 'accuracy'))
    """
    steps, _, why = text.partition(" ")
    return int(steps), cast("Reason", why) if why else None
