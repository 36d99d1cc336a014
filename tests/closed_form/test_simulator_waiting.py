"""Simulated runs against the laws of waiting, staleness and overlap (docs/invariants.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from paceline.algorithms.methods.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.methods.elastic import SyncEasgd3
from paceline.algorithms.methods.layerwise import Agd
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork, NoCost
from tests.clusters import fixed_costs
from tests.support import FixedTiming, job_of
from tests.thorough import cases, sampled

Law = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def exponential(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.exponential(1.0, shape)


def lognormal(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.lognormal(-(0.25**2) / 2, 0.25, shape)


def drawn(law: Law, workers: int, steps: int, scale: Sequence[float] | None = None) -> FixedTiming:
    """Compute times of mean 1, or `scale`, drawn once for every rank and step; a server computes none."""
    times = law(np.random.default_rng(np.random.SeedSequence(7)), (workers, steps)) * np.reshape(
        scale or [1.0] * workers, (-1, 1)
    )
    return FixedTiming(compute=lambda rank, step: float(times[rank, step % steps]))


def step_times(trace: Trace) -> np.ndarray:
    """Seconds from each update of rank 0 to its next."""
    return np.diff([0.0] + [update.time_s for update in trace.updates if update.rank == 0])


def staleness(workers: int, steps: int, timing: FixedTiming) -> list[tuple[int, int]]:
    """(rank, staleness) of every update of asynchronous SGD whose messages cost nothing."""
    trace = simulate_job(job_of(AsyncSgd(), workers, steps=steps), timing, NoCost(), Schedule(10**9))
    return [(update.rank, update.staleness) for update in trace.updates]


def test_exponential_service_gives_a_geometric_law() -> None:
    """P(τ = s) = (1/N)(1 − 1/N)^s."""
    workers, steps = 8, 8_000
    lags = Counter(lag for _, lag in staleness(workers, steps, drawn(exponential, workers, steps)))
    for lag in range(8):
        share = (1 / workers) * (1 - 1 / workers) ** lag
        assert lags[lag] / steps == pytest.approx(share, abs=3 * (share * (1 - share) / steps) ** 0.5)


@pytest.mark.parametrize("rates", sampled([[1, 1, 2, 0.5], [20, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 2, 0.5]]))
def test_unlike_workers_have_unlike_staleness(rates: list[float]) -> None:
    """Numbers 27 and 28: worker i's own mean is (R − r_i)/r_i, and the mean of these is at least that per gradient.

    R is the sum of the rates. They are equal only where all rates are (AM–HM), else here more than 0.5 apart.
    """
    steps, total = cases(6_000, 12_000), sum(rates)
    lags = staleness(4, steps, drawn(exponential, 4, steps, scale=[1 / rate for rate in rates]))
    means = []
    for rank, rate in enumerate(rates):
        own = [lag for worker, lag in lags if worker == rank]
        means.append(np.mean(own))
        assert means[-1] == pytest.approx((total - rate) / rate, abs=4 * np.std(own) / len(own) ** 0.5)
    each = np.mean([lag for _, lag in lags])
    assert np.mean(means) == pytest.approx(each, abs=0.05) if len(set(rates)) == 1 else np.mean(means) > each + 0.5


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_equal_deterministic_workers_are_workers_minus_one_behind(workers: int) -> None:
    """Number 25, and O3 for any number of them."""
    lags = [lag for _, lag in staleness(workers, 40, FixedTiming())]
    assert lags == [min(index, workers - 1) for index in range(40)]


def test_one_worker_has_efficiency_one_and_more_never_speed_up_beyond_their_number() -> None:
    steps, alone = 200, job_of(SequentialSgd(), 1, steps=200)
    timing = drawn(lognormal, 8, steps)
    free = simulate_job(alone, timing, NoCost(), Schedule(10**9)).wall_s
    for workers in (1, 2, 4, 8):
        network = MeasuredNetwork(lambda _kind, members, _nbytes: 0.1 * (members - 1), lambda _: 0.1)
        wall_s = simulate_job(job_of(SyncSgd(), workers, steps=steps), timing, network, Schedule(10**9)).wall_s
        speedup = workers * free / wall_s
        assert speedup == 1 if workers == 1 else speedup < workers


# --- overlap ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("compute", "trees"), [(1.0, 0.5), (1.0, 4.0), (0.0, 3.0)])
def test_sync_easgd3_hides_the_shorter_of_compute_and_communication(compute: float, trees: float) -> None:
    """Step = max(compute, broadcast + reduction) + update."""
    network = fixed_costs(collective_s=trees / 2)
    trace = simulate_job(
        job_of(SyncEasgd3(), 3, steps=6), FixedTiming(compute=compute, work=0.25), network, Schedule(1)
    )
    assert step_times(trace) == pytest.approx([max(compute, trees) + 0.25] * 6)


@pytest.mark.parametrize("delay", [1, 2])
@pytest.mark.parametrize(("compute", "exchange"), [(1.0, 0.5), (1.0, 3.0)])
def test_agd_steps_as_fast_as_the_slower_of_its_two_pipes(delay: int, compute: float, exchange: float) -> None:
    """Step → max(compute + update, exchange), once the pipe is full; with delay 0 their sum."""
    network = fixed_costs(collective_s=exchange)
    timing = FixedTiming(compute=compute, work=0.25)
    trace = simulate_job(job_of(Agd(delay=delay), 2, steps=12), timing, network, Schedule(1))
    assert step_times(trace)[delay + 2 :] == pytest.approx([max(compute + 0.25, exchange)] * (12 - delay - delay - 2))
    blocking = simulate_job(job_of(Agd(delay=0), 2, steps=12), timing, network, Schedule(1))
    assert step_times(blocking)[1:] == pytest.approx([compute + exchange + 0.25] * 11)
