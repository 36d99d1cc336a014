"""Grids of scenarios: ``--vary path=values`` gives an axis, and the points are all combinations of the axes' values.

Values are separated by commas. Each is YAML, an inclusive range of integers (``1..8``), or a range by factors
(``1..64x2``: 1, 2, 4 … 64); commas inside brackets or quotes belong to the value.

Rules of this file:

* Every point's scenario is loaded before anything runs, and all mistakes of all points are reported together: a
  mistake that all points share without a point, any other with the values that cause it.
* The last axis changes fastest, like the last digit of a number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from paceline.scenarios.resolution.load_scenario import load
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.values.limits import MOST_POINTS, MOST_SWEPT_RUNS
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.scenarios.values.text import parse

LISTED = 4
"""largest number of points that a message lists; it counts the others"""

RANGE = re.compile(r"([0-9]{1,12})\.\.([0-9]{1,12})(?:x([0-9]{1,12}))?")
OPENING, CLOSING, QUOTES = "[{(", "]})", "'\""
EXPECTED = "expected path=values, such as cluster.nodes[0].count=1,2,4 or workload.batch_per_worker=8..64x2"
INSTEAD = {"algorithms": "--algorithms a,b", "seed": "--seed and --seeds", "seeds": "--seeds"}
"""keys that have options of their own in place of an axis"""


@dataclass(frozen=True, slots=True)
class Axis:
    """A path of the scenario and the values that it takes, each as YAML."""

    path: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of values, and the scenario that they make."""

    values: Mapping[str, Any]
    """by path, in the order of the axes"""
    scenario: Scenario


def axis(text: str) -> Axis:
    """Parses one ``path=values``.

    Raises:
        ScenarioError: the text is wrong; with all mistakes.

    >>> axis("cluster.nodes[0].count=1..8x2,12")
    Axis(path='cluster.nodes[0].count', values=('1', '2', '4', '8', '12'))
    >>> axis("cluster.network.link=eth-10g,{latency: 2 us, bandwidth: 100 Gbit/s}").values
    ('eth-10g', '{latency: 2 us, bandwidth: 100 Gbit/s}')
    >>> axis("workload.batch_per_worker=8..4")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline...ScenarioError: --vary workload.batch_per_worker: found '8..4', expected a range upwards
    """
    path, equals, listed = (part.strip() for part in text.partition("="))
    if not equals or not path or not listed:
        raise ScenarioError(f"--vary: found {text!r}, {EXPECTED}")
    if path in INSTEAD:
        raise ScenarioError(f"--vary {path}: found an axis of its own, expected {INSTEAD[path]}")
    values: list[str] = []
    mistakes: list[str] = []
    for item in _items(listed):
        try:
            values += _expanded(item)
        except ScenarioError as error:
            mistakes.append(f"--vary {path}: {error}")
        if len(values) + len(mistakes) > MOST_POINTS:
            raise ScenarioError(f"--vary {path}: found more than {MOST_POINTS} values, expected at most {MOST_POINTS}")
    twice = [value for value, times in Counter(values).items() if times > 1]
    mistakes += [f"--vary {path}: found {value!r} twice, expected each value once" for value in twice]
    if mistakes:
        raise ScenarioError("\n".join(dict.fromkeys(mistakes)))
    return Axis(path, tuple(values))


def _items(listed: str) -> Iterator[str]:
    """Yields the parts between commas that are not inside brackets or quotes."""
    depth, quote, item = 0, "", ""
    for letter in listed:
        if quote or letter in QUOTES:
            quote = "" if letter == quote else quote or letter
        else:
            depth += (letter in OPENING) - (letter in CLOSING)
        if letter == "," and not depth and not quote:
            yield item.strip()
            item = ""
        else:
            item += letter
    yield item.strip()


def _expanded(item: str) -> list[str]:
    """Returns the values of one part, which may be a range."""
    if not item:
        raise ScenarioError(f"found nothing between two commas or at an end, {EXPECTED}")
    if not (found := RANGE.fullmatch(item)):
        _, problems = parse(item, "value")
        if problems:
            raise ScenarioError("\n".join(map(str, problems)))
        return [item]
    first, last = int(found[1]), int(found[2])
    if last < first:
        raise ScenarioError(f"found {item!r}, expected a range upwards")
    if found[3] is None:
        if last - first >= MOST_POINTS:
            raise ScenarioError(f"found {item!r}, which is {last - first + 1} values; expected at most {MOST_POINTS}")
        return [str(value) for value in range(first, last + 1)]
    if first < 1 or (factor := int(found[3])) < 2:
        raise ScenarioError(f"found {item!r}, expected a range by factors of 2 or more from 1 or more: 1..64x2")
    values = []
    while first <= last:
        values.append(str(first))
        first *= factor
    return values


def grid(
    source: str | Path | Mapping[str, Any] | Scenario,
    vary: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    algorithms: Sequence[str] | None = None,
) -> list[Point]:
    """Returns all points with their validated scenarios.

    Args:
        source: a scenario in any form that `load` accepts.
        vary: the axes, each ``path=values``.
        overrides: changes ``path=value`` for all points.
        algorithms: the algorithms to run, as for `load`.

    Raises:
        ScenarioError: an axis or a point is wrong; with all mistakes.

    >>> points = grid("quickstart", ["stop.epochs=1,2", "cluster.nodes[0].count=1..2"])
    >>> [tuple(point.values.values()) for point in points]
    [(1, 1), (1, 2), (2, 1), (2, 2)]
    """
    axes, mistakes = _axes(vary, overrides)
    combinations = [dict(zip([one.path for one in axes], values, strict=True)) for values in _product(axes)]
    points: list[Point] = []
    faulty: dict[str, list[int]] = {}
    for number, texts in enumerate(combinations):
        changes = [f"{path}={text}" for path, text in texts.items()]
        try:
            scenario = load(source, overrides, algorithms=algorithms, varied=changes)
        except ScenarioError as error:
            for line in str(error).splitlines():
                faulty.setdefault(line, []).append(number)
        else:
            points.append(Point({path: parse(text, path)[0] for path, text in texts.items()}, scenario))
    mistakes += [line + _where(numbers, combinations) for line, numbers in faulty.items()]
    runs = sum(len(point.scenario.algorithms) * point.scenario.seeds for point in points)
    if runs > MOST_SWEPT_RUNS:
        mistakes.append(
            f"--vary: found {runs} runs in all ({len(points)} points, each with its algorithms and seeds), "
            f"expected at most {MOST_SWEPT_RUNS}"
        )
    if mistakes:
        raise ScenarioError("\n".join(mistakes))
    return points


def _axes(vary: Sequence[str], overrides: Sequence[str]) -> tuple[list[Axis], list[str]]:
    """Returns the valid axes, and the mistakes of the others."""
    axes: list[Axis] = []
    mistakes: list[str] = []
    given = {change.partition("=")[0].strip() for change in overrides}
    for text in vary:
        try:
            made = axis(text)
        except ScenarioError as error:
            mistakes.append(str(error))
            continue
        if made.path in [other.path for other in axes]:
            mistakes.append(f"--vary {made.path}: found twice; expected all its values in one")
        elif made.path in given:
            mistakes.append(f"--vary {made.path}: found also with --set; expected it once")
        else:
            axes.append(made)
    if not vary:
        mistakes.append(f"--vary: found none, {EXPECTED}")
    count = prod(len(one.values) for one in axes)
    if count > MOST_POINTS:
        mistakes.append(f"--vary: found {count} points in all, expected at most {MOST_POINTS}")
    return axes, mistakes


def _product(axes: Sequence[Axis]) -> Iterator[tuple[str, ...]]:
    """Yields all combinations, or only the first if there are too many, so that other mistakes are still found."""
    combinations = product(*(one.values for one in axes))
    if prod(len(one.values) for one in axes) > MOST_POINTS:
        return iter([next(combinations)])
    return combinations


def _where(numbers: Sequence[int], points: Sequence[Mapping[str, str]]) -> str:
    """Describes which values cause a mistake: none if all points have it, those of one axis, or those of the points."""
    if len(numbers) == len(points):
        return ""
    for path in points[0]:
        values = dict.fromkeys(points[number][path] for number in numbers)
        if [number for number, point in enumerate(points) if point[path] in values] == list(numbers):
            return f" (with {path}={','.join(values)})"
    named = [", ".join(f"{path}={text}" for path, text in points[number].items()) for number in numbers]
    more = f"; and {len(named) - LISTED} more points" if len(named) > LISTED else ""
    return f" (with {'; with '.join(named[:LISTED])}{more})"
