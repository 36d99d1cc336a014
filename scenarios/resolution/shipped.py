"""Names and descriptions of the shipped scenarios, read from their text, so that no cluster graph is built."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.scenarios.values.text import SHIPPED, parse


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
