"""Values and locks that the ranks and lanes of one node share. An access takes no virtual time and is never torn."""

from __future__ import annotations

from typing import Any

import simpy

from paceline.algorithms.errors import ProgramError
from paceline.algorithms.operations import Access, Cell
from paceline.algorithms.values import Group
from paceline.simulator.strands import Mutex, Steps, Strand


class Cells:
    """All cells of a run; a node's ranks see their node's alone."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._values: dict[tuple[Group, str], Any] = {}
        self._locks: dict[tuple[Group, str], Mutex] = {}

    def access(self, strand: Strand, op: Access) -> Any:
        """Reads, adds or swaps; answers the value before."""
        key = (strand.me.node, op.cell.name)
        before = self._values.get(key)
        if op.action == "add":
            self._values[key] = op.value if before is None else before + op.value
        elif op.action == "swap":
            self._values[key] = op.value
        return before

    def lock(self, strand: Strand, cell: Cell) -> Steps:
        """Waits for the lock, first come first served."""
        mutex = self._locks.setdefault((strand.me.node, cell.name), Mutex(self._env))
        yield from mutex.acquire(strand, f"the lock of cell {cell.name!r}")

    def unlock(self, strand: Strand, cell: Cell) -> None:
        """Gives the lock back; any lane of the rank that took it may do so."""
        mutex = self._locks.get((strand.me.node, cell.name))
        holder = mutex.holder if mutex else None
        if mutex is None or holder is None or holder.station is not strand.station:
            held = f"which {holder or 'nobody'} holds; only its holder may"
            raise ProgramError(f"{strand.standing()}: unlocks cell {cell.name!r}, {held}")
        mutex.release()
