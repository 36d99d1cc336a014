"""Ranges of numbers in the values of an axis: by steps, by factors, or a given number of values.

Rules of this file:

* Numbers are decimal, so that ``0.1..0.3+0.1`` has the values that are written, and not 0.30000000000000004.
* A range with whole ends has whole values: a given number of values is rounded, without repetitions. Ends with a
  decimal point (``1.0..10.0:5log``) have values between whole numbers.
* A unit after a blank belongs to every value: ``1..64x2 ms``.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, localcontext
from math import log10

from paceline.scenarios.values.limits import MOST_POINTS
from paceline.scenarios.values.mistakes import ScenarioError

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
    if (found := RANGE.fullmatch(text)) is None:
        if LIKE_RANGE.match(text):
            raise ScenarioError(f"found {text!r}, expected a range such as {FORMS}")
        return None
    first, last = Decimal(found["first"]), Decimal(found["last"])
    if last < first:
        raise ScenarioError(f"found {text!r}, expected a range upwards")
    with localcontext(Context(prec=DIGITS)):
        if found["factor"]:
            values = _by_factors(text, first, last, Decimal(found["factor"]))
        elif found["count"]:
            values = _counted(text, first, last, int(found["count"]), logarithmic=bool(found["log"]))
        else:
            values = _by_steps(text, first, last, found["step"])
    unit = f" {found['unit']}" if found["unit"] else ""
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
