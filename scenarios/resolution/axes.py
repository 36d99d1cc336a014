"""Axes of a grid: ``path=values``, alone or several that change together.

Values are separated by commas. Each is YAML or a range (`ranges`); commas inside brackets or quotes belong to the
value. Axes that are joined by ``with`` change together: their first values make the first point, and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.scenarios.resolution.ranges import expand_range
from paceline.scenarios.values.limits import MOST_POINTS
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.scenarios.values.text import parse

OPENING, CLOSING, QUOTES = "[{(", "]})", "'\""
EXPECTED = "expected path=values, such as cluster.nodes[0].count=1,2,4 or workload.batch_per_worker=8..64x2"
INSTEAD = {"algorithms": "--algorithms a,b", "seed": "--seed and --seeds", "seeds": "--seeds"}
"""keys that have options of their own in place of an axis"""
TOGETHER = " with "
"""joins axes that change together"""


@dataclass(frozen=True, slots=True)
class Axis:
    """A path of the scenario and the values that it takes, each as YAML."""

    path: str
    values: tuple[str, ...]


def axes_of(vary: str | Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Returns the axes of a grid as texts ``path=values``.

    Args:
        vary: texts, or values by path: a list, a single value, or a range as text.

    >>> axes_of({"cluster.nodes[0].count": [1, 2], "stop.epochs": "1..3", "train.shared_memory": [True, False]})
    ['cluster.nodes[0].count=1,2', 'stop.epochs=1..3', 'train.shared_memory=true,false']
    """
    if not isinstance(vary, Mapping):
        return [vary] if isinstance(vary, str) else list(vary)
    listed = {path: values if isinstance(values, list | tuple | range) else [values] for path, values in vary.items()}
    return [f"{path}={','.join(map(_as_yaml, values))}" for path, values in listed.items()]


def _as_yaml(value: Any) -> str:
    words: Mapping[Any, str] = {True: "true", False: "false", None: "null"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def together(text: str) -> tuple[Axis, ...]:
    """Parses one or several ``path=values`` that change together.

    Args:
        text: ``path=values`` or ``path=values with path=values``.

    Raises:
        ScenarioError: the text is wrong; with all mistakes.

    >>> together("cluster.nodes[0].count=1..4x2 with workload.batch_per_worker=64,32,16")[1].values
    ('64', '32', '16')
    >>> together("a=1,2 with b=1,2,3")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline...ScenarioError: --vary a with b: found 2 and 3 values, expected equally many of paths that change together
    """
    axes: list[Axis] = []
    mistakes: list[str] = []
    for part in _split(text, TOGETHER):
        try:
            axes.append(axis(part))
        except ScenarioError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ScenarioError("\n".join(mistakes))
    counts = [len(one.values) for one in axes]
    if len(set(counts)) > 1:
        found = " and ".join(map(str, counts))
        names = TOGETHER.join(one.path for one in axes)
        raise ScenarioError(
            f"--vary {names}: found {found} values, expected equally many of paths that change together"
        )
    rows = Counter(zip(*(one.values for one in axes), strict=True))
    if twice := [", ".join(values) for values, times in rows.items() if times > 1]:
        names = TOGETHER.join(one.path for one in axes)
        raise ScenarioError(
            "\n".join(f"--vary {names}: found {one!r} twice, expected each value once" for one in twice)
        )
    return tuple(axes)


def axis(text: str) -> Axis:
    """Parses one ``path=values``.

    Args:
        text: the path and its values.

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
    for item in _split(listed, ","):
        try:
            values += _expanded(item.strip())
        except ScenarioError as error:
            mistakes.append(f"--vary {path}: {error}")
        if len(values) + len(mistakes) > MOST_POINTS:
            raise ScenarioError(f"--vary {path}: found more than {MOST_POINTS} values, expected at most {MOST_POINTS}")
    if mistakes:
        raise ScenarioError("\n".join(dict.fromkeys(mistakes)))
    return Axis(path, tuple(values))


def _split(text: str, separator: str) -> Iterator[str]:
    """Yields the parts between separators that are not inside brackets or quotes."""
    depth, quote, start = 0, "", 0
    for at, letter in enumerate(text):
        if not depth and not quote and at >= start and text.startswith(separator, at):
            yield text[start:at]
            start = at + len(separator)
        if at < start:
            continue
        if quote or letter in QUOTES:
            quote = "" if letter == quote else quote or letter
        else:
            depth += (letter in OPENING) - (letter in CLOSING)
    yield text[start:]


def _expanded(item: str) -> list[str]:
    """Returns the values of one part, which may be a range."""
    if not item:
        raise ScenarioError(f"found nothing between two commas or at an end, {EXPECTED}")
    if (values := expand_range(item)) is not None:
        return values
    _, problems = parse(item, "value")
    if problems:
        raise ScenarioError("\n".join(map(str, problems)))
    return [item]
