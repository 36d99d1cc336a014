"""Measures dynamic batch sizes on workers of unequal speed: the loss after equal time, and the staleness per node.

    python benchmarks/dbs.py
    python benchmarks/dbs.py --seeds 10 --seconds 1 --rates 0.05 0.1 0.2 0.4
    python benchmarks/dbs.py --json

Eight workers with speeds 8, 4, 4, 2, 2, 1, 1, 1 train the digits in virtual time, with asynchronous SGD, softsync and
dbs-sgd. All methods process the same samples per second, so equal time is equal work. Differences are paired by seed
and shown with their 95 % confidence interval (Student's t), whatever their sign. Softsync averages c = 2 gradients into
one update and uses twice the learning rate, so that a fresh sample has the same weight in every method. It damps stale
gradients, or, undamped, gives them full weight.

Ji et al. (J. Comp. R&D 2019) report losses 60 % lower on MNIST and 10 % lower on CIFAR-10, at the same speed-up.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from accuracy_claims.unequal_workers import SPEEDS, cluster
from common.intervals import difference
from paceline.records import Run
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate

BATCH = 32
SOFTSYNC = 4
"""n, so an update takes 8 / 4 gradients; provenance: the middle one of the values that the paper tries"""

UNDAMPED = "softsync-undamped"
"""softsync with full weight for stale gradients"""


def algorithm(name: str, rate: float) -> dict[str, Any]:
    """Returns an algorithm of the scenario for a learning rate per gradient."""
    if name.startswith("softsync"):
        undamped = {"damping": "none"} if name == UNDAMPED else {}
        return {"name": "softsync", "n": SOFTSYNC, "learning_rate": rate * (len(SPEEDS) // SOFTSYNC), **undamped}
    return {"name": name, "learning_rate": rate}


def simulated(name: str, rate: float, *, seeds: int, seconds: float) -> list[Run]:
    """Runs the method once for each seed."""
    return simulate(
        load(
            {
                "name": "dbs",
                "algorithms": [algorithm(name, rate)],
                "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": BATCH},
                "cluster": cluster(),
                "evaluate": {"every": "4096 samples"},
                "stop": {"seconds": f"{seconds!r} s", "divergence": False},
                "seeds": seeds,
                "seed": 1,
            }
        )
    )


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns loss and accuracy for each seed, and staleness over all seeds."""
    staleness = [run.summary["staleness"] for run in runs]
    return {
        "loss": [run.summary["final_loss"] for run in runs],
        "accuracy": [run.summary["final_accuracy"] for run in runs],
        "samples": float(np.mean([run.summary["samples"] for run in runs])),
        "staleness": {
            "mean": float(np.mean([one["mean"] for one in staleness])),
            "mean_of_ranks": float(np.mean([one["mean_of_ranks"] for one in staleness])),
            "max": max(one["max"] or 0 for one in staleness),
            "by_rank": np.mean([[mean for _, mean in one["by_rank"]] for one in staleness], axis=0).tolist(),
        },
    }


def measured(names: Sequence[str], rates: Sequence[float], *, seeds: int, seconds: float) -> list[dict[str, Any]]:
    """Returns for each learning rate the figures of every method and the differences of dbs-sgd from the others."""
    rows = []
    for rate in rates:
        found = {name: figures(simulated(name, rate, seeds=seeds, seconds=seconds)) for name in ("dbs-sgd", *names)}
        ours = found["dbs-sgd"]
        less = {
            key: {name: asdict(difference(ours[key], found[name][key])) for name in names}
            for key in ("loss", "accuracy")
        }
        rows.append({"learning_rate": rate, "methods": found, "difference": less})
    return rows


def losses(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> Table:
    """Renders losses and differences."""
    shown = Table(title="loss on held-out digits after equal time", title_justify="left")
    for column in ("rate", "dbs-sgd", "against", "its loss", "difference", "95 % interval", "relative"):
        shown.add_column(column, justify="right")
    for row in rows:
        for name in names:
            one = row["difference"]["loss"][name]
            ours, theirs = (np.mean(row["methods"][which]["loss"]) for which in ("dbs-sgd", name))
            shown.add_row(
                f"{row['learning_rate']:g}",
                f"{ours:.4f}",
                name,
                f"{theirs:.4f}",
                f"{one['mean']:+.4f}",
                f"{one['low']:+.4f} to {one['high']:+.4f}",
                f"{one['relative']:+.1%}",
            )
    return shown


def staleness(row: dict[str, Any]) -> Table:
    """Renders the staleness per node."""
    found = {name: one["staleness"] for name, one in row["methods"].items()}
    shown = Table(title=f"staleness in updates, rate {row['learning_rate']:g}", title_justify="left")
    for column in ("", *found):
        shown.add_column(column, justify="right")
    shown.add_row("mean of updates", *(f"{one['mean']:.2f}" for one in found.values()))
    shown.add_row("mean of nodes' means", *(f"{one['mean_of_ranks']:.2f}" for one in found.values()))
    shown.add_row("largest", *(str(one["max"]) for one in found.values()))
    for rank, speed in enumerate(SPEEDS):
        shown.add_row(f"worker {rank}, speed {speed}", *(f"{one['by_rank'][rank]:.1f}" for one in found.values()))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Loss and staleness of dynamic batch sizes on workers of unequal speed."
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--seeds", type=int, default=10, help="two or more, for intervals (default: 10)")
    parser.add_argument("--seconds", type=float, default=1.0, help="virtual time of each run")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.4])
    parser.add_argument("--against", nargs="+", default=["async-sgd", "softsync", UNDAMPED])
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error(f"--seeds: found {arguments.seeds}, expected 2 or more, because intervals need two runs")
    rows = measured(arguments.against, arguments.rates, seeds=arguments.seeds, seconds=arguments.seconds)
    if arguments.json:
        given = {"speeds": SPEEDS, "batch_per_worker": BATCH, "seeds": arguments.seeds, "seconds": arguments.seconds}
        print(json.dumps({**given, "rows": rows}, indent=2))
        return
    console = Console()
    console.print(losses(rows, arguments.against))
    console.print(staleness(rows[0]))


if __name__ == "__main__":
    main()
