"""Run time and staleness if a server waits for some of its workers (O3: Dutta et al. 2018), and number 24.

Rules of this file: N workers, K gradients per update, messages and updates cost nothing. Laws of means are checked to
four standard errors, by batch means, because successive updates depend on each other; laws of counting (staleness) hold
for any times, except for the rounds cut off at the end: O(N² / gradients), with 4 as the constant. The case K = 1, its
geometric law and numbers 25, 27 and 28 are in test_simulator_waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.methods.parameter_server import Softsync, SyncSgdPs
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.support import FixedTiming, job_of
from tests.thorough import extra, sampled

N = 8
LAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Any]] = {
    "exponential": lambda generator, shape: generator.exponential(1.0, shape),
    "lognormal": lambda generator, shape: generator.lognormal(-(0.5**2) / 2, 0.5, shape),
    "uniform": lambda generator, shape: generator.uniform(0.0, 2.0, shape),
    "equal": lambda _, shape: np.ones(shape),
}
"""all of mean 1"""
UNLIKE = [1.0, 1.0, 1.0, 1.0, 0.25, 0.25, 2.0, 0.5]
"""mean times of workers on different devices"""
ANY_LAW = pytest.mark.parametrize(
    ("law", "scale"),
    [("lognormal", UNLIKE), *map(extra, [("exponential", None), ("equal", UNLIKE), ("equal", None)])],
)
EVERY_K = pytest.mark.parametrize("k", sampled([1, 2, 4, 8], [1, 4]))


def drawn_times(law: str, workers: int) -> Any:
    """A time for every rank and step."""
    return LAWS[law](np.random.default_rng(np.random.SeedSequence(7)), (workers, 4000))


def times(law: str, workers: int, scale: Sequence[float] | None = None) -> FixedTiming:
    """Those times, scaled for each worker; after 4000 steps they come round again."""
    drawn = drawn_times(law, workers) * np.reshape(scale or [1.0] * workers, (-1, 1))
    return FixedTiming(compute=lambda rank, step: float(drawn[rank, step % 4000]))


def run(method: Any, updates: int, timing: FixedTiming, workers: int = N) -> Trace:
    return simulate_job(job_of(method, workers, steps=updates), timing, NoCost(), Schedule(10**9))


def harmonic(number: int) -> float:
    """1 + 1/2 + … + 1/number."""
    return sum(1 / i for i in range(1, number + 1))


def durations_of(trace: Trace) -> Any:
    """Returns the seconds from update to update."""
    return np.diff([0.0, *sorted({row.time_s for row in trace.updates})])


def check_time(trace: Trace, expected: float) -> None:
    """The mean time from update to update, to four standard errors of the means of 20 batches."""
    durations = durations_of(trace)
    batches = np.array([batch.mean() for batch in np.array_split(durations, 20)])
    error = batches.std(ddof=1) / 20**0.5
    assert 0 < error < expected / 10  # otherwise the test would prove nothing
    assert durations.mean() == pytest.approx(expected, abs=4 * error)


def check_mean_lag(trace: Trace, expected: float, workers: int = N) -> None:
    lags = [row.staleness for row in trace.updates]
    assert np.mean(lags) == pytest.approx(expected, abs=4 * workers**2 / len(lags))


# --- run time --------------------------------------------------------------------------------------------------------


@EVERY_K
@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ("exponential", lambda k: harmonic(N) - harmonic(N - k)),  # (H_N − H_{N−K}) / μ
        ("uniform", lambda k: 2 * k / (N + 1)),  # on [0, 2]
    ],
)
def test_k_sync_takes_the_kth_of_n_times(law: str, expected: Callable[[int], float], k: int) -> None:
    """E[X_{K:N}]; each update takes the k-th smallest time of its own step. Nothing is stale."""
    trace = run(KSync(k=k), 500, times(law, N))
    assert durations_of(trace) == pytest.approx(np.sort(drawn_times(law, N), axis=0)[k - 1, :500])
    check_time(trace, expected(k))
    assert {row.staleness for row in trace.updates} == {0}


@EVERY_K
def test_k_async_takes_as_long_with_exponential_times(k: int) -> None:
    """(H_N − H_{N−K}) / μ: work that the others have done already does not matter to a law without memory."""
    check_time(run(KAsync(k=k), 3000 // k, times("exponential", N)), harmonic(N) - harmonic(N - k))


@EVERY_K
@pytest.mark.parametrize("law", sampled(["exponential", "lognormal", "uniform"], ["lognormal"]))
def test_k_batch_async_takes_k_nths_of_a_gradient(k: int, law: str) -> None:
    """K E[X] / N for any law: N renewal processes side by side."""
    check_time(run(KBatchAsync(k=k), 3000 // k, times(law, N)), k / N)


@pytest.mark.parametrize("backups", [0, 1, 4])
def test_backup_workers_take_no_longer_than_the_slowest_and_no_less_than_k_sync(backups: int) -> None:
    """No closed form is known to us; it lies between those of K-sync and of hardsync, and is the latter for B = 0."""
    durations = durations_of(run(BackupWorkers(backups=backups), 400, times("exponential", N)))
    error = durations.std() / 400**0.5
    low, high = harmonic(N) - harmonic(backups), harmonic(N)
    assert low - 4 * error <= durations.mean() <= high + 4 * error
    assert backups or durations.mean() == pytest.approx(high, abs=4 * error)


# --- staleness, number 24 --------------------------------------------------------------------------------------------


@EVERY_K
@ANY_LAW
def test_the_mean_lag_of_k_async_is_n_over_k_less_1(k: int, law: str, scale: Sequence[float] | None) -> None:
    """N/K − 1, any law, any speeds: the gaps between a worker's updates add up to all updates."""
    check_mean_lag(run(KAsync(k=k), 1600 // k, times(law, N, scale)), N / k - 1)


@EVERY_K
@ANY_LAW
def test_the_mean_lag_of_k_batch_async_is_n_less_1_over_k(k: int, law: str, scale: Sequence[float] | None) -> None:
    """Number 24 with c = K: (N − 1)/K, any law, any speeds."""
    check_mean_lag(run(KBatchAsync(k=k), 1600 // k, times(law, N, scale)), (N - 1) / k)


@pytest.mark.parametrize("n", [1, 4, 8])
@pytest.mark.parametrize("law", sampled(["lognormal", "exponential", "equal"], ["lognormal"]))
def test_the_mean_lag_of_softsync_is_the_others_over_c(n: int, law: str) -> None:
    """Number 24: (λ − 1)/c, c = ⌊λ/n⌋; and so 1-softsync is not hardsync, whose every lag is 0 (number 21)."""
    check_mean_lag(run(Softsync(n=n), 1600 // (N // n), times(law, N)), (N - 1) / (N // n))
    assert {row.staleness for row in run(SyncSgdPs(), 50, times(law, N)).updates} == {0}
