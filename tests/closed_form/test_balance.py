"""Dynamic batch sizes in virtual time: their effects and limits, and how they follow the speeds of a cluster.

Staleness here is that of the run after its first quarter, in which batches settle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Contribution, Rank
from paceline.algorithms.methods.dynamic_batch import DbsSgd, SyncDbsSgd, Timed, apportion
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.checking.replay import Recording, replay
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.clusters import fixed_costs
from tests.support import FixedTiming, job_of

RATES = (8, 4, 4, 2, 2, 1, 1, 1)
BASE = 8
"""the batch of every worker in `job_of`"""


@dataclass(frozen=True)
class Speeds(FixedTiming):
    """Seconds that follow from the batch: t = overhead + samples / speed, with a speed that may change at any step."""

    speed: Callable[[int, int], float] = lambda _rank, _step: 1.0
    overhead: Callable[[int], float] = lambda _: 0.0
    noise: float = 0.0

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        factor = np.random.default_rng((rank, step)).lognormal(0.0, self.noise) if self.noise else 1.0
        return float((self.overhead(rank) + samples / self.speed(rank, step)) * factor)


def unlike(**other: Any) -> Speeds:
    return Speeds(speed=lambda rank, _: float(RATES[rank]), **other)


@dataclass(frozen=True, kw_only=True)
class KnownSpeeds(DbsSgd):
    """The batches that the true speeds ask for, from the first answer on."""

    def rebalanced(self, batches: tuple[int, ...], estimates: Sequence[Any]) -> tuple[int, ...]:
        return apportion(sum(batches), RATES)


def simulated(method: Method, timing: FixedTiming, workers: int = 8, updates: int = 4000, base: int = BASE) -> Trace:
    job = job_of(method, workers, steps=updates, batch=base)
    return simulate_job(job, timing, NoCost(), Schedule(10**9))


def test_batches_change_after_the_interval_and_not_before() -> None:
    batches = [
        simulated(DbsSgd(interval=32), unlike(), updates=updates).states[Rank(8)].batches for updates in (31, 32)
    ]
    assert batches[0] == (BASE,) * 8
    assert batches[1] != batches[0]


def test_a_gradient_counts_by_its_batch_or_all_the_same() -> None:
    """The weight of a gradient of 3 samples, where a worker has 4 on average."""
    push = Timed(1.0, Contribution(rank=Rank(0), step=0, version=0, samples=3), seconds=1.0, base=4.0)
    assert DbsSgd().weight(push) == 0.75
    assert DbsSgd(weighting="equal").weight(push) == 1.0


def test_equal_weights_change_the_weights_and_not_the_times() -> None:
    methods = DbsSgd(weighting="equal"), DbsSgd()
    equal, by_batch = (simulated(method, unlike(), updates=200) for method in methods)
    assert equal.spans == by_batch.spans
    assert not np.allclose(equal.weights, by_batch.weights)


def batches(trace: Trace) -> tuple[int, ...]:
    """Returns the batches in force at the end of a run."""
    server: Any = trace.states[Rank(len(trace.states) - 1)]
    return tuple(server.batches)


def settled_lags(trace: Trace) -> list[tuple[int, int]]:
    rows = trace.updates[len(trace.updates) // 4 :]
    return [(row.rank, row.staleness) for row in rows]


def staleness(trace: Trace) -> tuple[float, float, int]:
    """Mean of updates, mean of nodes' means, largest."""
    lags = settled_lags(trace)
    nodes = [np.mean([lag for rank, lag in lags if rank == node]) for node in range(8)]
    return float(np.mean([lag for _, lag in lags])), float(np.mean(nodes)), max(lag for _, lag in lags)


# --- 34: where there is nothing to balance ----------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_on_equal_workers_it_is_async_sgd_event_by_event(workers: int) -> None:
    """Number 34: spans, updates and weights, bit for bit."""
    costs = fixed_costs(message_s=0.125)
    balanced, free = (
        simulate_job(job_of(method, workers, steps=200), Speeds(), costs, Schedule(1))
        for method in (DbsSgd(interval=4), AsyncSgd())
    )
    assert balanced.spans == free.spans
    assert balanced.updates == free.updates
    np.testing.assert_array_equal(balanced.weights, free.weights)


def test_the_dead_band_keeps_noise_from_moving_batches() -> None:
    """Number 34 where steps vary by 3 %: means vary by less than the band. Without one, batches would move."""
    still, moving = (
        batches(simulated(DbsSgd(interval=4, dead_band=band), Speeds(noise=0.03), workers=4, updates=400, base=64))
        for band in (0.1, 0.0)
    )
    assert still == (64,) * 4
    assert moving != still


# --- staleness (28) ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [KnownSpeeds(interval=1), DbsSgd()], ids=["known", "measured"])
def test_it_lowers_the_nodes_mean_and_the_largest_and_not_the_mean(method: DbsSgd) -> None:
    """Batches 178, 89, 89, 45, 45, 22, 22, 22 instead of 64 each; the mean of updates is P − 1 = 7 with both.

    The mean of nodes' means falls from mean((R − r_i) / r_i) = 12.3 to 7, as number 28 has it for equal rates, and the
    largest from 22 to 13 at most.
    """
    equal, shared = (staleness(simulated(one, unlike(), base=64)) for one in (AsyncSgd(), method))
    assert equal[0] == pytest.approx(7.0, abs=0.05)
    assert shared[0] == pytest.approx(7.0, abs=0.05)
    assert equal[1] == pytest.approx(np.mean([(sum(RATES) - rate) / rate for rate in RATES]), abs=0.15)
    assert shared[1] == pytest.approx(7.0, abs=0.05)
    assert equal[2] in (22, 23)
    assert shared[2] <= 13


# --- speed-up ---------------------------------------------------------------------------------------------------------


def test_the_time_of_a_total_batch_is_the_slowest_nodes() -> None:
    """The time until all workers are done falls by Σv / (P min v): 23 / 8, to whole samples of the slowest."""
    timing = unlike()
    total = BASE * len(RATES)
    equal = max(timing.compute_s(Rank(rank), 0, BASE) for rank in range(8))
    shared = [timing.compute_s(Rank(rank), 0, batch) for rank, batch in enumerate(apportion(total, RATES))]
    assert equal / max(shared) == pytest.approx(sum(RATES) / (8 * min(RATES)), rel=1 / min(apportion(total, RATES)))


# --- estimation -------------------------------------------------------------------------------------------------------


def test_overheads_are_found_and_made_up_for() -> None:
    """Unlike overheads: in the end all take the same time, to one sample of each."""
    timing = unlike(overhead=lambda rank: 0.25 * (rank % 3))
    found = batches(simulated(DbsSgd(dead_band=0.0), timing))
    times = [timing.compute_s(Rank(rank), 0, batch) for rank, batch in enumerate(found)]
    assert sum(found) == BASE * 8
    for one, rate in zip(times, RATES, strict=True):
        assert abs(one - np.mean(times)) <= 1.5 / rate


def test_batches_follow_a_node_that_slows_down() -> None:
    """Half way, the fastest node falls to a quarter of its speed: the final batches are those of the new speeds."""
    timing = Speeds(speed=lambda rank, step: RATES[rank] / (4 if rank == 0 and step >= 100 else 1))
    before, after = (simulated(DbsSgd(dead_band=0.0), timing, updates=updates) for updates in (600, 4000))
    assert batches(before) == apportion(BASE * 8, RATES)
    assert batches(after) == apportion(BASE * 8, (2, *RATES[1:]))


@pytest.mark.parametrize("overhead", [0.0, 0.25])
def test_synchronous_workers_end_their_gradients_together(overhead: float) -> None:
    """The batches of the speeds, the same at every worker; nobody waits for more than a sample of the slowest."""
    timing = unlike(overhead=lambda rank: overhead * (rank % 3))
    trace = simulated(SyncDbsSgd(interval=4, dead_band=0.0), timing, updates=80)
    states: list[Any] = [trace.states[Rank(rank)] for rank in range(8)]
    assert len({state.batches for state in states}) == 1
    times = [timing.compute_s(Rank(rank), 0, batch) for rank, batch in enumerate(states[0].batches)]
    assert sum(states[0].batches) == BASE * 8
    for one, rate in zip(times, RATES, strict=True):
        assert abs(one - np.mean(times)) <= 1.5 / rate
    if not overhead:
        assert states[0].batches == apportion(BASE * 8, RATES)
    np.testing.assert_array_equal(states[0].weights.vector, states[7].weights.vector)


def test_with_a_dead_band_they_follow_to_within_it() -> None:
    timing = Speeds(speed=lambda rank, step: RATES[rank] / (4 if rank == 0 and step >= 100 else 1))
    found, ideal = batches(simulated(DbsSgd(), timing)), apportion(BASE * 8, (2, *RATES[1:]))
    assert max(abs(one - other) / one for one, other in zip(found, ideal, strict=True)) <= DbsSgd().dead_band


def test_a_replay_shares_out_the_batches_as_the_run_did() -> None:
    """`Now` is recorded: another clock, the same batches and the same weights."""
    job = job_of(DbsSgd(interval=8), 8, steps=200)
    run = simulate_job(job, unlike(), NoCost(), Schedule(10**9))
    again = replay(job, Recording.of(run.heard, run.now_s))
    assert {row.samples for row in run.updates} != {BASE}
    assert [row.samples for row in again.updates] == [row.samples for row in run.updates]
    np.testing.assert_array_equal(again.weights, run.weights)
