"""The noisy quadratic: closed forms beside simulated runs (O5, Q1 to Q13).

Means and variances, limits of stability, and asynchronous SGD with exponential step times. What elastic averaging adds
(Q17, Q18) is in tests/property/test_elastic.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import log, pi, sin, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.optimize import least_squares

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.methods.layerwise import Agd, LayerwiseAgd
from paceline.algorithms.methods.parameter_server import AsyncMsgd, AsyncSgd
from paceline.algorithms.methods.periodic import KAvg
from tests.quadratic import (
    Array,
    Experiment,
    Finding,
    exponential,
    limit,
    moments,
    named,
    play,
    settled,
    stationary,
)
from tests.thorough import THOROUGH, cases, sampled

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


# --- limits of stability ----------------------------------------------------------------------------------------------


def limit_of(oracle: str, method: SgdMethod, expected: float, *, workers: int = 1, span: float = 0.05) -> Finding:
    """Returns the curvature at which the growth of w crosses 0, among curvatures around the closed form; η = 1, no
    noise.
    """
    curvatures = expected * np.linspace(1 - span, 1 + span, 40)
    slow = 1 - method.momentum
    updates = int(400 / slow + 400 * slow / expected)
    path = play(method, list(curvatures), updates=updates, variance=0.0, workers=workers).path[:, :, 0]
    with np.errstate(over="ignore", invalid="ignore"):
        third, last = (np.abs(part).mean(axis=0) for part in np.array_split(path, 4)[2:])
        growth = np.log(last / third)
    # an overflow means growth; a decayed value consists of rounding errors, which may grow or shrink
    beyond = int(np.argmax(~(growth < 0) & ~(last < 1e-9)))
    measured = np.interp(0.0, growth[beyond - 1 : beyond + 1], curvatures[beyond - 1 : beyond + 1])
    return Finding(
        oracle,
        named(method, *([f"{workers} workers"] if workers > 1 else [])),
        expected,
        float(measured),
        1e-3 * expected,
    )


def q6() -> Iterator[Finding]:
    """Delayed gradient descent is stable iff g < 2 sin(π / (2 (2τ + 1))); number 39 of docs/invariants.md."""
    for delay in (0, 1, 2, 3, 4, 8, 16, 31) if THOROUGH else (3,):
        expected = 2 * sin(pi / (2 * (2 * delay + 1)))
        for delayed, workers in ((Agd, 1), (Agd, 3), (LayerwiseAgd, 1)):
            yield limit_of("Q6", delayed(delay=delay, learning_rate=1.0), expected, workers=workers)


def q7() -> Iterator[Finding]:
    """Delay 1 with heavy ball: g < 1 − μ; longer delays by the roots of the companion matrix."""
    for mu in (0.5, 0.9, 0.95):
        yield limit_of("Q7", Agd(delay=1, learning_rate=1.0, momentum=mu), 1 - mu)
    for delay, mu in ((8, 0.5), (16, 0.9)):
        yield limit_of("Q5, Q7", Agd(delay=delay, learning_rate=1.0, momentum=mu), limit(delay=delay, momentum=mu))
    method = AsyncMsgd(learning_rate=1.0, momentum=0.5)
    yield limit_of("Q7, Q11", method, limit(delay=2, momentum=0.5), workers=3)


def q8() -> Iterator[Finding]:
    """No delay, heavy ball: g < 2 (1 + μ)."""
    for mu in (0.5, 0.9, 0.95):
        yield limit_of("Q8", SequentialSgd(learning_rate=1.0, momentum=mu), 2 * (1 + mu), span=0.002)


def q11() -> Iterator[Finding]:
    """M equal workers in round robin: Q6 at τ = M − 1."""
    for workers in (2, 4, 8):
        expected = 2 * sin(pi / (2 * (2 * workers - 1)))
        yield limit_of("Q11", AsyncSgd(learning_rate=1.0), expected, workers=workers)


# --- exponential step times -------------------------------------------------------------------------------------------

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


EXPERIMENTS: tuple[Experiment, ...] = (q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13)


@pytest.mark.parametrize("experiment", sampled(EXPERIMENTS, [q2, q3, q4, q6, q8, q9, q11, q12, q13]))
def test_runs_show_what_is_exact(experiment: Experiment) -> None:
    for finding in experiment():
        assert finding.holds, finding


@pytest.mark.parametrize(("pushed", "momentum"), [(AsyncSgd, 0.0), (AsyncMsgd, 0.5)])
def test_equal_workers_in_turn_are_a_delay_bit_for_bit(pushed: type[AsyncSgd], momentum: float) -> None:
    """Q11 with noise and all: worker r's gradient number i is the sequence's number M i + r, M − 1 updates old."""
    run: dict[str, Any] = {"copies": 50, "batch": 4, "variance": 1.0}
    in_turn = play(pushed(learning_rate=0.1, momentum=momentum), [1.0, 0.5], workers=4, updates=40, **run)
    delayed = play(Agd(learning_rate=0.1, momentum=momentum, delay=3), [1.0, 0.5], updates=43, **run)
    assert [row.staleness for row in in_turn.trace.updates][3:] == [3] * 37
    np.testing.assert_array_equal(in_turn.path[:41], delayed.path[3:44])


def test_beyond_the_limit_the_mean_square_grows() -> None:
    """Q10: beyond the limit and only there, by more than four standard errors."""
    growths = [finding for finding in growths_of_the_mean_square() if finding.oracle == "Q10 growth of E w²"]
    assert [finding.measured + finding.within < 0 for finding in growths] == [share < 1 for share in SHARES]
    assert [finding.measured - finding.within > 0 for finding in growths] == [share > 1 for share in SHARES]
