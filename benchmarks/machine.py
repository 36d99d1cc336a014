"""What this machine does for real runs: messages and collectives in shared memory, paced ranks, and shared cores.

    python benchmarks/machine.py                                       # ten minutes
    python benchmarks/machine.py --only messages,collectives --rounds 9
    python benchmarks/machine.py --only pace --ranks 16 --ms 20,50

Groups (--only):

    messages      round trips, and pushes and pulls that a server answers, by gloo and in shared memory
    collectives   all-reduce, reduce and broadcast among 2, 4 and 8 ranks of a node, by gloo and in shared memory
    cells         updates that are lost when processes add to a shared vector without a lock, as for Hogwild, and what
                  the simulator's model loses for adds that began and ended at the measured times, so that the losses
                  are tested and not the timing; a process that waits for a core counts as adding
    pace          time of paced steps over the requested time, by the run's summary: of all ranks and of the slowest;
                  how late steps start; and whether every rank held its pace (a ratio of at most 1.05)
    interference  speed of processes that compute gradients, and of processes that copy and add as a thread of an
                  all-reduce does, over their speed alone; predicted is min(1, cores / processes), and what is missing
                  is the share of caches and memory bandwidth

Both sides of a ratio are measured in turn, round after round; shown are medians, and of ratios the 95 % interval of the
median (with fewer than six rounds: the range). With few cores these times are mainly processor time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from torch import nn

import paceline
from common.harness import CORES, Answer, at_least, in_turn, names_of, numbers, of_groups, ratio, run_command, table
from common.local_programs import Times, collective_times, message_times
from paceline.algorithms.core.operations import Access, Cell
from paceline.algorithms.core.values import Null
from paceline.backend.transports.cells import SharedCells, landed
from paceline.records.machine import OtherLoad
from paceline.simulator.interpreter.sweeps import BLOCK_BYTES, MOST_BLOCKS, CellMemory

RANKS = (2, 4, 8)
PACED = ("sync-sgd", "async-sgd")
SECONDS = 0.5
"""how long a case of `interference` is measured in each round"""
SEGMENT_BYTES = 2**20
CELL_SIZES = (5_000, 200_000, 2_000_000)
ADDERS = (2, 4)
MOVED = 200_000_000
"""float32 numbers that each process adds in total, so that runs of all sizes last about as long; at most `MOST_ADDS`"""
MOST_ADDS = 4000
CELL = Cell("shared")
Span = tuple[float, float]


def transports(what: str, measure: Callable[..., Times], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns a row for each operation and size, with gloo's time over that in shared memory."""
    ways = {way: partial(measure, shared_memory=way == "memory") for way in ("gloo", "memory")}
    times = in_turn(ways, options.rounds, what)
    rows = []
    for operation, ranks, nbytes in sorted(times["gloo"][0]):
        gloo, memory = (
            [times_of_round[operation, ranks, nbytes] for times_of_round in times[way]] for way in ("gloo", "memory")
        )
        medians = {"gloo_s": median(gloo), "memory_s": median(memory), "rounds": options.rounds}
        rows.append({"operation": operation, "ranks": ranks, "bytes": nbytes, **medians, **ratio(memory, gloo)})
    return rows


RATIOS = {"gloo / memory": "ratio:.1f", "low": "low:.1f", "high": "high:.1f"}


def messages(options: argparse.Namespace) -> Answer:
    rows = transports("messages", message_times, options)
    cells = {"operation": "operation", "bytes": "bytes:,", "gloo µs": "gloo_s*1e6:.0f", "memory µs": "memory_s*1e6:.0f"}
    return Answer({"rows": rows}, [table("Messages inside a host", rows, cells | RATIOS)])


def collectives(options: argparse.Namespace) -> Answer:
    counts = options.ranks or RANKS
    rows = [
        row
        for count in counts
        for row in transports(f"collectives of {count}", partial(collective_times, count), options)
    ]
    cells = {"operation": "operation", "ranks": "ranks:", "bytes": "bytes:,"}
    times = {"gloo ms": "gloo_s*1e3:.2f", "memory ms": "memory_s*1e3:.2f"}
    return Answer({"rows": rows}, [table("Collectives inside a node", rows, cells | times | RATIOS)])


# --- pace -------------------------------------------------------------------------------------------------------------


def pace(options: argparse.Namespace) -> Answer:
    rows = [
        paced(algorithm, ranks, step_ms)
        for algorithm in PACED
        for ranks in options.ranks or (4, 8, 16)
        for step_ms in options.ms
    ]
    cells = {
        "algorithm": "algorithm", "ranks": "ranks:", "asked ms": "asked_ms:", "ratio": "ratio:.3f",
        "worst": "worst_ratio:.3f", "late ms": "late_start_ms:.3f", "held": "held", "steps": "steps:",
        "others": "other_load:.0%",
    }  # fmt: skip
    return Answer({"rows": rows}, [table("Paced ranks", rows, cells)])


def paced(algorithm: str, ranks: int, step_ms: int) -> dict[str, Any]:
    """Trains the digits for three seconds with equal workers, two per node."""
    device = {"name": "paced", "overhead": f"{step_ms} ms", "per_sample": "0 ms"}
    scenario = {
        "name": "pace",
        "algorithms": [algorithm],
        "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 32, "learning": "train"},
        "cluster": {
            "nodes": [{"device": device, "count": ranks // 2, "workers_per_node": 2}],
            "network": {"topology": "star", "link": "eth-10g"},
        },
        "train": {"pace": "device"},
        "stop": {"seconds": "3 s"},
        "evaluate": {"every": "1000 s"},
        "seed": 1,
    }
    with OtherLoad() as other:
        (run,) = paceline.train(scenario)
    kept = run.summary["pace"]
    figures = {"ratio": kept["ratio"], "worst_ratio": kept["worst"]["ratio"], "held": kept["held"]}
    late = {"late_start_ms": kept["late_start_s"] * 1e3, "steps": run.summary["steps"], "other_load": other.share}
    return {"algorithm": algorithm, "ranks": ranks, "asked_ms": step_ms, **figures, **late}


# --- interference -----------------------------------------------------------------------------------------------------


def gradient() -> Callable[[], None]:
    """Returns a gradient of a network with 75,000 weights, which stays in a core's cache."""
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10))
    data, target = torch.randn(64, 64), torch.randint(0, 10, (64,))

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
    reported = [rates.get() for _ in kinds]
    for process in processes:
        process.join()
    return {kind: fmean(rate for own, rate in reported if own == kind) for kind in dict(reported)}


def interference(options: argparse.Namespace) -> Answer:
    cases = dict.fromkeys((g, c) for g in (1, CORES) for c in (0, 1, 2, CORES) if g + c > 1)
    alone = {"gradient": (1, 0), "communication": (0, 1)}
    ways = {case: partial(rates_of, *case) for case in (*alone.values(), *cases)}
    rates = in_turn(ways, options.rounds, "interference")
    rows = []
    for case in cases:
        speeds = {
            kind: median(now[kind] / base[kind] for now, base in zip(rates[case], rates[alone[kind]], strict=True))
            for kind in rates[case][0]
        }
        row = {"gradients": case[0], "communications": case[1], "predicted": min(1.0, CORES / sum(case))}
        rows.append({**row, **{f"{kind}_speed": speed for kind, speed in speeds.items()}})
    cells = {
        "gradients": "gradients:", "communications": "communications:", "predicted speed": "predicted:.2f",
        "gradients, measured": "gradient_speed:.2f", "communication, measured": "communication_speed:.2f",
    }  # fmt: skip
    return Answer({"rows": rows}, [table("Work that shares the cores", rows, cells)])


# --- cells ------------------------------------------------------------------------------------------------------------


def add_often(folder: Path, rank: int, size: int, adds: int, together: Any) -> None:
    """Runs one process: adds, and records when each add began and ended."""
    shared, ones = SharedCells(folder), np.ones(size, np.float32)
    shared.access(CELL, "read", None)
    times = np.empty((adds, 2))
    together.wait()
    for number in range(adds):
        times[number, 0] = time.perf_counter()
        shared.access(CELL, "add", ones)
        times[number, 1] = time.perf_counter()
    np.save(folder / f"times{rank}.npy", times)


def lost_updates(size: int, processes: int, adds: int) -> tuple[float, list[list[Span]]]:
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


def lost_by_the_model(size: int, spans: Sequence[Sequence[Span]]) -> float:
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


def cells(options: argparse.Namespace) -> Answer:
    rows = [lost_row(size, adders, options.rounds) for adders in options.ranks or ADDERS for size in CELL_SIZES]
    columns = {
        "processes": "processes:", "floats": "floats:,", "an add µs": "add_s*1e6:.0f", "lost": "lost:.2%",
        "least": "lost_least:.2%", "most": "lost_most:.2%", "model": "predicted:.2%", "others": "other_load:.0%",
    }  # fmt: skip
    facts = {"block_bytes": BLOCK_BYTES, "most_blocks": MOST_BLOCKS}
    return Answer({"rows": rows, **facts}, [table("Lost updates without a lock", rows, columns)])


def lost_row(size: int, adders: int, rounds: int) -> dict[str, Any]:
    """Returns medians over several rounds of one size, and the range of the losses."""
    adds = max(1, min(MOST_ADDS, MOVED // size))
    with OtherLoad() as other:
        runs = [lost_updates(size, adders, adds) for _ in range(rounds)]
    lost = [share for share, _ in runs]
    durations = [end_s - start_s for _, spans in runs for of_rank in spans for start_s, end_s in of_rank]
    return {
        "processes": adders,
        "floats": size,
        "adds": adds * adders,
        "add_s": median(durations),
        "lost": median(lost),
        "lost_least": min(lost),
        "lost_most": max(lost),
        "predicted": median(lost_by_the_model(size, spans) for _, spans in runs),
        "other_load": other.share,
        "rounds": rounds,
    }


GROUPS = {
    "messages": messages,
    "collectives": collectives,
    "cells": cells,
    "pace": pace,
    "interference": interference,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=names_of(GROUPS), default=list(GROUPS), metavar="A,B,…", help="groups")
    parser.add_argument("--rounds", type=at_least(1), default=5)
    parser.add_argument("--ranks", type=numbers, help="of collectives (2,4,8), cells (2,4) and pace (4,8,16)")
    parser.add_argument("--ms", type=numbers, default=[5, 10, 20, 50], help="of paced steps (default: 5,10,20,50)")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, partial(of_groups, GROUPS), add_options))
