"""Measures lost updates of processes that add to one shared vector, and compares them with the simulator's model.

    python benchmarks/hogwild.py
    python benchmarks/hogwild.py --json

Each process adds a vector of ones to the same cell without a lock, as the real interpreter does for Hogwild. Probes of
the cell count the losses. The model gets the times at which these adds began and ended and computes the losses of
overlapping sweeps, in blocks. So the comparison tests the losses, not the timing.

The losses depend on how much the processes really run at the same time, on caches and on chance. Runs differ, hence
medians. A process that waits for a core is in the middle of an add nearly all the time and adds nothing meanwhile. So
check the share of the processor time that other programs took before you trust a row. No test asserts these figures.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from paceline.algorithms.core.operations import Access, Cell
from paceline.algorithms.core.values import Null
from paceline.backend.transports.cells import SharedCells, landed
from paceline.records.machine import OtherLoad
from paceline.simulator.interpreter.sweeps import BLOCK_BYTES, MOST_BLOCKS, CellMemory

SIZES = (5_000, 200_000, 2_000_000)
PROCESSES = (2, 4)
MOVED = 200_000_000
"""float32 numbers that each process adds in total, so that runs of all sizes last about as long; at most `MOST_ADDS`"""
MOST_ADDS = 4000
CELL = Cell("shared")
Span = tuple[float, float]


def add_often(folder: Path, rank: int, size: int, adds: int, together: Any) -> None:
    """Runs one process: adds, and records when each add began and ended."""
    cells, ones = SharedCells(folder), np.ones(size, np.float32)
    cells.access(CELL, "read", None)
    times = np.empty((adds, 2))
    together.wait()
    for number in range(adds):
        times[number, 0] = time.perf_counter()
        cells.access(CELL, "add", ones)
        times[number, 1] = time.perf_counter()
    np.save(folder / f"times{rank}.npy", times)


def measured(size: int, processes: int, adds: int) -> tuple[float, list[list[Span]]]:
    """Measures the fraction of lost updates, and when each process added."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="paceline-", dir=shared if shared.is_dir() else None) as name:
        folder = Path(name)
        SharedCells(folder).access(CELL, "swap", np.zeros(size, np.float32))
        fork = multiprocessing.get_context("fork")
        together = fork.Barrier(processes)
        started = [
            fork.Process(target=add_often, args=(folder, rank, size, adds, together)) for rank in range(processes)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join()
        spans = [np.load(folder / f"times{rank}.npy").tolist() for rank in range(processes)]
        return 1 - landed(folder, CELL.name) / (adds * processes), spans


def predicted(size: int, spans: Sequence[Sequence[Span]]) -> float:
    """Returns the fraction that the model loses when adds begin and end at these times."""
    memory, value = CellMemory(), Null(size)
    memory.end(memory.begin(Access(CELL, "swap", value), 0.0, 0.0), 0.0)
    moments = sorted(
        (at_s, which == 0, rank, number)
        for rank, of_rank in enumerate(spans)
        for number, span in enumerate(of_rank)
        for which, at_s in enumerate(span)
    )  # at equal times, ends sort before beginnings
    under_way = {}
    for at_s, begins, rank, number in moments:
        if begins:
            under_way[rank] = memory.begin(Access(CELL, "add", value), at_s, spans[rank][number][1] - at_s)
        else:
            memory.end(under_way.pop(rank), at_s)
    return memory.lost / memory.adds


def row(size: int, processes: int, runs: int) -> dict[str, Any]:
    """Returns medians over several runs of one size, and the range of the losses."""
    adds = max(1, min(MOST_ADDS, MOVED // size))
    with OtherLoad() as other:
        found = [measured(size, processes, adds) for _ in range(runs)]
    real = [lost for lost, _ in found]
    durations = [end_s - start_s for _, spans in found for of_rank in spans for start_s, end_s in of_rank]
    return {
        "processes": processes,
        "floats": size,
        "adds": adds * processes,
        "add_s": median(durations),
        "lost": median(real),
        "lost_least": min(real),
        "lost_most": max(real),
        "predicted": median(predicted(size, spans) for _, spans in found),
        "other_load": other.share,
        "runs": runs,
    }


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Renders the rows."""
    shown = Table(title="Lost updates without a lock", title_justify="left")
    for column in ("processes", "floats", "an add µs", "lost", "least", "most", "model", "others"):
        shown.add_column(column, justify="right")
    for one in rows:
        shown.add_row(
            str(one["processes"]),
            f"{one['floats']:,}",
            f"{one['add_s'] * 1e6:.0f}",
            f"{one['lost']:.2%}",
            f"{one['lost_least']:.2%}",
            f"{one['lost_most']:.2%}",
            f"{one['predicted']:.2%}",
            f"{one['other_load']:.0%}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description="Lost updates, measured beside the simulator's model.")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--runs", type=int, default=5, help="number of runs of each size")
    arguments = parser.parse_args()
    rows = [row(size, processes, arguments.runs) for processes in PROCESSES for size in SIZES]
    facts = {"cores": os.cpu_count(), "block_bytes": BLOCK_BYTES, "most_blocks": MOST_BLOCKS}
    if arguments.json:
        print(json.dumps({"rows": rows, **facts}, indent=2))
        return
    console = Console()
    console.print(table(rows))
    console.print(f"{facts['cores']} cores; the model's blocks: {BLOCK_BYTES} bytes, at most {MOST_BLOCKS} of them.")


if __name__ == "__main__":
    main()
