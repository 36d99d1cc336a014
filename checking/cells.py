"""Cells that the ranks and lanes of one node share, and their locks.

An access is one move, so it is never torn here. A read, a computation and a write are three moves, and the any-order
interpreter explores what other lanes can do between them.
"""

from __future__ import annotations

from typing import Any

from paceline.algorithms.core.operations import Access, Cell
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.cells import check_access, check_unlock, value_after

Place = tuple[Group, Cell]
Holder = tuple[Rank, str]
"""a rank and its lane"""


class Cells:
    """The cells of all nodes. A node is identified by its group, the holder of a lock by its rank and lane."""

    def __init__(self) -> None:
        self._values: dict[Place, Any] = {}
        self._holders: dict[Place, Holder] = {}

    def access(self, node: Group, op: Access) -> Any:
        """Reads, adds or swaps; returns the previous value."""
        before = self._values.get((node, op.cell))
        check_access(op, 0 if before is None else before.nbytes)
        self._values[node, op.cell] = value_after(op, before)
        return before

    def holder(self, node: Group, cell: Cell) -> Holder | None:
        """Returns the rank and lane that hold the lock; None if it is free."""
        return self._holders.get((node, cell))

    def lock(self, node: Group, cell: Cell, holder: Holder) -> None:
        """Lets a lane take the free lock."""
        self._holders[node, cell] = holder

    def unlock(self, node: Group, cell: Cell, rank: Rank) -> None:
        """Releases the lock; any lane of the rank that holds it may do so."""
        holder = self.holder(node, cell)
        check_unlock(cell, None if holder is None else holder[0], rank)
        del self._holders[node, cell]
