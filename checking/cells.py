"""Cells that the ranks and lanes of one node share, and their locks.

An access is one move, so it is never torn here; that a read, a computation and a write are three moves, between which
others come, is what the any-order interpreter explores.
"""

from __future__ import annotations

from typing import Any

from paceline.algorithms.core.operations import Access, Cell
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.program_errors import check_access, not_the_holder

Place = tuple[Group, Cell]
Holder = tuple[Rank, str]
"""a rank and its lane"""


class Cells:
    """The cells of all nodes. A node is named by its group; a lock's holder by its rank and lane."""

    def __init__(self) -> None:
        self._values: dict[Place, Any] = {}
        self._holders: dict[Place, Holder] = {}

    def access(self, node: Group, op: Access) -> Any:
        """Reads, adds or swaps; answers the value before."""
        before = self._values.get((node, op.cell))
        check_access(op, 0 if before is None else before.nbytes)
        if op.action == "swap" or (op.action == "add" and before is None):
            self._values[node, op.cell] = op.value
        elif op.action == "add":
            self._values[node, op.cell] = before + op.value  # type: ignore[operator]
        return before

    def holder(self, node: Group, cell: Cell) -> Holder | None:
        """The rank and lane that hold the lock; None if it is free."""
        return self._holders.get((node, cell))

    def lock(self, node: Group, cell: Cell, holder: Holder) -> None:
        """Gives the free lock to a lane."""
        self._holders[node, cell] = holder

    def unlock(self, node: Group, cell: Cell, rank: Rank) -> None:
        """Frees the lock; any lane of the rank that holds it may do so."""
        holder = self.holder(node, cell)
        if holder is None or holder[0] != rank:
            raise not_the_holder(cell.name)
        del self._holders[node, cell]
