"""Measures how long clusters of thousands of workers take to load, to route and to price: CPU time and memory by stage.

    python benchmarks/large_clusters.py                              # two tables, 1 min
    python benchmarks/large_clusters.py --workers 1000,100000 --algorithms ring --library nccl
    python benchmarks/large_clusters.py --json

The scenario is that of fat-tree-100k: nodes of eight GPUs on a fat tree, ResNet-50. Every size and algorithm has a
process of its own, whose memory holds nothing else. The stages:

* load: parsing and validation, which builds the graph and places the workers
* plan: the cluster, the job and its team
* network: ports and their capacities
* choice: the pattern of an all-reduce of all gradients, with routes and predictions of all candidates
* price: when each rank is done with it, alone on the network
* server: the routes from every worker to a server and back

The last column is the exponent of the time against the number of workers, between the smallest and the largest size.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from paceline.algorithms.core.values import Rank
from paceline.scenarios import load
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.runs.cost_model import cluster_network

A = TypeVar("A")
PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The figures of one size and algorithm.

    Args:
        workers: number of workers.
        algorithm: the requested algorithm of the all-reduce.
        chosen: the algorithm that was used.
        seconds: the time of the all-reduce, virtual seconds.
        cpu_s: processor time of each stage.
        added_bytes: peak memory beyond that of the imports.
    """

    workers: int
    algorithm: str
    chosen: str
    seconds: float
    cpu_s: dict[str, float]
    added_bytes: int


def measured(workers: int, algorithm: str, library: str) -> Loaded:
    """Runs all stages in this process."""
    before, cpu_s = _peak_bytes(), dict[str, float]()

    def stage(name: str, work: Callable[[], A]) -> A:
        begun = time.process_time()
        found = work()
        cpu_s[name] = time.process_time() - begun
        return found

    wires = f"cluster.network.allreduce_algorithm={algorithm}", f"cluster.network.library={library}"
    size = f"cluster.nodes[0].count={workers // PER_NODE}"
    scenario = stage("load", lambda: load("fat-tree-100k", [size, *wires]))
    (plan,) = stage("plan", scenario.plans)
    network = stage("network", lambda: cluster_network(plan))
    group, nbytes = plan.job.team[0].workers, 4 * plan.job.learner.layout.size
    chosen = stage("choice", lambda: network.tuner.plan("AllReduce", group, nbytes))
    seconds = stage("price", lambda: float(alone_s(chosen, network.fabric).max()))
    ranks, server = plan.job.team[0].workers.ranks, Rank(workers)
    stage(
        "server",
        lambda: [network.fabric.path(*ends, nbytes) for rank in ranks for ends in ((rank, server), (server, rank))],
    )
    (choice,) = network.tuner.choices.values()
    return Loaded(
        workers=workers,
        algorithm=algorithm,
        chosen=choice.algorithm,
        seconds=seconds,
        cpu_s=cpu_s,
        added_bytes=_peak_bytes() - before,
    )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_a_new_process(*given: Any) -> Loaded:
    """Runs all stages in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, given)


def exponent(rows: list[Loaded], stage: str) -> float | None:
    """Returns the exponent of a stage's time against the number of workers; None for a single size."""
    first, last = rows[0], rows[-1]
    if first.workers == last.workers:
        return None
    return math.log(last.cpu_s[stage] / first.cpu_s[stage]) / math.log(last.workers / first.workers)


def main(argv: list[str]) -> int:
    """Measures all sizes and algorithms; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workers", default="1000,10000,16384,100000", help="numbers of workers, multiples of 8")
    parser.add_argument("--algorithms", default="ring,binomial-tree", help="algorithms of the all-reduce, or auto")
    parser.add_argument("--library", default="plain", help="the library: plain, nccl, mpi, gloo")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args(argv)
    sizes = sorted(int(size) for size in given.workers.split(","))
    found = {
        algorithm: [in_a_new_process(size, algorithm, given.library) for size in sizes]
        for algorithm in given.algorithms.split(",")
    }
    if given.json:
        print(json.dumps([asdict(row) for rows in found.values() for row in rows], indent=2))
        return 0
    for algorithm, rows in found.items():
        show(algorithm, rows)
    return 0


def show(algorithm: str, rows: list[Loaded]) -> None:
    """Prints the table of one algorithm."""
    table = Table("", *(f"{row.workers:,}" for row in rows), "exponent", title=f"all-reduce: {algorithm}")
    for stage in rows[0].cpu_s:
        grows = exponent(rows, stage)
        cells = [f"{row.cpu_s[stage]:.2f} s" for row in rows]
        table.add_row(stage, *cells, "" if grows is None else f"{grows:.2f}")
    table.add_row("memory", *(f"{row.added_bytes / 1e6:,.0f} MB" for row in rows), "")
    table.add_row("chosen", *(row.chosen for row in rows), "")
    table.add_row("virtual time", *(f"{row.seconds:.6g} s" for row in rows), "")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
