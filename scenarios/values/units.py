"""Quantities: a number and its unit, as text. A plain number is rejected, since its unit is unknown.

Units are parsed by pint with a registry of our own that has only times, amounts of data, watts and US dollars: pint's
default registry reads ``Gb`` as gilberts, and its bits and bytes have no dimension. The number is parsed here, since
pint would also evaluate expressions.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from paceline.records.figures import significant
from paceline.scenarios.values.limits import FEWEST_UNITS, MOST_UNITS
from paceline.scenarios.values.mistakes import expected

if TYPE_CHECKING:
    import pint

NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
QUANTITY = re.compile(rf"\s*({NUMBER})\s*([A-Za-zµ]{{1,20}}(?:/[A-Za-z]{{1,20}})?)\s*", re.ASCII)
DEFINITIONS = """
    second = [time] = s = sec
    minute = 60 * second = min
    hour = 60 * minute = h
    byte = [data] = B
    bit = byte / 8
    watt = [power] = W
    USD = [currency]
    bps = bit / second
    Bps = byte / second
    nano- = 1e-9 = n-
    micro- = 1e-6 = u- = µ-
    milli- = 1e-3 = m-
    kilo- = 1e3 = k-
    mega- = 1e6 = M-
    giga- = 1e9 = G-
    tera- = 1e12 = T-
    kibi- = 2**10 = Ki-
    mebi- = 2**20 = Mi-
    gibi- = 2**30 = Gi-
"""


@cache
def _units() -> pint.UnitRegistry[float]:
    """Returns the registry; pint is imported here, since that takes a quarter of a second."""
    import pint

    nothing: Any = None  # pint documents None as "empty" and types it as a path
    units: pint.UnitRegistry[float] = pint.UnitRegistry(nothing)
    for line in DEFINITIONS.strip().splitlines():
        units.define(line.strip())
    return units


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
        found = QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise expected(f"{self.right}, such as {self.example!r}")
        number, unit = found.groups()
        import pint

        try:
            scale = _units().Quantity(1, unit).to(self.unit).magnitude
        except (pint.UndefinedUnitError, pint.DimensionalityError):
            raise expected(f"{self.right}, such as {self.example!r}; {unit!r} is no unit of it") from None
        held = float(number)
        if math.isfinite(held):  # in decimals, so that 1.125 ms is exactly 0.001125 s
            held = float(Decimal(number) * Decimal(repr(float(scale))))
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
