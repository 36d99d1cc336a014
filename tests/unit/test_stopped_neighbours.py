"""A process that was stopped for too long is killed and reported as stopped, however long it takes to end."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.backend.multihost import external_launch
from paceline.backend.multihost.external_launch import Neighbours
from paceline.backend.status.status_board import StatusBoard
from tests.support import job_of

OTHER = 2**22 + 1
"""no process has this id: the largest is 2²²"""
TIMEOUT_S = 2.0


class Host:
    """Two processes, of which this one supervises the other; a test sets its state and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.stopped, self.alive = 100.0, False, True
        self.killed: list[int] = []
        monkeypatch.setattr("paceline.backend.multihost.external_launch.time.monotonic", lambda: self.now_s)
        monkeypatch.setattr(external_launch, "stopped", lambda pid: pid == OTHER and self.stopped)
        monkeypatch.setattr(os, "kill", lambda pid, _: self.killed.append(pid))
        team = job_of(SyncSgd(), nodes=[[0, 1]]).team
        self.board = StatusBoard(2, [me.rank for me in team])
        world: Any = SimpleNamespace(
            ids={0: os.getpid(), 1: OTHER}, neighbours=[0, 1], first=True, lives=lambda one: one == 0 or self.alive
        )
        mapping: Any = SimpleNamespace(rank_of={0: Rank(0), 1: Rank(1)})
        self.neighbours = Neighbours(world, mapping, self.board, team, TIMEOUT_S)

    def passes(self, seconds: float) -> None:
        """Checks ten times a second for so long."""
        for _ in range(round(10 * seconds)):
            self.now_s += 0.1001
            self.neighbours.check()


def test_a_killed_process_that_takes_a_while_to_end_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the signal and its end it is alive and no longer stopped."""
    host = Host(monkeypatch)
    host.stopped = True
    host.passes(TIMEOUT_S + 0.5)
    assert host.killed and set(host.killed) == {OTHER} and host.board.lost() is None
    host.stopped = False
    host.passes(0.5)
    assert host.board.lost() is None
    host.alive = False
    host.passes(0.1)
    assert host.board.lost() == 1 and host.board.loss_text.startswith("was stopped for 2 s, ")


def test_a_process_that_went_on_is_killed_by_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.stopped = True
    host.passes(TIMEOUT_S - 0.5)
    host.stopped = False
    host.passes(5.0)
    assert host.killed == [] and host.board.lost() is None
    host.alive = False
    host.passes(0.1)
    assert host.board.lost() == 1 and host.board.loss_text == "its process is gone"
