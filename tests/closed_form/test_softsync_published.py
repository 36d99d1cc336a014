"""The published staleness of n-softsync (Zhang, Gupta, Lian, Liu, IJCAI'16) with 30 learners, and what it does.

Assumed of their machine, alike and dedicated nodes: a gradient takes 1 with a lognormal jitter of 5 %. The paper does
not state the jitter; the tail P(τ > 2n) < 1e-4 is a property of it, as the last test of the first part shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sin
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.values import Samples, may_diverge
from paceline.algorithms.methods.parameter_server import Softsync
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.support import Bowl, FixedTiming, Vector, job_of
from tests.thorough import cases, extra, sampled

LEARNERS, GRADIENTS = 30, cases(6_000, 12_000)
Law = Callable[[np.random.Generator, tuple[int, int]], Any]


def jitter(sigma: float) -> Law:
    """A lognormal law of mean 1."""
    return lambda generator, shape: generator.lognormal(-(sigma**2) / 2, sigma, shape)


ALIKE = jitter(0.05)


def exponential(generator: np.random.Generator, shape: tuple[int, int]) -> Any:
    return generator.exponential(1.0, shape)


def run(n: int, law: Law = ALIKE, gradients: int = GRADIENTS, learner: Any = None, **more: Any) -> Trace:
    """Runs this many gradients of n-softsync; messages cost nothing."""
    drawn = law(np.random.default_rng(np.random.SeedSequence(30)), (LEARNERS, 1000))
    timing = FixedTiming(compute=lambda rank, step: float(drawn[rank, step % 1000]))
    job = job_of(Softsync(n=n, **more), LEARNERS, steps=gradients // (LEARNERS // n), learner=learner)
    return simulate_job(job, timing, NoCost(), Schedule(10**9))


def lags_of(trace: Trace) -> Any:
    return np.array([row.staleness for row in trace.updates])


# --- figures ---------------------------------------------------------------------------------------------------------


def test_1_softsync_has_lags_of_0_1_and_2() -> None:
    """Published: τ ∈ {0, 1, 2}; by number 24 the mean is 29/30, to O(λ²/gradients) with 4 as the constant."""
    lags = lags_of(run(1))
    assert set(lags) <= {0, 1, 2}
    assert lags.mean() == pytest.approx(29 / 30, abs=4 * LEARNERS**2 / GRADIENTS)


@pytest.mark.parametrize(("n", "mean"), [(15, 14.5), extra((30, 29.0))])
def test_n_softsync_lags_by_about_n_and_hardly_ever_by_more_than_2_n(n: int, mean: float) -> None:
    """Published: means near 15 and 30, P(τ > 2n) < 1e-4; number 26: at most 2 n, here, in all gradients."""
    lags = lags_of(run(n))
    assert lags.mean() == pytest.approx(mean, abs=4 * LEARNERS**2 / GRADIENTS)
    assert (lags > 2 * n).mean() < 1e-4
    assert lags.max() <= 2 * n


@pytest.mark.parametrize("n", sampled([1, 15, 30], [15]))
def test_the_bound_of_2_n_is_no_law(n: int) -> None:
    """Number 26: with exponential times lags exceed 2 n by far, while their mean does not change."""
    lags = lags_of(run(n, exponential))
    assert lags.max() > 4 * n
    assert (lags > 2 * n).mean() > 1e-3
    assert lags.mean() == pytest.approx((LEARNERS - 1) / (LEARNERS // n), abs=4 * LEARNERS**2 / GRADIENTS)


# --- what a fixed rate does ------------------------------------------------------------------------------------------

RATE = 0.5


@dataclass(frozen=True)
class Valley(Bowl):
    """Loss |w − 1|² / 2 from w = 0, for every learner the same: curvature h = 1, no noise."""

    def load(self, samples: Samples) -> Vector:
        return np.ones(self.size)

    @may_diverge
    def gradient(self, vector: Vector, data: Vector) -> tuple[Vector, float]:
        return super().gradient(vector, data)


def test_the_rate_lies_between_the_limits() -> None:
    """A delay τ is stable on curvature h up to ηh = 2 sin(π / (2 (2τ + 1))): number 39.

    η = 0.5 is stable at the delays of 1-softsync (1 for a delay of 1) and hardsync (2), and far too much for 14 and 29
    (0.11 and 0.05). Divided by the delay it is stable again: 0.5/14 and 0.5/29 lie below them.
    """
    limit = {delay: 2 * sin(pi / (2 * (2 * delay + 1))) for delay in (1, 14, 29)}
    assert limit[1] > RATE
    assert RATE > 4 * limit[14] > 4 * limit[29]
    assert limit[14] / 2 > RATE / 14
    assert limit[29] / 2 > RATE / 29


@pytest.mark.parametrize("n", sampled([1, 15, 30], [15]))
@pytest.mark.parametrize("damping", ["none", "inverse"])
def test_a_fixed_rate_diverges_where_the_paper_saw_it_and_a_damped_one_never(n: int, damping: Any) -> None:
    """Published for λ = 30: n = 15 and n = 30 diverge with a fixed rate; with α/τ every n converges."""
    away = np.abs(run(n, gradients=4_500, learner=Valley(), learning_rate=RATE, damping=damping).weights - 1)
    if damping == "none" and n > 1:
        assert away.min() > 1e6
    else:
        assert away.max() < 1e-3
