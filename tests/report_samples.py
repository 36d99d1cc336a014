"""Small results of every kind, for tests of reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paceline.algorithms import find
from paceline.checking.cases import Effort, check_method
from paceline.checking.cases.invariants import Violation
from paceline.checking.counterexamples import load_counterexample, save
from paceline.checking.counterexamples.files import Counterexample
from paceline.records import Run
from paceline.records.tables import frame
from paceline.reports.blocks import Answer
from paceline.reports.check_answer import Told, answer_of_check
from paceline.reports.comparison.comparison import ComparisonResult, assemble
from paceline.reports.comparison.ranking import Aim
from paceline.reports.comparison_answer import answer_of_comparison
from paceline.reports.planning.plan_blocks import answer_of_plan
from paceline.reports.provenance import with_provenance
from paceline.reports.run_answer import answer_of_runs
from paceline.reports.sweeps.sweep import SweepEntry, SweepResult
from paceline.reports.sweeps.sweep_answer import sweep_answer
from paceline.reports.sweeps.sweep_table import SweepTable, tabulate
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate

BUGGY = Path(__file__).with_name("buggy_methods.py")


@cache
def simulated_runs() -> tuple[Run, ...]:
    """Two methods, two seeds, four workers, one epoch of the digits."""
    return tuple(simulate(load("quickstart", ["stop.epochs=1", "seeds=2"], algorithms=["sync-sgd", "async-sgd"])))


def as_measured(runs: Sequence[Run], slower: float = 1.1) -> list[Run]:
    """The runs as if a machine that is slower by a factor had measured them."""
    slowed = []
    for run in runs:
        tables = run.tables
        spans = tables.spans.assign(start_s=tables.spans["start_s"] * slower, end_s=tables.spans["end_s"] * slower)
        evaluations = tables.evaluations.assign(time_s=tables.evaluations["time_s"] * slower)
        updates = tables.updates.assign(time_s=tables.updates["time_s"] * slower)
        seconds: dict[str, Any] = dict(run.summary["step_s"])
        step = {name: None if value is None else slower * value for name, value in seconds.items()}
        summary: Any = {**run.summary, "kind": "measured", "wall_s": slower * run.summary["wall_s"], "step_s": step}
        summary.pop("links", None)  # a measured run does not know them
        tables = replace(tables, spans=spans, evaluations=evaluations, updates=updates, links=frame("links", ()))
        slowed.append(replace(run, tables=tables, summary=summary, trace=None))
    return slowed


def comparison() -> ComparisonResult:
    """The simulated runs beside those that are 10 % slower, and two simpler models."""
    runs = simulated_runs()
    wrong = {name: list(runs) for name in ("no_message_cost", "no_spread", "alpha_beta")}
    return assemble("quickstart", simulated=runs, measured=as_measured(runs), wrong=wrong, other_load=0.0)


def sweep_table() -> SweepTable:
    """Two methods on two, four and eight workers; async-sgd has fewer samples per second on four and more on eight."""
    path, rates = "cluster.nodes[0].count", {"sync-sgd": (100, 150, 200), "async-sgd": (80, 140, 260)}
    entries = []
    for number, workers in enumerate((2, 4, 8)):
        for run in simulated_runs():
            rate = rates[run.algorithm][number] * (1 + 0.01 * run.seed)
            summary = {**run.summary, "samples_per_s": rate, "time_to_accuracy_s": 1000 / rate, "target_accuracy": 0.93}
            entry = SweepEntry(
                vary={path: workers}, algorithm=run.algorithm, seed=run.seed, workers=workers, number=number,
                batch_per_worker=32, summary=summary,
            )  # fmt: skip
            entries.append(entry)
    return tabulate(
        SweepResult(
            scenario="quickstart", paths=(path,), target=Aim("accuracy", 0.93), entries=tuple(entries), axes=((path,),)
        )
    )


def plan_answer(objectives: Sequence[str] = ("time", "cost")) -> dict[str, Any]:
    """Three plans, two on the front; the third is worse in both figures."""
    plans = []
    for number, (method, time_s, cost, pareto) in enumerate(
        [("agd", 2.0, 9.0, True), ("easgd", 4.0, 3.0, True), ("sync-sgd", 5.0, 10.0, False)]
    ):
        choice = {"method": method, "nodes": "cluster", "workers": 4, "batch_per_worker": 32, "hyperparameters": {}}
        figures = {"time_s": {"mean": time_s, "low": time_s - 1, "high": time_s + 1}, "cost_usd": cost}
        plans.append(
            {
                "trial": number, "choice": choice, "pareto": pareto, "reason": None, "samples_per_s": 100.0,
                "seeds_reached": 2, "rows": [{"seed": 1}, {"seed": 2}], **figures,
            }
        )  # fmt: skip
    return {
        "target": {"aim": "accuracy", "value": 0.9}, "objectives": list(objectives), "best": plans[0], "plans": plans,
        "seeds": {"tuning": [3], "reported": [1, 2]}, "trials": {"count": 9, "reached": 5, "reasons": {}},
        "extrapolated": [], "words": "Best: agd.",
    }  # fmt: skip


PLAN_TRIALS = [{"trial": 0, "method": "agd", "workers": 4, "batch_per_worker": 32, "time_s": 3.0, "cost_usd": 8.0}]


@cache
def violation() -> Violation:
    """What the search finds in a method that never receives a message."""
    checked = check_method(
        find(f"{BUGGY}:NeverReceives")(), Effort(schedules=20, seconds=None, workers=2, steps=2, seed=1)
    )
    return next(verdict.violation for verdict in checked.verdicts.values() if verdict.violation is not None)


def counterexample(folder: Path) -> Counterexample:
    """Stores the violation in a file."""
    save(violation(), folder / "never-receives.json")
    return load_counterexample(folder / "never-receives.json")


def every_answer(folder: Path) -> dict[str, Answer]:
    """The answer of each kind of report; files that one needs are in the folder."""
    scenario = dict(simulated_runs()[0].scenario)
    return {
        "runs": answer_of_runs(simulated_runs()),
        "comparison": answer_of_comparison(comparison()),
        "sweep": with_provenance(sweep_answer(sweep_table()), scenario),
        "plan": with_provenance(answer_of_plan(plan_answer(), "quickstart", PLAN_TRIALS), scenario),
        "check": answer_of_check([], [Told.of(counterexample(folder))]),
    }


def large_run(ranks: int, steps: int, template: Run) -> Run:
    """A run with four spans in each step of each rank."""
    rank = np.repeat(np.arange(ranks), 4 * steps)
    step = np.tile(np.repeat(np.arange(steps), 4), ranks)
    part = np.tile(np.arange(4), ranks * steps)
    start = step + part / 4 + rank * 1e-4
    names = np.array(["load", "compute", "communication", "wait"])
    spans = pd.DataFrame(
        {
            "rank": rank, "lane": "main", "activity": names[part], "layer": None, "step": step, "start_s": start,
            "end_s": start + 0.25, "bytes": np.where(part == 2, 1000, 0),
        }
    )  # fmt: skip
    owner, number = np.divmod(np.arange(ranks * steps), steps)
    updates = pd.DataFrame(
        {
            "time_s": number + 1.0, "rank": owner, "step": number, "version_read": 0, "version_applied": 0,
            "staleness": number % 5, "samples": 10, "age_s": 1.0,
        }
    )  # fmt: skip
    summary: Any = {**template.summary, "wall_s": float(steps + 1), "steps": ranks * steps, "periods": float(steps)}
    tables = replace(template.tables, spans=spans.sort_values("start_s"), updates=updates)
    return replace(template, tables=tables, summary=summary, trace=None)
