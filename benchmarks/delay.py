"""Measures the cost of delayed gradients on real data: the steps to a target accuracy as a function of the delay.

    python benchmarks/delay.py
    python benchmarks/delay.py --seeds 10 --delays 0 16 32 --epochs 40
    python benchmarks/delay.py --json

`agd` trains the 64-64-10 network on the digits with one worker, batches of 32, learning rate 0.1 and gradients that are
exactly d steps old. For comparison, `sequential-sgd` uses batches of 16 to 256 with learning rates that grow with the
batch. The 360 held-out digits are evaluated every 640 samples. A target counts as reached at the first evaluation that
reaches it. The first d steps of `agd` change nothing and are counted.

The expected values were measured with a NumPy network of the same size with another start and another split (O6 of
docs/invariants.md). Only the shape of the dependence is expected to agree, not the figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from paceline.records import Run
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate

TARGETS = (0.95, 0.97)
EVERY = 20 * 32
"""samples between evaluations"""
DELAYS = {
    0: "no visible loss",
    4: "no visible loss",
    8: "no visible loss",
    16: "about 1.5 times the steps to 95 %",
    32: "six to eleven times",
    64: "fails: final accuracy .12 to .28",
}
"""delays and the results of the NumPy network"""
BATCHES = {
    (16, 0.05): "220 240 180 / 440 260 340",
    (32, 0.1): "120 100 120 / 220 160 210",
    (64, 0.2): "60 60 42 / 140 80 105",
    (128, 0.3): "30 40 40 / 80 60 60",
    (256, 0.5): "20 25 20 / 40 35 40",
}
"""batch and learning rate, and the steps of the NumPy network to 95 % / to 97 %, three seeds"""


@dataclass(frozen=True)
class Row:
    """The results of runs with several seeds."""

    name: str
    steps: dict[float, list[int | None]]
    """steps to each target, by seed; None where it was not reached"""
    final: list[float]
    """final accuracies, by seed"""
    epochs: float
    expected: str

    def median(self, target: float) -> float:
        """Returns the median number of steps to a target; infinite if most runs do not reach it."""
        return float(np.median([np.inf if steps is None else steps for steps in self.steps[target]]))


def trained(algorithm: dict[str, Any], *, batch: int, seeds: int, epochs: float) -> list[Run]:
    """Trains on the digits, once for each seed, with one worker and steps of one virtual second."""
    scenario = {
        "name": "delay",
        "algorithms": [algorithm],
        "workload": {"model": "digits-mlp", "batch_per_worker": batch},
        "cluster": {"nodes": [{"device": {"name": "one", "overhead": "1 s", "per_sample": "0 s"}}]},
        "evaluate": {"every": f"{max(EVERY, batch)} samples"},
        "stop": {"epochs": epochs, "divergence": False},  # a loss that has grown tenfold may decrease again
        "seeds": seeds,
    }
    return simulate(load(scenario))


def row(name: str, runs: Sequence[Run], *, epochs: float, expected: str) -> Row:
    """The virtual seconds are the steps to each target."""
    tables = [run.tables.evaluations for run in runs]
    steps = {target: [reached(table, target) for table in tables] for target in TARGETS}
    return Row(name, steps, [float(table["accuracy"].iloc[-1]) for table in tables], epochs, expected)


def reached(evaluations: Any, target: float) -> int | None:
    """Returns the step of the first evaluation that reaches the target."""
    times = evaluations["time_s"][evaluations["accuracy"] >= target]
    return None if times.empty else round(times.iloc[0])


def delayed(delay: int, *, seeds: int, epochs: float) -> Row:
    """Runs agd with this delay."""
    runs = trained({"name": "agd", "delay": delay, "learning_rate": 0.1}, batch=32, seeds=seeds, epochs=epochs)
    return row(f"agd, delay {delay}", runs, epochs=epochs, expected=DELAYS.get(delay, ""))


def batched(batch: int, rate: float, *, seeds: int, epochs: float) -> Row:
    """Runs sequential-sgd with this batch and learning rate."""
    runs = trained({"name": "sequential-sgd", "learning_rate": rate}, batch=batch, seeds=seeds, epochs=epochs)
    return row(f"batch {batch}, rate {rate:g}", runs, epochs=epochs, expected=BATCHES[batch, rate])


def table(title: str, rows: Sequence[Row]) -> Table:
    """Renders medians, the steps of every seed, and the expected values."""
    shown = Table("run", "to 95 %", "to 97 %", "all seeds, to 95 %", "final accuracy", "NumPy network", title=title)
    for one in rows:
        every = " ".join("-" if steps is None else str(steps) for steps in one.steps[TARGETS[0]])
        final = f"{min(one.final):.3f} to {max(one.final):.3f}"
        medians = (f"{one.median(target):g}" for target in TARGETS)
        shown.add_row(one.name, *medians, every, final, one.expected)
    return shown


def main() -> int:
    """Trains and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (3)")
    parser.add_argument("--epochs", type=float, default=40, help="length of each run in epochs (40)")
    parser.add_argument("--delays", type=int, nargs="+", default=list(DELAYS), metavar="STEPS")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = parser.parse_args()
    run = {"seeds": given.seeds, "epochs": given.epochs}
    delays = [delayed(delay, **run) for delay in given.delays]
    batches = [batched(batch, rate, **run) for batch, rate in BATCHES]
    if given.json:
        print(json.dumps({"delays": [asdict(one) for one in delays], "batches": [asdict(one) for one in batches]}))
        return 0
    console = Console()
    console.print(table(f"{given.seeds} seeds, {given.epochs:g} epochs", delays))
    console.print(table("batch sizes", batches))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
