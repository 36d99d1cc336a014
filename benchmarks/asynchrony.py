"""Compares the times to a loss of ten methods while steps vary independently, and as on a profile's clusters.

    python benchmarks/asynchrony.py orders                  # which method is first with 8, 64 and 512 workers
    python benchmarks/asynchrony.py crossings               # from which spread, persistence and size on a method wins
    python benchmarks/asynchrony.py orders --workers 8 --seeds 5 --store results

*orders* runs every method with independent steps and with those of a profile, which have the same distribution. It
prints the time to the loss and the samples per second over those of `sync-sgd`, and the pairs of methods whose order
differs.

*crossings* varies the spread (sigma of the lognormal distribution), the share of it that lasts, and the number of
workers. It prints from where on each kind of method is better than `sync-sgd` by `MARGIN`: in the time to the loss, and
in samples per second, which do not depend on what is learned. `k-avg` is evaluated after its averages only, and a
time is taken from the mean of three evaluations, so that its time to the loss contains up to two periods of delay.

How it is made fair: all methods have the same workers, batch, samples and start. The learning problem is the noisy
quadratic, and messages cost nothing, so that only steps matter. The learning rate of each method, and its number of
gradients in an update, are those with the shortest mean time over `TUNING` seeds; the figures come from other seeds,
the same for all methods. A rate at an end of the grid extends it. A run that does not reach the loss, or
diverges, counts as one of the longest time.
Intervals are 95 %: of the mean logarithm of the paired ratios (Student), and of places by a bootstrap over seeds.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

import paceline
from common.harness import CORES, Answer, at_least, names_of, numbers, run_command, say, table
from paceline.algorithms.core.errors import RunFailed
from paceline.records.metrics import interval
from paceline.reports.sweeps.crossings import place_and_interval
from paceline.scenarios.values.step_times import parse_step_times, write_step_times
from paceline.topologies.faults.step_profiles import LEVELS, PROFILES, profile_named
from paceline.topologies.faults.step_times import StepTimes

STEP_S = 0.1
BATCH = 32
LOSS = 0.2
"""the target; the loss at the beginning is 10.6"""
NOISE = 100.0
"""of the gradient; provenance: ours, so that 8 workers are limited by noise, and 512 by the curvature"""
LONGEST = 8_000, 40
"""gradients of all workers together after which a run ends, and how many more there are for each worker"""
RATES = {8: 0.1, 64: 0.8, 512: 1.2}
"""learning rates of `sync-sgd` at which tuning begins, by number of workers; others are interpolated"""
TUNING = (101, 102)
ROUNDS = 4
"""of tuning at most; each extends the grid by a factor of 2 where the best rate was at its end"""
MARGIN = 0.05
SPREADS = (0.03, 0.1, 0.2, 0.4, 0.8)
PERSISTENT = (0.0, 0.25, 0.5, 0.75, 1.0)
SIZES = (8, 64, 512)
AT_WORKERS = 64
"""number of workers while the spread or the persistence varies"""
TUNED = {"profile": "shared-cluster"}
"""how steps vary while the methods of *crossings* are tuned"""
SPREAD_OUT = ({"profile": "shared-cluster"}, {"profile": "shared-cluster", "level": "high"})
"""whose distributions have more and more of their variance lasting, the rest noise, along the axis *persistence*"""
Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Contender:
    """A method with the choices that are tuned.

    Args:
        name: its name.
        kind: what it stands for.
        gradients: shares of the workers whose gradients make an update, one of which is chosen; empty: not a choice.
        each: whether the rate is that of one gradient, and not of the mean of all workers.
        options: other hyper-parameters.
    """

    name: str
    kind: str
    gradients: tuple[float, ...] = ()
    each: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    def algorithm(self, workers: int, rate: float, share: float) -> dict[str, Any]:
        """Returns the entry of a scenario, for a rate of all workers together."""
        chosen: dict[str, Any] = {"k": max(1, min(workers, round(share * workers)))} if self.gradients else {}
        if self.each:
            rate *= chosen.get("k", 1) / workers
        return {"name": self.name, "learning_rate": float(f"{rate:.6g}"), **chosen, **dict(self.options)}


EARLY = (("interval", 4),)
"""steps between checks of batches; their default, 32, is for longer runs than these"""
METHODS = (
    Contender("sync-sgd", "synchronous"),
    Contender("sync-dbs-sgd", "dynamic batches", options=EARLY),
    Contender("k-sync", "K of P", gradients=(0.5, 0.75, 0.9)),
    Contender("k-avg", "local", options=(("k", 8),)),
    Contender("agd", "delayed"),
    Contender("async-sgd", "asynchronous", each=True),
    Contender("ssp", "bounded staleness", each=True),
    Contender("k-async", "K of P, stale", gradients=(0.125, 0.5), each=True),
    Contender("dbs-sgd", "asynchronous, dynamic batches", each=True, options=EARLY),
    Contender("async-easgd", "elastic averaging"),
)
REFERENCE = "sync-sgd"
RIVALS = ("async-sgd", "k-avg", "k-sync", "sync-dbs-sgd")
"""the methods whose crossings with `sync-sgd` are looked for"""


@dataclass(frozen=True)
class Study:
    """Runs that are stored, so that an interrupted command goes on where it was."""

    store: Path
    jobs: int
    seeds: int

    def times(
        self, workers: int, step_times: Sequence[Mapping[str, Any]], algorithms: Sequence[dict[str, Any]],
        seeds: Sequence[int],
    ) -> Times:  # fmt: skip
        """Returns seconds to the loss, of shape (step times, algorithms, seeds)."""
        return self.runs(workers, step_times, algorithms, seeds)[0]

    def runs(
        self, workers: int, step_times: Sequence[Mapping[str, Any]], algorithms: Sequence[dict[str, Any]],
        seeds: Sequence[int],
    ) -> tuple[Times, Times]:  # fmt: skip
        """Returns seconds to the loss, and samples per second; both of shape (step times, algorithms, seeds)."""
        longest = LONGEST[0] + LONGEST[1] * workers
        scenario = {
            "name": "asynchrony",
            "algorithms": list(algorithms),
            "workload": {
                "model": "quadratic",
                "learning": "quadratic",
                "batch_per_worker": BATCH,
                "options": {
                    "dimensions": 128, "spectrum": 0.5, "noise": NOISE, "link": LOSS, "num_samples": BATCH * workers,
                },
            },
            "cluster": {
                "nodes": [
                    {
                        "device": {"name": "worker", "overhead": "0 s", "per_sample": f"{STEP_S / BATCH} s"},
                        "count": workers,
                    }
                ],
                "network": {"topology": "star", "link": {"latency": "0 s", "bandwidth": "1 Tbit/s"}},
            },
            "evaluate": {"every": f"{BATCH * workers} samples"},
            "target": {"accuracy": 0.5},  # by the link, this is the loss
            "stop": {"accuracy": 0.5, "samples": BATCH * longest},
            "seed": seeds[0],
            "seeds": len(seeds),
        }  # fmt: skip
        result = paceline.sweep(
            scenario, {"cluster.step_time": list(step_times)}, jobs=self.jobs, store=self.store,
            progress=lambda text, _: say(f"{workers} workers: {text}"),
        )  # fmt: skip
        if result.failed:
            raise RunFailed(f"{result.failed[0]}: {result.failed[0].error}")
        shape = len(step_times), len(algorithms), len(seeds)
        speeds = [entry.summary["samples_per_s"] for entry in result.entries]
        times = [
            entry.summary["time_to_accuracy_s"] or BATCH * longest / speed
            for entry, speed in zip(result.entries, speeds, strict=True)
        ]
        return np.reshape(times, shape), np.reshape(speeds, shape)

    def tuned(self, workers: int, step_time: Mapping[str, Any], methods: Sequence[Contender]) -> list[dict[str, Any]]:
        """Returns each method with the choices that reach the loss soonest."""
        begin = float(np.exp(np.interp(math.log(workers), np.log(list(RATES)), np.log(list(RATES.values())))))
        grids = {method: [begin / 2, begin, 2 * begin] for method in methods}
        means: dict[tuple[Contender, float, float], float] = {}
        best: dict[Contender, tuple[float, float]] = {}
        for _ in range(ROUNDS):
            new = [
                (method, rate, share)
                for method, rates in grids.items()
                for rate in rates
                for share in method.gradients or (1.0,)
                if (method, rate, share) not in means
            ]
            if not new:
                break
            algorithms = [method.algorithm(workers, rate, share) for method, rate, share in new]
            for choice, times in zip(new, self.times(workers, [step_time], algorithms, TUNING)[0], strict=True):
                means[choice] = float(times.mean())
            for method, rates in grids.items():
                choices = [(rate, share) for known, rate, share in means if known is method]
                best[method] = min(choices, key=lambda choice, method=method: means[method, *choice])
                rate, _share = best[method]
                if rate == min(rates):
                    grids[method] = [rate / 2, *rates]
                elif rate == max(rates):
                    grids[method] = [*rates, 2 * rate]
        return [method.algorithm(workers, *best[method]) for method in methods]


def ratio_of(times: Times, others: Times) -> tuple[float, float, float]:
    """Returns the geometric mean of others / times over seeds, and the ends of its 95 % interval."""
    between = interval(np.log(others / times).tolist())
    return math.exp(between["mean"]), math.exp(between["low"]), math.exp(between["high"])


# --- orders -----------------------------------------------------------------------------------------------------------


def independent(step_time: Mapping[str, Any]) -> dict[str, Any]:
    """Returns independent steps with the same distribution."""
    return write_step_times(StepTimes(law=parse_step_times(step_time).law)) or {}


def order_rows(
    study: Study, workers: int, step_time: Mapping[str, Any], methods: Sequence[Contender]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns a row for each method, and a sentence for each pair whose order differs; the first is the reference."""
    seeds = range(1, study.seeds + 1)
    ways = {"independent": independent(step_time), "profile": dict(step_time)}
    chosen = {way: study.tuned(workers, law, methods) for way, law in ways.items()}
    runs = {way: study.runs(workers, [law], chosen[way], seeds) for way, law in ways.items()}
    times, speeds = ({way: both[figure][0] for way, both in runs.items()} for figure in (0, 1))
    rows: list[dict[str, Any]] = []
    for index, method in enumerate(methods):
        row: dict[str, Any] = {"workers": workers, "method": method.name, "kind": method.kind}
        for way, all_times in times.items():
            ratio, low, high = ratio_of(all_times[0], all_times[index])
            means = np.exp(np.log(all_times).mean(axis=1))
            row |= {
                f"{way}_ratio": ratio, f"{way}_low": low, f"{way}_high": high, f"{way}_s": float(means[index]),
                f"{way}_speed": ratio_of(speeds[way][0], speeds[way][index])[0],
                f"{way}_place": int((means < means[index]).sum()) + 1,
                f"{way}_rate": chosen[way][index]["learning_rate"], f"{way}_k": chosen[way][index].get("k"),
            }  # fmt: skip
        rows.append(row)
    return sorted(rows, key=lambda row: row["profile_place"]), list(_changes(workers, methods, times))


def _changes(workers: int, methods: Sequence[Contender], times: Mapping[str, Times]) -> Iterator[str]:
    for first, second in combinations(range(len(methods)), 2):
        ratios = [ratio_of(times[way][first], times[way][second]) for way in ("independent", "profile")]
        (before, low, high), (after, low_after, high_after) = ratios
        decided, decided_after = not low <= 1 <= high, not low_after <= 1 <= high_after
        if decided and decided_after and (before > 1) != (after > 1):
            names = methods[first].name, methods[second].name
            ahead, behind = names if before > 1 else names[::-1]
            was, now = (before, 1 / after) if before > 1 else (1 / before, after)
            yield (
                f"{workers} workers: with independent steps {ahead} needs {1 - 1 / was:.0%} less time than {behind}, "
                f"with the profile {now - 1:.0%} more."
            )


def orders(options: argparse.Namespace, study: Study) -> Answer:
    step_time = write_step_times(profile_named(options.profile, options.level)) or {}
    methods = [method for method in METHODS if method.name in (REFERENCE, *options.methods)]
    rows: list[dict[str, Any]] = []
    changes: list[str] = []
    for workers in options.workers or (8, 64, 512):
        say(f"{workers} workers")
        more, differing = order_rows(study, workers, step_time, methods)
        rows += more
        changes += differing
    shown: list[RenderableType] = [
        table(
            f"Time to a loss of {LOSS:g} over that of sync-sgd, {study.seeds} seeds, {step_time}",
            rows,
            {
                "workers": "workers:d", "method": "method", "independent": _with_interval("independent"),
                "place": "independent_place:d", "profile": _with_interval("profile"), "place ": "profile_place:d",
                "samples/s": "independent_speed:.2f", "samples/s ": "profile_speed:.2f",
            },
        ),
        *(changes or ["No two methods change their order."]),
    ]  # fmt: skip
    return Answer({"step_time": step_time, "rows": rows, "changes": changes}, shown)


def _with_interval(way: str) -> Any:
    return lambda row: f"{row[f'{way}_ratio']:.2f} ({row[f'{way}_low']:.2f}–{row[f'{way}_high']:.2f})"


# --- crossings --------------------------------------------------------------------------------------------------------


def crossing_rows(study: Study, axis: str, profile: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields, for each rival and figure, from which value of an axis on it is better than `sync-sgd` by `MARGIN`."""
    methods = [method for method in METHODS if method.name in (REFERENCE, *RIVALS)]
    seeds = range(1, study.seeds + 1)
    places: Sequence[float] = {"spread": SPREADS, "persistence": PERSISTENT, "workers": SIZES}[axis]
    if axis == "workers":
        each = [study.runs(size, [profile], study.tuned(size, TUNED, methods), seeds) for size in SIZES]
        times, speeds = (np.concatenate(figures) for figures in zip(*each, strict=True))
    else:
        law = independent(profile)
        laws = {
            "spread": [{**profile, "sigma": value} for value in SPREADS],
            "persistence": [{**law, "persistent": share} if share else law for share in PERSISTENT],
        }[axis]
        times, speeds = study.runs(AT_WORKERS, laws, study.tuned(AT_WORKERS, TUNED, methods), seeds)
    names = [method.name for method in methods]
    for figure, values, margin, sign in (("time", times, 1 - MARGIN, -1), ("samples/s", speeds, 1 + MARGIN, 1)):
        reference = values[:, names.index(REFERENCE)].T
        for name in RIVALS:
            other = values[:, names.index(name)].T
            yield {
                "axis": axis, "figure": figure, "steps": ", ".join(map(str, profile.values())), "method": name,
                "from": _place(*place_and_interval(margin * reference, other, np.array(places), sign)),
                "places": list(places),
                "ratios": [ratio_of(reference[:, place], other[:, place]) for place in range(len(places))],
            }  # fmt: skip


def crossings(options: argparse.Namespace, study: Study) -> Answer:
    rows = [
        row
        for axis in options.axes or ("spread", "persistence", "workers")
        for profile in (SPREAD_OUT if axis == "persistence" else [{"profile": name} for name in PROFILES])
        for row in crossing_rows(study, axis, profile)
    ]
    shown: list[RenderableType] = []
    for axis, figure in dict.fromkeys((row["axis"], row["figure"]) for row in rows):
        chosen = [row for row in rows if (row["axis"], row["figure"]) == (axis, figure)]
        values = {
            f"{place:g}": lambda row, index=index: "{:.2f} ({:.2f}–{:.2f})".format(*row["ratios"][index])
            for index, place in enumerate(chosen[0]["places"])
        }
        title = f"{axis}: {figure} over that of sync-sgd, and from where on it is {MARGIN:.0%} better"
        cells: dict[str, Any] = {"steps": "steps", "method": "method", "from": "from"}
        shown.append(table(f"{title}; {study.seeds} seeds", chosen, {**cells, **values}))
    return Answer({"rows": rows}, shown)


def _place(at: float, low: float, high: float) -> str:
    """Returns a place with its interval in words."""
    if at == math.inf:
        return "nowhere"
    if at == -math.inf:
        return "everywhere"
    return f"{at:.3g}" + (f" ({_end(low, 'below')} to {_end(high, 'beyond')})" if not math.isnan(low) else "")


def _end(value: float, outside: str) -> str:
    return f"{value:.3g}" if math.isfinite(value) else outside


def asynchrony(options: argparse.Namespace) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        study = Study(options.store or Path(folder), options.jobs, options.seeds)
        return {"orders": orders, "crossings": crossings}[options.question](options, study)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question", choices=["orders", "crossings"])
    parser.add_argument("--workers", type=numbers, help="numbers of workers of orders (default: 8,64,512)")
    names = [method.name for method in METHODS]
    parser.add_argument("--methods", type=names_of(names), default=names, help="of orders, with commas (default: all)")
    parser.add_argument("--profile", choices=list(PROFILES), default="shared-cluster", help="(default: %(default)s)")
    parser.add_argument("--level", choices=list(LEVELS), default="typical", help="(default: %(default)s)")
    parser.add_argument("--axes", nargs="+", choices=["spread", "persistence", "workers"], help="(default: all)")
    parser.add_argument("--seeds", type=at_least(2), default=10, help="(default: %(default)s)")
    parser.add_argument("--jobs", type=at_least(1), default=CORES, help="parallel runs (default: one per core)")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="keep results of runs there, and reuse them")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, asynchrony, add_options))
