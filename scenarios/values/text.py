"""Reads a file, text or mapping as plain data (mappings, lists, text, numbers), and collects all syntax errors.

PyYAML composes the YAML, with libyaml if available (ten times as fast), and this file constructs the data: PyYAML's own
constructor silently keeps the last of two equal keys, reads ``1e-3`` as text and ``no`` as false, and shares the value
of an alias, so that changing one place changes another. Here equal keys, tags and aliases are mistakes, and plain
values follow YAML 1.2's core schema.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from paceline.algorithms.core.checksums import parsed, unsealed
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.scenarios.values.limits import DEEPEST, LONGEST_TEXT, MOST_CHARACTERS, MOST_ITEMS, MOST_KEYS
from paceline.scenarios.values.mistakes import Place, Problem, ScenarioError, raise_all

LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
SHIPPED = {path.stem: path for path in sorted(Path(__file__).parents[1].glob("*.yaml"))}
"""the shipped scenarios by name"""
NULL = {"", "~", "null", "Null", "NULL"}
BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}


def read(source: str | Path | Mapping[str, Any]) -> tuple[str, Any, list[Problem]]:
    """Reads a source and returns its name for messages, its data and its syntax errors.

    Args:
        source: a path, the name of a shipped scenario, text with a line break or braces in it, or a mapping.

    Raises:
        ScenarioError: there is no data: no such file, an empty file, or no YAML.
    """
    if isinstance(source, Mapping):
        _check_size(source, "scenario")
        return "scenario", copy.deepcopy(dict(source)), []
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return _named("scenario", source)
    path = Path(source)
    if not path.suffix and not path.exists() and path.name in SHIPPED:
        path = SHIPPED[path.name]
    text = _text_of(path)
    if path.suffix == ".json":
        data = _scenario_in(_json(text, path.name), path)
        _check_size(data, path.name)
        return path.name, data, []
    return _named(path.name, text)


def folder_of(source: str | Path | Mapping[str, Any]) -> Path:
    """Returns the folder that paths in a source are relative to: that of its file, or the current folder."""
    if isinstance(source, Mapping) or (isinstance(source, str) and ("\n" in source or "{" in source)):
        return Path.cwd()
    return Path(source).absolute().parent


def _named(name: str, text: str) -> tuple[str, Any, list[Problem]]:
    data, problems = parse(text, name)
    if data is None and not problems:
        keys = "name, cluster, workload, algorithms and stop"
        raise_all(name, [Problem((), f"found nothing in it, expected a scenario with {keys}")])
    return name, data, problems


def parse(text: str, name: str) -> tuple[Any, list[Problem]]:
    """Returns the data of YAML text, and its syntax errors.

    Args:
        text: the YAML text.
        name: the name of its source, for messages.

    >>> parse("{seed: 1e-3, momentum: 0.9, seed: 2}", "text")
    ({'seed': 0.001, 'momentum': 0.9}, [Problem(place=('seed',), text='given twice, in lines 1 and 1; expected once')])
    """
    _check_length(len(text), name)
    try:
        _check_events(text, name)
        node = yaml.compose(text, Loader=LOADER)
        reader = _Reader()
        data = None if node is None else reader.value(node, ())
    except yaml.MarkedYAMLError as error:
        at = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise_all(name, [Problem((), f"found no YAML{at} ({error.problem}), expected a scenario in YAML")])
    except yaml.YAMLError as error:
        raise_all(name, [Problem((), f"found no YAML ({error}), expected a scenario in YAML")])
    _check_size(data, name)
    return data, reader.problems


def _check_length(characters: int, name: str) -> None:
    if characters > MOST_CHARACTERS:
        raise_all(name, [Problem((), f"found {characters} characters, expected at most {MOST_CHARACTERS}")])


def _check_events(text: str, name: str) -> None:
    """Rejects YAML that is too deep or too long before it is composed: libyaml's composer recurses without a limit."""
    depth = items = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent):
            items += 1
        if depth > DEEPEST:
            raise_all(name, [Problem((), _too_deep(_line(event)))])
        if items > 2 * MOST_ITEMS:  # a mapping's keys are events too
            raise_all(name, [Problem((), _too_many(_line(event)))])


def _line(event: yaml.Event) -> int | None:
    return None if event.start_mark is None else event.start_mark.line + 1


def _too_deep(line: int | None = None) -> str:
    at = "" if line is None else f" in line {line}"
    return f"found lists or mappings nested more than {DEEPEST} deep{at}, expected a scenario"


def _too_many(line: int | None = None) -> str:
    by = "" if line is None else f" by line {line}"
    return f"found more than {MOST_ITEMS} values{by}, expected a scenario of at most so many"


def _check_size(data: Any, name: str) -> None:
    """Rejects data that is too large to be validated."""
    todo: list[tuple[Place, Any]] = [((), data)]
    items = 0
    while todo:
        place, value = todo.pop()
        items += 1
        if items > MOST_ITEMS:
            raise_all(name, [Problem((), _too_many())])
        if len(place) > DEEPEST:
            raise_all(name, [Problem((), _too_deep())])
        if problem := _oversize(place, value):
            raise_all(name, [problem])
        todo += [((*place, key), part) for key, part in _parts(value)]


def _oversize(place: Place, value: Any) -> Problem | None:
    """Returns the mistake of a value that is too large by itself, if it is."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return Problem(place, f"found a text of {len(value)} characters, expected at most {LONGEST_TEXT}")
    if isinstance(value, Mapping):
        if len(value) > MOST_KEYS:
            return Problem(place, f"found a mapping of {len(value)} keys, expected at most {MOST_KEYS}")
        if long := next((key for key in value if len(str(key)) > LONGEST_TEXT), None):
            return Problem(place, f"found a key of {len(str(long))} characters, expected at most {LONGEST_TEXT}")
    return None


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, list | tuple) else iter(())


class _Reader:
    """Converts composed nodes to data and collects the mistakes."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._seen: set[int] = set()

    def value(self, node: yaml.Node, place: Place) -> Any:
        if id(node) in self._seen:
            self.problems.append(Problem(place, "found an alias (*), expected the value itself"))
            return None
        self._seen.add(id(node))
        if node.tag not in PLAIN_TAGS:
            return self._refuse(place, node, f"the tag {node.tag!r}; expected a plain value")
        match node:
            case yaml.MappingNode():
                return self._mapping(node, place)
            case yaml.SequenceNode():
                return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
            case yaml.ScalarNode():
                return node.value if node.style else scalar(node.value)
            case _:
                raise AssertionError(f"YAML has no node like {node!r}")

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(place, key_node, "a key that is a list or mapping; expected text")
                continue
            key, line = key_node.value, key_node.start_mark.line + 1
            value = self.value(value_node, (*place, key))
            if key in data:
                text = f"given twice, in lines {lines[key]} and {line}; expected once"
                self.problems.append(Problem((*place, key), text))
                continue
            data[key], lines[key] = value, line
        return data

    def _refuse(self, place: Place, node: yaml.Node, what: str) -> None:
        self.problems.append(Problem(place, f"found in line {node.start_mark.line + 1} {what}"))


def scalar(text: str) -> Any:
    """Converts a plain value by YAML 1.2's core schema (decimal numbers only).

    >>> [scalar(text) for text in ("2", "1e-3", "true", "no", "~", "4 ms")]
    [2, 0.001, True, 'no', None, '4 ms']
    """
    if text in NULL:
        return None
    if text in BOOLEAN:
        return BOOLEAN[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    if special := SPECIAL.fullmatch(text):
        return float(special[1] + "inf") if special[2] else float("nan")
    return text


def _text_of(path: Path) -> str:
    try:
        if path.is_file():
            _check_length(path.stat().st_size, path.name)
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise_all(path.name, [Problem((), "found bytes that are no UTF-8 text, expected a scenario in YAML")])
    except IsADirectoryError:
        raise_all(str(path), [Problem((), "found a folder, expected a scenario file")])
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise_all(str(path), [Problem((), _missing(path, error))])
    return text


def _missing(path: Path, error: OSError | ValueError) -> str:
    if not isinstance(error, FileNotFoundError):
        return f"cannot be read ({error}), expected the path of a scenario file"
    try:
        beside = [str(other) for other in path.parent.iterdir() if other.suffix in {".yaml", ".yml", ".json"}]
    except OSError:
        beside = []
    hint = near_miss(path, [*beside, *SHIPPED])
    return f"no such file{hint}; expected the path of a scenario file or one of {', '.join(SHIPPED)}"


def _json(text: str, name: str) -> Any:
    try:
        return parsed(text, name, "a scenario or a run.json")
    except InputError as error:
        raise ScenarioError(str(error)) from error


def _scenario_in(data: Any, path: Path) -> Any:
    """Returns the scenario in a run.json, whose checksum is verified, or the data itself."""
    if isinstance(data, dict) and "schema_version" in data and "scenario" in data:
        return unsealed(path, data, "a run.json as it was written (changes to its scenario go into --set)")["scenario"]
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """A scenario that is part of Paceline."""

    name: str
    description: str
    """the first sentence of the comment at its top"""
    algorithms: tuple[str, ...]
    """names of its algorithms, with hyper-parameters only if the scenario has a method twice"""
    path: Path


def shipped() -> Iterator[Shipped]:
    """Yields the shipped scenarios, ordered by name.

    >>> [one.name for one in shipped() if "ssp" in one.algorithms]
    []
    >>> next(one.description for one in shipped() if one.name == "cori-knl")
    'GoogLeNet on 64 Knights Landing nodes of Cori.'
    """
    for name, path in SHIPPED.items():
        text = path.read_text(encoding="utf-8")
        data, _ = parse(text, path.name)
        yield Shipped(name=name, description=_first_sentence(text), algorithms=_written(data["algorithms"]), path=path)


def _first_sentence(text: str) -> str:
    """Returns the first sentence of the comment at the start of a file."""
    comment = re.match(r"(?:#[ \t]*\S.*\n)*", text)
    assert comment is not None, "the pattern also matches no comment"
    words = " ".join(line.removeprefix("#").strip() for line in comment[0].splitlines())
    return re.split(r"(?<=[.?!])\s+(?=[A-Z])", words, maxsplit=1)[0]


def _written(entries: list[Any]) -> tuple[str, ...]:
    """Returns the names of the methods of a valid scenario.

    >>> _written(["agd", {"name": "ssp", "bound": 1}, {"name": "ssp", "bound": 4}])
    ('agd', 'ssp(bound=1)', 'ssp(bound=4)')
    """
    methods = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
    often = Counter(method["name"] for method in methods)
    return tuple(method["name"] + (f"({_settings(method)})" if often[method["name"]] > 1 else "") for method in methods)


def _settings(method: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in method.items() if key != "name")
