"""Axes of a grid: ``path=values``, alone or several that change together.

Values are separated by commas. Each is YAML or a range; commas inside brackets or quotes belong to the value. Axes that
are joined by ``with`` change together: their first values make the first point, and so on.

A range has numbers by steps, by factors, or a given number of values:

* Numbers are decimal, so that ``0.1..0.3+0.1`` has the values that are written, and not 0.30000000000000004.
* A range with whole ends has whole values: a given number of values is rounded, without repetitions. Ends with a
  decimal point (``1.0..10.0:5log``) have values between whole numbers.
* A unit after a blank belongs to every value: ``1..64x2 ms``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from math import log10
from typing import Any

from paceline.scenarios.values.limits import MOST_POINTS
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.scenarios.values.text import parse

DIGITS = 15
"""decimal digits of calculations: as many as every float keeps; DERIVED: floor(52 log10 2)"""
LOG_DIGITS = 4
"""significant digits of the values of a logarithmic range between its ends; INFERENCE: readable, and close enough"""

NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?(?:[eE][+-]?[0-9]{1,2})?"
RANGE = re.compile(
    rf"(?P<first>{NUMBER})\.\.(?P<last>{NUMBER})"
    rf"(?:\s*x(?P<factor>{NUMBER})|\s*\+(?P<step>{NUMBER})|:(?P<count>[0-9]{{1,6}})(?P<log>log)?)?"
    r"(?:\s+(?P<unit>[A-Za-zµ%][^\s].*|[A-Za-zµ%]))?"
)
LIKE_RANGE = re.compile(rf"{NUMBER}\s*\.\.")
FORMS = (
    "1..8 (steps of 1), 1..64+8 (steps of 8), 1..64x2 (each twice the one before), 0.1..0.5:5 (5 values, evenly) or "
    "0.001..1:7log (7 values, evenly on a logarithmic scale)"
)


def expand_range(text: str) -> list[str] | None:
    """Returns the values of a range as text.

    Args:
        text: the range, such as ``1..64x2``.

    Returns:
        The values; None if the text is no range.

    Raises:
        ScenarioError: the text is a range with a mistake.

    >>> expand_range("1..16x2"), expand_range("1..30+8")
    (['1', '2', '4', '8', '16'], ['1', '9', '17', '25'])
    >>> expand_range("0.001..1:4log"), expand_range("1..1000:6log")
    (['0.001', '0.01', '0.1', '1.0'], ['1', '4', '16', '63', '251', '1000'])
    >>> expand_range("1..4x2 ms"), expand_range("ib-edr")
    (['1 ms', '2 ms', '4 ms'], None)
    """
    if (match := RANGE.fullmatch(text)) is None:
        if LIKE_RANGE.match(text):
            raise ScenarioError(f"found {text!r}, expected a range such as {FORMS}")
        return None
    first, last = Decimal(match["first"]), Decimal(match["last"])
    if last < first:
        raise ScenarioError(f"found {text!r}, expected a range upwards")
    with localcontext(Context(prec=DIGITS)):
        if match["factor"]:
            values = _by_factors(text, first, last, Decimal(match["factor"]))
        elif match["count"]:
            values = _counted(text, first, last, int(match["count"]), logarithmic=bool(match["log"]))
        else:
            values = _by_steps(text, first, last, match["step"])
    unit = f" {match['unit']}" if match["unit"] else ""
    return [_text(value, fractions=not _whole(first, last)) + unit for value in values]


def _text(value: Decimal, *, fractions: bool) -> str:
    """Formats a value without superfluous zeros; a range of fractions keeps a decimal point."""
    text = f"{value.normalize():f}"
    return text if "." in text or not fractions else f"{text}.0"


def _whole(*numbers: Decimal) -> bool:
    """Returns whether all numbers are written without a decimal point and a negative exponent."""
    return all(int(number.as_tuple().exponent) >= 0 for number in numbers)


def _by_factors(text: str, first: Decimal, last: Decimal, factor: Decimal) -> list[Decimal]:
    if first <= 0 or factor <= 1:
        raise ScenarioError(f"found {text!r}, expected a range by a factor above 1 from a number above 0: 1..64x2")
    values = []
    while first <= last:
        values.append(first)
        first *= factor
        if len(values) > MOST_POINTS:
            raise ScenarioError(f"found {text!r}, which is more than {MOST_POINTS} values")
    return values


def _by_steps(text: str, first: Decimal, last: Decimal, given: str | None) -> list[Decimal]:
    if given is None and not _whole(first, last):
        raise ScenarioError(f"found {text!r}, expected a step or a number of values: {FORMS}")
    if (step := Decimal(given or 1)) <= 0:
        raise ScenarioError(f"found {text!r}, expected a step above 0")
    if (count := int((last - first) / step) + 1) > MOST_POINTS:
        raise ScenarioError(f"found {text!r}, which is {count} values; expected at most {MOST_POINTS}")
    return [first + number * step for number in range(count)]


def _counted(text: str, first: Decimal, last: Decimal, count: int, *, logarithmic: bool) -> list[Decimal]:
    if not 2 <= count <= MOST_POINTS:
        raise ScenarioError(f"found {text!r}, expected 2 to {MOST_POINTS} values after the colon")
    if logarithmic and first <= 0:
        raise ScenarioError(f"found {text!r}, expected a logarithmic range from a number above 0")
    if first == last:
        raise ScenarioError(f"found {text!r}, expected two different ends")
    between = [_between(first, last, Decimal(number) / (count - 1), logarithmic) for number in range(1, count - 1)]
    values = [first, *between, last]
    if _whole(first, last):
        values = list(dict.fromkeys(value.to_integral_value() for value in values))
    return values


def _between(first: Decimal, last: Decimal, part: Decimal, logarithmic: bool) -> Decimal:
    if not logarithmic:
        return first + part * (last - first)
    exponent = log10(first) + float(part) * (log10(last) - log10(first))
    return Decimal(f"{10**exponent:.{LOG_DIGITS}g}")


OPENING, CLOSING, QUOTES = "[{(", "]})", "'\""
EXPECTED = "expected path=values, such as cluster.nodes[0].count=1,2,4 or workload.batch_per_worker=8..64x2"
INSTEAD = {"algorithms": "--algorithms a,b", "seed": "--seed and --seeds", "seeds": "--seeds"}
"""keys that have options of their own in place of an axis"""
TOGETHER = " with "
"""joins axes that change together"""


@dataclass(frozen=True, slots=True)
class SweepAxis:
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


def together(text: str) -> tuple[SweepAxis, ...]:
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
    axes: list[SweepAxis] = []
    mistakes: list[str] = []
    for part in _split(text, TOGETHER):
        try:
            axes.append(axis(part))
        except ScenarioError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ScenarioError("\n".join(mistakes))
    counts = [len(axis.values) for axis in axes]
    if len(set(counts)) > 1:
        counts_text = " and ".join(map(str, counts))
        names = TOGETHER.join(axis.path for axis in axes)
        raise ScenarioError(
            f"--vary {names}: found {counts_text} values, expected equally many of paths that change together"
        )
    rows = Counter(zip(*(axis.values for axis in axes), strict=True))
    if twice := [", ".join(values) for values, times in rows.items() if times > 1]:
        names = TOGETHER.join(axis.path for axis in axes)
        raise ScenarioError(
            "\n".join(f"--vary {names}: found {row!r} twice, expected each value once" for row in twice)
        )
    return tuple(axes)


def axis(text: str) -> SweepAxis:
    """Parses one ``path=values``.

    Args:
        text: the path and its values.

    Raises:
        ScenarioError: the text is wrong; with all mistakes.

    >>> axis("cluster.nodes[0].count=1..8x2,12")
    SweepAxis(path='cluster.nodes[0].count', values=('1', '2', '4', '8', '12'))
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
    return SweepAxis(path, tuple(values))


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
