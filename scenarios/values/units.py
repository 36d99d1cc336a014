"""Quantities: a number and its unit, as text. A plain number is rejected, since its unit is unknown.

There are only times, amounts of data, watts, US dollars, and one per another. Rejected: pint, whose import takes a
fifth of a second, a third of the time in which a mistake in a scenario is reported.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache

from paceline.records.figures import significant
from paceline.scenarios.values.limits import FEWEST_UNITS, MOST_UNITS
from paceline.scenarios.values.mistakes import expected

NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
QUANTITY = re.compile(rf"\s*({NUMBER})\s*([A-Za-zµ]{{1,20}}(?:/[A-Za-z]{{1,20}})?)\s*", re.ASCII)
UNITS: dict[str, tuple[str, Fraction]] = {
    **dict.fromkeys(("s", "sec", "second"), ("time", Fraction(1))),
    **dict.fromkeys(("min", "minute"), ("time", Fraction(60))),
    **dict.fromkeys(("h", "hour"), ("time", Fraction(3600))),
    **dict.fromkeys(("B", "byte"), ("data", Fraction(1))),
    "bit": ("data", Fraction(1, 8)),
    **dict.fromkeys(("W", "watt"), ("power", Fraction(1))),
    "USD": ("money", Fraction(1)),
    "bps": ("data/time", Fraction(1, 8)),
    "Bps": ("data/time", Fraction(1)),
}
"""each unit's dimension, and its value in seconds, bytes, watts or US dollars"""
MOST_LETTERS_WITHOUT_PLURAL = 3
"""bits and hours, but not Bs and hs"""
PREFIXES = {
    **dict.fromkeys(("n", "nano"), Fraction(1, 10**9)),
    **dict.fromkeys(("u", "µ", "micro"), Fraction(1, 10**6)),
    **dict.fromkeys(("m", "milli"), Fraction(1, 10**3)),
    **dict.fromkeys(("k", "kilo"), Fraction(10**3)),
    **dict.fromkeys(("M", "mega"), Fraction(10**6)),
    **dict.fromkeys(("G", "giga"), Fraction(10**9)),
    **dict.fromkeys(("T", "tera"), Fraction(10**12)),
    **dict.fromkeys(("Ki", "kibi"), Fraction(2**10)),
    **dict.fromkeys(("Mi", "mebi"), Fraction(2**20)),
    **dict.fromkeys(("Gi", "gibi"), Fraction(2**30)),
}


def _named(name: str) -> tuple[str, Fraction] | None:
    """Returns the dimension and the value of a unit with or without a prefix, in the singular or the plural."""
    for prefix, factor in (("", Fraction(1)), *PREFIXES.items()):
        unit = name.removeprefix(prefix)
        if len(unit) > MOST_LETTERS_WITHOUT_PLURAL and unit not in UNITS:
            unit = unit.removesuffix("s")
        if name.startswith(prefix) and unit in UNITS:
            dimension, value = UNITS[unit]
            return dimension, factor * value
    return None


def _scale(unit: str, wanted: str) -> float | None:
    """Returns how much of the unit `wanted` one of a unit is; None if there is none, or it is of another kind.

    >>> _scale("Gbit/s", "byte/second"), _scale("mins", "second"), _scale("Gb", "byte")
    (125000000.0, 60.0, None)
    """
    scales = [_whole(text) for text in (unit, wanted)]
    if scales[0] is None or scales[1] is None or scales[0][0] != scales[1][0]:
        return None
    return float(scales[0][1] / scales[1][1])


@cache
def _whole(unit: str) -> tuple[str, Fraction] | None:
    """Returns the dimension and the value of a unit, or of a unit per another one."""
    parts = [_named(part) for part in unit.split("/")]
    if any(part is None for part in parts):
        return None
    (dimension, value), *per = [part for part in parts if part is not None]
    for below, divisor in per:
        dimension, value = f"{dimension}/{below}", value / divisor
    return dimension, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of quantity: its name, its internal unit, an example, and whether it may be 0."""

    words: str
    unit: str
    symbol: str
    example: str
    zero: bool

    @property
    def right(self) -> str:
        """Describes valid values."""
        return f"{self.words} of 0 or more with its unit" if self.zero else f"{self.words} above 0 with its unit"

    def parse(self, value: object) -> float:
        """Parses a quantity and returns it in this kind's unit; raises an error that describes valid values.

        >>> TIME.parse("4 ms"), RATE.parse("10 Gbit/s")
        (0.004, 1250000000.0)
        >>> TIME.parse(4)
        Traceback (most recent call last):
        pydantic_core._pydantic_core.PydanticCustomError: a time of 0 or more with its unit, such as '4 ms'
        """
        match = QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise expected(f"{self.right}, such as {self.example!r}")
        number, unit = match.groups()
        if (scale := _scale(unit, self.unit)) is None:
            raise expected(f"{self.right}, such as {self.example!r}; {unit!r} is no unit of it")
        held = float(number)
        if math.isfinite(held):  # in decimals, so that 1.125 ms is exactly 0.001125 s
            held = float(Decimal(number) * Decimal(repr(scale)))
        if not math.isfinite(held) or held < 0 or (held == 0 and not self.zero):
            raise expected(f"{self.right}, such as {self.example!r}")
        if not FEWEST_UNITS <= held <= MOST_UNITS and held != 0:
            between = f"{FEWEST_UNITS:g} to {MOST_UNITS:g} {self.symbol}"
            raise expected(f"{self.right}, such as {self.example!r}, from {between}")
        return held

    def text(self, held: float) -> str:
        """Returns a value as text that `parse` reads back exactly.

        >>> TIME.text(0.0005)
        '0.0005 s'
        """
        return f"{held!r} {self.symbol}"

    def brief(self, held: float) -> str:
        """Returns a value with three digits and a prefix for sentences; bandwidths in bits.

        >>> RATE.brief(162_500_000.0), TIME.brief(0.0301), SIZE.brief(2e6)
        ('1.3 Gbit/s', '30.1 ms', '2 MB')
        """
        symbol, value = ("bit/s", 8 * held) if self.symbol == "B/s" else (self.symbol, held)
        prefixes = ((1e9, "G"), (1e6, "M"), (1e3, "k")) if self.symbol in ("B/s", "B") else ()
        small = ((1.0, ""), (1e-3, "m"), (1e-6, "u")) if self.symbol == "s" else ((1.0, ""),)
        scale, prefix = next((pair for pair in (*prefixes, *small) if value >= pair[0]), small[-1])
        return f"{significant(value / scale)} {prefix}{symbol}"


TIME = Kind(words="a time", unit="second", symbol="s", example="4 ms", zero=True)
PERIOD = Kind(words="a time", unit="second", symbol="s", example="30 s", zero=False)
RATE = Kind(words="a bandwidth", unit="byte/second", symbol="B/s", example="10 Gbit/s", zero=False)
PRICE = Kind(words="a price per hour", unit="USD/hour", symbol="USD/h", example="12.5 USD/h", zero=True)
POWER = Kind(words="a power", unit="watt", symbol="W", example="6.5 kW", zero=True)
COST = Kind(words="an amount of money", unit="USD", symbol="USD", example="200 USD", zero=False)
SIZE = Kind(words="an amount of data", unit="byte", symbol="B", example="32 kB", zero=False)
