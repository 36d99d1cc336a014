"""How many cases an attack tries: a few, or many with PACELINE_THOROUGH_ATTACKS=1."""

from __future__ import annotations

import os


def cases(short: int, thorough: int) -> int:
    """`thorough` where PACELINE_THOROUGH_ATTACKS=1 is set, else `short`."""
    return thorough if os.environ.get("PACELINE_THOROUGH_ATTACKS") == "1" else short
