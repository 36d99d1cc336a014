"""What a story follows through a run."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.algorithms.runtime.update_log import Update
from paceline.checking.counterexamples.recording import Request
from paceline.records.figures import significant

LABEL_DIGITS = 6
"""significant digits of a value in a diagram at most, whose columns are narrow; provenance: ours"""


@dataclass(frozen=True, slots=True)
class Focus:
    """What a story is about.

    Args:
        element: the element of the weights that differs at the end; None: no values are followed.
        update: the input of an update that violates the guarantee, with which the story ends; None: it has no such end.
        digits: significant digits of the element's values, which show where they differ.
    """

    element: int | None = None
    update: Update | None = None
    digits: int = 3

    def decides(self, row: Update) -> bool:
        """Whether this input of an update is the one that violates the guarantee, at any time."""
        return self.update is not None and row[1:] == self.update[1:]

    def words(self, request: Request) -> str:
        """Returns the element's value in the weights of an operation; empty if it has none."""
        value = self._value(request)
        return "" if value is None else f"weights[{self.element}] = {significant(value, self.digits)}"

    def label(self, request: Request) -> str:
        """Returns the same in fewer characters, for a diagram."""
        value = self._value(request)
        return "" if value is None else f"w[{self.element}] = {significant(value, min(self.digits, LABEL_DIGITS))}"

    def _value(self, request: Request) -> float | None:
        vector = request.vector
        return (
            None
            if self.element is None or vector is None or self.element >= len(vector)
            else float(vector[self.element])
        )
