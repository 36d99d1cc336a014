"""Loads a file, text, run.json or mapping as a `Scenario`, or raises one error with all mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.naming import whole
from paceline.scenarios.resolution.key_paths import key_paths, suggestion
from paceline.scenarios.resolution.overrides import Change, choose, override
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.sections.methods import ALL_HYPERPARAMETERS, unused_hyperparameters
from paceline.scenarios.sections.referenced_files import anchor
from paceline.scenarios.values.key_hints import key_hint
from paceline.scenarios.values.mistakes import Problem, problems_of, raise_all
from paceline.scenarios.values.section import plain_data
from paceline.scenarios.values.text import folder_of, read

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def load(
    source: str | Path | Mapping[str, Any] | Scenario,
    overrides: Sequence[Change] = (),
    *,
    algorithms: Sequence[str | Method] | None = None,
    varied: Sequence[str] = (),
) -> Scenario:
    """Loads and validates a scenario.

    Args:
        source: the path of a YAML file or a run.json, the name of a shipped scenario, YAML text (with a line break or
            braces in it), a mapping (its sections may be objects such as a `paceline.Cluster`), or a scenario.
        overrides: changes, applied before the validation: ``path=value`` with the value as YAML, or pairs of a path
            and a value.
        algorithms: the algorithms to run: names of those in the scenario, which keep their hyper-parameters, names of
            other methods, or methods.
        varied: further changes ``path=value``, those of one point of a sweep.

    Raises:
        ScenarioError: the scenario is wrong; with the location, the value and the fix of every mistake.

    >>> load("quickstart", ["stop.epochs=2"], algorithms=["agd"]).stop.epochs
    2.0
    >>> load("quickstart", ["seed=one"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline...ScenarioError: quickstart.yaml: seed: found 'one', expected a whole number of 0 or more
    """
    source = source.dump() if isinstance(source, Scenario) else source
    name, data, problems = read(source)
    data = plain_data(data)
    anchor(data, folder_of(source))
    for change in overrides:
        problems += override(data, change)
    for change in varied:
        problems += override(data, change, "--vary")
    anchor(data, Path.cwd())
    for key in unused_hyperparameters(data):
        hint = "" if key in ALL_HYPERPARAMETERS else key_hint(key, ALL_HYPERPARAMETERS)
        text = f"no algorithm here has this hyper-parameter without giving its own{hint}"
        problems.append(Problem(("hyperparameters", key), text))
    if algorithms is not None:  # after the check: hyper-parameters of other algorithms are no mistakes
        choose(data, [whole(name, Path.cwd()) if isinstance(name, str) else name for name in algorithms])
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        found = problems_of(error, Scenario, lambda key: suggestion(key, key_paths(Scenario)))
        raise_all(name, [*problems, *found], more=error.error_count() - len(found))
    if problems:
        raise_all(name, problems)
    return scenario.model_copy(update={"hyperparameters": {}})  # each algorithm has its own now


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a scenario, for editors.

    A quantity has the keyword `unit`, which JSON Schema leaves to its users: the unit that the value is held in.
    """
    return {"$schema": SCHEMA_DIALECT, **Scenario.model_json_schema()}
