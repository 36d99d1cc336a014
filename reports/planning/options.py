"""Builds the request of a plan from the arguments of `paceline.plan`, which are the options of ``paceline plan``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic_core import PydanticCustomError

from paceline.algorithms.core.errors import InputError
from paceline.reports.planning.objectives import Aim, Limits, Objective, Target, parse_objectives, parse_target
from paceline.reports.planning.planner import check_rates, known_objectives
from paceline.reports.planning.request import TRIALS_PER_METHOD, Request
from paceline.reports.planning.search_space import checked_methods, space_of, usual_methods
from paceline.scenarios import Scenario, load
from paceline.scenarios.builders.run_builders import Target as AimedAt
from paceline.scenarios.resolution.overrides import Change
from paceline.scenarios.values.text import parse
from paceline.scenarios.values.units import COST, PERIOD, Kind

Listed = str | Sequence[Any]
"""a list, or text: ``A,B,…`` or ``LOW..HIGH``"""


def request_of(
    source: str | Path | Mapping[str, Any] | Scenario,
    overrides: Sequence[str] = (),
    algorithms: Sequence[str] | None = None,
    *,
    target: str | AimedAt | None = None,
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
) -> Request:
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
    request = Request(
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


def target_of(given: str | AimedAt | None, scenario: Scenario) -> Target:
    """Returns the target: the one that is given, or else the scenario's.

    Args:
        given: a target, text such as ``accuracy=0.93``, or None.
        scenario: the scenario.
    """
    learning, of = scenario.workload.learning, scenario.workload.stood_in_words or ""
    if given is not None:
        found = replace(parse_target(given if isinstance(given, str) else _as_text(given)), of=of)
    elif scenario.target_accuracy is not None:
        found = Target("accuracy", scenario.target_accuracy, of)
    elif scenario.target_loss is not None:
        found = Target("loss", scenario.target_loss, of)
    else:
        raise InputError("--target: missing, and the scenario has none; give one such as accuracy=0.93")
    if learning == "none" and scenario.extrapolate is None:
        raise InputError(
            "workload.learning: found none, so no target is ever reached; expected train or quadratic, or a section "
            "extrapolate"
        )
    if found.aim == "accuracy" and learning == "quadratic" and scenario.workload.options.get("link") is None:
        raise InputError("--target: found an accuracy; the noisy quadratic has a loss only, so give loss=L")
    return found


def _as_text(target: AimedAt) -> str:
    values = [f"{aim}={value}" for aim in get_args(Aim) if (value := getattr(target, aim)) is not None]
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
