"""Makes a plan: the search, then the candidates on the reported seeds.

The reported seeds are those of the scenario; the seeds of the trials are others, so the figures that are shown did not
decide which hyper-parameters were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.checking.own_methods import check_own_methods
from paceline.records.figures import significant
from paceline.records.store import slug
from paceline.reports.planning.evaluation import (
    ENGINE,
    Piece,
    Row,
    evaluate,
    offered_nodes,
    reported_seeds,
    scenario_of,
)
from paceline.reports.planning.objectives import Objective
from paceline.reports.planning.plan_answer import Candidate, PlanAnswer, candidates_of
from paceline.reports.planning.request import TABLE, Request, write_scenario, write_trials
from paceline.reports.planning.search import POINTS, PlanStudy, Report, Trial, only_process, search
from paceline.reports.planning.search_space import Choice, Space, space_of
from paceline.reports.run_cost import Rates, rates_of
from paceline.reports.sweeps.parallel_tasks import Failure, cores, each
from paceline.scenarios import Scenario, load

PLANS = "plans"
"""folder of the candidates' scenarios"""


def make_plan(
    request: Request,
    folder: Path,
    *,
    jobs: int | None = None,
    stage: Callable[[str], Report | None] = lambda _: None,
) -> PlanAnswer:
    """Makes a plan in a folder, or continues one.

    Args:
        request: the request, which is stored in the folder.
        folder: the folder.
        jobs: number of parallel processes; the answer does not depend on it. None: the number of cores.
        stage: called with the name of each stage when it begins; returns the stage's progress callback.

    Raises:
        InputError: a price or a power is not known that an objective or a limit needs.
        RunFailed: no plan reaches the target.
    """
    scenario = request.load()
    check_own_methods(scenario)
    space = space_of(scenario, scenario.plan)
    check_rates(request, scenario, space)
    jobs = jobs or cores()
    with only_process(folder):
        request.store(folder)
        study = PlanStudy(folder, space, objectives=len(request.objectives), seed=scenario.seed, batch=request.batch)
        trials = search(request, study, folder, jobs=jobs, progress=stage("searching"))
        write_trials(folder / TABLE, trials, request.objectives)
        if not any(one.values for one in trials):
            raise RunFailed(_unreached(request, trials))
        candidates = _confirmed(
            request, scenario, trials, folder, jobs, stage("simulating the best plans with fresh seeds")
        )
    if all(one.reason for one in candidates):
        reasons = "\n".join(f"  {one.choice.words}: {one.reason}" for one in candidates)
        raise RunFailed(f"no plan reaches {request.target.words} with the reported seeds inside the limits:\n{reasons}")
    return PlanAnswer(
        request=request,
        space=space,
        trials=trials,
        candidates=candidates,
        workers=scenario.cluster.workers,
        learning=_learning(scenario),
    )


def check_rates(request: Request, scenario: Scenario, space: Space) -> None:
    """Raises `InputError` with all prices and powers that are needed and not known.

    Args:
        request: the request.
        scenario: its scenario.
        space: its search space.
    """
    kinds, mistakes = offered_nodes(scenario), []
    priced = "cost" in request.objectives or math.isfinite(request.limits.budget_usd)
    for nodes in space.nodes:
        choice = Choice(
            method=scenario.algorithms[0].name,
            nodes=nodes,
            workers=sum(size for _, size in kinds[nodes])
            if isinstance(scenario.cluster.nodes, tuple)
            else kinds[nodes][0][1],
            batch_per_worker=1,
        )
        made = scenario_of(scenario.dump(), kinds, choice, stop={}, target={}, seed=0)
        for key in rates_of(load(made)).missing:
            option = "--minimise cost" if "cost" in request.objectives else "--budget"
            if key.endswith("power"):
                if "energy" in request.objectives:
                    mistakes.append(f"--minimise energy: {_there(key, nodes, space)}: missing; expected such as 6.5 kW")
            elif priced:
                mistakes.append(f"{option}: {_there(key, nodes, space)}: missing; expected a price such as 12.5 USD/h")
    if mistakes:
        raise InputError("\n".join(dict.fromkeys(mistakes)))


def _there(key: str, nodes: str, space: Space) -> str:
    """Returns the key of the scenario for a missing figure."""
    return key if len(space.nodes) == 1 and nodes == "cluster" else f"plan.nodes ({nodes}) {key.rpartition('.')[2]}"


def known_objectives(scenario: Scenario) -> tuple[Objective, ...]:
    """Returns the objectives if none are given: time, and cost if all prices are known.

    Args:
        scenario: the scenario.
    """
    own = rates_of(scenario).usd_per_hour is not None
    return ("time", "cost") if own and not scenario.plan.nodes else ("time",)


def _confirmed(
    request: Request,
    scenario: Scenario,
    trials: Sequence[Trial],
    folder: Path,
    jobs: int,
    progress: Report | None,
) -> list[Candidate]:
    """Simulates the candidates on the reported seeds; returns those that are plans first, by the first objective."""
    kinds = offered_nodes(scenario)
    chosen = candidates_of(trials)
    target: dict[str, Any] = {request.target.aim: request.target.value}
    made: list[tuple[Trial, Scenario, str]] = []
    pieces: list[Piece] = []
    first, *_ = seeds = reported_seeds(scenario.seed, request.reported_seeds)
    for trial in chosen:
        document = scenario_of(
            scenario.dump(), kinds, trial.choice, stop=target, target=target, seed=first, seeds=len(seeds)
        )
        one = load(document)
        path = f"{PLANS}/{trial.number:04d}-{slug(trial.choice.method)}.yaml"
        # without the stop, `paceline compare` measures without evaluations during the run
        write_scenario(folder / path, {**one.dump(), "stop": {**one.dump()["stop"], request.target.aim: None}})
        made.append((trial, one, path))
        pieces.append(Piece(scenario=one.dump(), target=request.target, store=folder / POINTS, all_seeds=True))
    found: list[Candidate] = []
    results = each(evaluate, pieces, jobs=jobs, preload=[__name__, ENGINE])
    for done, (position, came) in enumerate(results, start=1):
        trial, one, path = made[position]
        if isinstance(came, Failure):
            raise RunFailed(f"{trial.choice.words}: {came.message}")
        rates = rates_of(one, alone=one.algorithms[0].alone)
        found.append(_candidate(request, trial, one, came.result, rates, path))
        if progress is not None:
            progress(f"{done} of {len(made)} plans", done / len(made))
    return sorted(
        found,
        key=lambda one: (bool(one.reason), one.values(request.objectives) if not one.reason else (), one.trial.number),
    )


def _candidate(
    request: Request, trial: Trial, scenario: Scenario, rows: Sequence[Row], rates: Rates, path: str
) -> Candidate:
    devices = dict.fromkeys(
        f"{device.name}: {device.provenance}" for _, device in scenario.cluster.devices(scenario.workload)
    )
    made = Candidate(trial=trial, rates=rates, rows=rows, path=path, devices=tuple(devices))
    if made.time_s is None:
        return replace(made, reason=f"reached the target with {len(made.times_s)} of {len(rows)} seeds")
    if made.time_s > request.limits.most_s(rates):
        return replace(made, reason="beyond a limit with the reported seeds")
    return made


def _unreached(request: Request, trials: Sequence[Trial]) -> str:
    """Describes how close the trials came, and what would help."""
    best: tuple[float, Any] | None = None
    for one in trials:
        for row in one.rows:
            if row["best"] is not None and (best is None or request.target.shortfall(row["best"]) < best[0]):
                best = request.target.shortfall(row["best"]), (one, row)
    reasons = dict.fromkeys(one.reason for one in trials)
    said = f"none of {len(trials)} trials reaches {request.target.words} inside the limits"
    if best is not None:
        one, row = best[1]
        figures = f"{significant(row['best'], 4)} after {significant(row['wall_s'])} s"
        said += f"; the closest is {one.choice.words}: {request.target.aim} {figures}"
    limits = [
        option
        for option, value in (("--within", request.limits.within_s), ("--budget", request.limits.budget_usd))
        if math.isfinite(value)
    ]
    return (
        f"{said}. Allow more by {', '.join([*limits, '`stop` of the scenario'])}, or lower the target. Reasons: "
        + "; ".join(list(reasons)[:5])
    )


def _learning(scenario: Scenario) -> str:
    workload = scenario.workload
    if workload.learning == "quadratic":
        return (
            "Learning is that of a noisy quadratic, not of a data set: samples to the target are those of this model."
        )
    if workload.learning == "none":
        return "Nothing is learned: times to the target are extrapolated from a published training."
    if workload.stood_in is not None:
        return f"Learning is that of a stand-in ({workload.stood_in.words}), because the data set was not found."
    return (
        f"Learning is not extrapolated: every run trains {workload.model} on {workload.dataset or 'its data set'} "
        "inside the simulation."
    )
