"""Measures how fast one core copies vectors, and derives the rate of updates.

Rules of this file: each round copies for `SECONDS` and gives one figure, so the interval of a rate is that of rounds,
during which other measurements take turns. One core copies, in the process of the calibration. A rate is in bytes of
the vector per second: a copy reads them and writes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean, median

import numpy as np

from paceline.backend.calibration.recorded_costs import UPDATE, Costs
from paceline.scenarios.sections.machine_details import RatePart, RatesPart, StartPart

MEMORY_BYTES = 128 * 2**20
"""a vector larger than the caches, as in `this_machine`"""
SECONDS = 0.05
"""the shortest time of a round: INFERENCE, over a hundred copies of a small model's weights"""


class CopyTask:
    """A probe of copies, measured again in every round.

    Args:
        nbytes: bytes of the weights.
    """

    name = "copies"

    def __init__(self, nbytes: int) -> None:
        self.cached, self.large = _copier(nbytes), _copier(MEMORY_BYTES)
        self.cached_rates, self.large_rates = list[float](), list[float]()

    def measure(self) -> None:
        """Measures both rates once."""
        for copy, rates in ((self.cached, self.cached_rates), (self.large, self.large_rates)):
            rates.append(copy())


def _copier(nbytes: int) -> Callable[[], float]:
    """Returns a function that copies a vector of this size and returns bytes per second."""
    source = np.ones(max(1, nbytes // 4), dtype=np.float32)
    target = source.copy()

    def measure() -> float:
        count, begun_s = 0, time.perf_counter()
        while (now_s := time.perf_counter()) < begun_s + SECONDS or not count:
            np.copyto(target, source)
            count += 1
        return count * source.nbytes / (now_s - begun_s)

    return measure


def rates_of(copies: CopyTask, costs: Sequence[Costs], nbytes: int) -> RatesPart:
    """Returns the rates of all rounds.

    Args:
        copies: the measured copies.
        costs: the costs of each launch, with the times of updates of the whole weights.
        nbytes: bytes of the weights.
    """
    updates = [nbytes / fmean(times) for found in costs if (times := found.get(UPDATE)) and fmean(times)]
    return RatesPart.model_construct(
        update=_rate(updates), copy_in_cache=_rate(copies.cached_rates), copy_in_memory=_rate(copies.large_rates)
    )


def _rate(found: Sequence[float]) -> RatePart | None:
    if not found:
        return None
    return RatePart.model_construct(rate=median(found), low=min(found), high=max(found))


def start_of(seconds: Sequence[float]) -> StartPart | None:
    """Returns how long processes need until their first step.

    Args:
        seconds: those of each launch.

    >>> start_of([0.5, 0.3, 0.4]).time
    0.4
    """
    if not seconds:
        return None
    return StartPart.model_construct(time=median(seconds), low=min(seconds), high=max(seconds))
