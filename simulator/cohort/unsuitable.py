"""The exceptions by which a vectorised run ends early: it is divided into more classes of ranks, or given up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class NotACohort(Exception):
    """The run cannot be vectorised; the message says why, as the end of a sentence."""


class Diverges(BaseException):
    """The ranks of a class need different control flow.

    It is no `Exception`, so that a program which catches errors does not catch it.

    Args:
        mask: for each rank of the class, to which of two new classes it belongs.
    """

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        super().__init__("the ranks of a class need different control flow")
        self.mask = mask
        self.of: int | None = None
        """the number of the class; None: the one whose program was running"""
