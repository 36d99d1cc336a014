"""Shared cells: ranks of one node lose updates without the lock, and lose none with it."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.algorithms.core.operations import Cell
from paceline.backend.supervision.gather import lost_updates
from paceline.backend.transports.cells import SharedCells, landed, mapped

CELL = Cell("shared")
TURNS = 1500  # enough that processes and lanes interleave


def add_under_lock(folder: Path, lanes: int = 1) -> None:
    """Reads, computes and writes in three steps: without the lock, additions would be lost."""
    cells = SharedCells(folder)

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
    assert SharedCells(tmp_path).access(CELL, "read", None).tolist() == [processes * lanes * TURNS] * 3


def lock_once(folder: Path, _: int) -> None:
    cells, another = SharedCells(folder), SharedCells(folder)
    assert not cells.unlock(CELL)
    cells.lock(CELL)
    assert not another.unlock(CELL)
    assert [cells.unlock(CELL), cells.unlock(CELL)] == [True, False]


@pytest.mark.backend
def test_unlocking_says_whether_the_lock_was_held(tmp_path: Path) -> None:
    in_processes(lock_once, tmp_path, 1, 1)


def test_a_cell_is_none_before_its_first_writing(tmp_path: Path) -> None:
    one, other = SharedCells(tmp_path), SharedCells(tmp_path)
    assert one.access(CELL, "read", None) is None
    assert one.access(CELL, "add", np.array([1.0, 2.0])) is None
    assert other.access(CELL, "read", None).tolist() == [1.0, 2.0]


def test_every_access_answers_the_value_before(tmp_path: Path) -> None:
    one, other = SharedCells(tmp_path), SharedCells(tmp_path)
    assert one.access(CELL, "swap", np.array([1.0])) is None
    assert other.access(CELL, "add", np.array([2.0])).tolist() == [1.0]
    assert one.access(CELL, "swap", np.array([9.0])).tolist() == [3.0]
    assert other.access(CELL, "read", None).tolist() == [9.0]


def test_an_answer_is_a_copy(tmp_path: Path) -> None:
    cells = SharedCells(tmp_path)
    cells.access(CELL, "swap", np.array([1.0]))
    before = cells.access(CELL, "read", None)
    cells.access(CELL, "add", np.array([1.0]))
    before += 5.0
    assert cells.access(CELL, "read", None).tolist() == [2.0]


@pytest.mark.parametrize("make", [torch.tensor, lambda numbers: np.array(numbers, dtype=np.float32)])
def test_vectors_come_back_as_what_they_were(tmp_path: Path, make: Any) -> None:
    SharedCells(tmp_path).access(CELL, "swap", make([1.5, 2.5]))
    found = SharedCells(tmp_path).access(CELL, "read", None)
    assert type(found) is type(make([0.0])) and found.dtype == make([0.0]).dtype
    assert found.tolist() == [1.5, 2.5]


def test_cells_of_other_names_and_nodes_are_others(tmp_path: Path) -> None:
    for node in ("here", "there"):
        (tmp_path / node).mkdir()
    here, there = SharedCells(tmp_path / "here"), SharedCells(tmp_path / "there")
    here.access(CELL, "swap", np.array([1.0]))
    assert there.access(CELL, "read", None) is None
    assert here.access(Cell("another"), "read", None) is None


def test_lanes_that_write_new_cells_at_once_write_the_same_ones(tmp_path: Path) -> None:
    """Any of them may create the cell; none writes into a file that another one then replaces."""
    cells, together = SharedCells(tmp_path), threading.Barrier(4)
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
    other = SharedCells(tmp_path)
    for number in range(100):
        assert other.access(Cell(f"{number}"), "read", None).tolist() == [7.0, 7.0, 7.0]


# --- what is lost ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("size", [1, 7, 15, 16, 100])
def test_probes_are_between_the_numbers_and_count_adds(tmp_path: Path, kind: Any, size: int) -> None:
    """For all sizes: whole lines, a part of one, a single number."""
    cells, numbers = SharedCells(tmp_path), np.arange(1, size + 1).astype(kind)
    cells.access(CELL, "swap", numbers)
    for _ in range(3):
        cells.access(CELL, "add", numbers)
    found = SharedCells(tmp_path).access(CELL, "read", None)
    assert found.dtype == kind and found.tolist() == (4 * numbers).tolist()
    assert landed(tmp_path, CELL.name) == cells.adds[CELL.name] == 3


def test_what_is_written_over_counts_as_lost(tmp_path: Path) -> None:
    """A lost update by hand: one process adds to a value read before another one's add, on the first of two lines."""
    one, other = SharedCells(tmp_path), SharedCells(tmp_path)
    one.access(CELL, "swap", np.zeros(14))
    lines = mapped(tmp_path / f"{CELL.name}.form").body
    before = lines[:8].copy()
    other.access(CELL, "add", np.ones(14))
    lines[:8] = before
    one.access(CELL, "add", np.ones(14))
    assert one.access(CELL, "read", None).tolist() == [1.0] * 7 + [2.0] * 7
    adds = {(tmp_path, CELL.name): one.adds[CELL.name] + other.adds[CELL.name]}
    assert lost_updates(adds) == {"adds": 2, "lost_share": 0.25}
    assert lost_updates({}) is None


def test_a_cell_keeps_its_length(tmp_path: Path) -> None:
    cells = SharedCells(tmp_path)
    cells.access(CELL, "swap", np.zeros(2))
    with pytest.raises(ValueError, match="cell 'shared' has 2 numbers; found 3"):
        cells.access(CELL, "add", np.zeros(3))


def add_without_lock(folder: Path, lanes: int) -> None:
    cells = SharedCells(folder)

    def lane() -> None:
        for _ in range(TURNS):
            cells.access(CELL, "add", np.ones(1000))

    threads = [threading.Thread(target=lane) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cells.adds[CELL.name] == lanes * TURNS


@pytest.mark.backend
def test_without_the_lock_what_is_there_is_what_the_probes_say(tmp_path: Path) -> None:
    """However many updates are lost: the numbers of a line and its probe are added in one loop, at most 8 at a time.

    So a line may be torn, but no number exceeds the adds, and no number differs from its neighbours for long: the means
    agree to a tenth of the adds.
    """
    SharedCells(tmp_path).access(CELL, "swap", np.zeros(1000))
    in_processes(add_without_lock, tmp_path, 2, 2)
    adds, numbers = 2 * 2 * TURNS, SharedCells(tmp_path).access(CELL, "read", None)
    assert 0 < landed(tmp_path, CELL.name) <= adds
    assert numbers.min() > 0 and numbers.max() <= adds
    assert abs(numbers.mean() - landed(tmp_path, CELL.name)) <= 0.1 * adds
