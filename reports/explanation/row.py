"""A row of an explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One part of the mean time of a step."""

    group: str
    name: str
    seconds: float
    """seconds of a step that nothing else of the worker overlaps"""
    percent: float = 0.0
    hidden_s: float = 0.0
    """seconds of a step during which it overlaps with a gradient, which cost nothing"""
    formula: str = ""
    provenance: str = ""

    def record(self) -> dict[str, Any]:
        """Returns the entry in the JSON answer."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
