"""What a run's progress is told from: sums that each rank keeps on the board, and what they say of the last while.

Rules of this file:

* A rank adds to numbers of its own and to nobody else's, without a lock: about a tenth of a microsecond each. Who looks
  takes differences, so nothing is reset, and a look between two of these numbers is wrong by one gradient at most.
* These are figures to watch a run by. What a run was is in its record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from paceline.algorithms.runtime.staleness_ledger import Update

FIELDS = ("gradients", "losses", "inputs", "stalenesses", "samples")
GRADIENTS, LOSSES, INPUTS, STALENESSES, SAMPLES = range(len(FIELDS))
WINDOW_S = 2.0
"""progress is told of so much of a run, up to now"""


class Tally:
    """One rank's own sums.

    >>> import array
    >>> sums = memoryview(array.array("d", [0.0] * len(FIELDS)))
    >>> tally = Tally(sums)
    >>> tally.gradient(0.5)
    >>> tally.gradient(0.25)
    >>> sums.tolist()
    [2.0, 0.75, 0.0, 0.0, 0.0]
    """

    __slots__ = ("_sums",)

    def __init__(self, sums: memoryview[float]) -> None:
        self._sums = sums

    def gradient(self, loss: float) -> None:
        """One more gradient, with its loss."""
        sums = self._sums
        sums[GRADIENTS] += 1.0
        sums[LOSSES] += float(loss)  # of NumPy's it would warn when it overflows

    def applied(self, rows: Iterable[Update], samples: int) -> None:
        """Inputs that were applied, and the samples that are in the rank's weights by now."""
        sums = self._sums
        for row in rows:
            sums[INPUTS] += 1.0
            sums[STALENESSES] += row.staleness
        sums[SAMPLES] = samples


class Totals(NamedTuple):
    """All ranks' sums at a moment; samples are those of the weights' keeper."""

    elapsed_s: float
    step: int
    """of the keeper"""
    gradients: float
    losses: float
    inputs: float
    stalenesses: float
    samples: float

    @staticmethod
    def of(sums: Any, keeper: int, *, step: int, elapsed_s: float) -> Totals:
        """From the board's column of sums."""
        gradients, losses, inputs, stalenesses, _ = sums.sum(axis=0).tolist()
        return Totals(elapsed_s, step, gradients, losses, inputs, stalenesses, float(sums[keeper, SAMPLES]))


@dataclass(frozen=True, slots=True)
class Recent:
    """A run at a moment, and what it did in the while before; None where nothing of the kind happened."""

    step: int
    """of the weights' keeper"""
    elapsed_s: float
    samples: int
    """in the weights being learned"""
    samples_per_s: float | None
    loss: float | None
    """mean over the gradients of that while, each of its own batch"""
    staleness: float | None
    """mean over the inputs that were applied"""
    step_s: float | None
    """mean time between a worker's successive gradients"""

    @staticmethod
    def between(before: Totals, now: Totals, *, workers: int) -> Recent:
        """What happened from one look to the next.

        >>> start = Totals(1.0, 10, gradients=20, losses=10.0, inputs=20, stalenesses=5, samples=640)
        >>> now = Totals(2.0, 20, gradients=40, losses=18.0, inputs=40, stalenesses=25, samples=1280)
        >>> print(Recent.between(start, now, workers=2).words)
        step 20, 640 samples/s, loss 0.4, staleness 1
        """
        lasted_s = now.elapsed_s - before.elapsed_s
        gradients, inputs = now.gradients - before.gradients, now.inputs - before.inputs
        return Recent(
            step=now.step,
            elapsed_s=now.elapsed_s,
            samples=round(now.samples),
            samples_per_s=(now.samples - before.samples) / lasted_s if lasted_s > 0 else None,
            loss=(now.losses - before.losses) / gradients if gradients else None,
            staleness=(now.stalenesses - before.stalenesses) / inputs if inputs else None,
            step_s=lasted_s * workers / gradients if gradients else None,
        )

    @property
    def words(self) -> str:
        """In one line."""
        said = [f"step {self.step}"]
        if self.samples_per_s is not None:
            said.append(f"{self.samples_per_s:.0f} samples/s")
        said += [f"{name} {value:.3g}" for name in ("loss", "staleness") if (value := getattr(self, name)) is not None]
        return ", ".join(said)


class Window:
    """The looks of the last while."""

    def __init__(self, workers: int, window_s: float = WINDOW_S) -> None:
        self._workers, self._window_s = workers, window_s
        self._looks = deque([Totals(0.0, 0, 0, 0, 0, 0, 0)])

    def look(self, now: Totals) -> Recent:
        """What has happened since the oldest look in the window, with this one as the latest."""
        while len(self._looks) > 1 and now.elapsed_s - self._looks[1].elapsed_s >= self._window_s:
            self._looks.popleft()
        self._looks.append(now)
        return Recent.between(self._looks[0], now, workers=self._workers)
