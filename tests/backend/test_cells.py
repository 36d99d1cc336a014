"""Shared cells: what ranks of one node lose without the lock, and what they do not lose with it."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.algorithms.operations import Cell
from paceline.backend.cells import Cells

CELL = Cell("shared")
TURNS = 1500  # so many that processes and lanes do come between each other


def add_under_lock(folder: Path, lanes: int = 1) -> None:
    """Reads, computes and writes back, in three steps: without the lock, additions would be lost."""
    cells = Cells(folder)

    def lane() -> None:
        for _ in range(TURNS):
            cells.lock(CELL)
            before = cells.access(CELL, "read", None)
            cells.access(CELL, "swap", before + np.ones(3) if before is not None else np.ones(3))
            cells.unlock(CELL)

    threads = [threading.Thread(target=lane) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_processes(work: Callable[[Path, int], None], folder: Path, count: int, lanes: int) -> None:
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=work, args=(folder, lanes)) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0


@pytest.mark.backend
@pytest.mark.parametrize(("processes", "lanes"), [(2, 1), (1, 3), (2, 2)])
def test_nothing_is_lost_under_the_lock(tmp_path: Path, processes: int, lanes: int) -> None:
    in_processes(add_under_lock, tmp_path, processes, lanes)
    assert Cells(tmp_path).access(CELL, "read", None).tolist() == [processes * lanes * TURNS] * 3


def lock_once(folder: Path, _: int) -> None:
    cells, another = Cells(folder), Cells(folder)
    assert not cells.unlock(CELL)
    cells.lock(CELL)
    assert not another.unlock(CELL)
    assert [cells.unlock(CELL), cells.unlock(CELL)] == [True, False]


@pytest.mark.backend
def test_unlocking_says_whether_the_lock_was_held(tmp_path: Path) -> None:
    in_processes(lock_once, tmp_path, 1, 1)


def test_a_cell_is_none_before_its_first_writing(tmp_path: Path) -> None:
    one, other = Cells(tmp_path), Cells(tmp_path)
    assert one.access(CELL, "read", None) is None
    assert one.access(CELL, "add", np.array([1.0, 2.0])) is None
    assert other.access(CELL, "read", None).tolist() == [1.0, 2.0]


def test_every_access_answers_the_value_before(tmp_path: Path) -> None:
    one, other = Cells(tmp_path), Cells(tmp_path)
    assert one.access(CELL, "swap", np.array([1.0])) is None
    assert other.access(CELL, "add", np.array([2.0])).tolist() == [1.0]
    assert one.access(CELL, "swap", np.array([9.0])).tolist() == [3.0]
    assert other.access(CELL, "read", None).tolist() == [9.0]


def test_an_answer_is_a_copy(tmp_path: Path) -> None:
    cells = Cells(tmp_path)
    cells.access(CELL, "swap", np.array([1.0]))
    before = cells.access(CELL, "read", None)
    cells.access(CELL, "add", np.array([1.0]))
    before += 5.0
    assert cells.access(CELL, "read", None).tolist() == [2.0]


@pytest.mark.parametrize("make", [torch.tensor, lambda numbers: np.array(numbers, dtype=np.float32)])
def test_vectors_come_back_as_what_they_were(tmp_path: Path, make: Any) -> None:
    Cells(tmp_path).access(CELL, "swap", make([1.5, 2.5]))
    found = Cells(tmp_path).access(CELL, "read", None)
    assert type(found) is type(make([0.0])) and found.dtype == make([0.0]).dtype
    assert found.tolist() == [1.5, 2.5]


def test_cells_of_other_names_and_nodes_are_others(tmp_path: Path) -> None:
    for node in ("here", "there"):
        (tmp_path / node).mkdir()
    here, there = Cells(tmp_path / "here"), Cells(tmp_path / "there")
    here.access(CELL, "swap", np.array([1.0]))
    assert there.access(CELL, "read", None) is None
    assert here.access(Cell("another"), "read", None) is None


def test_lanes_that_write_new_cells_at_once_write_the_same_ones(tmp_path: Path) -> None:
    """Each of them may be the one that makes the cell; neither writes into a file that the other then replaces."""
    cells, together = Cells(tmp_path), threading.Barrier(4)
    failures: list[Exception] = []

    def lane() -> None:
        try:
            for number in range(100):
                together.wait(timeout=10)
                cells.access(Cell(f"{number}"), "swap", np.full(3, 7.0))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=lane) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    other = Cells(tmp_path)
    for number in range(100):
        assert other.access(Cell(f"{number}"), "read", None).tolist() == [7.0, 7.0, 7.0]
