"""Run time and staleness if a server waits for some or none of its workers (O3: Dutta et al. 2018), and overlap.

Rules of this file: N workers, K gradients per update, messages and updates cost nothing. Laws of means are checked to
four standard errors, by batch means, because successive updates depend on each other; laws of counting (staleness) hold
for any times, except for the rounds cut off at the end: O(N² / gradients), with 4 as the constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.methods.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.methods.layerwise import Agd
from paceline.algorithms.methods.parameter_server import AsyncSgd, Softsync, SyncSgdPs
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork, NetworkModel, NoCost
from tests.clusters import fixed_costs
from tests.support import FixedTiming, job_of
from tests.thorough import cases, extra, sampled

N = 8
FREE = NoCost()
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


def run(method: Any, updates: int, timing: FixedTiming, workers: int = N, network: NetworkModel = FREE) -> Trace:
    return simulate_job(job_of(method, workers, steps=updates), timing, network, Schedule(10**9))


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


# --- staleness ------------------------------------------------------------------------------------------------------


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


def test_exponential_service_gives_a_geometric_law() -> None:
    """P(τ = s) = (1/N)(1 − 1/N)^s for async-sgd."""
    steps = 8_000
    lags = Counter(row.staleness for row in run(AsyncSgd(), steps, times("exponential", N)).updates)
    for lag in range(8):
        share = (1 / N) * (1 - 1 / N) ** lag
        assert lags[lag] / steps == pytest.approx(share, abs=3 * (share * (1 - share) / steps) ** 0.5)


@pytest.mark.parametrize("rates", sampled([[1, 1, 2, 0.5], [20, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 2, 0.5]]))
def test_unlike_workers_have_unlike_staleness(rates: list[float]) -> None:
    """Numbers 27 and 28: worker i's own mean is (R − r_i)/r_i, and the mean of these is at least that per gradient.

    R is the sum of the rates. They are equal only where all rates are (AM–HM), else here more than 0.5 apart.
    """
    total, timing = sum(rates), times("exponential", 4, [1 / rate for rate in rates])
    rows = run(AsyncSgd(), cases(6_000, 12_000), timing, workers=4).updates
    means = []
    for rank, rate in enumerate(rates):
        own = [row.staleness for row in rows if row.rank == rank]
        means.append(np.mean(own))
        assert means[-1] == pytest.approx((total - rate) / rate, abs=4 * np.std(own) / len(own) ** 0.5)
    each = np.mean([row.staleness for row in rows])
    assert np.mean(means) == pytest.approx(each, abs=0.05) if len(set(rates)) == 1 else np.mean(means) > each + 0.5


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_equal_deterministic_workers_are_workers_minus_one_behind(workers: int) -> None:
    """Number 25, and O3 for any number of them."""
    lags = [row.staleness for row in run(AsyncSgd(), 40, FixedTiming(), workers).updates]
    assert lags == [min(index, workers - 1) for index in range(40)]


# --- speedup and overlap ---------------------------------------------------------------------------------------------


def test_more_workers_never_speed_up_beyond_their_number() -> None:
    """One worker has efficiency 1."""
    timing = times("lognormal", N)
    free_s = run(SequentialSgd(), 200, timing, 1).wall_s
    network = MeasuredNetwork(lambda _kind, members, _nbytes: 0.1 * (members - 1), lambda _: 0.1)
    for workers in (1, 2, 4, 8):
        speedup = workers * free_s / run(SyncSgd(), 200, timing, workers, network).wall_s
        assert speedup == 1 if workers == 1 else speedup < workers


@pytest.mark.parametrize("delay", [1, 2])
@pytest.mark.parametrize(("compute", "exchange"), [(1.0, 0.5), (1.0, 3.0)])
def test_agd_steps_as_fast_as_the_slower_of_its_two_pipes(delay: int, compute: float, exchange: float) -> None:
    """Step → max(compute + update, exchange), once the pipe is full; with delay 0 their sum."""
    network, timing = fixed_costs(collective_s=exchange), FixedTiming(compute=compute, work=0.25)
    late, blocking = (durations_of(run(Agd(delay=d), 12, timing, 2, network)) for d in (delay, 0))
    assert late[delay + 2 :] == pytest.approx(max(compute + 0.25, exchange))
    assert blocking[1:] == pytest.approx(compute + exchange + 0.25)
