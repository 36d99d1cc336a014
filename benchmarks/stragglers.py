"""Predicts the second half of measured step times from a process that was fitted to the first half.

    python benchmarks/stragglers.py --steps steps.csv                 # every job in the table
    python benchmarks/stragglers.py --steps steps.csv --split blocks  # alternate blocks of 32 steps instead of halves
    python benchmarks/stragglers.py                                   # steps that are drawn from a profile

A table has a row for each step of a worker: worker, step and seconds, and optionally begin, node and job. For every
job, each method runs in the simulator, as `paceline simulate` does it, without costs of messages, in three ways:

* *measured*: the steps of the second half are replayed;
* *fitted*: step times follow the process that `paceline calibrate --steps` fits to the first half;
* *independent*: every step is drawn on its own from the first half's distribution, as in most simulators.

The errors are those of the time of a step (which contains the waiting) over the mean step of a worker, of the mean
staleness, and the distance of the two distributions of staleness (total variation). If a phase occurs in the second
half only, no fit to the first can know it. `--split blocks` shows how well the process describes what it has seen.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import paceline
from common.harness import Answer, at_least, run_command, say, table
from paceline.backend.calibration.step_fit import drawn_together, fit_steps
from paceline.scenarios.values.step_times import write_step_times
from paceline.topologies.faults.jitter import Jitter
from paceline.topologies.faults.step_profiles import profile_named
from paceline.topologies.faults.step_times import StepTimes
from paceline.topologies.importing.step_series import StepSeries, read

BLOCK = 32
"""steps of a block of --split blocks"""
MEAN_S = 0.1
"""the mean step that a series is scaled to, so that its unit does not matter"""
METHODS: Mapping[str, dict[str, Any]] = {
    "wait after 1 step": {"name": "sync-sgd"},
    "wait after 8": {"name": "k-avg", "k": 8},
    "wait after 32": {"name": "k-avg", "k": 32},
    "async-sgd": {"name": "async-sgd"},
    "ssp": {"name": "ssp"},
    "k-sync": {"name": "k-sync"},
}


def halves(series: StepSeries, split: str) -> tuple[StepSeries, StepSeries]:
    """Returns the part that is fitted and the part that is predicted."""
    steps = series.seconds.shape[1]
    if split == "halves":
        return series.part(0, steps // 2), series.part(steps // 2, steps)
    first = (np.arange(steps) // BLOCK) % 2 == 0
    return _kept(series, first), _kept(series, ~first)


def _kept(series: StepSeries, steps: Any) -> StepSeries:
    return StepSeries.together(series.name, series.seconds[:, steps], series.nodes)


def scaled(series: StepSeries, factor: float) -> StepSeries:
    """Returns a series with all times multiplied."""
    return StepSeries(series.name, factor * series.seconds, factor * series.begins_s, series.nodes)


def drawn(workers: int = 10, steps: int = 300) -> StepSeries:
    """Returns steps that are drawn from a profile."""
    series = drawn_together(profile_named("shared-cluster", "high"), [0] * workers, steps)
    return StepSeries("shared-cluster, high", series.seconds, series.begins_s)


def simulated(series: StepSeries, step_time: Mapping[str, Any] | None, seeds: int) -> dict[str, dict[str, Any]]:
    """Returns the figures of each method."""
    workers, steps = series.seconds.shape
    fastest = float(series.seconds.mean(axis=1).min() / series.seconds.mean())
    figures: dict[str, dict[str, Any]] = {}
    for label, method in METHODS.items():
        if method.get("k", 1) > steps:
            continue
        asynchronous = method["name"] in {"async-sgd", "ssp", "k-sync"}  # their fast workers take more steps
        count = max(1, int(steps * (fastest if asynchronous else 1.0))) // method.get("k", 1) * method.get("k", 1)
        scenario = paceline.load(
            {
                "name": "stragglers",
                "algorithms": [method],
                "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 8, "learning": "none"},
                "cluster": {
                    "nodes": [
                        {"device": {"name": "worker", "overhead": f"{MEAN_S} s", "per_sample": "0 s"}, "count": workers}
                    ],
                    "network": {"topology": "star", "link": "eth-10g"},
                    "step_time": step_time,
                },
                "stop": {"samples": 8 * workers * count},
                "seeds": seeds,
            }
        )
        runs = [run.summary for run in paceline.simulate(scenario, message_cost=False)]
        staleness: dict[int, float] = {}
        for run in runs:
            for value, times in run["staleness"]["histogram"]:
                staleness[value] = staleness.get(value, 0.0) + times
        total = sum(staleness.values())
        figures[label] = {
            "step": float(np.mean([run["wall_s"] * workers / run["steps"] / MEAN_S for run in runs])),
            "waiting": float(np.mean([run["time_fraction"]["wait"] for run in runs])),
            "staleness": float(np.mean([run["staleness"]["mean"] for run in runs])),
            "histogram": {value: times / total for value, times in sorted(staleness.items())},
        }
    return figures


def compared(series: StepSeries, split: str, seeds: int) -> Iterator[dict[str, Any]]:
    """Yields a row for each method."""
    fitted, predicted = halves(series, split)
    scale = MEAN_S / float(fitted.seconds.mean())
    fit = fit_steps(scaled(fitted, scale))
    independent = StepTimes(law=Jitter.measured((fitted.seconds / fitted.seconds.mean()).ravel().tolist()))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps.csv"
        rows = (
            f"{worker},{step},{float(seconds)!r}\n" for (worker, step), seconds in np.ndenumerate(predicted.seconds)
        )
        file.write_text("worker,step,seconds\n" + "".join(rows), encoding="utf-8")
        measured = simulated(predicted, {"trace": str(file)}, 1)
    ways = {
        "fitted": simulated(predicted, write_step_times(fit.times), seeds),
        "independent": simulated(predicted, write_step_times(independent), seeds),
    }
    for label, truth in measured.items():
        row: dict[str, Any] = {
            "job": series.name, "method": label, "measured": truth["step"], "staleness": truth["staleness"],
            "persistent": fit.persistent, "lag_1": fit.lag_1,
        }  # fmt: skip
        for way, figures in ways.items():
            row[way] = figures[label]["step"]
            row[f"{way}_error"] = figures[label]["step"] / truth["step"] - 1
            row[f"{way}_staleness"] = figures[label]["staleness"]
            row[f"{way}_waiting"] = figures[label]["waiting"] - truth["waiting"]
            values = {*truth["histogram"], *figures[label]["histogram"]}
            apart = (abs(truth["histogram"].get(v, 0.0) - figures[label]["histogram"].get(v, 0.0)) for v in values)
            row[f"{way}_variation"] = sum(apart) / 2
        yield row


def stragglers(options: argparse.Namespace) -> Answer:
    rows: list[dict[str, Any]] = []
    for series in [each for path in options.steps for each in read(path)] or [drawn()]:
        say(series.name)
        rows += compared(series, options.split, options.seeds)
    cells = {
        "job": "job", "method": "method", "measured": "measured:.3f", "fitted": "fitted:.3f",
        "error": "fitted_error:+.1%", "independent": "independent:.3f", "its error": "independent_error:+.1%",
        "staleness": "staleness:.2f", "fitted ": "fitted_staleness:.2f", "independent ": "independent_staleness:.2f",
        "variation": "fitted_variation:.3f", "of independent": "independent_variation:.3f",
        "waiting, points": "fitted_waiting*100:+.1f", "of independent ": "independent_waiting*100:+.1f",
    }  # fmt: skip
    title = (
        "Time of a step over the mean step of a worker, and staleness: second half measured, predicted from the first"
    )
    return Answer({"rows": rows}, [table(title, rows, cells)])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=Path, action="append", default=[], metavar="FILE", help="a table; repeatable")
    parser.add_argument("--split", choices=["halves", "blocks"], default="halves", help="(default: %(default)s)")
    parser.add_argument("--seeds", type=at_least(1), default=5, help="of predictions (default: %(default)s)")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, stragglers, add_options))
