"""Progress counters: sums that each rank maintains on the board, and the recent throughput computed from them.

Rules of this file:

* A rank adds only to its own numbers, without a lock: about a tenth of a microsecond each. Readers take differences, so
  nothing is reset; a reading while a rank writes is wrong by at most one gradient.
* The leading host of a run on several hosts has copies of the other hosts' counters, a fraction of a second old.
* These figures show the progress of a run. Its results come from its record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paceline.algorithms.runtime.weights_owner import Update

FIELDS = ("gradients", "losses", "inputs", "stalenesses", "samples", "gradient_s")
GRADIENTS, LOSSES, INPUTS, STALENESSES, SAMPLES, GRADIENT_S = range(len(FIELDS))
WINDOW_S = 2.0
"""length of the recent part of a run that progress reports describe"""


class ProgressCounters:
    """One rank's own counters.

    >>> import array
    >>> sums = memoryview(array.array("d", [0.0] * len(FIELDS)))
    >>> counters = ProgressCounters(sums)
    >>> counters.gradient(0.5, seconds=0.01)
    >>> counters.gradient(0.25, seconds=0.03)
    >>> sums.tolist()
    [2.0, 0.75, 0.0, 0.0, 0.0, 0.04]
    """

    __slots__ = ("_sums",)

    def __init__(self, sums: memoryview[float]) -> None:
        self._sums = sums

    def gradient(self, loss: float, seconds: float) -> None:
        """Counts a gradient.

        Args:
            loss: of its batch.
            seconds: from the start of the computation to its end, including the wait of a paced device.
        """
        sums = self._sums
        sums[GRADIENT_S] += seconds
        sums[GRADIENTS] += 1.0
        sums[LOSSES] += float(loss)  # a NumPy number would warn about overflow

    def applied(self, rows: Iterable[Update], samples: int) -> None:
        """Counts applied inputs, and sets the number of samples in the rank's weights."""
        sums = self._sums
        for row in rows:
            sums[INPUTS] += 1.0
            sums[STALENESSES] += row.staleness
        sums[SAMPLES] = samples


class RankTotals(NamedTuple):
    """One rank's counters at one time."""

    step: int
    """the step that its program has reached"""
    gradients: float
    gradient_s: float
    """seconds of all these gradients"""


class Scored(NamedTuple):
    """The evaluation of the weights during a run, smoothed as for targets."""

    loss: float
    accuracy: float
    """NaN if the problem has none"""


class Totals(NamedTuple):
    """Sums of all ranks' counters at one time; the samples are those of the weights' owner."""

    elapsed_s: float
    step: int
    """of the weights' owner"""
    gradients: float
    losses: float
    inputs: float
    stalenesses: float
    samples: float
    by_rank: tuple[RankTotals, ...] = ()
    """of every rank"""
    scored: Scored | None = None
    """the last evaluation; None if the run has not been evaluated yet, or is only evaluated after its end"""

    @staticmethod
    def of(sums: Any, owner: int, *, steps: Sequence[int], elapsed_s: float, scored: Scored | None = None) -> Totals:
        """Adds up the counters.

        Args:
            sums: array of shape (ranks, counters).
            owner: the rank that owns the weights.
            steps: the step that each rank has reached.
            elapsed_s: seconds since the start.
            scored: the last evaluation.
        """
        gradients, losses, inputs, stalenesses, _, _ = sums.sum(axis=0).tolist()
        samples = float(sums[owner, SAMPLES])
        by_rank = tuple(map(RankTotals, steps, sums[:, GRADIENTS].tolist(), sums[:, GRADIENT_S].tolist()))
        return Totals(elapsed_s, steps[owner], gradients, losses, inputs, stalenesses, samples, by_rank, scored)


@dataclass(frozen=True, slots=True)
class Recent:
    """The state of a run and its recent rates; a rate without events is None."""

    step: int
    """of the weights' owner"""
    elapsed_s: float
    samples: int
    """in the weights being learned"""
    samples_per_s: float | None
    loss: float | None
    """mean over the recent gradients, each of its own batch"""
    staleness: float | None
    """mean over the recently applied inputs"""
    step_s: float | None
    """mean time between a worker's successive gradients"""

    @staticmethod
    def between(before: Totals, now: Totals, *, workers: int) -> Recent:
        """Returns the rates between two readings.

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
        """The figures in one line."""
        said = [f"step {self.step}"]
        if self.samples_per_s is not None:
            said.append(f"{self.samples_per_s:.0f} samples/s")
        said += [f"{name} {value:.3g}" for name in ("loss", "staleness") if (value := getattr(self, name)) is not None]
        return ", ".join(said)


class ProgressWindow:
    """The readings of the last `window_s` seconds."""

    def __init__(self, workers: int, window_s: float = WINDOW_S) -> None:
        self._workers, self._window_s = workers, window_s
        self._readings = deque([Totals(0.0, 0, 0, 0, 0, 0, 0)])

    def add(self, now: Totals) -> Recent:
        """Adds a reading and returns the rates since the oldest one in the window."""
        while len(self._readings) > 1 and now.elapsed_s - self._readings[1].elapsed_s >= self._window_s:
            self._readings.popleft()
        self._readings.append(now)
        return Recent.between(self._readings[0], now, workers=self._workers)
