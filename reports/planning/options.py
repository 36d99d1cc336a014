"""The options of a plan: from text, as the command line and Python give them, to a `Request`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from paceline.algorithms.core.errors import InputError
from paceline.reports.planning.default_ranges import usual_methods
from paceline.reports.planning.objectives import Limits, Target, parse_objectives, parse_target
from paceline.reports.planning.planner import check_rates, known_objectives
from paceline.reports.planning.request import TRIALS_PER_METHOD, Request
from paceline.reports.planning.search_space import checked_methods, space_of
from paceline.scenarios import Scenario, load
from paceline.scenarios.values.units import COST, PERIOD


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of ``paceline plan`` that decide what is planned; None where one is not given."""

    target: str | None = None
    budget: str | None = None
    within: str | None = None
    minimise: str | None = None
    workers: str | None = None
    devices: str | None = None
    batches: str | None = None
    tune: Sequence[str] = ()
    trials: int | None = None
    tuning_seeds: int
    reported_seeds: int

    def section(self) -> list[str]:
        """Returns the changes to the scenario's section `plan`; raises `InputError` with all mistakes."""
        made = [
            f"plan.{key}={value}"
            for key, value in (("workers", self.workers), ("batch_per_worker", self.batches))
            if value is not None
        ]
        if self.devices is not None:
            names = [name for part in self.devices.split(",") if (name := part.strip())]
            if not names:
                raise InputError(f"--devices: found {self.devices!r}, expected names such as v100-sxm2,a100-sxm4-40")
            made.append("plan.nodes=[" + ", ".join(f"{{device: {name}}}" for name in names) + "]")
        ranges = dict(tuned(text) for text in self.tune)
        if ranges:
            made.append("plan.hyperparameters={" + ", ".join(f"{name}: {text}" for name, text in ranges.items()) + "}")
        return made


def tuned(text: str) -> tuple[str, str]:
    """Parses ``NAME=LOW..HIGH`` or ``NAME=A,B,C``; returns the name, and the range as YAML.

    >>> tuned("learning_rate=0.01..1"), tuned("agd.delay=1,2")
    (('learning_rate', '{low: 0.01, high: 1}'), ('agd.delay', '[1, 2]'))
    """
    name, equals, listed = (part.strip() for part in text.partition("="))
    if not equals or not name or not listed:
        raise InputError(
            f"--tune: found {text!r}, expected NAME=LOW..HIGH or NAME=A,B,C, such as learning_rate=0.01..1"
        )
    low, dots, high = listed.partition("..")
    if dots:
        return name, f"{{low: {low}, high: {high}}}"
    return name, "[" + ", ".join(part.strip() for part in listed.split(",")) + "]"


def request_of(
    source: str | Path | Mapping[str, Any] | Scenario,
    changes: Sequence[str],
    algorithms: Sequence[str] | None,
    options: Options,
) -> Request:
    """Returns the request; raises `InputError` with what is wrong in the options.

    Args:
        source: the scenario, in any form that `paceline.scenarios.load` accepts.
        changes: changes to it, without those of the options.
        algorithms: the methods to consider; None: those of its section `plan`, or the usual ones.
        options: the options.
    """
    changes = [*changes, *options.section()]
    given = load(source, changes, algorithms=algorithms)
    names = algorithms or given.plan.methods or usual_methods([method.name for method in given.algorithms])
    checked_methods(names)
    scenario = load(source, changes, algorithms=list(names))
    limits = Limits(
        within_s=_quantity("--within", options.within, PERIOD.parse),
        budget_usd=_quantity("--budget", options.budget, COST.parse),
    )
    objectives = known_objectives(scenario) if options.minimise is None else parse_objectives(options.minimise)
    space = space_of(scenario, scenario.plan)
    request = Request(
        scenario=scenario.dump(),
        part=scenario.plan.model_dump(mode="json"),
        target=target_of(options.target, scenario),
        objectives=objectives,
        limits=limits,
        trials=options.trials or TRIALS_PER_METHOD * len(space.methods),
        tuning_seeds=options.tuning_seeds,
        reported_seeds=options.reported_seeds,
    )
    check_rates(request, scenario, space)
    return request


def target_of(text: str | None, scenario: Scenario) -> Target:
    """Returns the target: the option's, or else the scenario's.

    Args:
        text: the option; None if it is not given.
        scenario: the scenario.
    """
    learning, of = scenario.workload.learning, scenario.workload.stood_in_words or ""
    if text is not None:
        found = replace(parse_target(text), of=of)
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


def _quantity(option: str, text: str | None, parse: Callable[[object], float]) -> float:
    if text is None:
        return math.inf
    try:
        return parse(text)
    except PydanticCustomError as error:
        raise InputError(f"{option}: found {text!r}, expected {error.message()}") from None
