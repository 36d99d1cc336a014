"""Makes a plan: the request from the arguments, the search, then the candidates on the reported seeds.

The reported seeds are those of the scenario; the seeds of the trials are others, so the figures that are shown did not
decide which hyper-parameters were chosen.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.checking.own_methods import check_own_methods
from paceline.records import store
from paceline.records.figures import SECONDS, significant
from paceline.records.store import slug
from paceline.reports.comparison.ranking import Aim
from paceline.reports.planning.plan_answer import PlanCandidate, PlanResult, candidates_of
from paceline.reports.planning.request import (
    REPORTED_SEEDS,
    TABLE,
    TRIALS_PER_METHOD,
    TUNING_SEEDS,
    Limits,
    Objective,
    PlanRequest,
    parse_objectives,
    parse_target,
    shortfall,
    write_scenario,
    write_trials,
)
from paceline.reports.planning.search import (
    PlanStudy,
    PlanTrial,
    Report,
    counting,
    only_process,
    search,
    simulated,
)
from paceline.reports.planning.search_space import (
    SearchChoice,
    Space,
    checked_methods,
    offered_nodes,
    reported_seeds,
    scenario_of,
    space_of,
    usual_methods,
)
from paceline.reports.run_cost import rates_of
from paceline.reports.run_results import Source
from paceline.reports.sweeps.parallel_tasks import TaskFailure, cores
from paceline.scenarios import Scenario, load
from paceline.scenarios.resolution.load_scenario import Change
from paceline.scenarios.sections.runs import Target
from paceline.scenarios.values.text import parse
from paceline.scenarios.values.units import COST, PERIOD, Kind

Listed = str | Sequence[Any]
"""a list, or text: ``A,B,…`` or ``LOW..HIGH``"""


def plan(
    scenario: Source,
    *,
    target: str | Target | None = None,
    budget: str | float | None = None,
    within: str | float | None = None,
    minimise: Objective | Sequence[Objective] | None = None,
    overrides: Sequence[str] = (),
    algorithms: Sequence[str] | None = None,
    workers: Listed | None = None,
    devices: Listed | None = None,
    batches: Listed | None = None,
    tune: Mapping[str, Listed] | None = None,
    trials: int | None = None,
    tuning_seeds: int = TUNING_SEEDS,
    seeds: int = REPORTED_SEEDS,
    jobs: int | None = None,
    out: str | Path | None = None,
    progress: Report | None = None,
) -> PlanResult:
    """Searches methods, cluster sizes, devices, batches and hyper-parameters for the best way to a target.

    A script that calls this needs ``if __name__ == "__main__":``, like every script that starts processes. It needs
    Optuna: ``pip install 'paceline[planning]'``.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        target: what every plan must reach, such as ``Target(accuracy=0.93)`` or ``"loss=0.1"``; None: the scenario's.
        budget: the most that a run may cost, as text or in US dollars; None: no limit.
        within: the longest time of a run, as text or in seconds; None: no limit.
        minimise: time, cost or energy, the most important first; None: time, and cost if all prices are known.
        overrides: changes ``path=value`` to the scenario.
        algorithms: the methods to consider; None: the usual ones.
        workers: numbers of workers, such as ``"1..64x2"``; None: 1, 2, 4, … up to those of the cluster.
        devices: devices of the catalogue instead of those of the cluster.
        batches: batches per worker; None: half, once and twice the scenario's.
        tune: ranges of hyper-parameters, such as ``{"learning_rate": "0.01..1", "agd.delay": [1, 2]}``.
        trials: number of trials; None: 15 for each method.
        tuning_seeds: number of seeds of a trial; they are never reported.
        seeds: number of fresh seeds of a reported plan.
        jobs: number of parallel processes; the answer does not depend on it. None: the number of cores.
        out: the folder in which a new folder with the study is made; None: the study is not kept.
        progress: called with what is done and the completed share of a stage.

    Returns:
        The plans.

    Raises:
        InputError: an argument is wrong, or Optuna is not installed.
        RunFailed: no plan reaches the target.
    """
    if find_spec("optuna") is None:
        raise InputError("paceline.plan needs Optuna, which is not installed: pip install 'paceline[planning]'")
    with names_of_arguments():
        request = request_of(
            scenario,
            overrides,
            algorithms,
            target=target,
            budget=budget,
            within=within,
            minimise=minimise,
            workers=workers,
            devices=devices,
            batches=batches,
            tune=tune or {},
            trials=trials,
            tuning_seeds=tuning_seeds,
            seeds=seeds,
        )
    with _folder(out, f"{slug(request.scenario['name'])}-plan") as folder:
        return make_plan(request, folder, jobs=jobs, stage=lambda _: progress)


@contextmanager
def _folder(out: str | Path | None, stem: str) -> Iterator[Path]:
    """Yields a new folder, which is removed if `out` is None."""
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    Path(out).mkdir(parents=True, exist_ok=True)
    with store.numbered_folder(Path(out), stem) as numbered:
        yield numbered.building


@contextmanager
def names_of_arguments() -> Iterator[None]:
    """Replaces names of options in messages by those of arguments: ``--tune`` by ``tune``."""
    try:
        yield
    except InputError as error:
        text = re.sub(r"(?m)^--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), str(error))
        raise type(error)(text) from None


def make_plan(
    request: PlanRequest,
    folder: Path,
    *,
    jobs: int | None = None,
    stage: Callable[[str], Report | None] = lambda _: None,
) -> PlanResult:
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
        if not any(trial.values for trial in trials):
            raise RunFailed(_unreached(request, trials))
        candidates = _confirmed(
            request, scenario, trials, folder, jobs, stage("simulating the best plans with fresh seeds")
        )
    if all(candidate.reason for candidate in candidates):
        reasons = "\n".join(f"  {candidate.choice.words}: {candidate.reason}" for candidate in candidates)
        raise RunFailed(f"no plan reaches {request.target.words} with the reported seeds inside the limits:\n{reasons}")
    return PlanResult(request=request, space=space, trials=trials, candidates=candidates)


def check_rates(request: PlanRequest, scenario: Scenario, space: Space) -> None:
    """Raises `InputError` with all prices and powers that are needed and not known.

    Args:
        request: the request.
        scenario: its scenario.
        space: its search space.
    """
    kinds, mistakes = offered_nodes(scenario), []
    priced = "cost" in request.objectives or math.isfinite(request.limits.budget_usd)
    option = "--minimise cost" if "cost" in request.objectives else "--budget"
    for nodes in space.nodes:
        sizes = [size for _, size in kinds[nodes]]
        workers = sum(sizes) if isinstance(scenario.cluster.nodes, tuple) else sizes[0]
        choice = SearchChoice(method=scenario.algorithms[0].name, nodes=nodes, workers=workers, batch_per_worker=1)
        made = scenario_of(scenario.dump(), kinds, choice, None, [0])
        for key in rates_of(load(made)).missing:
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
    request: PlanRequest,
    scenario: Scenario,
    trials: Sequence[PlanTrial],
    folder: Path,
    jobs: int,
    progress: Report | None,
) -> list[PlanCandidate]:
    """Simulates the candidates on the reported seeds; returns those that are plans first, by the first objective."""
    kinds, seeds = offered_nodes(scenario), reported_seeds(scenario.seed, request.reported_seeds)
    chosen = candidates_of(trials)
    planned = [load(scenario_of(scenario.dump(), kinds, trial.choice, request.target, seeds)) for trial in chosen]
    ended = counting(progress, len(chosen), "plans")
    outcomes = simulated(request, planned, folder, jobs, ended, all_seeds=True)
    candidates: list[PlanCandidate] = []
    for trial, made, rows in zip(chosen, planned, outcomes, strict=True):
        if isinstance(rows, TaskFailure):
            raise RunFailed(f"{trial.choice.words}: {rows.message}")
        # without the stop, `paceline compare` measures without evaluations during the run
        content = made.dump()
        document = {**content, "stop": {**content["stop"], request.target.kind: None}}
        candidate = PlanCandidate(trial=trial, document=document, rows=rows)
        write_scenario(folder / candidate.path, document)
        if candidate.time_s is None:
            reason = f"reached the target with {len(candidate.times_s)} of {len(rows)} seeds"
        else:
            beyond = candidate.time_s > request.limits.most_s(candidate.rates)
            reason = "beyond a limit with the reported seeds" if beyond else ""
        candidates.append(replace(candidate, reason=reason))
    return sorted(
        candidates,
        key=lambda candidate: (
            bool(candidate.reason),
            candidate.values(request.objectives) if not candidate.reason else (),
            candidate.trial.number,
        ),
    )


def _unreached(request: PlanRequest, trials: Sequence[PlanTrial]) -> str:
    """Describes how close the trials came, and what would help."""
    said = f"none of {len(trials)} trials reaches {request.target.words} inside the limits"
    evaluated = [(trial, row) for trial in trials for row in trial.rows if row["best"] is not None]
    if evaluated:
        trial, row = min(evaluated, key=lambda pair: shortfall(request.target, pair[1]["best"]))
        figures = f"{significant(row['best'], 4)} after {SECONDS.with_symbol(row['wall_s'])}"
        said += f"; the closest is {trial.choice.words}: {request.target.kind} {figures}"
    limits = {"--within": request.limits.within_s, "--budget": request.limits.budget_usd}
    more = [*(option for option, value in limits.items() if math.isfinite(value)), "`stop` of the scenario"]
    reasons = list(dict.fromkeys(trial.reason for trial in trials))[:5]
    return f"{said}. Allow more by {', '.join(more)}, or lower the target. Reasons: {'; '.join(reasons)}"


def request_of(
    source: str | Path | Mapping[str, Any] | Scenario,
    overrides: Sequence[str] = (),
    algorithms: Sequence[str] | None = None,
    *,
    target: str | Target | None = None,
    budget: str | float | None = None,
    within: str | float | None = None,
    minimise: str | Sequence[Objective] | None = None,
    workers: Listed | None = None,
    devices: Listed | None = None,
    batches: Listed | None = None,
    tune: Mapping[str, Listed],
    trials: int | None = None,
    tuning_seeds: int,
    seeds: int,
) -> PlanRequest:
    """Returns the request of a plan; raises `InputError` with what is wrong in the arguments, as options.

    Args:
        source: the scenario, in any form that `paceline.scenarios.load` accepts.
        overrides: changes to it.
        algorithms: the methods to consider; None: those of its section `plan`, or the usual ones.
        target: what every plan must reach; None: the scenario's.
        budget: the most that a run may cost, as text or in US dollars.
        within: the longest time of a run, as text or in seconds.
        minimise: the objectives, the most important first.
        workers: numbers of workers.
        devices: devices instead of those of the cluster.
        batches: batches per worker.
        tune: ranges of hyper-parameters.
        trials: number of trials.
        tuning_seeds: number of seeds of a trial.
        seeds: number of seeds of a reported plan.
    """
    changes: list[Change] = [*overrides]
    for key, values in (("workers", workers), ("batch_per_worker", batches)):
        if values is not None:
            changes.append(f"plan.{key}={values}" if isinstance(values, str) else (f"plan.{key}", list(values)))
    if devices is not None:
        changes.append(("plan.nodes", [{"device": name} for name in device_names(devices)]))
    if tune:
        changes.append(("plan.hyperparameters", {name: range_of(values) for name, values in tune.items()}))
    given = load(source, changes, algorithms=algorithms)
    names = algorithms or given.plan.methods or usual_methods([method.name for method in given.algorithms])
    checked_methods(names)
    scenario = load(source, changes, algorithms=list(names))
    limits = Limits(within_s=_limit("--within", within, PERIOD), budget_usd=_limit("--budget", budget, COST))
    objectives = known_objectives(scenario) if minimise is None else parse_objectives(minimise)
    space = space_of(scenario, scenario.plan)
    request = PlanRequest(
        scenario=scenario.dump(),
        part=scenario.plan.model_dump(mode="json"),
        target=target_of(target, scenario),
        objectives=objectives,
        limits=limits,
        trials=trials or TRIALS_PER_METHOD * len(space.methods),
        tuning_seeds=tuning_seeds,
        reported_seeds=seeds,
    )
    check_rates(request, scenario, space)
    return request


def device_names(devices: Listed) -> list[str]:
    """Returns the names in a list or in ``A,B,…``.

    >>> device_names("v100-sxm2, a100-sxm4-40")
    ['v100-sxm2', 'a100-sxm4-40']
    """
    listed = devices.split(",") if isinstance(devices, str) else map(str, devices)
    names = [name for part in listed if (name := part.strip())]
    if not names:
        raise InputError(f"--devices: found {devices!r}, expected names such as v100-sxm2,a100-sxm4-40")
    return names


def range_of(values: Listed) -> Any:
    """Returns the range of a hyper-parameter as the section `plan` has it.

    Args:
        values: the values, or text: ``LOW..HIGH`` or ``A,B,C``.

    >>> range_of("0.01..1"), range_of("1,2"), range_of([1, 2])
    ({'low': 0.01, 'high': 1}, [1, 2], [1, 2])
    """
    if not isinstance(values, str):
        return list(values)
    low, dots, high = values.partition("..")
    if dots:
        return {"low": parse(low, "--tune")[0], "high": parse(high, "--tune")[0]}
    return [parse(part, "--tune")[0] for part in values.split(",")]


def target_of(given: str | Target | None, scenario: Scenario) -> Aim:
    """Returns the target: the one that is given, or else the scenario's.

    Args:
        given: a target, text such as ``accuracy=0.93``, or None.
        scenario: the scenario.
    """
    learning, of = scenario.workload.learning, scenario.workload.stood_in_words or ""
    if given is not None:
        target = replace(parse_target(given if isinstance(given, str) else _as_text(given)), of=of)
    elif scenario.target_accuracy is not None:
        target = Aim("accuracy", scenario.target_accuracy, of)
    elif scenario.target_loss is not None:
        target = Aim("loss", scenario.target_loss, of)
    else:
        raise InputError("--target: missing, and the scenario has none; give one such as accuracy=0.93")
    if learning == "none" and scenario.extrapolate is None:
        raise InputError(
            "workload.learning: found none, so no target is ever reached; expected train or quadratic, or a section "
            "extrapolate"
        )
    if target.kind == "accuracy" and learning == "quadratic" and scenario.workload.options.get("link") is None:
        raise InputError("--target: found an accuracy; the noisy quadratic has a loss only, so give loss=L")
    return target


def _as_text(target: Target) -> str:
    values = [f"{aim}={value}" for aim in ("accuracy", "loss") if (value := getattr(target, aim)) is not None]
    if len(values) != 1:
        raise InputError(f"--target: found {target!r}, expected an accuracy or a loss")
    return values[0]


def _limit(option: str, given: str | float | None, kind: Kind) -> float:
    if given is None:
        return math.inf
    text = given if isinstance(given, str) else kind.text(given)
    try:
        return kind.parse(text)
    except PydanticCustomError as error:
        raise InputError(f"{option}: found {text!r}, expected {error.message()}") from None
