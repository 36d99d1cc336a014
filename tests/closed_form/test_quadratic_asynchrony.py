"""Asynchronous SGD with exponential step times on the quadratic: closed forms beside simulated runs (O5, Q9, Q10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import log, sqrt

import numpy as np
import pytest
from scipy.optimize import least_squares

from paceline.algorithms.methods.parameter_server import AsyncSgd
from tests.quadratic import Array, Experiment, Finding, exponential, moments, play
from tests.thorough import THOROUGH, cases, sampled

SHARES = (0.8, 0.9, 1.1, 1.2) if THOROUGH else (0.8, 1.2)
"""of the limit of g; the nearer to 1, the more runs it takes to tell growth from decay"""
GROUPS = 20
"""number of runs or of parts of a run; their standard deviation gives the standard error"""


def spread_over_runs(workers: int, gs: Sequence[float], *, updates: int, runs: int) -> Array:
    """w after each update of async-sgd with exponential step times, by run, update and g; no noise, w = 1 at first."""
    paths = []
    for seed in range(1, runs + 1):
        played = play(
            AsyncSgd(learning_rate=1.0), gs, updates=updates, workers=workers, timing=exponential(seed), variance=0.0
        )
        paths.append(played.path[: updates + 1, :, 0])
    return np.array(paths)


def q9() -> Iterator[Finding]:
    """E w' − E w = (1 − 1/M) (E w − E w_before) − (g/M) E w: staleness is a momentum of 1 − 1/M.

    The mean over runs follows it, and so does, in one long run with noise, the covariance of w with w some updates ago.
    `make test-all` tries the latter, and another number of workers.
    """
    for workers, g in ((8, 0.2),) if not THOROUGH else ((4, 0.2), (8, 0.2)):
        paths = spread_over_runs(workers, [g], updates=40, runs=GROUPS * 10)[:, :, 0]
        run = f"async-sgd ({workers} workers, exponential times, g {g}), mean of {len(paths)} runs"
        yield from followed(run, workers, g, [part.mean(axis=0) for part in np.array_split(paths, GROUPS)])
    if not THOROUGH:
        return
    workers, g = 16, 0.3
    path = stationary_path([g], copies=500, updates=12_000, workers=workers)[:, 0]
    parts = [covariances(part, lags=4 * workers) for part in np.array_split(path, GROUPS)]
    yield from followed(f"async-sgd ({workers} workers, exponential times, g {g}), covariance", workers, g, parts)


def stationary_path(gs: Sequence[float], *, copies: int, updates: int, workers: int) -> Array:
    """w after each update of one long run with noise of variance 1, once it has forgotten its start."""
    method, timing = AsyncSgd(learning_rate=1.0), exponential()
    run = play(method, gs, copies=copies, updates=updates, workers=workers, timing=timing, variance=1.0, distance=0.0)
    return run.path[300:]


def covariances(path: Array, *, lags: int) -> Array:
    """The mean of w_{t+k} w_t for k = 0, 1, …; of a path by update and copy."""
    ends = len(path) - lags
    return np.array([(path[lag : lag + ends] * path[:ends]).mean() for lag in range(lags)])


def followed(run: str, workers: int, g: float, parts: Sequence[Array]) -> Iterator[Finding]:
    """Momentum and rate of the recursion that the mean of these sequences follows, by the jackknife over them."""
    whole, errors = jackknife(fitted, parts)
    for name, expected, one, error in zip(
        ("momentum", "rate"), (1 - 1 / workers, g / workers), whole, errors, strict=True
    ):
        yield Finding(f"Q9 {name}", run, expected, float(one), 4 * float(error))


def fitted(values: Array) -> Array:
    """Momentum and rate of the recursion whose solution is nearest to these values."""

    def residuals(guess: Array) -> Array:
        momentum, rate, *path = guess
        while len(path) < len(values):
            path.append(path[-1] + momentum * (path[-1] - path[-2]) - rate * path[-1])
        return np.array(path) - values

    answer: Array = least_squares(residuals, [0.5, 0.1, *values[:2]]).x
    return answer[:2]


def q10() -> Iterator[Finding]:
    """E w² is stable iff g < (1 + √(1 + 8M)) / (2M): its limit, its growth, and its stationary value under noise."""
    yield from growths_of_the_mean_square()
    workers, shares = 4, (0.3, 0.5, 0.7)
    gs = [share * mean_square_limit(workers) for share in shares]
    path = stationary_path(gs, copies=100, updates=10_000, workers=workers)
    whole, errors = jackknife(lambda mean: mean, [(part**2).mean(axis=(0, 2)) for part in np.array_split(path, GROUPS)])
    for g, share, found, error in zip(gs, shares, whole, errors, strict=True):
        run = f"async-sgd ({workers} workers, exponential times, g {share:g} of the limit), one run with noise"
        expected = stationary_mean_square(g, workers)
        yield Finding("Q10 stationary E w²", run, expected, float(found), 4 * float(error))


@cache
def growths_of_the_mean_square() -> tuple[Finding, ...]:
    """On both sides of the limit: E w² after some updates, and how fast its logarithm grows from there."""
    workers, early, late, shares = 4, 10, 50, SHARES
    gs = [share * mean_square_limit(workers) for share in shares]
    squares = spread_over_runs(workers, gs, updates=late, runs=GROUPS * cases(12, 60)) ** 2
    findings = []
    for index, (g, share) in enumerate(zip(gs, shares, strict=True)):
        run = f"async-sgd ({workers} workers, exponential times, g {share:g} of the limit), {len(squares)} runs"
        first, last = (mean_square(g, workers, updates) for updates in (early, late))
        found = squares[:, early, index]
        within = 4 * float(found.std()) / sqrt(len(found))
        findings.append(Finding(f"Q10 E w², {early} updates", run, first, float(found.mean()), within))
        parts = [part[:, :, index].mean(axis=0) for part in np.array_split(squares, GROUPS)]
        growth, error = jackknife(lambda mean: np.log(mean[late] / mean[early]) / (late - early), parts)
        expected = log(last / first) / (late - early)
        findings.append(Finding("Q10 growth of E w²", run, expected, float(growth), 4 * float(error)))
    return tuple(findings)


def jackknife(estimate: Callable[[Array], Array], parts: Sequence[Array]) -> tuple[Array, Array]:
    """Returns an estimate from the mean of equal parts, and its standard error."""
    total, count = np.sum(parts, axis=0), len(parts)
    without = np.array([estimate((total - part) / (count - 1)) for part in parts])
    return estimate(total / count), np.sqrt((count - 1) * without.var(axis=0))


def mean_square_limit(workers: int) -> float:
    """The g from which on E w² grows without noise (Q10)."""
    return (1 + sqrt(1 + 8 * workers)) / (2 * workers)


def mean_square(g: float, workers: int, updates: int) -> float:
    """E w² after so many updates from w = 1 everywhere."""
    return float(np.linalg.matrix_power(moments(g, workers), updates).sum(axis=1)[0])


def stationary_mean_square(g: float, workers: int) -> float:
    """E w² after many updates with noise of variance 1 in each; w is what its worker has next."""
    source = np.array([1, 1 / workers, 1 / workers, 0])
    return float(np.linalg.solve(np.eye(4) - moments(g, workers), source)[0])


EXPERIMENTS: tuple[Experiment, ...] = (q9, q10)


@pytest.mark.parametrize("experiment", sampled(EXPERIMENTS, [q9]))
def test_runs_show_what_is_exact(experiment: Experiment) -> None:
    for finding in experiment():
        assert finding.holds, finding


def test_beyond_the_limit_the_mean_square_grows() -> None:
    """Q10: beyond the limit and only there, by more than four standard errors."""
    growths = [finding for finding in growths_of_the_mean_square() if finding.oracle == "Q10 growth of E w²"]
    assert [finding.measured + finding.within < 0 for finding in growths] == [share < 1 for share in SHARES]
    assert [finding.measured - finding.within > 0 for finding in growths] == [share > 1 for share in SHARES]
