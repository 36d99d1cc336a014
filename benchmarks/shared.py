"""Compares collectives and messages inside a node: by gloo over sockets, and in memory that the ranks share.

    python benchmarks/shared.py
    python benchmarks/shared.py --json --rounds 9

Real ranks on one node, launched as for training, run each collective after a pause of some milliseconds, which differs
between ranks as between gradients. Without the pause, a fast rank would always find the others waiting. A collective is
timed from the entry of its last member to the exit of each member. The figure of a launch is the mean, because rare
long collectives delay training too. Launches of both ways alternate; each round gives a ratio of two launches next to
each other. The tables show medians over the rounds, and the smallest and largest ratio.

Messages are timed by programs that only send: the time of a round trip, and the number of pushes and pulls that a
server answers per second.

With few cores these times are mainly processor time, so check the share that other programs took.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.probes import ProbeCollectives
from paceline.backend.calibration.recorded_costs import Cost, costs
from paceline.backend.local.launch import Launch, run_job
from paceline.records.machine import OtherLoad
from paceline.topologies.catalogue.machine_profile import Asked
from shared_memory import messages as message_rows
from shared_memory.runs import Flat, never

SIZES = (20_000, 800_000, 8_000_000)
OPERATIONS = ("AllReduce", "Reduce", "Broadcast")
RANKS = (2, 4, 8)
TIMES = 20
"""repetitions of each collective in a launch"""
PAUSES_S = (0.003, 0.006)


class Pauses:
    """Returns the pause of each rank before each collective."""

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return float(np.random.default_rng((int(rank), step)).uniform(*PAUSES_S))

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [0.5], [0.5]


def launched(ranks: int, asked: Sequence[Asked], *, shared_memory: bool) -> Mapping[Cost, float]:
    """Returns the mean seconds of each collective in one launch."""
    learner = Flat(max(one.nbytes for one in asked) // 4)
    nodes = [[Rank(rank) for rank in range(ranks)]]
    method = ProbeCollectives(asked=tuple(asked), inside=shared_memory)
    samples = TIMES * len(asked) * ranks
    job = Job.of(method, nodes, learner, batch=1, budget=Budget(samples=samples))
    launch = Launch(job=job, schedule=never, pace=Pauses(), shared_memory=shared_memory)
    found = costs(job, run_job(launch), launch.pace)
    return {
        cost: fmean(times) for cost, times in found.items() if cost.members == ranks and cost.operation in OPERATIONS
    }


def rows_of(ranks: int, rounds: int) -> list[dict[str, Any]]:
    """Times every collective among this many ranks, both ways, round after round."""
    group = tuple(range(ranks))
    asked = [Asked(operation, ranks, nbytes, (group,)) for operation in OPERATIONS for nbytes in SIZES]
    gloo, memory = [], []
    for number in range(rounds):
        for way in (False, True) if number % 2 else (True, False):
            (memory if way else gloo).append(launched(ranks, asked, shared_memory=way))
    rows = []
    for one in asked:
        cost = Cost(one.operation, ranks, one.nbytes)
        theirs, ours = [each[cost] for each in gloo], [each[cost] for each in memory]
        ratios = [slow / quick for slow, quick in zip(theirs, ours, strict=True)]
        rows.append(
            {
                "operation": one.operation,
                "ranks": ranks,
                "bytes": one.nbytes,
                "gloo_s": median(theirs),
                "memory_s": median(ours),
                "ratio": median(ratios),
                "ratio_least": min(ratios),
                "ratio_largest": max(ratios),
                "rounds": rounds,
            }
        )
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Renders the rows."""
    shown = Table(title="Collectives inside a node", title_justify="left", box=None)
    shown.add_column("operation")
    for column in ("ranks", "bytes", "gloo ms", "memory ms", "ratio", "least", "largest"):
        shown.add_column(column, justify="right")
    for one in rows:
        shown.add_row(
            one["operation"],
            str(one["ranks"]),
            f"{one['bytes']:,}",
            f"{one['gloo_s'] * 1e3:.2f}",
            f"{one['memory_s'] * 1e3:.2f}",
            *(f"{one[name]:.1f}" for name in ("ratio", "ratio_least", "ratio_largest")),
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Collectives and messages inside a node, by gloo and in shared memory."
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("collectives", "messages"), help="one of the two tables")
    arguments = parser.parse_args()
    with OtherLoad() as other:
        rows = [] if arguments.only == "messages" else [row for n in RANKS for row in rows_of(n, arguments.rounds)]
        messages = [] if arguments.only == "collectives" else message_rows.rows_of(arguments.rounds)
    cores = len(os.sched_getaffinity(0))
    if arguments.json:
        document = {"rows": rows, "messages": messages, "cores": cores, "other_load": other.share}
        print(json.dumps(document, indent=2))
        return
    console = Console()
    for shown in (table(rows),) * bool(rows) + (message_rows.table(messages),) * bool(messages):
        console.print(shown)
    console.print(f"{cores} cores; other programs took {other.share:.0%} of them. Ratio: gloo's time to memory's.")


if __name__ == "__main__":
    main()
