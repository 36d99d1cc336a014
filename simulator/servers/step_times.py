"""The times of gradients, drawn for some steps ahead of each worker."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.simulator.kernel.timing import Timing
from paceline.topologies.faults.jitter import BLOCK


@runtime_checkable
class ManySteps(Protocol):
    """A timing that computes the times of many steps at once."""

    def compute_many_s(self, ranks: np.ndarray, first: int, count: int, samples: int) -> np.ndarray:
        """Returns the seconds of gradients, equal to those of `compute_s`, as an array (ranks, count).

        Args:
            ranks: the workers.
            first: the first step, a multiple of `jitter.BLOCK` or within one block with the others.
            count: number of steps.
            samples: number of samples of each gradient.
        """
        ...


def steps_of(timing: Timing, rank: int, first: int, count: int, samples: int) -> np.ndarray:
    """Returns the seconds of successive gradients of a worker.

    Args:
        timing: the seconds of each rank's own work.
        rank: the worker.
        first: the first step.
        count: number of steps.
        samples: number of samples of each gradient.
    """
    if isinstance(timing, ManySteps):
        row: np.ndarray = timing.compute_many_s(np.array([rank]), first, count, samples)[0]
        return row
    return np.array([timing.compute_s(Rank(rank), step, samples) for step in range(first, first + count)])


COLUMNS = BLOCK
"""steps that are drawn at once: those of a block of the jitter"""
