"""What the hosts of a run tell each other, by the store.

Rules of this file:

* One process of each host, its herald, writes down what its ranks say on the host's board; the first host's herald, the
  leader, reads what all have written and decides: the start, that all have drained, who is lost, and the end. The other
  heralds read that. Each key has one writer, so nothing can be decided twice.
* Each host's board has a row for every rank, but only the leader's is kept up to date with the other hosts'.
* What is written has a number that counts up. A host whose number has stood still for `VANISHED_S` is given up; one
  whose first process has closed its connection, which means that it is gone, when its next process does not write for
  `SUCCESSION_S` after that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from paceline.algorithms.core.values import Rank
from paceline.backend.multihost.rank_mapping import Seats
from paceline.backend.status.board_layout import TEXT, WHY
from paceline.backend.status.status_board import Board, Doing, Over

MIRROR_S = 0.05
"""how often a herald writes and reads"""
VANISHED_S = 15.0
"""a host that has said nothing for so long is given up; so is a leader. Provenance: ours"""
LATE_S = 1.0
"""who has said nothing for so long may be stopped"""
SUCCESSION_S = 2.0
"""how long the next process of a host has to write, once the first one is gone. It looks ten times a second for that"""
NUMBERS = ("moves", "step", "busy", "quiet_s", "stopped")
"""of a rank's row, beside what it does and says"""


class Mirror:
    """One herald's part.

    Args:
        store: of this run.
        board: of this host.
        seats: who is where.
        here: the number of this host; 0 is the leader's.
        ahead_s: how far the leader's clock is ahead of this host's.
        closed: whether a host's first process has closed its connection.
        gone: hosts that have been given up; more are added.
    """

    def __init__(
        self,
        store: Any,
        board: Board,
        seats: Seats,
        here: int,
        ahead_s: float,
        *,
        closed: Callable[[int], bool],
        gone: set[int],
    ) -> None:
        self._store, self._board, self._seats, self._here, self._ahead_s = store, board, seats, here, ahead_s
        self._closed, self._gone = closed, gone
        self._others = [index for index in range(len(seats.hosts)) if index != here] if here == 0 else [0]
        self._beat = 0
        self._heard: dict[int, tuple[int, float]] = {}
        """of each host that has been heard of: its last number, and when that was new"""
        self._closed_s: dict[int, float] = {}
        """since when a host's first process is known to have closed its connection"""
        self._due_s = 0.0

    def turn(self, *, at_once: bool = False) -> None:
        """Tells and hears what is new, if it is time."""
        if time.monotonic() < self._due_s and not at_once:
            return
        self._due_s = time.monotonic() + MIRROR_S
        self._beat += 1
        if self._here == 0:
            self._hear_hosts()
            self._store.set("state", json.dumps(self._state()))
        else:
            self._store.set(f"host{self._here}", json.dumps(self._said()))
            self._hear_leader()

    @property
    def late(self) -> bool:
        """Whether a host has said nothing for a while: what its rows say may be old."""
        return any(time.monotonic() - since_s > LATE_S for _, since_s in self._heard.values())

    # --- the leader -----------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        board = self._board
        return {
            "beat": self._beat,
            "start_s": board.start_s,
            "drained": board.all_drained,
            "over": int(board.common["over"][0]),
            **self._loss(),
        }

    def _hear_hosts(self) -> None:
        for host in self._there(self._others):
            said = json.loads(self._store.get(f"host{host}"))
            self._note(host, said["beat"])
            for rank, doing, text, rest in said["rows"]:
                row = self._board.rows[rank]
                row["text"] = text.encode()[:TEXT]
                for name, value in zip(NUMBERS, rest, strict=True):
                    row[name] = value
                row["doing"] = doing
            self._hear_loss(said)

    def _there(self, hosts: Sequence[int]) -> list[int]:
        """The hosts that have said something; who has not yet may still be busy with an earlier run.

        What those that are gone have said last is not heard again.
        """
        there = (host for host in hosts if host not in self._gone)
        return [host for host in there if host in self._heard or self._store.check([f"host{host}"])]

    # --- the others -----------------------------------------------------------------------------------------------

    def _said(self) -> dict[str, Any]:
        board = self._board
        rows = []
        for rank in self._seats.on(self._here):
            row = board.rows[rank]
            rows.append([int(rank), int(row["doing"]), board.waits(rank), [row[name].item() for name in NUMBERS]])
        return {"beat": self._beat, "rows": rows, **self._loss()}

    def _hear_leader(self) -> None:
        if 0 not in self._heard and not self._store.check(["state"]):
            return
        state, board = json.loads(self._store.get("state")), self._board
        self._note(0, state["beat"])
        if state["start_s"] and not board.start_s:
            board.start(state["start_s"] - self._ahead_s)
        if state["drained"]:
            mine = self._seats.on(self._here)
            for me in self._seats.team:
                if me.rank not in mine:
                    board.rows["doing"][me.rank] = Doing.DRAINED
        self._hear_loss(state)
        if state["over"]:
            board.common["over"] = state["over"]

    # --- both -----------------------------------------------------------------------------------------------------

    def _loss(self) -> dict[str, Any]:
        rank = self._board.lost()
        return {"lost": None if rank is None else int(rank), "text": loss(self._board)}

    def _hear_loss(self, said: dict[str, Any]) -> None:
        if said["lost"] is not None:
            lose(self._board, Rank(said["lost"]), said["text"])

    def _note(self, host: int, beat: int) -> None:
        """Takes note of a host's number; gives it up where that has not moved for too long."""
        before, since_s = self._heard.get(host, (-1, 0.0))
        if beat != before:
            self._heard[host] = beat, time.monotonic()
        elif self._board.common["over"][0] == Over.NO and host not in self._gone:
            quiet_s, name = time.monotonic() - since_s, f"host {host} ({self._seats.hosts[host].name})"
            if quiet_s > VANISHED_S:
                self._give_up(host, f"nothing has been heard of {name} for {VANISHED_S:g} s")
            elif self._left(host):
                self._give_up(host, f"{name} is gone: it has closed its connection")

    def _left(self, host: int) -> bool:
        """Whether a host's first process is gone, and no other one writes in its place.

        The first process may have been stopped, and so silent, long before it was killed: only the silence after that
        says that nobody is left.
        """
        if not self._closed(host):
            return False
        closed_s = self._closed_s.setdefault(host, time.monotonic())
        quiet_s = time.monotonic() - max(closed_s, self._heard[host][1])
        return len(self._seats.hosts[host].processes) == 1 or quiet_s > SUCCESSION_S

    def _give_up(self, host: int, words: str) -> None:
        self._gone.add(host)
        ranks = self._seats.on(host)
        for rank in ranks:
            self._board.rows["doing"][rank] = Doing.FAILED
        lose(self._board, ranks[0] if ranks else Rank(0), words)
        if host == 0:  # nobody is left to say so
            self._board.common["over"] = Over.FAILED


def lose(board: Board, rank: Rank, text: str) -> None:
    """Notes on a host's board that a rank is gone, and why, if none was before."""
    if board.lost() is None:
        board.common["text"] = text.encode()[:WHY]
        board.lose(rank)


def loss(board: Board) -> str:
    """Why the lost rank is."""
    return bytes(board.common["text"][0]).decode(errors="replace")
