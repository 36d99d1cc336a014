"""Cells that the ranks and lanes of one node share, and their locks.

An access is one move, so it is never torn here; that a read, a computation and a write are three moves, between which
others come, is what the any-order interpreter explores.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.operations import Access, Cell
from paceline.algorithms.core.values import Group

Place = tuple[Group, Cell]


class Cells:
    """The cells of all nodes. A node is named by its group; a lock's holder by anything that names a lane."""

    def __init__(self) -> None:
        self._values: dict[Place, Any] = {}
        self._holders: dict[Place, Hashable] = {}

    def access(self, node: Group, op: Access) -> Any:
        """Reads, adds or swaps; answers the value before."""
        before = self._values.get((node, op.cell))
        if op.action == "swap" or (op.action == "add" and before is None):
            self._values[node, op.cell] = op.value
        elif op.action == "add":
            self._values[node, op.cell] = before + op.value  # type: ignore[operator]
        return before

    def holder(self, node: Group, cell: Cell) -> Hashable | None:
        """Who holds the lock; None if nobody does."""
        return self._holders.get((node, cell))

    def lock(self, node: Group, cell: Cell, who: Hashable) -> None:
        """Gives the free lock to `who`."""
        self._holders[node, cell] = who

    def unlock(self, node: Group, cell: Cell, who: Hashable) -> None:
        """Frees the lock; raises `ProgramError` if `who` does not hold it."""
        if self._holders.get((node, cell)) != who:
            raise ProgramError(f"unlocks cell {cell.name!r}, which it does not hold; Lock it first")
        del self._holders[node, cell]
