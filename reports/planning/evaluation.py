"""Simulates one choice with several seeds, in a worker process; the rows are stored, so that none is simulated twice.

The seeds are simulated one after the other. If one of them does not reach the target before the run ends, the later
ones are left out: the choice is out anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.records import Run
from paceline.records.metrics import smoothed
from paceline.reports.planning.objectives import Target
from paceline.scenarios import load

ENGINE = "paceline.simulator.runs.run"
FIGURES = (
    "wall_s",
    "steps",
    "updates",
    "samples",
    "evaluations",
    "samples_per_s",
    "time_fraction",
    "stop_reason",
    "diverged",
)
"""the figures of a summary that a row keeps"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The task of a worker process: a scenario with its seeds."""

    scenario: Mapping[str, Any]
    """a scenario of one algorithm; its seeds are `seed` … `seed + seeds − 1`"""
    target: Target
    store: Path
    all_seeds: bool = False
    """whether later seeds are simulated even if one misses the target"""


Row = dict[str, Any]
"""the figures of one run: see `row_of`"""


def evaluate(piece: Piece) -> list[Row]:
    """Returns a row for each seed that was simulated."""
    from paceline.reports.sweeps.point_store import PointStore, point_key
    from paceline.scenarios.resolution.plan import names_of
    from paceline.simulator.runs.run import simulate

    store, rows = PointStore(piece.store), []
    scenario = load(piece.scenario)
    (name,) = names_of(scenario.algorithms)
    for seed in range(scenario.seed, scenario.seed + scenario.seeds):
        one = scenario.model_copy(update={"seed": seed, "seeds": 1})
        key = point_key(one, name, seed)
        row = store.get(key)
        if row is None:
            (run,) = simulate(one)
            row = row_of(run, piece.target)
            store.put(key, row)
        rows.append(dict(row))
        if row["time_s"] is None and not piece.all_seeds:
            break
    return rows


def row_of(run: Run, target: Target) -> Row:
    """Returns the row of a run: its time to the target or how far it came, and why.

    Args:
        run: the run.
        target: the target.
    """
    summary: Mapping[str, Any] = dict(run.summary)
    extrapolated = summary.get("extrapolated")
    time_s = summary[f"time_to_{target.aim}_s"] if extrapolated is None else extrapolated["time_to_target_s"]
    return {
        "seed": run.seed,
        "time_s": time_s,
        "samples_to_target": summary[f"samples_to_{target.aim}"]
        if extrapolated is None
        else extrapolated["samples_to_target"],
        "resolution_s": summary[f"time_to_{target.aim}_resolution_s"],
        "best": best_of(run, target),
        **{name: summary[name] for name in FIGURES},
        "step_s": summary["step_s"]["mean"],
        "staleness": summary["staleness"]["mean"],
        "prediction_interval": summary.get("prediction_interval"),
        "extrapolated": None if extrapolated is None else list(extrapolated["assumptions"]),
        "warnings": list(run.machine.get("warnings", ())),
    }


def best_of(run: Run, target: Target) -> float | None:
    """Returns the best smoothed accuracy or loss of a run; None if it was not evaluated."""
    values = run.tables.evaluations[target.aim].dropna().tolist()
    if not values:
        return None
    curve = smoothed(values, run.summary["smoothing"])
    return float(curve.max() if target.aim == "accuracy" else curve.min())
