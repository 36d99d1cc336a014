"""Loads a file, text, run.json or mapping as a `Scenario`, with changes, or raises one error with all mistakes.

Changes are those of ``--set path=value``, ``--vary`` and ``--algorithms a,b``. A path consists of keys and positions,
as in messages: ``cluster.nodes[1].device.overhead=8 ms``. An element of a list may be given by its name:
``algorithms.agd.delay=2``, an algorithm also by its label. The value is YAML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaSerializer
from pydantic_core.core_schema import WithDefaultSchema

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.naming import whole
from paceline.algorithms.synonyms import meaning
from paceline.scenarios.resolution.key_paths import key_paths, suggestion
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.sections.methods import ALL_HYPERPARAMETERS, unused_hyperparameters
from paceline.scenarios.sections.referenced_files import anchor
from paceline.scenarios.values.key_hints import key_hint
from paceline.scenarios.values.limits import DEEPEST
from paceline.scenarios.values.mistakes import Place, Problem, path_of, problems_of, raise_all, shown
from paceline.scenarios.values.section import plain_data
from paceline.scenarios.values.text import folder_of, parse, read
from paceline.workloads.models.transformer_config import is_size, keys_of

STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")


Change = str | tuple[str, Any]
"""a change of a scenario: ``path=value`` with the value as YAML, or a path and a value"""


def override(data: Any, change: Change, option: str = "--set") -> list[Problem]:
    """Applies one change to `data` in place.

    Args:
        data: a scenario as plain data.
        change: the path and the value.
        option: the option that the change was given with, for messages.

    Returns:
        The mistakes of the change; empty if it was applied.

    >>> data = {"algorithms": ["sync-sgd", "agd"]}
    >>> override(data, "algorithms.agd.delay=2"), override(data, "stop.epochs=3")
    ([], [])
    >>> override(data, ("plan.workers", [1, 2]))
    []
    >>> data
    {'algorithms': ['sync-sgd', {'name': 'agd', 'delay': 2}], 'stop': {'epochs': 3}, 'plan': {'workers': [1, 2]}}
    >>> network = {"link": "wan-1g"}
    >>> override(network, "link.bandwidth=2 Gbit/s"), network
    ([], {'link': {'like': 'wan-1g', 'bandwidth': '2 Gbit/s'}})
    """
    if not isinstance(change, str):
        path, value = change
        return _put(data, _place(path), value, option)
    path, equals, text = change.partition("=")
    place = _place(path.strip())
    if not equals or not place:
        return [Problem((), f"{option}: found {shown(change)}, expected path=value, such as cluster.nodes[0].count=2")]
    value, problems = parse(text, f"{option} {path}")
    return problems or _put(data, place, value, option)


def _place(path: str) -> Place:
    steps, at = [], 0
    while at < len(path) and (match := STEP.match(path, at)):
        steps.append(match[1] if match[1] is not None else int(match[2]))
        at = match.end()
    return tuple(steps) if at == len(path) and len(steps) <= DEEPEST else ()


def _put(data: Any, place: Place, value: Any, option: str) -> list[Problem]:
    here = data
    for depth, step in enumerate(place):
        last = depth == len(place) - 1
        if isinstance(here, dict) and isinstance(step, str):
            if not last and here.get(step) is None:
                here[step] = {}
            elif not last and isinstance(here[step], str) and step.endswith("link"):
                here[step] = {"like": here[step]}  # a link written as its name alone
            elif not last and step == "model" and isinstance(here[step], str) and is_size(here[step]):
                here[step] = keys_of(here[step])  # a size written as text or as the path of a file
            key: Any = step
        elif isinstance(here, list) and (index := _index(here, step)) is not None:
            key = index
            if not last and isinstance(here[key], str):
                here[key] = {"name": here[key]}  # an algorithm written as its name alone
        else:
            return [Problem((), f"{option} {path_of(place)}: {_why_not(here, place[:depth], step)}")]
        if last:
            here[key] = value
        else:
            here = here[key]
    return []


def _index(items: list[Any], step: str | int) -> int | None:
    if isinstance(step, int):
        return step if step < len(items) else None
    named = selected(items, step)
    return next((index for index, item in enumerate(items) if item is named[0]), None) if named else None


def _why_not(here: Any, before: Place, step: str | int) -> str:
    where = path_of(before) or "the scenario"
    if isinstance(here, list):
        names = [name for item in here if isinstance(name := name_of(item), str)]
        return f"found no {shown(step)} in {where}, expected a position below {len(here)} or a name{_among(names)}"
    if isinstance(here, dict):
        return f"found the position {step} in {where}, which is a mapping; expected one of its keys{_among(list(here))}"
    return f"found {shown(here)} at {where}, which has no parts; expected the path of a value"


def _among(names: Sequence[str]) -> str:
    return f" ({', '.join(map(str, names))})" if names else ""


def name_of(item: Any) -> Any:
    """Returns the name of a list element, such as an algorithm or a node."""
    return item.get("name") if isinstance(item, dict) else item


def selected(items: Sequence[Any], name: Any) -> list[Any]:
    """Returns the elements of a list with a label; if none has it, those with this name, which may be an alias.

    >>> selected(["sync-sgd", {"name": "fedavg", "k": 4}, {"name": "agd", "label": "late"}], "local-sgd")
    [{'name': 'fedavg', 'k': 4}]
    """
    labelled = [item for item in items if isinstance(item, dict) and item.get("label", ...) == name]
    exact = labelled or [item for item in items if name_of(item) == name]
    if exact or not isinstance(name, str):
        return exact
    return [item for item in items if isinstance(other := name_of(item), str) and meaning(other) == meaning(name)]


def choose(data: Any, names: Sequence[str | Method]) -> None:
    """Selects the algorithms with these names, in this order, and adds those that the scenario does not have.

    Args:
        data: a scenario as plain data, changed in place.
        names: names or labels of algorithms, or methods.

    >>> data = {"algorithms": ["sync-sgd", {"name": "agd", "delay": 2}]}
    >>> choose(data, ["agd", "easgd"])
    >>> data
    {'algorithms': [{'name': 'agd', 'delay': 2}, 'easgd']}
    """
    if not isinstance(data, dict):
        return
    given = data.get("algorithms")
    entries = given if isinstance(given, list) else []
    chosen: list[Any] = []
    for name in names:
        chosen += selected(entries, name) or [name]
    data["algorithms"] = chosen


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
        faults = problems_of(error, Scenario, lambda key: suggestion(key, key_paths(Scenario)))
        raise_all(name, [*problems, *faults], more=error.error_count() - len(faults))
    if problems:
        raise_all(name, problems)
    return scenario.model_copy(update={"hyperparameters": {}})  # each algorithm has its own now


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a scenario, for editors.

    Defaults are written as in a scenario. A quantity has the keyword `unit`, which JSON Schema leaves to its users: the
    unit that the value is held in.
    """
    return {"$schema": SCHEMA_DIALECT, **Scenario.model_json_schema(schema_generator=_WrittenDefaults)}


class _WrittenDefaults(GenerateJsonSchema):
    """A schema whose defaults are written as in a scenario; those of pydantic are as sections hold them."""

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        made, held = super().default_schema(schema), self.get_default_value(schema)
        if "default" in made and not isinstance(held, BaseModel | str | None):  # which are written already
            made["default"] = SchemaSerializer(schema["schema"]).to_python(held, mode="json")
        return made
