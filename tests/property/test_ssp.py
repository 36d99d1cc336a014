"""Invariants of stale synchronous parallel (numbers as in docs/invariants.md).

The gap of number 42 is taken at the instants at which a worker finishes a gradient: its gradients finished, this one
included, less those of the slowest worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import Gradient
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.algorithms.methods.ssp import Ssp
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Shuffled
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.clusters import fixed_costs
from tests.exact import ExactBowl
from tests.support import FixedTiming, job_of
from tests.thorough import cases

ORDERS = st.integers(0, 2**16).map(Shuffled)

PULLS: list[Literal["always", "when-stale"]] = ["always", "when-stale"]
VISIBILITIES: list[Literal["arrival", "clock-edge"]] = ["arrival", "clock-edge"]
METHODS = st.builds(Ssp, slack=st.integers(0, 3), pull=st.sampled_from(PULLS), visibility=st.sampled_from(VISIBILITIES))
WORKERS, STEPS = st.integers(1, 4), st.integers(0, 12)
LONG = 1e9
"""seconds that no run here reaches"""


def gaps(finishers: Iterable[int], workers: int) -> list[int]:
    """Returns at each finish of a gradient by how much its worker is ahead of the slowest."""
    clocks, found = [0] * workers, []
    for rank in finishers:
        clocks[rank] += 1
        found.append(clocks[rank] - min(clocks))
    return found


def finishers(run: AnyOrder) -> list[int]:
    return [entry.move.rank for entry in run.log if isinstance(entry.op, Gradient)]


def simulated(job: Job, timing: FixedTiming) -> Trace:
    return simulate_job(job, timing, NoCost(), Schedule(10**9))


def drawn_times(workers: int, steps: int, seed: int = 7) -> FixedTiming:
    """Exponential times of mean 1, drawn once."""
    times = np.random.default_rng(seed).exponential(1.0, (workers, steps))
    return FixedTiming(compute=lambda rank, step: float(times[rank, step % steps]))


# --- 42: the gap ------------------------------------------------------------------------------------------------------


@given(order=ORDERS, method=METHODS, workers=WORKERS, steps=STEPS, stop=STEPS)
def test_gap_and_lag_stay_within_their_bounds_in_every_order(
    order: Shuffled, method: Ssp, workers: int, steps: int, stop: int
) -> None:
    """Number 42 for all variants, with a stop on the way: neither gap nor version lag passes its bound, nothing is
    lost, and versions rise by 1.

    A gradient is finished when it is recorded; one that a stopped server kept is applied in the second part.
    """
    job = job_of(method, workers, steps=steps)
    bounds = method.bounds(workers)
    parts = run_in_parts(job, [min(stop, steps)], lambda: order)
    ends = [span.rank for part in parts for span in part.spans if span.activity == "compute"]
    assert all(gap <= bounds[Guarantee.BOUNDED_CLOCK_GAP] for gap in gaps(ends, workers))
    rows = [row for part in parts for row in part.updates]
    assert all(0 <= row.staleness <= bounds[Guarantee.BOUNDED_STALENESS] for row in rows)
    each = workers if method.visibility == "clock-edge" else 1
    assert [row.version_applied for row in rows] == [step for step in range(steps) for _ in range(each)]
    for rank in range(workers):
        own = [row.step for row in rows if row.rank == rank]
        assert own == list(range(len(own))), "an iteration is lost or applied twice"


@pytest.mark.parametrize("slack", [0, 1, 2, 4])
@pytest.mark.parametrize("pull", PULLS)
def test_the_gap_reaches_slack_plus_one(slack: int, pull: Literal["always", "when-stale"]) -> None:
    """Number 42: the bound is sharp. Eight workers, exponential times, messages for nothing."""
    trace = simulated(job_of(Ssp(slack=slack, pull=pull), 8, steps=800), drawn_times(8, 200))
    ends = sorted((span.end_s, span.rank) for span in trace.spans if span.activity == "compute")
    assert max(gaps((rank for _, rank in ends), 8)) == slack + 1


# --- 43: the two ends -------------------------------------------------------------------------------------------------


def starts(trace: Trace) -> dict[tuple[int, int], float]:
    return {(span.rank, span.step): span.start_s for span in trace.spans if span.activity == "compute"}


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_slack_0_has_the_schedule_of_synchronous_sgd(visibility: Literal["arrival", "clock-edge"]) -> None:
    """Number 43: every gradient starts when it does in sync-sgd."""
    method = Ssp(slack=0, visibility=visibility)
    edges = 20 if visibility == "clock-edge" else 20 * 5
    bounded = starts(simulated(job_of(method, 5, steps=edges), drawn_times(5, 20)))
    synchronous = starts(simulated(job_of(SyncSgd(), 5, steps=20), drawn_times(5, 20)))
    assert len(synchronous) == 100
    assert {key: bounded[key] for key in synchronous} == pytest.approx(synchronous, rel=1e-12)


def test_applied_on_arrival_slack_0_still_has_lags() -> None:
    """Number 43: 0 … P − 1 in each round, (P − 1)/2 in the mean, for eight workers 3.5."""
    trace = simulated(job_of(Ssp(slack=0), 8, steps=80), drawn_times(8, 20))
    lags = np.reshape([row.staleness for row in trace.updates], (10, 8))
    assert (lags == np.arange(8)).all()
    assert lags.mean() == 3.5


# --- the cache --------------------------------------------------------------------------------------------------------


@given(order=ORDERS, workers=WORKERS, slack=st.integers(0, 3), steps=STEPS)
def test_a_cache_is_as_fresh_as_it_must_be_and_holds_ones_own_updates(
    order: Shuffled, workers: int, slack: int, steps: int
) -> None:
    """Read my writes: with one worker the cache equals the server's weights, exactly, and every read is fresh enough.

    In general: the weights read by iteration c contain all updates of iterations before c − s, of every worker.
    """
    method: Any = Ssp(slack=slack, pull="when-stale", learning_rate=Fraction(1, 10))  # type: ignore[arg-type]
    run = AnyOrder(job_of(method, workers, steps=steps, learner=ExactBowl()))
    trace = run.run(order)
    for row in trace.updates:
        seen = [other.step for other in trace.updates if other.version_applied < row.version_read]
        for rank in range(workers):
            own = {other.step for other in trace.updates if other.rank == rank}
            needed = {step for step in own if step < row.step - slack}
            known = {o.step for o in trace.updates if o.rank == rank and o.version_applied < row.version_read}
            assert needed <= known
        assert len(seen) == row.version_read
    if workers == 1:
        alone = AnyOrder(job_of(AsyncSgd(learning_rate=Fraction(1, 10)), 1, steps=steps, learner=ExactBowl())).run()  # type: ignore[arg-type]
        assert (trace.weights == alone.weights).all()


def test_a_cache_spares_reads() -> None:
    """With messages that take time, s + 1 iterations may share one read if all are equally fast."""
    always, stale = (
        simulate_job(
            job_of(Ssp(slack=3, pull=pull), 4, steps=160), FixedTiming(), fixed_costs(message_s=0.1), Schedule(10**9)
        )
        for pull in PULLS
    )
    reads = [
        sum(span.activity == "receive" and span.rank < 4 for span in trace.spans if span.bytes)
        for trace in (always, stale)
    ]
    assert reads[1] < reads[0] / 2


# --- 44: the makespan -------------------------------------------------------------------------------------------------


def makespan(times: Sequence[Sequence[float]], slack: int) -> float:
    """Returns when all workers have finished the iterations with a given time; a further one would take for ever."""
    workers, steps = np.shape(times)
    timing = FixedTiming(compute=lambda rank, step: float(times[rank][step]) if step < steps else LONG)
    return simulated(job_of(Ssp(slack=slack), workers, steps=workers * steps), timing).updates[-1].time_s


def test_more_slack_never_takes_longer() -> None:
    """Number 44, in random cases: from Σ_k max_i t_i(k) with slack 0 to max_i Σ_k t_i(k) with slack N."""
    generator = np.random.default_rng(44)
    for _ in range(cases(25, 300)):
        workers, steps = int(generator.integers(2, 5)), int(generator.integers(2, 6))
        times = generator.exponential(1.0, (workers, steps))
        found = [makespan(times.tolist(), slack) for slack in (0, 1, 2, steps)]
        assert all(later <= sooner * (1 + 1e-12) for sooner, later in pairwise(found))
        assert found[0] == pytest.approx(times.max(axis=0).sum(), rel=1e-12)
        assert found[-1] == pytest.approx(times.sum(axis=1).max(), rel=1e-12)


def finishes(times: Any, slack: int) -> Any:
    """Returns when each worker finishes each iteration: it starts k when it has finished k − 1, and all have k − slack
    − 1.
    """
    steps, workers = times.shape
    ends = np.zeros((steps, workers))
    for k in range(steps):
        own = ends[k - 1] if k else np.zeros(workers)
        ends[k] = times[k] + (np.maximum(own, ends[k - slack - 1].max()) if k > slack else own)
    return ends


@pytest.mark.parametrize(("slack", "rate"), [(0, 0.368), (1, 0.573), (2, 0.656), (4, 0.764)])
def test_rates_of_eight_exponential_workers(slack: int, rate: float) -> None:
    """O3: iterations per worker and second, for 20 000 rounds of the recursion; and the simulator is the recursion.

    3 %: the standard error is about 0.5 %, and the oracle, simulated for 4000 s, has one of about 1 % of its own.
    """
    times = np.random.default_rng(7).exponential(1.0, (20_000, 8))
    assert len(times) / finishes(times, slack).max() == pytest.approx(rate, rel=0.03)
    rounds = 100
    timing = FixedTiming(compute=lambda rank, step: float(times[step, rank]))
    trace = simulated(job_of(Ssp(slack=slack), 8, steps=8 * rounds), timing)
    expected = finishes(times[: rounds + 50], slack)
    for span in trace.spans:
        if span.activity == "compute" and span.step < len(expected):
            assert span.end_s == pytest.approx(expected[span.step, span.rank], rel=1e-12)
