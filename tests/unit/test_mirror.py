"""A host counts as lost when its first process has ended and no other one sends heartbeats, not earlier."""

from __future__ import annotations

import json

import pytest

from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.backend.multihost.host_sync import SUCCESSION_S, VANISHED_S, HostSync
from paceline.backend.multihost.rank_mapping import Host, map_ranks
from paceline.backend.status.status_board import StatusBoard
from tests.support import job_of


class Store:
    """A stand-in for torch's store, of which `HostSync` needs three methods."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def set(self, key: str, value: str) -> None:
        self._values[key] = value

    def get(self, key: str) -> str:
        return self._values[key]


class Leader:
    """The leader of two hosts of two processes each; a test controls the time and the data of the other host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, int] = (2, 2)) -> None:
        self.now_s, self.closed, self.heartbeat, self.store = 100.0, False, 0, Store()
        monkeypatch.setattr("paceline.backend.multihost.host_sync.time.monotonic", lambda: self.now_s)
        here, there = counts
        team = job_of(SyncSgd(), nodes=[list(range(here)), list(range(here, here + there))]).team
        self.board = StatusBoard(len(team), [me.rank for me in team])
        hosts = [Host("a", tuple(range(here))), Host("b", tuple(range(here, here + there)))]
        self.first = Rank(here)
        self.host_sync = HostSync(
            self.store, self.board, map_ranks(hosts, team), 0, 0.0, closed=lambda _: self.closed, gone=set()
        )
        self.writes()
        self.passes(0.2)

    def writes(self, lost: Rank | None = None, text: str = "") -> None:
        """The other host's coordinator writes once."""
        self.heartbeat += 1
        self.store.set("host1", json.dumps({"heartbeat": self.heartbeat, "ranks": [], "lost": lost, "text": text}))

    def passes(self, seconds: float) -> None:
        for _ in range(round(10 * seconds)):
            self.now_s += 0.1
            self.host_sync.exchange()


def test_the_next_process_tells_why_the_first_one_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the first one had been stopped, and so silent, for a while before that."""
    leader = Leader(monkeypatch)
    leader.passes(VANISHED_S - 2)
    leader.closed = True
    leader.passes(SUCCESSION_S / 2)
    assert leader.board.lost() is None
    leader.writes(leader.first, "was stopped for 2 s, in step 7")
    leader.passes(0.1)
    assert leader.board.lost() == leader.first and leader.board.loss_text == "was stopped for 2 s, in step 7"


def test_a_host_of_which_no_process_writes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch)
    leader.closed = True
    leader.passes(SUCCESSION_S + 0.5)
    assert leader.board.lost() == leader.first
    assert leader.board.loss_text == "host 1 (b) is gone: it has closed its connection"


def test_the_only_process_of_a_host_has_no_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch, counts=(2, 1))
    leader.closed = True
    leader.passes(0.2)
    assert leader.board.lost() == leader.first


def test_a_host_that_keeps_its_connection_is_given_up_late(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch)
    leader.passes(VANISHED_S - 0.5)
    assert leader.board.lost() is None
    leader.passes(1.0)
    assert leader.board.loss_text == "no heartbeat from host 1 (b) for 15 s"
