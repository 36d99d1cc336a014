"""Runs every method with its defaults on the digits, simulated and real: time, staleness and bytes.

    python benchmarks/methods.py                       # all of them: about ten minutes
    python benchmarks/methods.py --algorithms gossip,ssp --json

Four paced workers run on two nodes: two of a fast device (20 ms per step of 32 samples) and two of a device that is
half as fast. Methods whose workers share memory have four fast ones on one node. Each method runs for 20 epochs, or
until it reaches 95 %. The messages of real runs use this machine's memory and loopback, so the simulated cluster is
this machine, measured by a probe at the start.

Exits with 1 if a method stays below 90 % test accuracy, simulated or real.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

import paceline
from paceline.algorithms import METHODS
from paceline.algorithms.core.values import Rank
from paceline.reports.comparison.comparison import ComparedLine

LEAST = 0.9
"""test accuracy at the end of each run"""
FAST = {"name": "fast", "overhead": "4 ms", "per_sample": "0.5 ms"}
SLOW = {"name": "slow", "overhead": "4 ms", "per_sample": "1.125 ms"}
TWO_NODES = [{"device": FAST, "workers_per_node": 2}, {"device": SLOW, "workers_per_node": 2}]
ONE_NODE = [{"device": FAST, "workers_per_node": 4}]
PLACED = [[Rank(0), Rank(1)], [Rank(2), Rank(3)]]


def scenario(names: list[str], nodes: list[dict[str, Any]], epochs: float) -> dict[str, Any]:
    """Returns the scenario."""
    return {
        "name": "methods",
        "algorithms": names,
        "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 32},
        "cluster": {
            "nodes": nodes,
            "network": {"topology": "star", "link": "eth-10g"},
            "step_time": {"distribution": "lognorm", "sigma": 0.3},
        },
        "train": {"pace": "device", "network": "local", "torch_threads": 1},
        "evaluate": {"every": "256 samples"},
        "target": {"accuracy": LEAST},
        "stop": {"epochs": epochs, "accuracy": 0.95},
        "seed": 1,
    }


def rows(line: ComparedLine) -> list[dict[str, Any]]:
    """Returns the figures of one method, simulated and measured."""
    found = []
    for kind, summary in (("simulated", line.simulated), ("measured", line.measured)):
        staleness = summary["staleness"]
        found.append(
            {
                "algorithm": line.name,
                "kind": kind,
                "step_s": summary["step_s"]["mean"],
                "wall_s": summary["wall_s"],
                "time_to_accuracy_s": summary["time_to_accuracy_s"],
                "final_accuracy": summary["final_accuracy"],
                "staleness_mean": staleness["mean"],
                "staleness_max": staleness["max"],
                "bytes_per_gradient": summary["bytes_sent"] / summary["steps"] if summary["steps"] else None,
                "lost_share": summary["lost_updates"] and summary["lost_updates"]["lost_share"],
                "learned": summary["final_accuracy"] >= LEAST,
            }
        )
    return found


def table(found: list[dict[str, Any]]) -> Table:
    """Renders the rows."""
    made = Table(box=None, title=f"Time to {100 * LEAST:g} %, staleness and bytes, simulated and measured")
    made.add_column("algorithm")
    for column in ("kind", "step, ms", "time, s", "accuracy, %", "staleness", "most", "KB a gradient", "lost, %"):
        made.add_column(column, justify="right", overflow="fold")
    for row in found:
        cells = [
            _shown(row["step_s"], 1e3, ".1f"),
            _shown(row["time_to_accuracy_s"], 1, ".2f"),
            _shown(row["final_accuracy"], 100, ".1f"),
            _shown(row["staleness_mean"], 1, ".2f"),
            _shown(row["staleness_max"], 1, "g"),
            _shown(row["bytes_per_gradient"], 1e-3, ".1f"),
            _shown(row["lost_share"], 100, ".2f"),
        ]
        made.add_row(row["algorithm"] if row["kind"] == "simulated" else "", row["kind"], *cells)
    return made


def _shown(figure: float | None, scale: float, form: str) -> str:
    return "–" if figure is None else format(scale * figure, form)


def main() -> int:
    """Runs the comparisons and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", default=",".join(METHODS), help="names, with commas between them")
    parser.add_argument("--epochs", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.algorithms.split(",")
    apart = [name for name in names if METHODS[name]().problems(PLACED)]
    found: list[dict[str, Any]] = []
    load = 0.0
    for chosen, nodes in (([name for name in names if name not in apart], TWO_NODES), (apart, ONE_NODE)):
        if chosen:
            comparison = paceline.compare(scenario(chosen, nodes, options.epochs), stage=_said)
            found += [row for line in comparison.lines for row in rows(line)]
            load = max(load, comparison.other_load)
    holds = all(row["learned"] for row in found)
    if options.json:
        print(json.dumps({"rows": found, "other_load": load, "holds": holds}))
    else:
        Console().print(table(found))
        below = [f"{row['algorithm']} ({row['kind']})" for row in found if not row["learned"]]
        print(f"Below {100 * LEAST:g} %: {', '.join(below) or 'none'}. Other programs took {100 * load:.1f} %.")
    return 0 if holds else 1


def _said(stage: str) -> None:
    print(stage, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
