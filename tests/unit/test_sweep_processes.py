"""Processes that share work: order, failures, deaths. The work consists of functions of the standard library."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time

import pytest

from paceline.reports.sweeps.parallel_tasks import DIED, Done, TaskFailure, each


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_every_piece_is_done_once(jobs: int) -> None:
    assert dict(each(math.sqrt, [4.0, 9.0, 16.0, 25.0], jobs=jobs)) == {
        0: Done(2.0), 1: Done(3.0), 2: Done(4.0), 3: Done(5.0),
    }  # fmt: skip


def test_no_pieces_need_no_processes() -> None:
    assert list(each(math.sqrt, [], jobs=2)) == []


def test_a_piece_that_fails_takes_nothing_with_it() -> None:
    answers = dict(each(math.sqrt, [4.0, -1.0, 9.0], jobs=1))
    assert (answers[0], answers[2]) == (Done(2.0), Done(3.0))
    failure = answers[1]
    assert isinstance(failure, TaskFailure)
    assert failure.message == "ValueError: math domain error"
    assert "Traceback" in failure.trace


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_process_that_is_killed_fails_its_piece_alone(jobs: int) -> None:
    answers = dict(each(signal.raise_signal, [signal.SIGCHLD, signal.SIGKILL, signal.SIGCHLD], jobs=jobs))
    assert answers[0] == answers[2] == Done(None)
    assert answers[1] == TaskFailure(DIED)


def test_a_process_that_exits_fails_its_piece() -> None:
    assert list(each(os._exit, [3], jobs=1)) == [(0, TaskFailure(DIED))]


def test_processes_do_not_hear_ctrl_c() -> None:
    assert list(each(signal.raise_signal, [signal.SIGINT], jobs=1)) == [(0, Done(None))]


def test_who_stops_listening_ends_the_processes() -> None:
    answers = each(time.sleep, [0.0, 600.0, 600.0], jobs=2)
    assert next(answers) == (0, Done(None))
    before = multiprocessing.active_children()
    assert before
    answers.close()
    assert not multiprocessing.active_children()
