"""Vectors of which only some numbers are sent, with their positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paceline.algorithms.core import arrays
from paceline.algorithms.core.values import Null, join, length


@dataclass(frozen=True, slots=True)
class Sparse:
    """A vector of which only some numbers are sent; the others are 0."""

    positions: Any
    """integers as wide as the values"""
    values: Any
    count: int
    """length of the whole vector"""

    def dense(self) -> Any:
        """Returns the whole vector."""
        if isinstance(self.values, Null):
            return replace(self.values, count=self.count)
        return arrays.scattered(self.positions, self.values, self.count)

    def packed(self) -> Any:
        """Returns positions and values as one vector of the values' dtype, as a collective requires."""
        if isinstance(self.values, Null):
            return join([self.positions, self.values])
        return join([arrays.disguised(self.positions, self.values), self.values])

    @staticmethod
    def unpacked(vector: Any, count: int) -> Sparse:
        """Reverses `packed`."""
        middle = length(vector) // 2
        positions, values = vector[:middle], vector[middle:]
        return Sparse(positions if isinstance(vector, Null) else arrays.unmasked(positions), values, count)
