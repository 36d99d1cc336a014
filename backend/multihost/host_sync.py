"""Synchronises the status boards of several hosts through the store.

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
import time
from collections.abc import Callable, Sequence
from typing import Any

from paceline.algorithms.core.values import Rank
from paceline.backend.multihost.rank_mapping import RankMapping
from paceline.backend.status.rank_status import RankState, StatusValues
from paceline.backend.status.status_board import RunState, StatusBoard

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
            mine = self._mapping.on(self._here)
            for me in self._mapping.team:
                if me.rank not in mine:
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
