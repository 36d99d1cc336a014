"""Shared cells: the semantics of `Access`, `Lock` and `Unlock`, without time and without memory.

A cell is empty until an add or a swap, and then keeps its size.
"""

from __future__ import annotations

from typing import Any

from paceline.algorithms.core.operations import Access, Cell
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.program_errors import InvalidOperation

ACTIONS = frozenset({"read", "add", "swap"})
Place = tuple[Group, Cell]
"""a node, identified by the group of its ranks, and a cell"""
Holder = tuple[Rank, str]
"""a rank and its lane"""


def check_access(op: Access, cell_bytes: int) -> None:
    """Checks the action and the value of an access to a shared cell.

    Args:
        op: the access.
        cell_bytes: size of the cell in bytes; 0 before it has a value.

    Raises:
        InvalidOperation: the action is unknown, or the value is missing or has another size than the cell.
    """
    name = op.cell.name
    if op.action not in ACTIONS:
        raise InvalidOperation(f"asks cell {name!r} to {op.action}; actions are read, add and swap")
    if op.action == "read":
        return
    if op.value is None:
        raise InvalidOperation(f"gives no value to {op.action} in cell {name!r}")
    if cell_bytes and cell_bytes != op.value.nbytes:
        raise InvalidOperation(f"gives cell {name!r} {op.value.nbytes} bytes; it has {cell_bytes} and keeps its size")


def value_after(op: Access, before: Any) -> Any:
    """Returns the value of a cell after an access that no other one overlaps.

    Args:
        op: the access.
        before: the value before it; None: the cell is empty.

    >>> import numpy as np
    >>> add = Access(Cell("x"), "add", np.ones(2))
    >>> value_after(add, None), value_after(add, np.ones(2))
    (array([1., 1.]), array([2., 2.]))
    """
    if op.action == "read":
        return before
    return op.value if op.action == "swap" or before is None else before + op.value


def check_unlock(cell: Cell, holder: Rank | None, rank: Rank) -> None:
    """Checks that a rank may release a lock.

    Args:
        cell: the cell of the lock.
        holder: the rank that holds it; None: it is free.
        rank: the rank that releases it.

    Raises:
        InvalidOperation: the rank does not hold the lock.
    """
    if holder != rank:
        raise InvalidOperation(f"unlocks cell {cell.name!r}, which it does not hold; Lock it first")


class CellStore:
    """The cells of all nodes, for an interpreter in which no two accesses overlap."""

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
