"""The scenario reference: every key of a scenario as Markdown tables, made from the JSON Schema.

`paceline schema --markdown` prints the page, and docs/scenario-reference.md is a copy of it that a test compares. The
page is made from the schema rather than from the classes, so it says what an editor with the schema says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

HEAD = """# Scenario reference

All keys of a scenario. `paceline schema --markdown` generates this page from the schema of scenarios; `paceline schema`
prints that schema as JSON, for editors. [Quantities](#quantities) are text with a unit. A key without a default is
required. The [glossary](glossary.md) explains the terms.
"""

QUANTITIES = """
## quantities

A quantity is text: a number and a unit, such as `4 ms`. A plain number is an error.

| unit in the tables | quantity | units | prefixes |
|---|---|---|---|
| s | time | `s`, `min`, `h` | `n`, `u` or `µ`, `m` |
| B | amount of data | `B`, `bit` | `k`, `M`, `G`, `T` (powers of 1000), `Ki`, `Mi`, `Gi` (of 1024) |
| B/s | bandwidth | `B/s`, `bit/s`, `Bps`, `bps` | as for amounts of data |
| USD/h | price per hour | `USD/h` | |
| W | power | `W` | `k`, `M` |
| interval | how often | `epochs`, `updates`, `samples`, or a time | |
| fraction | share of a whole | a number from 0 to 1, or text such as `5 %` | |
"""

ENTRY = ("name", "label")
"""keys of an entry that are no hyper-parameters"""
METHODS = """
## algorithms[]

An algorithm is the name of a method, or a mapping with `name`, `label` and hyper-parameters. The common names that
[`paceline list algorithms`](index.md) shows, such as `ddp` and `fedavg`, are names of methods, too. A method of your
own is named `module:Class` or `file.py:Class`.

`label` is the name of the entry in tables, charts, JSON and stored runs, a text that no other entry has. The default is
the name of the method; where several entries have it, the values that differ between them and from the method as its
name alone gives it are added, such as `diloco H=50` and `diloco H=500`, with `lr` for `learning_rate`, `wd` for
`weight_decay` and `H` for `period`.

The first table lists the hyper-parameters that most methods share; [rules](rules.md) explains them. The second table
lists the methods' own hyper-parameters, and shared ones with a different default. Each method's page explains them.
"""


def reference_page(schema: Schema) -> str:
    """Renders the reference of all scenario keys.

    Args:
        schema: the JSON Schema of a scenario, as `json_schema` returns it.

    Returns:
        A Markdown page with one table per section, ended by a line break.
    """
    places = dict(_sections(schema))
    lines = [HEAD]
    for number, (name, paths) in enumerate(places.items()):
        section = schema if number == 0 else schema["$defs"][name]
        if number:
            others = "".join(f", `{path}`" for path in paths[1:])
            lines.append(f"\n## {paths[0]}\n" + (f"\nAlso at{others[1:]}.\n" if others else ""))
        lines += ["", "| key | type | unit | default | meaning |", "|---|---|---|---|---|"]
        needed = section.get("required", ())
        for key, about in section["properties"].items():
            default = "" if key in needed or "default" not in about else _default(about)
            cells = [f"`{key}`", _kind(about, places), _unit(about), default, _escaped(about.get("description", ""))]
            lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |"))
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n" + _methods(schema) + QUANTITIES


def _sections(schema: Schema) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each section with its paths, in the order of the keys of a scenario."""
    paths: dict[str, list[str]] = {"": [""]}

    def walk(section: Schema, path: str) -> None:
        for key, about in section["properties"].items():
            for name, suffix in _references(about):
                at = f"{path}{key}{suffix}"
                known = name in paths
                paths.setdefault(name, []).append(at)
                if not known:
                    walk(schema["$defs"][name], f"{at}.")

    walk(schema, "")
    yield from paths.items()


def _references(about: Schema) -> Iterator[tuple[str, str]]:
    """Yields the sections that a value may be: the name, and [] for elements of a list, .NAME for values."""
    if "$ref" in about:
        yield about["$ref"].rpartition("/")[2], ""
    for choice in about.get("anyOf", ()):
        yield from _references(choice)
    if isinstance(more := about.get("additionalProperties"), dict):
        yield from ((name, f".NAME{suffix}") for name, suffix in _references(more))
    if about.get("type") == "array":
        yield from ((name, f"[]{suffix}") for name, suffix in _references(about.get("items", {})))


def _kind(about: Schema, places: Mapping[str, list[str]]) -> str:
    """Describes the type of a value, with links to sections."""
    if "$ref" in about:
        path = places[about["$ref"].rpartition("/")[2]][0]
        anchor = re.sub(r"[^\w-]", "", path)
        return f"[mapping](#{anchor})"
    if "anyOf" in about:
        kinds = " or ".join(_kind(choice, places) for choice in about["anyOf"])
        return " or ".join(dict.fromkeys(kinds.split(" or ")))
    if "oneOf" in about:
        return "[algorithm](#algorithms)"
    if "enum" in about:
        return " or ".join(f"`{value}`" for value in about["enum"])
    if "const" in about:
        return f"`{about['const']}`"
    if isinstance(about.get("type"), list):
        return " or ".join(_word(kind) for kind in about["type"])
    if about.get("type") == "array":
        return f"list of {_kind(about['items'], places)}" if "items" in about else "list"
    return _word(about.get("type", "any")) + _range(about)


def _word(kind: str) -> str:
    return {"string": "text", "object": "mapping", "boolean": "`true` or `false`", "null": "`null`"}.get(kind, kind)


def _range(about: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {about[name]:g}" for name, sign in signs.items() if name in about]
    return f" {', '.join(limits)}" if limits else ""


def _unit(about: Schema) -> str:
    return about.get("unit") or next((choice["unit"] for choice in about.get("anyOf", ()) if "unit" in choice), "")


def _default(about: Schema) -> str:
    """Returns a default as written in a scenario; a section whose keys all have defaults needs no value."""
    value = about.get("default")
    if isinstance(value, dict):
        if "name" in value:  # of the catalogue, or a method
            return f"`{value['name']}`"
        return "its defaults" if "$ref" in about else f"`{json.dumps(value)}`"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"`{value:.15g}`"
    if isinstance(value, str) and _unit(about) and " " in value:
        amount, unit = value.split()
        return f"`{float(amount):.15g} {unit}`".replace("`1 epochs`", "`1 epoch`")
    return f"`{json.dumps(value).strip(chr(34))}`"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _methods(schema: Schema) -> str:
    """Returns the tables of hyper-parameters: the shared ones, then those of each method and its different defaults."""
    _, *methods = schema["properties"]["algorithms"]["items"]["oneOf"]
    every = {_name_of(about): about["properties"] for about in methods if "name" in _names(about)}
    shared = every["sync-sgd"]
    lines = [METHODS, "| key | type | default |", "|---|---|---|"]
    lines += [f"| `{key}` | {_plain(about)} | {_default(about)} |" for key, about in shared.items() if key not in ENTRY]
    lines += ["", "| method | key | type | default |", "|---|---|---|---|"]
    for name, known in every.items():
        own = [(key, about) for key, about in known.items() if key not in ENTRY]
        own = [(key, about) for key, about in own if key not in shared or about != shared[key]]
        lines += [
            f"| [{name}](methods/{name}.md) | `{key}` | {_plain(about)} | {_default(about)} |" for key, about in own
        ]
    return "\n".join(lines) + "\n"


def _names(about: Schema) -> Mapping[str, Any]:
    properties = about.get("properties", {})
    return properties if {"const", "enum"} & set(properties.get("name", {})) else {}


def _name_of(about: Schema) -> str:
    """Returns the name of a method: the first of its names."""
    name = about["properties"]["name"]
    return str(name["const"] if "const" in name else name["enum"][0])


def _plain(about: Schema) -> str:
    """Describes the type of a hyper-parameter; groups of hyper-parameters are on the page of rules."""
    choices = about.get("anyOf", [about])
    kinds = ["[mapping](rules.md)" if "properties" in choice else _kind(choice, {}) for choice in choices]
    return " or ".join(dict.fromkeys(kinds))
