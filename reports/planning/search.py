"""The search: draws choices, simulates each with the tuning seeds, and records the trials.

* Every trial has a bound on its virtual time, from the trials of earlier batches: see `objectives.bound_s`. A trial
  that reaches its bound before the target is stopped and recorded as pruned, with the reason.
* A choice whose scenario is wrong (too little memory, too few samples) is recorded with the error, and stops nothing.
* The scenario of every trial is stored in ``trials/``; simulating it gives the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.reports.planning.evaluation import ENGINE, Piece, Row, evaluate
from paceline.reports.planning.objectives import MOST_SHORT, bound_s, values_of
from paceline.reports.planning.point_scenarios import offered_nodes, scenario_of, tuning_seeds
from paceline.reports.planning.request import Request
from paceline.reports.planning.search_space import Choice
from paceline.reports.planning.study import Drawn, PlanStudy
from paceline.reports.run_cost import Rates, rates_of
from paceline.reports.sweeps.sweep_processes import Failure, each
from paceline.scenarios import load

TRIALS, POINTS = "trials", "points"
"""folders of the trials' scenarios and of the stored rows"""
Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial that has ended."""

    number: int
    choice: Choice
    values: tuple[float, ...] | None
    """its figures on the tuning seeds; None if it did not reach the target"""
    reason: str
    """why it has no figures; empty if it has"""
    rows: Sequence[Row]
    bound_s: float | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A choice with its scenario, or the reason why it has none."""

    drawn: Drawn
    scenario: Mapping[str, Any] | None
    rates: Rates
    bound_s: float
    reason: str = ""


def trials_of(study: PlanStudy) -> list[Trial]:
    """Returns the trials of a study, by number."""
    found = []
    for one in study.trials:
        kept: Mapping[str, Any] = one.user_attrs
        found.append(
            Trial(
                number=one.number,
                choice=Choice(**kept["choice"]),
                values=None if kept["reason"] else tuple(one.values),
                reason=kept["reason"],
                rows=kept["rows"],
                bound_s=kept["bound_s"],
            )
        )
    return found


def search(
    request: Request, study: PlanStudy, folder: Path, *, jobs: int, progress: Report | None = None
) -> list[Trial]:
    """Makes the trials that are missing; returns all of them.

    Args:
        request: the request.
        study: its study, which gets the trials.
        folder: the folder for scenarios and rows.
        jobs: number of parallel processes; the trials do not depend on it.
        progress: called when a trial has ended.
    """
    (folder / TRIALS).mkdir(exist_ok=True)
    kinds = offered_nodes(request.load())
    while len(study.trials) < request.trials:
        first, drawn = study.next_batch(request.trials)
        known = [one.values for one in trials_of(study)[:first] if one.values is not None]
        prepared = [_prepared(request, one, kinds, known) for one in drawn]
        rows = _simulated(request, prepared, folder, jobs, _counting(progress, drawn[0].number, request.trials))
        for one, found in zip(prepared, rows, strict=True):
            _record(request, study, one, found, folder)
    return trials_of(study)


def _prepared(request: Request, drawn: Drawn, kinds: Mapping[str, Any], known: Sequence[Sequence[float]]) -> _Prepared:
    seeds = tuning_seeds(request.scenario["seed"], request.tuning_seeds)
    target: dict[str, Any] = {request.target.aim: request.target.value}
    try:
        made = scenario_of(
            request.scenario, kinds, drawn.choice, stop=target, target=target, seed=seeds[0], seeds=len(seeds)
        )
        scenario = load(made)
    except InputError as error:
        return _Prepared(drawn, None, Rates(usd_per_hour=None, watts=None), math.inf, f"cannot run: {_short(error)}")
    rates = rates_of(scenario, alone=scenario.algorithms[0].alone)
    bound = bound_s(request.objectives, rates, known, request.limits)
    own = scenario.stop.seconds
    if math.isfinite(bound) and (own is None or bound < own):
        made["stop"] = {**made["stop"], "seconds": f"{bound!r} s"}
        scenario = load(made)
    return _Prepared(drawn, scenario.dump(), rates, bound)


def _simulated(
    request: Request, prepared: Sequence[_Prepared], folder: Path, jobs: int, ended: Callable[[], None]
) -> list[list[Row] | str]:
    """Returns the rows of each choice, or its error."""
    found: list[list[Row] | str] = [one.reason for one in prepared]
    runnable = [at for at, one in enumerate(prepared) if one.scenario is not None]
    for _ in range(len(prepared) - len(runnable)):
        ended()
    pieces = [
        Piece(scenario=scenario, target=request.target, store=folder / POINTS)
        for at in runnable
        if (scenario := prepared[at].scenario) is not None
    ]
    for position, came in each(evaluate, pieces, jobs=jobs, preload=[__name__, ENGINE]):
        found[runnable[position]] = f"cannot run: {_short(came.message)}" if isinstance(came, Failure) else came.result
        ended()
    return found


def _record(request: Request, study: PlanStudy, one: _Prepared, rows: list[Row] | str, folder: Path) -> None:
    number, target = one.drawn.number, request.target
    values, shortfall, reason = None, MOST_SHORT, ""
    kept: list[Row] = []
    if isinstance(rows, str):
        reason = rows
    else:
        kept = rows
        times = [row["time_s"] for row in rows if row["time_s"] is not None]
        if len(times) == len(rows) == request.tuning_seeds:
            mean_s = fmean(times)
            values, shortfall = values_of(request.objectives, one.rates, mean_s), 0.0
        else:
            shortfall = target.shortfall(rows[-1]["best"])
            reason = _why(rows[-1], one.bound_s, target.words)
    if one.scenario is not None:
        from paceline.reports.planning.plan_files import write_scenario

        write_scenario(folder / TRIALS / f"{number:04d}.yaml", one.scenario)
    choice = one.drawn.choice
    study.add(
        one.drawn,
        values=values,
        shortfall=shortfall,
        attributes={
            "choice": {name: getattr(choice, name) for name in Choice.__dataclass_fields__},
            "reason": reason,
            "rows": kept,
            "bound_s": one.bound_s if math.isfinite(one.bound_s) else None,
            "scenario": f"{TRIALS}/{number:04d}.yaml" if one.scenario is not None else None,
        },
    )


def _why(row: Row, bound: float, target: str) -> str:
    """Describes why a run did not reach the target."""
    if row["diverged"]:
        return "diverged"
    if row["stop_reason"] == "seconds" and row["wall_s"] >= 0.99 * bound:
        return "stopped: worse than another plan or beyond a limit"
    return f"did not reach {target} before the end of the run"


def _short(error: object) -> str:
    """Returns the first line of an error."""
    return str(error).splitlines()[0]


def _counting(progress: Report | None, done: int, trials: int) -> Callable[[], None]:
    """Returns a function that reports the end of one more trial."""
    count = done

    def ended() -> None:
        nonlocal count
        count += 1
        if progress is not None:
            progress(f"{count} of {trials} trials", count / trials)

    return ended
