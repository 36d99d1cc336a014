"""Gradients and communication on the cores of this machine: how much they slow each other down.

    python benchmarks/interference.py
    python benchmarks/interference.py --rounds 10 --json

Processes compute gradients with one thread each, while others do what a thread of an all-reduce does: they copy and add
segments of 1 MiB. The model says that all run at min(1, cores / processes) of their speed; what is missing from that is
the share of caches and of memory bandwidth. Rounds of all cases alternate, and figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from statistics import fmean, median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

SEGMENT_BYTES = 2**20
SECONDS = 0.5
"""how long a case is measured in each round"""
FEATURES, HIDDEN, BATCH = 64, 1024, 64


def gradient() -> Callable[[], None]:
    """Returns a gradient of a network with 75,000 weights, which stays in a core's cache."""
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    data, target = torch.randn(BATCH, FEATURES), torch.randint(0, 10, (BATCH,))

    def compute() -> None:
        model.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()

    return compute


def reduction() -> Callable[[], None]:
    """Returns the work of one segment of a ring: a copy of what was received, and its sum with the own part."""
    own, received, buffer = (torch.ones(SEGMENT_BYTES // 4) for _ in range(3))

    def add() -> None:
        buffer.copy_(received)
        own.add_(buffer, alpha=1e-9)

    return add


WORK = {"gradient": gradient, "communication": reduction}


def repeat(kind: str, together: Barrier, rates: Queue[tuple[str, float]]) -> None:
    """Repeats one kind of work for a while, and reports repetitions per second."""
    torch.set_num_threads(1)
    once = WORK[kind]()
    once()
    together.wait()
    start_s, count = time.perf_counter(), 0
    while (passed_s := time.perf_counter() - start_s) < SECONDS:
        once()
        count += 1
    rates.put((kind, count / passed_s))


def rates_of(gradients: int, communications: int) -> dict[str, float]:
    """Returns the mean repetitions per second of each kind, with so many processes of each at the same time."""
    context = multiprocessing.get_context("fork")
    together, rates = context.Barrier(gradients + communications), context.Queue()
    kinds = ["gradient"] * gradients + ["communication"] * communications
    processes = [context.Process(target=repeat, args=(kind, together, rates)) for kind in kinds]
    for process in processes:
        process.start()
    found = [rates.get() for _ in kinds]
    for process in processes:
        process.join()
    return {kind: fmean(rate for own, rate in found if own == kind) for kind in dict(found)}


def rows(rounds: int, cores: int) -> list[dict[str, Any]]:
    """Returns a row for each number of gradients and communications."""
    alone = {"gradient": (1, 0), "communication": (0, 1)}
    cases = [(g, c) for g in (1, cores) for c in (0, 1, 2, cores) if g + c > 1]
    cases = list(dict.fromkeys(cases))
    speeds: dict[tuple[int, int], list[dict[str, float]]] = {case: [] for case in cases}
    for _ in range(rounds):
        base = {kind: rates_of(*case)[kind] for kind, case in alone.items()}
        for case in cases:
            speeds[case].append({kind: rate / base[kind] for kind, rate in rates_of(*case).items()})
    return [
        {
            "gradients": case[0],
            "communications": case[1],
            "predicted": min(1.0, cores / sum(case)),
            "measured": {kind: median(one[kind] for one in found) for kind in found[0]},
        }
        for case, found in speeds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of all cases")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    found = rows(options.rounds, cores)
    if options.json:
        print(json.dumps({"cores": cores, "rows": found}))
        return
    table = Table("gradients", "communications", "predicted speed", "gradients measured", "communication measured")
    for row in found:
        measured = (f"{row['measured'][kind]:.2f}" if kind in row["measured"] else "" for kind in WORK)
        table.add_row(str(row["gradients"]), str(row["communications"]), f"{row['predicted']:.2f}", *measured)
    Console().print(table)


if __name__ == "__main__":
    main()
