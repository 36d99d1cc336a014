"""Memory traffic of arithmetic on vectors: what an update, an average or a copy reads and writes.

Rules of this file:

* Traffic is counted in vectors, kernel by kernel, as torch executes the formulas: every operator reads its inputs from
  memory and writes its output to memory, because kernels are not fused.
* A formula declares its traffic next to its code. `tests/unit/test_traffic.py` compares the declarations with the
  operators that torch executes.
* Single numbers, such as a norm, do not count. A branch that depends on the numbers counts as if it were taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.algorithms.core.fast_values import fast_constructor


@fast_constructor
@dataclass(frozen=True, slots=True)
class Traffic:
    """The vectors that kernels read and write.

    Args:
        reads: vectors read.
        writes: vectors written.
        kernels: kernels launched.
        allocated: of the writes, whole vectors in newly allocated memory. Parts reuse memory that was freed before.
        in_place: of the writes, those over a vector that the kernel reads.

    >>> (2 * SCALE + COMBINE).passes
    7
    """

    reads: int
    writes: int
    kernels: int = 1
    allocated: int = 0
    in_place: int = 0

    @property
    def passes(self) -> int:
        """Vectors read or written."""
        return self.reads + self.writes

    @property
    def footprint(self) -> int:
        """Vectors in use: at most two that are there before, and one for each write that is not in place."""
        return min(2, self.reads) + self.writes - self.in_place

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.reads + other.reads,
            self.writes + other.writes,
            self.kernels + other.kernels,
            self.allocated + other.allocated,
            self.in_place + other.in_place,
        )

    def __rmul__(self, times: int) -> Traffic:
        return Traffic(
            times * self.reads,
            times * self.writes,
            times * self.kernels,
            times * self.allocated,
            times * self.in_place,
        )


NOTHING = Traffic(0, 0, 0)
READ = Traffic(1, 0)
"""a sum over a vector"""
ZEROS = Traffic(0, 1, allocated=1)
"""a vector of zeros"""
COPY = Traffic(1, 1)
"""a copy into existing memory"""
SCALE = Traffic(1, 1, allocated=1)
"""a x, or any other function of one vector"""
COMBINE = Traffic(2, 1, allocated=1)
"""x + y or x − a y"""
COMBINE_INTO = Traffic(2, 1)
"""the same, written over a vector that is not used any more"""
COMBINE_IN_PLACE = Traffic(2, 1, in_place=1)
"""y ← x − a y"""
NORM = Traffic(3, 2, kernels=2, allocated=2)
"""‖x‖ summed in float64: torch writes a copy in float64, which counts twice, and sums that"""
ELASTIC_PULL = SCALE + 2 * COMBINE
"""x ± α (x − c): a difference, a product, and a sum"""
