"""Timelines under Hypothesis: faults neither lose nor create work."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.simulator.kernel.crash_timeline import AscendingTimes, CrashTimeline, Life, TimelineState, timeline_of
from paceline.topologies.faults.jitter import Jitter
from paceline.topologies.faults.worker_faults import (
    FULL_SPEED,
    CrashModel,
    FaultPlace,
    SlowdownModel,
    Speed,
    count_of,
    speed_of,
)

EVERYBODY = FaultPlace()
SECONDS = st.floats(0.01, 20.0)
ONCE = st.builds(
    lambda factor, at_s, lasts_s: SlowdownModel(place=EVERYBODY, factor=factor, at_s=at_s, lasts_s=lasts_s),
    st.floats(1.0, 5.0),
    st.floats(0.0, 30.0),
    SECONDS,
)
AGAIN = st.builds(
    lambda factor, every_s, lasts_s: SlowdownModel(
        place=EVERYBODY, factor=factor, every_s=every_s, lasts_s=lasts_s, duration=Jitter.of("expon")
    ),
    st.floats(1.0, 5.0),
    st.floats(1.0, 20.0),
    st.floats(0.1, 5.0),
)
SLOWDOWNS = st.lists(ONCE | AGAIN, max_size=3)
COSTS = st.builds(
    lambda recovery_s, every_s, cost_s: CrashModel(
        recovery_s=recovery_s, checkpoint_every_s=every_s, checkpoint_cost_s=cost_s
    ),
    st.floats(0.0, 3.0),
    st.none() | st.floats(0.5, 5.0),
    st.floats(0.0, 1.0),
)
PIECES = st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 3.0)), min_size=1, max_size=8)
"""idle times of the device before each piece of work, and the work"""
TIMES = st.lists(st.floats(0.0, 60.0), max_size=6).map(sorted)


def speed(slowdowns: list[SlowdownModel], seed: int = 1) -> Speed:
    return speed_of(slowdowns, rank=0, node=0, nodes=1, seed=seed)


def lived(timeline: CrashTimeline, pieces: list[tuple[float, float]]) -> list[Life]:
    state, lives = TimelineState(), []
    for idle_s, work_s in pieces:
        lives.append(timeline.live(state, state.now_s + idle_s, work_s))
        state = lives[-1].state
    return lives


def spent(lives: list[Life], stage: str) -> float:
    return sum(one.end_s - one.start_s for life in lives for one in life.stretches if one.stage == stage)


# --- speed ------------------------------------------------------------------------------------------------------------


@given(SLOWDOWNS, SECONDS, SECONDS, SECONDS)
def test_work_split_in_two_ends_when_the_whole_does(
    slowdowns: list[SlowdownModel], start_s: float, one_s: float, other_s: float
) -> None:
    law = speed(slowdowns)
    assert law.end_s(law.end_s(start_s, one_s), other_s) == pytest.approx(law.end_s(start_s, one_s + other_s))


@given(SLOWDOWNS, SECONDS, SECONDS)
def test_work_and_end_are_each_others_inverse(slowdowns: list[SlowdownModel], start_s: float, work_s: float) -> None:
    law = speed(slowdowns)
    assert law.work_s(start_s, law.end_s(start_s, work_s)) == pytest.approx(work_s)


@given(SLOWDOWNS, SECONDS, SECONDS, st.floats(0.0, 10.0))
def test_later_or_more_work_never_ends_sooner(
    slowdowns: list[SlowdownModel], start_s: float, work_s: float, more_s: float
) -> None:
    law, end_s = speed(slowdowns), speed(slowdowns).end_s(start_s, work_s)
    assert law.end_s(start_s, work_s + more_s) >= end_s - 1e-9
    assert law.end_s(start_s + more_s, work_s) >= end_s - 1e-9
    most = 1.0
    for slowdown in slowdowns:
        most *= slowdown.factor
    assert start_s + work_s - 1e-9 <= end_s <= start_s + work_s * most + 1e-9


@given(SLOWDOWNS, st.lists(SECONDS, min_size=2, max_size=6), st.integers(0, 2**16))
def test_the_order_of_asking_does_not_matter(slowdowns: list[SlowdownModel], times_s: list[float], seed: int) -> None:
    forwards, backwards = speed(slowdowns, seed), speed(slowdowns, seed)
    ahead = [forwards.end_s(time_s, 1.0) for time_s in times_s]
    assert ahead == [backwards.end_s(time_s, 1.0) for time_s in reversed(times_s)][::-1]


# --- timelines --------------------------------------------------------------------------------------------------------


@given(SLOWDOWNS, PIECES)
def test_without_crashes_and_checkpoints_only_speed_counts(
    slowdowns: list[SlowdownModel], pieces: list[tuple[float, float]]
) -> None:
    timeline, law = CrashTimeline(AscendingTimes(iter(())), CrashModel(), speed(slowdowns)), speed(slowdowns)
    end_s = 0.0
    for (idle_s, work_s), life in zip(pieces, lived(timeline, pieces), strict=True):
        end_s = law.end_s(end_s + idle_s, work_s)
        assert life.end_s == pytest.approx(end_s)
        assert {stretch.stage for stretch in life.stretches} <= {"compute"}


@given(SLOWDOWNS, TIMES, COSTS, PIECES)
def test_every_second_has_its_stage_and_all_work_is_done_once(
    slowdowns: list[SlowdownModel], times_s: list[float], costs: CrashModel, pieces: list[tuple[float, float]]
) -> None:
    law = speed(slowdowns)
    lives = lived(CrashTimeline(AscendingTimes(iter(times_s)), costs, law), pieces)
    stretches = [stretch for life in lives for stretch in life.stretches]
    assert all(one.start_s <= one.end_s for one in stretches)
    assert all(one.end_s <= other.start_s for one, other in pairwise(stretches))
    done_s = sum(law.work_s(one.start_s, one.end_s) for one in stretches if one.stage == "compute")
    assert done_s == pytest.approx(sum(work_s for _, work_s in pieces), abs=1e-6)
    assert sum(one.stage == "crash" for one in stretches) == lives[-1].state.crashes
    assert spent(lives, "recovery") <= lives[-1].state.crashes * costs.recovery_s + 1e-9
    assert lives[-1].state.kept_s == lives[-1].state.reached_s, "what was lost has been done again"


@given(TIMES, COSTS, PIECES, st.floats(0.0, 60.0))
def test_a_further_crash_never_makes_anything_sooner(
    times_s: list[float], costs: CrashModel, pieces: list[tuple[float, float]], more_s: float
) -> None:
    fewer, more = (CrashTimeline(AscendingTimes(iter(sorted(times))), costs) for times in (times_s, [*times_s, more_s]))
    for one, other in zip(lived_at(fewer, pieces), lived_at(more, pieces), strict=True):
        assert one <= other + 1e-9


def lived_at(timeline: CrashTimeline, pieces: list[tuple[float, float]]) -> list[float]:
    """Returns when each piece ends, where each has its own start time, whenever the one before it ended."""
    state, ends, given_s = TimelineState(), [], 0.0
    for idle_s, work_s in pieces:
        given_s += idle_s + work_s
        state = timeline.live(state, given_s, work_s).state
        ends.append(state.now_s)
    return ends


@given(TIMES, COSTS, st.floats(0.1, 8.0), st.floats(0.0, 30.0))
def test_what_is_left_off_and_taken_up_again_ends_as_if_it_had_not_been(
    times_s: list[float], costs: CrashModel, work_s: float, until_s: float
) -> None:
    """A timeline in two parts, with the rest of the work at once, is the same as in one."""
    timeline = CrashTimeline(AscendingTimes(iter(times_s)), costs)
    whole = timeline.live(TimelineState(), 0.0, work_s)
    part = timeline.live(TimelineState(), 0.0, work_s, until_s=until_s)
    assert part.end_s <= max(until_s, 0.0) or part == whole
    left_s = work_s - spent([part], "compute")
    rest = timeline.live(part.state, part.end_s, left_s)
    assert rest.end_s == pytest.approx(whole.end_s)


@given(st.integers(0, 2**16), st.floats(1.0, 20.0), st.integers(0, 3))
def test_the_same_seed_and_rank_live_the_same_life(seed: int, mtbf_s: float, rank: int) -> None:
    crashes = CrashModel(mtbf_s=mtbf_s, node_mtbf_s=50.0, recovery_s=0.1, checkpoint_every_s=1.0)

    def ends() -> list[float]:
        timeline = timeline_of(crashes, FULL_SPEED, rank=rank, node=0, nodes=1, seed=seed)
        return [life.end_s for life in lived(timeline, [(0.1, 1.0)] * 20)]

    assert ends() == ends()


@given(st.floats(0.001, 1.0), st.integers(1, 300), st.integers(0, 2**16), st.integers(0, 3))
def test_a_share_is_so_many_nodes(share: float, nodes: int, seed: int, entry: int) -> None:
    place = FaultPlace(share=share)
    held = sum(place.holds(rank=0, node=node, nodes=nodes, seed=seed, entry=entry) for node in range(nodes))
    assert held == count_of(share, nodes) and abs(held - share * nodes) <= 0.5
