"""Means and variances on the noisy quadratic: closed forms beside simulated runs (O5, Q1 to Q5, Q12, Q13)."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.methods.layerwise import Agd
from paceline.algorithms.methods.parameter_server import AsyncMsgd, AsyncSgd
from paceline.algorithms.methods.periodic import KAvg
from tests.quadratic import Experiment, Finding, named, play, settled, stationary
from tests.thorough import cases, sampled

COPIES = cases(5_000, 20_000)


def variance_after(
    oracle: str, method: SgdMethod, expected: float, *, updates: int, copies: int = COPIES, **run: Any
) -> Finding:
    """The variance of w over copies with curvature 1 and c = 1, beside its closed form."""
    played = play(method, [1.0], updates=updates, every=updates, copies=copies, distance=0.0, variance=1.0, **run)
    within = 4 * expected * sqrt(2 / copies)
    return Finding(
        oracle,
        named(method, *(f"{name} {number}" for name, number in run.items())),
        expected,
        float((played.path[-1] ** 2).mean()),
        within,
    )


def q1() -> Iterator[Finding]:
    """m' = (1 − g) m, V' = (1 − g)² V + η² c / B, risk = Σ λ (m² + V) / 2: 100 directions λ = c = 1/i, 200 steps."""
    curvature, copies, rate = 1 / np.arange(1, 101), 400, 0.5
    for method, workers, batch in ((SequentialSgd(learning_rate=rate), 1, 1), (SyncSgd(learning_rate=rate), 4, 2)):
        played = play(method, list(curvature), updates=200, every=20, copies=copies, workers=workers, batch=batch)
        mean, variance, means, variances = np.ones(100), np.zeros(100), [], []
        for step in range(201):
            if step % 20 == 0 and step:
                away = played.path[step // 20]
                means.append((away.mean(axis=1) - mean) / np.sqrt(variance / copies))
                variances.append((away.var(axis=1, ddof=1) / variance - 1) * sqrt(copies / 2))
            if step < 200:
                mean = (1 - rate * curvature) * mean
                noise = rate**2 * curvature / (workers * batch)
                variance = (1 - rate * curvature) ** 2 * variance + noise
        run = f"{named(method)}, {workers} x {batch} samples"
        risks = (0.5 * curvature[:, None] * played.path[-1] ** 2).sum(axis=0)
        expected = float((curvature * (mean**2 + variance)).sum() / 2)
        yield Finding("Q1 risk", run, expected, float(risks.mean()), 4 * float(risks.std()) / sqrt(copies))
        # Evaluations of one direction are not independent, directions are.
        for what, found in (("mean", means), ("variance", variances)):
            squares = (np.array(found) ** 2).mean(axis=0)
            name = f"Q1 {what}, squared standard errors off"
            yield Finding(name, run, 1.0, float(squares.mean()), 4 * float(squares.std()) / 10)


def q2() -> Iterator[Finding]:
    """η c / (B λ (2 − g))."""
    yield variance_after("Q2", SequentialSgd(learning_rate=0.5), 0.5 / 1.5, updates=60)
    yield variance_after("Q2", SyncSgd(learning_rate=0.5), 0.5 / (8 * 1.5), updates=60, workers=4, batch=2)


def q3() -> Iterator[Finding]:
    """(1 + μ) η c / (B λ (1 − μ) (2 (1 + μ) − g))."""
    for mu, updates in ((0.5, 60), (0.9, 300)):
        expected = (1 + mu) * 0.5 / ((1 - mu) * (2 * (1 + mu) - 0.5))
        yield variance_after("Q3", SequentialSgd(learning_rate=0.5, momentum=mu), expected, updates=updates)


def q4() -> Iterator[Finding]:
    """(1 + g) η c / (B λ (1 − g) (2 + g))."""
    yield variance_after("Q4", Agd(delay=1, learning_rate=0.5), 1.5 * 0.5 / (0.5 * 2.5), updates=100)
    yield variance_after("Q4", AsyncSgd(learning_rate=0.5), 1.5 * 0.5 / (0.5 * 2.5), updates=100, workers=2)


def q5() -> Iterator[Finding]:
    """The discrete Lyapunov equation of the companion matrix."""
    for rate, delay, mu in ((0.125, 3, 0.0), (0.06, 3, 0.5), (0.05, 8, 0.0), (0.03, 16, 0.0)):
        expected = stationary(rate, rate**2, delay=delay, momentum=mu)
        method = Agd(delay=delay, learning_rate=rate, momentum=mu)
        yield variance_after("Q5", method, expected, updates=settled(rate, delay=delay, momentum=mu))
    expected = stationary(0.05, 0.05**2, delay=3, momentum=0.5)
    pushed = AsyncMsgd(learning_rate=0.05, momentum=0.5)
    yield variance_after("Q5", pushed, expected, updates=settled(0.05, delay=3, momentum=0.5), workers=4)


def q12() -> Iterator[Finding]:
    """One curvature: the mean of local steps has the mean and variance of sync-sgd with batch N b."""
    workers, batch, rate, k, rounds = 4, 2, 0.3, 3, 2
    method = KAvg(k=k, learning_rate=rate)
    played = play(method, [1.0], updates=k * rounds, copies=COPIES, workers=workers, batch=batch, variance=1.0)
    steps, shrink = k * rounds, 1 - rate
    variance = rate**2 / (workers * batch) * (1 - shrink ** (2 * steps)) / (1 - shrink**2)
    end, run = played.path[-1], named(method, f"{workers} workers", f"{rounds} rounds")
    yield Finding("Q12 mean", run, shrink**steps, float(end.mean()), 4 * sqrt(variance / COPIES))
    yield Finding("Q12 variance", run, variance, float(end.var()), 4 * variance * sqrt(2 / COPIES))


def q13() -> Iterator[Finding]:
    """Spread of the workers after k local steps: (1 − 1/N) η² c / b (1 − (1 − g)^2k) / (1 − (1 − g)²)."""
    workers, batch, rate = 4, 2, 0.3
    for k in (1, 3, 7):
        method = KAvg(k=8, learning_rate=rate)
        played = play(method, [1.0], updates=8 + k, copies=COPIES, workers=workers, batch=batch, variance=1.0)
        shrink = (1 - rate) ** 2
        expected = (1 - 1 / workers) * rate**2 / batch * (1 - shrink**k) / (1 - shrink)
        found = float(played.local().var(axis=0).mean())
        run = f"k-avg ({workers} workers, {k} steps into a round)"
        yield Finding("Q13", run, expected, found, 4 * expected * sqrt(2 / (COPIES * (workers - 1))))


EXPERIMENTS: tuple[Experiment, ...] = (q1, q2, q3, q4, q5, q12, q13)


@pytest.mark.parametrize("experiment", sampled(EXPERIMENTS, [q2, q3, q4, q12, q13]))
def test_runs_show_what_is_exact(experiment: Experiment) -> None:
    for finding in experiment():
        assert finding.holds, finding
