"""Concurrent accesses to a shared cell, block by block: computes torn reads and lost updates.

* Model: an access passes the blocks of a cell one after the other, each for an equal share of its time. A read copies a
  block when it passes it. A swap writes it. An add reads it and writes the sum one share of its time later, as a
  processor loads, adds and stores; what others write in between is lost.
* The time of an access is known when it begins, or a function returns the share of it that is done. In the second case,
  blocks pass evenly between two moments at which accesses to this cell begin or end.
* Invariant: each block counts the adds that it contains. So the number of adds minus this count is the number of lost
  adds, regardless of which access overwrote which. The cells of real runs count in the same way.
* Rejected: one SimPy event for each block that an access passes. Blocks are processed only when an access ends, in the
  order of their times; equal times in the order of the requests. An access that overlaps no other one, or takes no
  time, is done in one piece.
* Source: ours. Niu et al. 2011 (Hogwild!, arXiv 1106.5730) assume atomic adds of single numbers; here the numbers of a
  block are lost together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import Any

from paceline.algorithms.core.operations import Access
from paceline.algorithms.core.values import Null, join, length
from paceline.algorithms.runtime.cells import value_after

BLOCK_BYTES = 4096
"""bytes that an add has read and not yet written visibly; provenance: inference, the 56 to 72 lines of 64 bytes in the
store buffer of a server's core"""
MOST_BLOCKS = 64
"""largest number of blocks of a cell, which limits the cost of an access; larger cells have larger blocks; provenance:
ours"""


@dataclass(slots=True)
class Sweep:
    """An access in progress."""

    op: Access
    start_s: float
    seconds: float
    """of the whole access, if it passes all blocks as it does from `start_s` on"""
    done: Callable[[], float] | None = None
    """returns the share of the access that is done; None if its time is known"""
    share: float = 0.0
    """the share that was done at `start_s`"""
    first: bool = False
    """whether the cell was empty before it"""
    moments: int = 0
    """number of blocks that it has passed"""
    before: list[Any] = field(default_factory=list)
    """the values of these blocks before the access"""
    counts: list[int] = field(default_factory=list)
    """the numbers of adds in them"""


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
        """the value in blocks, while accesses overlap; empty for a value without numbers"""
        self._counts: list[int] = []
        self._under_way: list[tuple[float, int, Sweep]] = []
        """a heap of the accesses in progress, by the time of their next block"""
        self._asked = 0

    @property
    def nbytes(self) -> int:
        """The bytes of the value; 0 while the cell is empty."""
        return 0 if self._value is None else self._value.nbytes

    @property
    def lost(self) -> float:
        """The number of adds that were overwritten, as a mean over the blocks. An add in progress counts as lost."""
        return self.adds - sum(self._counts) / len(self._counts) if self._counts else 0.0

    def begin(self, op: Access, now_s: float, seconds: float, done: Callable[[], float] | None = None) -> Sweep:
        """Begins an access. The first value of a cell is written at once.

        Args:
            op: the access.
            now_s: the present time.
            seconds: how long it takes.
            done: returns the share of the access that is done, 0 … 1, if `seconds` is not known.
        """
        sweep = Sweep(op, now_s, seconds, done, first=self._value is None)
        self.adds += op.action == "add"
        if any(other.done is not None for *_, other in self._under_way):
            self._settle(now_s)  # from now on, the others may be slower
        if sweep.first:
            self._fill(op)
        else:
            self._asked += 1
            heappush(self._under_way, (now_s, self._asked, sweep))
        return sweep

    def end(self, sweep: Sweep, now_s: float) -> Any:
        """Ends an access; returns the value that it found, None if the cell was empty.

        Args:
            sweep: the access.
            now_s: the present time.
        """
        if sweep.first:
            return None
        if sweep.moments == 0 and len(self._under_way) == 1:
            self._under_way.clear()
            return self._in_one_piece(sweep.op)
        self._settle(now_s)
        return join(sweep.before) if sweep.before else self._value

    def give_up(self, sweep: Sweep, now_s: float) -> None:
        """Cancels an access: the blocks that it has not passed are not changed.

        Args:
            sweep: the access.
            now_s: the present time.
        """
        self._settle(now_s)
        self._under_way = [entry for entry in self._under_way if entry[2] is not sweep]
        self._under_way.sort()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _fill(self, op: Access) -> None:
        self._value = value_after(op, None)
        if op.value is not None:
            blocks = max(1, min(MOST_BLOCKS, ceil(op.value.nbytes / BLOCK_BYTES), length(op.value)))
            self._counts = [int(op.action == "add")] * blocks

    def _in_one_piece(self, op: Access) -> Any:
        if self._blocks:
            self._value, self._blocks = join(self._blocks), []
        before, self._value = self._value, value_after(op, self._value)
        if op.action == "add":
            self._counts = [count + 1 for count in self._counts]
        return before

    def _settle(self, now_s: float) -> None:
        """Processes all blocks that accesses pass up to now."""
        if not self._blocks and not isinstance(self._value, Null):
            self._blocks = self._cut(self._value)
        blocks = len(self._counts)
        shares = self._measure(now_s)
        while self._under_way and self._under_way[0][0] <= now_s:
            _, number, sweep = heappop(self._under_way)
            self._pass(sweep, sweep.moments)
            sweep.moments += 1
            if sweep.moments < blocks + (sweep.op.action == "add"):
                heappush(self._under_way, (self._next_s(sweep, now_s, shares.get(number)), number, sweep))
        for _, number, sweep in self._under_way:
            if number in shares:
                sweep.start_s, sweep.share = now_s, shares[number]

    def _measure(self, now_s: float) -> dict[int, float]:
        """Returns the shares that are done of accesses whose times are not known, and updates their next blocks."""
        shares = {number: sweep.done() for _, number, sweep in self._under_way if sweep.done is not None}
        if shares:
            for _, number, sweep in self._under_way:
                if number in shares and shares[number] > sweep.share:
                    sweep.seconds = (now_s - sweep.start_s) / (shares[number] - sweep.share)
            self._under_way = [
                (self._next_s(sweep, now_s, shares[number]) if number in shares else at_s, number, sweep)
                for at_s, number, sweep in self._under_way
            ]
            heapify(self._under_way)
        return shares

    def _next_s(self, sweep: Sweep, now_s: float, share: float | None) -> float:
        """Returns the time at which an access passes its next block; infinity if its rate at that time is not known."""
        position = sweep.moments / len(self._counts)
        at_s = sweep.start_s + sweep.seconds * (position - sweep.share)
        if share is None:
            return at_s
        return min(at_s, now_s) if position <= share else inf

    def _pass(self, sweep: Sweep, moment: int) -> None:
        """Lets an access pass one block; an add stores the block before and loads this one."""
        op = sweep.op
        if op.action == "add" and moment > 0:
            self._store(sweep, moment - 1)
        if moment == len(self._counts):
            return
        if self._blocks:
            sweep.before.append(self._blocks[moment])
            if op.action == "swap":
                self._blocks[moment] = op.value[self._part(moment)]  # type: ignore[index]
        sweep.counts.append(self._counts[moment])

    def _store(self, sweep: Sweep, block: int) -> None:
        self._counts[block] = sweep.counts[block] + 1
        if self._blocks:
            self._blocks[block] = sweep.before[block] + sweep.op.value[self._part(block)]  # type: ignore[index]

    def _cut(self, vector: Any) -> list[Any]:
        return [vector[self._part(block)] for block in range(len(self._counts))]

    def _part(self, block: int) -> slice:
        """Returns the slice of a block in the vector."""
        blocks, numbers = len(self._counts), length(self._value)
        return slice(block * numbers // blocks, (block + 1) * numbers // blocks)
