"""How long a rank's own work takes, as the interpreter asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.algorithms.operations import Work
from paceline.algorithms.values import Rank


class Timing(Protocol):
    """Seconds of everything that a rank does by itself. Answers depend on the arguments alone, so that runs repeat."""

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        """A gradient over so many samples."""
        ...

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        """Each layer's parts of a gradient's time, forward and backward, first layer first; together they are 1."""
        ...

    def work_s(self, rank: Rank, op: Work) -> float:
        """Arithmetic that the program does itself."""
        ...

    def load_s(self, rank: Rank, samples: int) -> float:
        """Loading a batch."""
        ...
