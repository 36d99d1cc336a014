"""Refuses methods of the user's own that keep state where a checkpoint loses it, before anything is run.

`simulate`, `train`, `compare` and `sweep` call this. Built-in methods are not tried here: the test suite tries them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from paceline.algorithms.core.values import Rank
from paceline.algorithms.registry import METHODS, reference
from paceline.scenarios.resolution.load_scenario import load
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.values.mistakes import Problem, raise_all

P = ParamSpec("P")
R = TypeVar("R")


def check_own_methods(*scenarios: Scenario) -> None:
    """Tries each method that is not built in on a small run; takes some hundredths of a second for a method.

    Raises:
        ScenarioError: for methods whose programs keep state in local variables; it says where, and which role.
    """
    problems = [(scenario.name, problem) for scenario in scenarios for problem in _problems(scenario)]
    if problems:
        raise_all(problems[0][0], [problem for _, problem in problems])


def _problems(scenario: Scenario) -> Iterator[Problem]:
    for index, method in enumerate(scenario.algorithms):
        if METHODS.get(method.name) is type(method):
            continue
        from paceline.checking.hidden_state import hidden_state  # with the interpreter, which few need here

        def nodes() -> Sequence[Sequence[Rank]]:
            return scenario.cluster.build(scenario.workload).placement

        for words in hidden_state(method, nodes, tensors=scenario.workload.learning == "train"):
            yield Problem(("algorithms", index), f"{reference(type(method))}: {words}")


def checks_own_methods(run: Callable[Concatenate[Scenario, P], R], module: str) -> Callable[..., R]:
    """`run` behind `check_own_methods`, as a function of `module`; it takes whatever `load` takes."""

    @functools.wraps(run)
    def checked(scenario: Scenario | Mapping[str, Any] | str | Path, *args: P.args, **kwargs: P.kwargs) -> R:
        scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
        check_own_methods(scenario)
        return run(scenario, *args, **kwargs)

    checked.__module__ = module  # so that it can be pickled by its name
    return checked
