"""A cell's numbers while several accesses sweep over them: torn reads and lost updates, block by block.

Rules of this file:

* An access passes the blocks of a cell one after the other, each for an equal share of its time. A read copies a block
  at its moment. An add reads a block at its moment and writes it a share of its time later: what others wrote in
  between is lost, as it is where a processor loads, adds and stores. A swap writes a block at its moment.
* Blocks are worked out when somebody's access ends, in the order of their moments; equal moments in the order in which
  the accesses were asked for. An access that nobody disturbed, and one that takes no time, is done in one piece.
* Each block counts the adds that are in it. So adds less the count are lost, whoever overwrote whom; the cells of real
  runs count in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil
from typing import Any

from paceline.algorithms.core.operations import Access
from paceline.algorithms.core.values import Null, join, length

BLOCK_BYTES = 4096
"""what an add has under way: read, and not yet seen by others; provenance: inference, the 56 to 72 lines of 64 bytes
in the store buffer of a server's core"""
MOST_BLOCKS = 64
"""blocks of larger cells are larger, so that no access costs more than so many moments; provenance: ours"""


@dataclass(slots=True)
class Sweep:
    """One access on its way: its next moment, and what it has found."""

    op: Access
    start_s: float
    seconds: float
    first: bool = False
    """there was nothing in the cell before it"""
    moments: int = 0
    """that have passed"""
    found: list[Any] = field(default_factory=list)
    """the blocks before the access"""
    counts: list[int] = field(default_factory=list)
    """the adds in them"""


class CellMemory:
    """The numbers of one cell.

    >>> import numpy as np
    >>> from paceline.algorithms.core.operations import Cell
    >>> memory, cell = CellMemory(), Cell("x")
    >>> _ = memory.end(memory.begin(Access(cell, "swap", np.zeros(2)), 0.0, 0.0), 0.0)
    >>> one = memory.begin(Access(cell, "add", np.ones(2)), 1.0, 0.5)
    >>> other = memory.begin(Access(cell, "add", np.ones(2)), 1.25, 0.5)
    >>> memory.end(one, 1.5), memory.end(other, 1.75)
    (array([0., 0.]), array([0., 0.]))
    >>> memory.end(memory.begin(Access(cell, "read"), 2.0, 0.0), 2.0), memory.adds, memory.lost
    (array([1., 1.]), 2, 1.0)
    """

    def __init__(self) -> None:
        self.adds = 0
        self._value: Any = None
        self._blocks: list[Any] = []
        """the same in blocks, while sweeps overlap; without numbers there is nothing to cut"""
        self._counts: list[int] = []
        self._under_way: list[tuple[float, int, Sweep]] = []
        """the next moment of each sweep that has one: a heap"""
        self._asked = 0

    @property
    def nbytes(self) -> int:
        """Of the value; 0 before there is one."""
        return 0 if self._value is None else self._value.nbytes

    @property
    def lost(self) -> float:
        """Adds that were overwritten, as a mean over the blocks. One that is under way counts as lost."""
        return self.adds - sum(self._counts) / len(self._counts) if self._counts else 0.0

    def begin(self, op: Access, now_s: float, seconds: float) -> Sweep:
        """An access of a cell begins; the first value of a cell is there at once."""
        sweep = Sweep(op, now_s, seconds, first=self._value is None)
        self.adds += op.action == "add"
        if sweep.first:
            self._fill(op)
        else:
            self._asked += 1
            heappush(self._under_way, (now_s, self._asked, sweep))
        return sweep

    def end(self, sweep: Sweep, now_s: float) -> Any:
        """An access ends; answers what it found: None if the cell was empty."""
        if sweep.first:
            return None
        if sweep.moments == 0 and len(self._under_way) == 1:
            self._under_way.clear()
            return self._in_one_piece(sweep.op)
        self._settle(now_s)
        return join(sweep.found) if sweep.found else self._value

    def give_up(self, sweep: Sweep, now_s: float) -> None:
        """An access is broken off: the blocks that it has not come to stay as they are."""
        self._settle(now_s)
        self._under_way = [entry for entry in self._under_way if entry[2] is not sweep]
        self._under_way.sort()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _fill(self, op: Access) -> None:
        self._value = op.value
        if op.value is not None:
            blocks = max(1, min(MOST_BLOCKS, ceil(op.value.nbytes / BLOCK_BYTES), length(op.value)))
            self._counts = [int(op.action == "add")] * blocks

    def _in_one_piece(self, op: Access) -> Any:
        if self._blocks:
            self._value, self._blocks = join(self._blocks), []
        before = self._value
        if op.action == "add":
            self._value = before + op.value
            self._counts = [count + 1 for count in self._counts]
        elif op.action == "swap":
            self._value = op.value
        return before

    def _settle(self, now_s: float) -> None:
        """Lets all moments pass up to now."""
        if not self._blocks and not isinstance(self._value, Null):
            self._blocks = self._cut(self._value)
        blocks = len(self._counts)
        while self._under_way and self._under_way[0][0] <= now_s:
            _, number, sweep = heappop(self._under_way)
            self._pass(sweep, sweep.moments)
            sweep.moments += 1
            if sweep.moments < blocks + (sweep.op.action == "add"):
                at_s = sweep.start_s + sweep.seconds * (sweep.moments / blocks)
                heappush(self._under_way, (at_s, number, sweep))

    def _pass(self, sweep: Sweep, moment: int) -> None:
        """One moment of a sweep: an add stores the block before and loads this one."""
        op = sweep.op
        if op.action == "add" and moment > 0:
            self._store(sweep, moment - 1)
        if moment == len(self._counts):
            return
        if self._blocks:
            sweep.found.append(self._blocks[moment])
            if op.action == "swap":
                self._blocks[moment] = op.value[self._part(moment)]  # type: ignore[index]
        sweep.counts.append(self._counts[moment])

    def _store(self, sweep: Sweep, block: int) -> None:
        self._counts[block] = sweep.counts[block] + 1
        if self._blocks:
            self._blocks[block] = sweep.found[block] + sweep.op.value[self._part(block)]  # type: ignore[index]

    def _cut(self, vector: Any) -> list[Any]:
        return [vector[self._part(block)] for block in range(len(self._counts))]

    def _part(self, block: int) -> slice:
        """Where a block lies in the vector."""
        blocks, numbers = len(self._counts), length(self._value)
        return slice(block * numbers // blocks, (block + 1) * numbers // blocks)
