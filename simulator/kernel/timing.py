"""The interface by which the interpreter asks how long a rank's own work takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Rank
from paceline.simulator.kernel.crash_timeline import CrashTimeline


class Timing(Protocol):
    """The seconds of a rank's own work. Results depend on the arguments only, so that runs are repeatable."""

    @property
    def completes(self) -> bool:
        """Whether the processor completes a gradient that was cancelled after it had begun."""
        ...

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        """Returns the seconds of a gradient.

        Args:
            rank: the worker.
            step: its step.
            samples: number of samples of the gradient.
            start_s: when it begins, in seconds on the run's clock.
        """
        ...

    def paused_s(self, samples: int, pause_s: float) -> float:
        """Returns the seconds by which a gradient takes longer after a pause of its rank, because caches are cold.

        Args:
            samples: number of samples of the gradient.
            pause_s: the seconds since the rank's previous gradient.
        """
        ...

    def started_factor(self, samples: int) -> float:
        """Returns the time of a gradient that a program has started, over that of one for which it waits at once.

        Args:
            samples: number of samples of the gradient.
            start_s: when it begins, in seconds on the run's clock.
        """
        ...

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        """Returns each layer's share of a gradient's time, forward and backward, first layer first.

        The sum is 1, or more if a gradient takes longer layer by layer.
        """
        ...

    def timeline(self, rank: Rank) -> CrashTimeline | None:
        """Returns the slowdowns and crashes of a rank on the run's own clock; None if it has none."""
        ...

    def work_s(self, rank: Rank, op: Charge) -> float:
        """Returns the seconds of the program's own arithmetic, or for kind "access" of copying bytes in memory."""
        ...

    def load_s(self, rank: Rank, samples: int) -> float:
        """Returns the seconds of loading a batch."""
        ...

    def rest_s(self, rank: Rank) -> float:
        """Returns the seconds of a step outside all operations, which pass before the batch is loaded."""
        ...


class GradientsOnly:
    """A timing in which gradients alone take time; a subclass says how long, and may give other work a time.

    >>> class Equal(GradientsOnly):
    ...     def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
    ...         return 2.0
    >>> Equal().compute_s(Rank(0), 0, 8), Equal().load_s(Rank(0), 8)
    (2.0, 0.0)
    """

    __slots__ = ()
    completes = False

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        raise NotImplementedError(f"{type(self).__name__}.compute_s: missing, expected the seconds of a gradient")

    def paused_s(self, samples: int, pause_s: float) -> float:
        return 0.0

    def started_factor(self, samples: int) -> float:
        return 1.0

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return (1 / 6, 1 / 6), (1 / 3, 1 / 3)

    def timeline(self, rank: Rank) -> CrashTimeline | None:
        return None

    def work_s(self, rank: Rank, op: Charge) -> float:
        return 0.0

    def load_s(self, rank: Rank, samples: int) -> float:
        return 0.0

    def rest_s(self, rank: Rank) -> float:
        return 0.0


class ManyTimes(Protocol):
    """The seconds of the gradients of several ranks."""

    def compute_s(self, step: int, samples: Any, starts_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the seconds of a gradient at each rank.

        Args:
            step: the step.
            samples: the samples of a gradient, or an array with those of each rank.
            starts_s: when it begins at each rank, in seconds on the run's clock.
        """
        ...


@runtime_checkable
class ManyAtOnce(Protocol):
    """A timing that computes the times of many ranks together."""

    def many(self, ranks: Sequence[int]) -> ManyTimes | None:
        """Returns the times of some ranks; None if they have to be computed one by one.

        Args:
            ranks: the ranks.
        """
        ...
