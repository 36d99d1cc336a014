"""Relations between batch, staleness and samples, against the oracles and the data they were derived from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.simulator.runs.extrapolation import (
    batch_penalty,
    implicit_momentum,
    momentum_slowdown,
    samples_needed,
    stability_slowdown,
)

POSITIVE = st.floats(0.01, 1e6)


def best_gain(batch: float, noise: float, slowdown: float = 1.0) -> float:
    """The largest of η − η²/2 (slowdown + noise / batch) on a fine grid: a unit gradient and curvature."""
    rates = np.linspace(0, 1, 100_001)
    return float((rates - rates**2 / 2 * (slowdown + noise / batch)).max())


@pytest.mark.parametrize(("batch", "gain"), [(1, 1.808), (4, 3.931), (16, 5.563), (64, 6.207)])
def test_the_gain_of_a_step_is_the_inverse_of_the_steps_needed(batch: float, gain: float) -> None:
    """Oracle Q15: gains simulated at four batches; two of them fix Bn and the largest gain, the others must follow."""
    noise = (3.931 / 1.808 - 1) / (1 - 3.931 / 1.808 / 4)  # from B = 1 and B = 4: (1 + Bn) / (1 + Bn/4)
    largest = 1.808 * (1 + noise)
    steps = samples_needed(batch, noise) / batch * noise  # S / Smin
    assert largest / steps == pytest.approx(gain, rel=1e-3)


@given(POSITIVE, POSITIVE)
def test_steps_and_samples_lie_on_a_hyperbola(batch: float, noise: float) -> None:
    """Oracle Q16: (S/Smin − 1)(E/Emin − 1) = 1."""
    samples = samples_needed(batch, noise)
    steps = samples / batch * noise
    assert (steps - 1) * (samples - 1) == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("slowdown", [1.0, 3.0, 50.0])
def test_a_slowdown_of_the_curvature_multiplies_the_batch(slowdown: float) -> None:
    """Derived here: samples ∝ batch / gain, of a step of which only the curvature term is larger."""
    noise, small, large = 100.0, 2.0, 40.0
    needed = (large / best_gain(large, noise, slowdown)) / (small / best_gain(small, noise))
    assert batch_penalty(large, small, noise, slowdown) == pytest.approx(needed, rel=1e-3)


@pytest.mark.parametrize(
    ("delay", "limit"), [(0, 2), (1, 1), (2, 0.618034), (3, 0.445042), (4, 0.347296), (8, 0.184537), (16, 0.095164)]
)
def test_the_stability_limit_is_that_of_the_delayed_quadratic(delay: int, limit: float) -> None:
    """Oracle Q6, and by the roots of z^(d+1) − z^d + g, the largest of which leaves the unit circle there."""
    assert 2 / stability_slowdown(delay) == pytest.approx(limit, abs=1e-6)
    for g, stable in ((limit * 0.999, True), (limit * 1.001, False)):
        polynomial = np.zeros(delay + 2)
        polynomial[0], polynomial[1], polynomial[-1] = 1, -1, polynomial[-1] + g
        if delay == 0:
            polynomial = np.array([1, g - 1])
        assert (abs(np.roots(polynomial)).max() < 1) == stable


@pytest.mark.parametrize(("workers", "measured"), [(4, 0.7502), (8, 0.8754), (16, 0.9374)])
def test_implicit_momentum_is_what_a_simulation_measured(workers: int, measured: float) -> None:
    """Oracle Q9: least squares on the averaged path of asynchronous SGD; staleness is M − 1."""
    assert implicit_momentum(workers - 1) == pytest.approx(measured, abs=5e-4)


def test_momentum_below_ones_own_costs_nothing_and_above_it_slows_down() -> None:
    assert momentum_slowdown(9, momentum=0.9) == pytest.approx(1)
    assert momentum_slowdown(5, momentum=0.9) == 1
    assert momentum_slowdown(99, momentum=0.9) == pytest.approx((1 - math.sqrt(0.9)) / (1 - math.sqrt(0.99)))


@given(POSITIVE, POSITIVE, st.floats(0, 1000), st.floats(0, 1000))
def test_more_staleness_never_helps(batch: float, noise: float, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert batch_penalty(batch, 256, noise, stability_slowdown(less)) <= batch_penalty(
        batch, 256, noise, stability_slowdown(more)
    )
    assert batch_penalty(256, 256, noise) == 1
