"""Compressed averages of vectors whose numbers are those of one problem, and whose size is that of another.

Such a vector is compressed twice: its numbers as the small problem that they belong to, and its size as a `Null`. The
programs of both are advanced together, operation by operation. What is sent has the numbers of the first and the size
of the second, so that times and bytes are those of the size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.program import Lane, Program, Routine, program
from paceline.algorithms.core.values import Layer, Null, Special, nbytes


class OfTwoSizes(Special):
    """A vector that computes with its numbers but has another size."""

    __slots__ = ()

    @abstractmethod
    def apart(self) -> tuple[Any, Null]:
        """Returns the numbers, and a vector of the size without numbers."""

    @abstractmethod
    def resized(self, numbers: Any, size: Null) -> OfTwoSizes:
        """Returns other numbers with another size.

        Args:
            numbers: an array or a tensor.
            size: a vector of the size.
        """

    @abstractmethod
    def with_numbers(self, numbers: Any) -> Self:
        """Returns as many other numbers with the same size."""

    @abstractmethod
    def layers_of_numbers(self, layers: Sequence[Layer]) -> list[Layer]:
        """Returns the layers that have numbers, at the positions that they have among the numbers."""


class Memories:
    """What a compression remembers of the numbers, and of the size; its bytes are those of the size.

    Args:
        of_numbers: the memory of the numbers.
        of_size: the memory of the `Null`.
    """

    __slots__ = ("of_numbers", "of_size")

    def __init__(self, of_numbers: Any, of_size: Any) -> None:
        self.of_numbers, self.of_size = of_numbers, of_size

    @property
    def nbytes(self) -> int:
        return nbytes(self.of_size)


@program
def advanced_together(vector: OfTwoSizes, of_numbers: Routine[Any], of_size: Routine[Any]) -> Program[tuple[Any, Any]]:
    """Runs the same program for the numbers and for the size of a vector; each returns a vector and a memory.

    Args:
        vector: the vector that is averaged.
        of_numbers: the program for its numbers.
        of_size: the program for its size. It asks for the same operations in the same order.

    Returns:
        The vector of the first with the size of the given one, and both memories.
    """
    small, large = Lane(of_numbers), Lane(of_size)
    asked, asked_large = small.advance(), large.advance()
    while asked is not None and asked_large is not None:
        if isinstance(asked_large, Charge):
            yield from asked_large
            asked, asked_large = small.advance(), large.advance()
        else:
            value = vector.resized(asked.value, asked_large.value)  # type: ignore[attr-defined]  # a collective
            both: Any = replace(asked_large, value=value)  # type: ignore[type-var]  # operations are dataclasses
            numbers, size = _apart((yield from both))
            asked, asked_large = small.advance(numbers), large.advance(size)
    mean, memory = small.answer
    return vector.with_numbers(mean), Memories(memory, large.answer[1])


def _apart(answer: Any) -> tuple[Any, Any]:
    """Returns the numbers and the sizes of the answer of a collective."""
    if isinstance(answer, OfTwoSizes):
        return answer.apart()
    numbers, sizes = zip(*(member.apart() for member in answer), strict=True)
    return numbers, sizes
