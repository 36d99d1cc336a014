"""Parses bandwidths and latencies in files.

A number without a unit is in SI units, bytes per second or seconds. ``B`` is a byte and ``b`` or ``bit`` a bit; k, M,
G, T, P, E are powers of 1000, and with an ``i`` powers of 1024. The spellings are those of SimGrid (``125MBps``,
``50us``) and of our scenarios (``10 Gbit/s``).
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
QUANTITY = re.compile(rf"\s*({NUMBER})\s*(.*?)\s*", re.ASCII)
RATE_UNIT = re.compile(r"([kKMGTPE]?)(i?)(B|b|bit|Byte|byte)(?:ps|/s)")
POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
TIME_UNITS = {
    "": "1", "s": "1", "ms": "1e-3", "us": "1e-6", "µs": "1e-6", "μs": "1e-6", "ns": "1e-9", "ps": "1e-12",
    "m": "60", "min": "60", "h": "3600", "d": "86400", "w": "604800",
}  # fmt: skip
NOTHING = Decimal("NaN")


def bytes_per_s(value: object) -> float:
    """Parses a bandwidth and returns bytes per second; raises `ValueError` with the expected form.

    >>> bytes_per_s("125MBps"), bytes_per_s("10 Gbit/s"), bytes_per_s("1 KiBps"), bytes_per_s(5e9)
    (125000000.0, 1250000000.0, 1024.0, 5000000000.0)
    >>> bytes_per_s("fast")
    Traceback (most recent call last):
    ValueError: found 'fast', expected a bandwidth above 0, such as '10 Gbit/s', '1.25GBps' or bytes per second
    """
    number, unit = _split(value)
    scale = Decimal(1)
    if unit:
        match = RATE_UNIT.fullmatch(unit)
        if match is None:
            scale = NOTHING
        else:
            scale = Decimal(1024 if match[2] else 1000) ** POWERS[match[1]] / (8 if match[3] in {"b", "bit"} else 1)
    held = float(number * scale)
    if not (math.isfinite(held) and held > 0):
        raise ValueError(
            f"found {value!r}, expected a bandwidth above 0, such as '10 Gbit/s', '1.25GBps' or bytes per second"
        )
    return held


def seconds(value: object) -> float:
    """Parses a latency and returns seconds; raises `ValueError` with the expected form.

    >>> seconds("50us"), seconds("1.5 ms"), seconds(0)
    (5e-05, 0.0015, 0.0)
    """
    number, unit = _split(value)
    held = float(number * Decimal(TIME_UNITS.get(unit, "NaN")))
    if not (math.isfinite(held) and held >= 0):
        raise ValueError(f"found {value!r}, expected a latency of 0 or more, such as '1.5 us', '50us' or seconds")
    return held


def _split(value: object) -> tuple[Decimal, str]:
    """Returns the exact decimal number and the text after it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return NOTHING, ""
    match = QUANTITY.fullmatch(str(value))
    return (Decimal(match[1]), match[2]) if match and len(match[1]) < 40 else (NOTHING, "")
