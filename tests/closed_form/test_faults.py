"""Checkpoints and crashes against their laws (docs/invariants.md, P5 and P6), and slowdowns computed by hand."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from paceline.algorithms.methods.baseline import SequentialSgd, SyncSgd
from paceline.records.summary import shares
from paceline.records.tables import assemble
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.crash_timeline import AscendingTimes, CrashTimeline, TimelineState, timeline_of
from paceline.simulator.network.network import NoCost
from paceline.topologies.faults.worker_faults import FULL_SPEED, CrashModel, FaultPlace, SlowdownModel, speed_of
from tests.support import FixedTiming, job_of
from tests.thorough import sampled

COST_S, MTBF_S = 0.5, 100.0
BEST_S = math.sqrt(2 * COST_S * MTBF_S)
SEGMENTS = 20_000


def slowdown(every_s: float, cost_s: float, mtbf_s: float, recovery_s: float = 0.0) -> float:
    """P5, times Daly's factor for recoveries that start again after a crash."""
    return mtbf_s * math.exp(recovery_s / mtbf_s) * math.expm1((every_s + cost_s) / mtbf_s) / every_s


def deviation_s(every_s: float, cost_s: float, mtbf_s: float) -> float:
    """Standard deviation of a segment's time without recovery: variance M² (e^2x − 1 − 2x e^x), x = (t + C) / M."""
    x = (every_s + cost_s) / mtbf_s
    return mtbf_s * math.sqrt(math.expm1(2 * x) - 2 * x * math.exp(x))


def timeline(crashes: CrashModel, rank: int = 0) -> CrashTimeline:
    return timeline_of(crashes, FULL_SPEED, rank=rank, node=rank, nodes=64, seed=5)


@cache
def segments(every_s: float, recovery_s: float = 0.0) -> np.ndarray:
    """Returns the times between checkpoints of one worker; they are independent and equally distributed."""
    crashes = CrashModel(mtbf_s=MTBF_S, recovery_s=recovery_s, checkpoint_every_s=every_s, checkpoint_cost_s=COST_S)
    alone, state, ends = timeline(crashes), TimelineState(), [0.0]
    for _ in range(SEGMENTS):
        state = alone.live(state, state.now_s, every_s).state
        ends.append(state.now_s)
    return np.diff(ends)


# --- P5 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "table"), [(0.25, 1.2182), (0.5, 1.1308), (1.0, 1.1071), (2.0, 1.1376), (4.0, 1.2483)]
)
def test_checkpoints_cost_what_the_law_says_p5(times: float, table: float) -> None:
    every_s = times * BEST_S
    took_s = segments(every_s)
    error_s = deviation_s(every_s, COST_S, MTBF_S) / math.sqrt(SEGMENTS)
    assert took_s.mean() / every_s == pytest.approx(slowdown(every_s, COST_S, MTBF_S), abs=3 * error_s / every_s)
    # the kurtosis is about 60 at the shortest period, and the standard error of a variance √(60 / n) of it: 5.5 %
    assert took_s.std() == pytest.approx(deviation_s(every_s, COST_S, MTBF_S), rel=3 * 0.055 / 2)
    assert slowdown(every_s, COST_S, MTBF_S) == pytest.approx(table, abs=5e-5)


def test_the_best_period_is_where_the_law_says_p5() -> None:
    tried = {times: segments(times * BEST_S).mean() / (times * BEST_S) for times in (0.25, 0.5, 1.0, 2.0, 4.0)}
    assert min(tried, key=lambda times: tried[times]) == 1.0


@pytest.mark.parametrize("recovery_s", [5.0, 60.0])
def test_recovery_begins_again_with_every_crash(recovery_s: float) -> None:
    took_s = segments(BEST_S, recovery_s)
    expected = slowdown(BEST_S, COST_S, MTBF_S, recovery_s)
    error = took_s.std() / math.sqrt(SEGMENTS) / BEST_S
    assert took_s.mean() / BEST_S == pytest.approx(expected, abs=3 * error)


# --- P6 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", sampled([1, 4, 64], [1, 4]))
def test_the_first_crash_of_n_workers_comes_n_times_sooner_p6(workers: int) -> None:
    tries, crashes = 1000, CrashModel(mtbf_s=MTBF_S)
    first_s = [
        min(
            timeline_of(crashes, FULL_SPEED, rank=rank, node=rank, nodes=workers, seed=seed).times[0]
            for rank in range(workers)
        )
        for seed in range(tries)
    ]
    expected_s = MTBF_S / workers
    assert np.mean(first_s) == pytest.approx(expected_s, abs=3 * expected_s / math.sqrt(tries))


def synchronous(workers: int, steps: int, step_s: float, crashes: CrashModel) -> Trace:
    timing = FixedTiming(compute=step_s, faults=lambda rank: timeline(crashes, rank))
    return simulate_job(job_of(SyncSgd(), workers, steps=steps), timing, NoCost(), Schedule(10**9))


def test_synchronous_workers_are_one_machine_that_crashes_n_times_as_often() -> None:
    """P5 with the MTBF of P6: the last rank to crash is the last to repeat its work, as if all had been set back.

    There is a small difference: a rank that has written its checkpoint while another must repeat the segment is safe.
    That takes a crash in the last step or the checkpoint, and another one before the repetition is done; the bound sums
    up its rate and size.
    """
    workers, mtbf_s, per_segment, step_s, count = 8, 200.0, 10, 1.0, 500
    every_s, together_s = per_segment * step_s, mtbf_s / workers
    crashes = CrashModel(mtbf_s=mtbf_s, checkpoint_every_s=every_s, checkpoint_cost_s=COST_S)
    trace = synchronous(workers, per_segment * count, step_s, crashes)
    expected = slowdown(every_s, COST_S, together_s)
    error = deviation_s(every_s, COST_S, together_s) / math.sqrt(count) / every_s
    whole = every_s + COST_S
    bound = (step_s + COST_S) / together_s * whole / together_s * whole / every_s
    found = trace.wall_s / (count * every_s)
    assert expected - 3 * error - bound < found < expected + 3 * error
    seen = sum(span.activity == "crash" for span in trace.spans)
    rate = trace.wall_s / together_s
    assert seen == pytest.approx(rate, abs=3 * math.sqrt(rate))  # a Poisson count


# --- on paper ---------------------------------------------------------------------------------------------------------


def test_one_worker_alone_on_paper() -> None:
    """Steps of 1 s, a checkpoint of 0.5 s after every two, a crash at 3.2 s and 1 s of recovery.

    0–1, 1–2, checkpoint –2.5, 2.5–3.2 crash –4.2, 0.7 s again –4.9, the rest –5.2, 5.2–6.2, checkpoint –6.7.
    """
    crashes = CrashModel(recovery_s=1.0, checkpoint_every_s=2.0, checkpoint_cost_s=0.5)
    once = CrashTimeline(times=timeline_at(3.2), crashes=crashes)
    timing = FixedTiming(compute=1.0, faults=lambda _: once)
    trace = simulate_job(job_of(SequentialSgd(), 1, steps=4), timing, NoCost(), Schedule(10**9))
    assert trace.wall_s == pytest.approx(6.7)
    recorded = [(span.activity, span.step, round(span.start_s, 6), round(span.end_s, 6)) for span in trace.spans]
    assert [span for span in recorded if span[0] not in ("update", "load")] == [
        ("compute", 0, 0.0, 1.0),
        ("compute", 1, 1.0, 2.0),
        ("checkpoint", 1, 2.0, 2.5),
        ("compute", 2, 2.5, 3.2),
        ("crash", 2, 3.2, 3.2),
        ("recovery", 2, 3.2, 4.2),
        ("redo", 2, 4.2, 4.9),
        ("compute", 2, 4.9, 5.2),
        ("compute", 3, 5.2, 6.2),
        ("checkpoint", 3, 6.2, 6.7),
    ]
    table = assemble(trace, num_samples=64).spans
    found = shares(table, wall_s=trace.wall_s, workers=1)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["compute"] == pytest.approx(4.7 / 6.7)
    assert found["wait"] == pytest.approx(2.0 / 6.7)


def timeline_at(*times_s: float) -> AscendingTimes:
    return AscendingTimes(iter(times_s))


def test_a_checkpoint_that_a_crash_interrupts_is_written_from_its_beginning() -> None:
    """Compute to 2 s, write until the crash at 2.3 s, recover to 3.3 s, compute again to 5.3 s, write for 0.5 s."""
    crashes = CrashModel(recovery_s=1.0, checkpoint_every_s=2.0, checkpoint_cost_s=0.5)
    assert CrashTimeline(timeline_at(2.3), crashes).end_s(start_s=0.0, work_s=2.0) == pytest.approx(5.8)


def test_lost_work_is_repeated_at_the_speed_of_that_moment() -> None:
    """A crash at 2 s loses 2 s; from 3 s on the device has half its speed, so they take 4 s, the last one 2 s."""
    slow = SlowdownModel(place=FaultPlace(), factor=2.0, at_s=3.0, lasts_s=100.0)
    speed = speed_of([slow], rank=0, node=0, nodes=1, seed=0)
    assert CrashTimeline(timeline_at(2.0), CrashModel(recovery_s=1.0), speed).end_s(0.0, 3.0) == pytest.approx(9.0)


def test_a_failing_node_stops_all_its_workers_at_once() -> None:
    crashes = CrashModel(node_mtbf_s=MTBF_S)

    def first_s(rank: int, node: int) -> float:
        return timeline_of(crashes, FULL_SPEED, rank=rank, node=node, nodes=2, seed=5).times[0]

    assert first_s(rank=0, node=0) == first_s(rank=1, node=0) != first_s(rank=2, node=1)


def test_a_worker_that_waits_recovers_meanwhile() -> None:
    """Rank 0 has its gradient after 1 s and waits for rank 1 until 5 s; its crash at 2 s is repaired by 4 s."""
    crashes = CrashModel(recovery_s=1.0)
    timing = FixedTiming(
        compute=lambda rank, _: 1.0 + 4.0 * rank,
        faults=lambda rank: CrashTimeline(timeline_at(2.0) if rank == 0 else timeline_at(), crashes),
    )
    trace = simulate_job(job_of(SyncSgd(), 2, steps=2), timing, NoCost(), Schedule(10**9))
    assert trace.wall_s == pytest.approx(10.0)
    own = [(span.activity, span.start_s, span.end_s) for span in trace.spans if span.rank == 0]
    assert ("recovery", 2.0, 3.0) in own and ("redo", 3.0, 4.0) in own


def test_a_step_that_spans_a_slowdown_takes_the_right_time() -> None:
    """Half a second at full speed, the slowdown's 2 s do half a second of work, and 0.5 s remain of 1.5 s."""
    slow = SlowdownModel(place=FaultPlace(worker=1), factor=4.0, at_s=0.5, lasts_s=2.0)
    timing = FixedTiming(
        compute=1.5,
        faults=lambda rank: CrashTimeline(
            timeline_at(), CrashModel(), speed_of([slow], rank=rank, node=rank, nodes=2, seed=0)
        ),
    )
    trace = simulate_job(job_of(SyncSgd(), 2, steps=2), timing, NoCost(), Schedule(10**9))
    first = {span.rank: span.end_s for span in trace.spans if span.activity == "compute" and span.step == 0}
    assert first == {0: 1.5, 1: pytest.approx(3.0)}
    assert trace.wall_s == pytest.approx(4.5)


def test_recurring_slowdowns_hold_for_their_share_of_the_time() -> None:
    """Mean gap g, mean length l: a share l / (g + l) of the time, renewal reward; slower by that much on average."""
    factor, every_s, lasts_s, horizon_s = 3.0, 9.0, 1.0, 200_000.0
    again = SlowdownModel(place=FaultPlace(), factor=factor, every_s=every_s, lasts_s=lasts_s)
    speed = speed_of([again], rank=0, node=0, nodes=1, seed=2)
    share = lasts_s / (every_s + lasts_s)
    expected = 1 - share * (1 - 1 / factor)
    cycles = horizon_s / (every_s + lasts_s)
    # durations are fixed, so the share's error is that of the number of cycles: sd of a cycle = every_s
    error = (1 - 1 / factor) * share * every_s / (every_s + lasts_s) / math.sqrt(cycles)
    assert speed.work_s(0.0, horizon_s) / horizon_s == pytest.approx(expected, abs=3 * error)
