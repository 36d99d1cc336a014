"""How measured gradients vary: the process of `step_times`, with the distribution and the rank correlations of a file.

* Its clock counts gradients and not seconds, because correlations are measured from one gradient to the next, and a
  long gradient is one as well: so the mean of all gradients is the measured one.
* What the ranks of a host have in common is the node's part. Its square is the correlation of normal numbers that
  have the rank correlation `between_ranks`.
* Where successive gradients are correlated, the rest is each rank's correlated part, otherwise noise. A part outlasts a
  gradient with the probability `between_steps`, which is then the correlation of successive gradients.
* Correlations below 0 count as 0: the process has none.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.faults.jitter import NO_JITTER, Jitter
from paceline.topologies.faults.step_times import StepTimes, explained

LEAST, LARGEST = 1e-3, 0.97
"""probabilities with which a part outlasts a gradient: where none is measured, and at most; provenance: ours, 33
gradients at most"""
NEGLIGIBLE = 1e-6
"""a range of factors that is none, because a part of so small a variance cannot be computed"""


def gradient_factor(times: GradientTimes, seed: int, rank: int, host: int, step: int) -> float:
    """Returns the factor on the mean of one gradient of one rank; the same arguments draw the same factor.

    Args:
        times: the measured times.
        seed: the seed of the run.
        rank: the rank.
        host: the host of the rank.
        step: the step, from 0.

    >>> times = GradientTimes(batch=8, busy=((1, 0.1),), factors=(0.5, 1.0, 1.5))
    >>> gradient_factor(times, 1, 0, 0, 5) in times.factors
    True
    """
    return _variation(times).factor(seed, rank, host, step, start_s=float(step))


@lru_cache(maxsize=64)
def _variation(times: GradientTimes) -> StepTimes:
    law = Jitter.measured(times.factors) if np.ptp(times.factors) > NEGLIGIBLE else NO_JITTER
    steps, ranks = min(LARGEST, max(0.0, times.between_steps)), max(0.0, normal_correlation(times.between_ranks))
    if law == NO_JITTER or not (steps or ranks):
        return StepTimes(law=law)
    node = float(np.interp(ranks, np.linspace(0.0, 1.0, len(explained(law))), explained(law)))
    gradients = -1.0 / math.log(max(LEAST, steps))
    return StepTimes(
        law=law,
        node=node,
        correlated=1.0 - node if steps else 0.0,
        correlation_time_s=gradients,
        node_correlation_time_s=gradients,
    )


def normal_correlation(rank_correlation: float) -> float:
    """Returns the correlation of normal numbers with a rank correlation: 2 · sin(π · r / 6).

    Source: K. Pearson, 1907, for normal pairs: MEMORY high.

    Args:
        rank_correlation: Spearman's correlation, -1 to 1.

    >>> normal_correlation(1.0), normal_correlation(0.0)
    (1.0, 0.0)
    """
    return round(2 * math.sin(math.pi * rank_correlation / 6), 12)
