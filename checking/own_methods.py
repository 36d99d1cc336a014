"""Rejects custom methods that keep state where a checkpoint would lose it, before anything is run.

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
    """Checks each method that is not built in with a small run, which takes some hundredths of a second.

    Raises:
        ScenarioError: a program of a method keeps state in local variables. The message names the role and variables.
    """
    problems = [(scenario.name, problem) for scenario in scenarios for problem in _problems(scenario)]
    if problems:
        raise_all(problems[0][0], [problem for _, problem in problems])


def _problems(scenario: Scenario) -> Iterator[Problem]:
    for index, method in enumerate(scenario.algorithms):
        if METHODS.get(method.name) is type(method):
            continue
        from paceline.checking.hidden_state import hidden_state  # imports the interpreter, which is rarely needed here

        def nodes() -> Sequence[Sequence[Rank]]:
            return scenario.cluster.build(scenario.workload).placement

        for words in hidden_state(method, nodes, tensors=scenario.workload.learning == "train"):
            yield Problem(("algorithms", index), f"{reference(type(method))}: {words}")


def checks_own_methods(run: Callable[Concatenate[Scenario, P], R], module: str) -> Callable[..., R]:
    """Wraps `run` such that it loads the scenario and calls `check_own_methods` first.

    Args:
        run: a function whose first argument is a scenario.
        module: the module that offers the wrapped function, so that it can be pickled by its name.

    Returns:
        The wrapped function; its first argument may be anything that `load` accepts.
    """

    @functools.wraps(run)
    def checked(scenario: Scenario | Mapping[str, Any] | str | Path, *args: P.args, **kwargs: P.kwargs) -> R:
        scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
        check_own_methods(scenario)
        return run(scenario, *args, **kwargs)

    checked.__module__ = module
    return checked
