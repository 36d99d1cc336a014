"""How long a rank's own work takes, as the interpreter asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Rank
from paceline.simulator.kernel.crash_timeline import Timeline


class Timing(Protocol):
    """Seconds of everything that a rank does by itself. Answers depend on the arguments alone, so that runs repeat."""

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        """A gradient over so many samples."""
        ...

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        """Each layer's parts of a gradient's time, forward and backward, first layer first; together they are 1."""
        ...

    def timeline(self, rank: Rank) -> Timeline | None:
        """What slows down and breaks off a rank's gradients in the run's own clock; None where nothing does."""
        ...

    def work_s(self, rank: Rank, op: Charge) -> float:
        """Arithmetic that the program does itself; of kind "access", its bytes' way through the node's memory."""
        ...

    def load_s(self, rank: Rank, samples: int) -> float:
        """Loading a batch."""
        ...

    def rest_s(self, rank: Rank) -> float:
        """A step's time outside all operations, which is spent before the batch is loaded."""
        ...
