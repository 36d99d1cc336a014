"""Compares predictions with real runs of a scenario and checks every figure against its promised accuracy.

    python benchmarks/promises.py                      # quickstart, three times, three seeds each: about ten minutes
    python benchmarks/promises.py --runs 1 --seeds 1 --json

The promised accuracy for every method in every run:

* step time within 5 %;
* staleness of deterministic methods exactly as predicted; of the others the mean of each rank within 5 %, and a total
  variation of 0.15 at most;
* time to accuracy within 5 % for deterministic methods, within 15 % over the seeds for the others;
* where a model without message cost or without jitter differs from ours by more than 5 %, ours is closer to the
  measurement.

The command also prints the fractions of time of each method, predicted and measured, as means over all runs. No
accuracy is promised for these.

Exits with 1 if a promise is broken. Other programs on the machine disturb the measurement, so their share of the
processor time is printed too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import fmean

from rich.console import Console
from rich.table import Table

import paceline
from paceline.algorithms import METHODS
from paceline.algorithms.core.guarantees import Guarantee
from paceline.records.figures import ACTIVITIES, number
from paceline.reports.comparison.comparison import ComparedLine, ComparisonResult
from paceline.reports.comparison.prediction_errors import Tree

STEP, RANK, VARIATION, TIME, TIME_ASYNC, APART = 0.05, 0.05, 0.15, 0.05, 0.15, 0.05


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, checked for one run."""

    run: int
    algorithm: str
    promise: str
    found: float | None
    allowed: float
    holds: bool


def verdicts(run: int, comparison: ComparisonResult) -> Iterator[Verdict]:
    """Checks every promise for every algorithm of a comparison."""
    for line in comparison.lines:
        deterministic = Guarantee.DETERMINISTIC in METHODS[line.name.split("(")[0]].guarantees
        yield from _bounded(run, line, "step time", number(line.error["step_s"]["mean"]), STEP)
        yield from _staleness(run, line, deterministic)
        allowed = TIME if deterministic else TIME_ASYNC
        yield from _bounded(run, line, "time to accuracy", number(line.error["time_to_accuracy_s"]), allowed)
        yield from _nearer(run, line)


def _bounded(run: int, line: ComparedLine, promise: str, found: float | None, allowed: float) -> Iterator[Verdict]:
    yield Verdict(run, line.name, promise, found, allowed, found is not None and abs(found) <= allowed)


def _staleness(run: int, line: ComparedLine, deterministic: bool) -> Iterator[Verdict]:
    variation = number(line.error["staleness_tv"])
    yield from _bounded(run, line, "staleness, total variation", variation, 0.0 if deterministic else VARIATION)
    ranks = [number(error) for _, error in line.error["staleness"]["by_rank"]]
    worst = max((abs(error) for error in ranks if error is not None), default=None)
    yield from _bounded(run, line, "staleness, worst rank's mean", worst, 0.0 if deterministic else RANK)


def _nearer(run: int, line: ComparedLine) -> Iterator[Verdict]:
    ours = number(line.error["step_s"]["mean"])
    for name, errors in line.wrong_models.items():
        theirs = number(errors["step_s"]["mean"])
        if ours is not None and theirs is not None and abs(theirs - ours) > APART:
            holds = abs(ours) < abs(theirs)
            yield Verdict(run, line.name, f"nearer than {name.replace('_', ' ')}", ours, abs(theirs), holds)


@dataclass(frozen=True, slots=True)
class Shares:
    """Returns the fractions of the workers' time in one run of one method, by activity."""

    run: int
    algorithm: str
    predicted: dict[str, float | None]
    measured: dict[str, float | None]


def shares(run: int, comparison: ComparisonResult) -> list[Shares]:
    """Returns the fractions of time of every algorithm of a comparison."""

    def of(tree: Tree) -> dict[str, float | None]:
        return {activity: number(tree["time_fraction"][activity]) for activity in ACTIVITIES}

    return [Shares(run, line.name, of(line.simulated), of(line.measured)) for line in comparison.lines]


def show_shares(found: list[Shares], console: Console) -> None:
    """Renders one row per algorithm: per cent of the workers' time, predicted and measured."""
    table = Table("algorithm", *(f"{activity}, %" for activity in ACTIVITIES), box=None)
    for algorithm in dict.fromkeys(one.algorithm for one in found):
        same = [one for one in found if one.algorithm == algorithm]
        cells = []
        for activity in ACTIVITIES:
            sides = ([one.predicted[activity] for one in same], [one.measured[activity] for one in same])
            cells.append(" / ".join(f"{100 * fmean(value or 0.0 for value in side):.1f}" for side in sides))
        table.add_row(algorithm, *cells)
    console.print(table)
    console.print("Shares of the workers' time: predicted / measured.")


def show(found: list[Verdict], loads: list[float], console: Console) -> None:
    """Renders one row per algorithm and promise: the worst of all runs."""
    table = Table("algorithm", "promise", "found, %", "allowed, %", "holds", box=None)
    for algorithm, promise in dict.fromkeys((one.algorithm, one.promise) for one in found):
        same = [one for one in found if (one.algorithm, one.promise) == (algorithm, promise)]
        worst = max(same, key=lambda one: (not one.holds, abs(one.found or 0.0) - one.allowed))
        value = "–" if worst.found is None else f"{100 * worst.found:+.1f}"
        held = sum(one.holds for one in same)
        table.add_row(algorithm, promise, value, f"{100 * worst.allowed:.1f}", f"{held} of {len(same)}")
    console.print(table)
    broken = sum(not one.holds for one in found)
    shares = ", ".join(f"{100 * load:.1f} %" for load in loads)
    console.print(f"{broken} of {len(found)} promises broken; other programs took {shares} of the machine.")


def main() -> int:
    """Runs the comparisons and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="quickstart")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: list[Verdict] = []
    loads: list[float] = []
    spent: list[Shares] = []
    scenario = paceline.load(options.scenario, [f"seeds={options.seeds}"])
    for run in range(1, options.runs + 1):
        comparison = paceline.compare(scenario)
        found += verdicts(run, comparison)
        spent += shares(run, comparison)
        loads.append(comparison.other_load)
        print(f"run {run} of {options.runs} done", file=sys.stderr)
    if options.json:
        rows = [asdict(one) for one in found]
        holds = all(one.holds for one in found)
        print(json.dumps({"rows": rows, "shares": [*map(asdict, spent)], "other_load": loads, "holds": holds}))
    else:
        show_shares(spent, Console())
        show(found, loads, Console())
    return 0 if all(one.holds for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
