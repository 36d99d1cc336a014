"""Checks whether paced ranks keep their pace on this machine: the time of their steps relative to the requested time.

Every row is one real run of the digits of `SECONDS` seconds, with a number of workers and a requested step time. The
ratio is that of the run's own summary (`pace`), computed from its spans. Above 1.05 for one of its ranks, a run warns
that it did not keep its pace.

    python benchmarks/pace.py
    python benchmarks/pace.py --ranks 16 --ms 20,50 --json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import paceline
from paceline.records.machine import OtherLoad, machine_facts

ALGORITHMS = ("sync-sgd", "async-sgd")
RANKS = (4, 8, 16)
MILLISECONDS = (5.0, 10.0, 20.0, 50.0)
SECONDS = 3.0


def scenario(algorithm: str, ranks: int, step_ms: float, seconds: float) -> dict[str, Any]:
    """Returns this many equal workers, two per node."""
    return {
        "name": "pace",
        "algorithms": [algorithm],
        "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 32, "learning": "train"},
        "cluster": {
            "nodes": [
                {
                    "device": {"name": "paced", "overhead": f"{step_ms} ms", "per_sample": "0 ms"},
                    "count": ranks // 2,
                    "workers_per_node": 2,
                }
            ],
            "network": {"topology": "star", "link": "eth-10g"},
        },
        "train": {"pace": "device"},
        "stop": {"seconds": f"{seconds} s"},
        "evaluate": {"every": "1000 s"},
        "seed": 1,
    }


def measure(algorithm: str, ranks: int, step_ms: float, seconds: float) -> dict[str, Any]:
    """Returns one row: the pace that a run reports."""
    with OtherLoad() as other:
        (run,) = paceline.train(scenario(algorithm, ranks, step_ms, seconds))
    pace = run.summary["pace"]
    return {
        "algorithm": algorithm,
        "ranks": ranks,
        "asked_ms": step_ms,
        "ratio": pace["ratio"],
        "worst_ratio": pace["worst"]["ratio"],
        "late_start_ms": pace["late_start_s"] * 1e3,
        "held": pace["held"],
        "steps": run.summary["steps"],
        "other_load": other.share,
    }


def show(row: dict[str, Any]) -> str:
    """Adds a row to the table."""
    return (
        f"{row['algorithm']:<10} {row['ranks']:>5} {row['asked_ms']:>8g} {row['ratio']:>8.3f} "
        f"{row['worst_ratio']:>8.3f} {row['late_start_ms']:>8.3f} {'yes' if row['held'] else 'no':>5} "
        f"{row['steps']:>6} "
        f"{100 * row['other_load']:>6.0f}"
    )


def main(arguments: Sequence[str]) -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)), help="numbers of workers, even")
    parser.add_argument("--ms", default=",".join(f"{ms:g}" for ms in MILLISECONDS), help="milliseconds of a step")
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of each run")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    asked = parser.parse_args(arguments)
    rows = []
    if not asked.json:
        print("algorithm  ranks asked ms    ratio    worst  late ms  held  steps  other load %")
    for algorithm in asked.algorithms.split(","):
        for ranks in map(int, asked.ranks.split(",")):
            for step_ms in map(float, asked.ms.split(",")):
                rows.append(measure(algorithm, ranks, step_ms, asked.seconds))
                if not asked.json:
                    print(show(rows[-1]), flush=True)
    if asked.json:
        json.dump({"machine": machine_facts(), "rows": rows}, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
