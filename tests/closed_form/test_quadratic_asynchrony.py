"""Asynchronous SGD with exponential step times on the quadratic: closed forms beside simulated runs (O5, Q9, Q10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt

import numpy as np
import pytest
from scipy.optimize import least_squares

from paceline.algorithms.server import AsyncSgd
from tests.quadratic import Array, Experiment, Finding, exponential, moments, play

GROUPS = 20
"""of runs or parts of a run, whose spread is the standard error"""


def spread_over_runs(workers: int, gs: Sequence[float], *, updates: int, runs: int) -> Array:
    """w after each update of async-sgd with exponential step times, by run, update and g; no noise, w = 1 at first."""
    paths = []
    for seed in range(1, runs + 1):
        played = play(AsyncSgd(rate=1.0), gs, updates=updates, workers=workers, timing=exponential(seed), variance=0.0)
        paths.append(played.path[: updates + 1, :, 0])
    return np.array(paths)


def q9() -> Iterator[Finding]:
    """E w' − E w = (1 − 1/M) (E w − E w_before) − (g/M) E w: staleness is a momentum of 1 − 1/M.

    The mean over runs follows it, and so does, in one long run with noise, the covariance of w with w some updates ago.
    """
    for workers, g in ((4, 0.2), (8, 0.2)):
        paths = spread_over_runs(workers, [g], updates=40, runs=GROUPS * 10)[:, :, 0]
        run = f"async-sgd ({workers} workers, exponential times, g {g}), mean of {len(paths)} runs"
        yield from followed(run, workers, g, [part.mean(axis=0) for part in np.array_split(paths, GROUPS)])
    for workers, g in ((8, 0.2), (16, 0.3)):
        path = stationary_path([g], copies=500, updates=6_000, workers=workers)[:, 0]
        parts = [covariances(part, lags=4 * workers) for part in np.array_split(path, GROUPS)]
        yield from followed(f"async-sgd ({workers} workers, exponential times, g {g}), covariance", workers, g, parts)


def stationary_path(gs: Sequence[float], *, copies: int, updates: int, workers: int) -> Array:
    """w after each update of one long run with noise of variance 1, once it has forgotten its start."""
    method, timing = AsyncSgd(rate=1.0), exponential()
    run = play(method, gs, copies=copies, updates=updates, workers=workers, timing=timing, variance=1.0, distance=0.0)
    return run.path[300:]


def covariances(path: Array, *, lags: int) -> Array:
    """The mean of w_{t+k} w_t for k = 0, 1, …; of a path by update and copy."""
    ends = len(path) - lags
    return np.array([(path[lag : lag + ends] * path[:ends]).mean() for lag in range(lags)])


def followed(run: str, workers: int, g: float, parts: Sequence[Array]) -> Iterator[Finding]:
    """Momentum and rate of the recursion that the mean of these sequences follows, by the jackknife over them."""
    together = np.sum(parts, axis=0)
    whole = fitted(together / GROUPS)
    without = np.array([fitted((together - part) / (GROUPS - 1)) for part in parts])
    errors = np.sqrt((GROUPS - 1) * without.var(axis=0))
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
    """Mean-square stable iff g < (1 + √(1 + 8M)) / (2M); E w² after 20 and 40 updates, and with noise for ever."""
    workers, edge = 4, (1 + sqrt(33)) / 8
    runs, shares = 400, [0.8, 0.93, 1.07, 1.2]
    squares = spread_over_runs(workers, [share * edge for share in shares], updates=40, runs=runs) ** 2
    for index, share in enumerate(shares):
        for updates in (10, 40):
            expected = np.linalg.matrix_power(moments(share * edge, workers), updates).sum(axis=1)[0]
            found = squares[:, updates, index]
            run = f"async-sgd ({workers} workers, exponential times, {share:g} of the limit, {updates} updates)"
            yield Finding("Q10 E w²", run, float(expected), float(found.mean()), 4 * float(found.std()) / sqrt(runs))
    shares = [0.3, 0.5, 0.7]
    path = stationary_path([share * edge for share in shares], copies=100, updates=10_000, workers=workers)
    parts = np.array([(part**2).mean(axis=(0, 2)) for part in np.array_split(path, GROUPS)])
    for index, share in enumerate(shares):
        matrix, source = moments(share * edge, workers), np.array([1, 1 / workers, 1 / workers, 0])
        expected = np.linalg.solve(np.eye(4) - matrix, source)[0]
        found = parts[:, index]
        run = f"async-sgd ({workers} workers, exponential times, {share:g} of the limit, noise)"
        yield Finding("Q10 variance", run, float(expected), float(found.mean()), 4 * float(found.std()) / sqrt(GROUPS))


EXPERIMENTS: tuple[Experiment, ...] = (q9, q10)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_runs_show_what_is_exact(experiment: Experiment) -> None:
    for finding in experiment():
        assert finding.holds, finding
