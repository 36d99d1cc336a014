"""Targets read from curves, evaluations without cost, and ticks that show the weights of their time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS
from paceline.algorithms.core.job import Budget, Evaluation
from paceline.records.metrics import smoothed
from paceline.records.targets import SMOOTHING, Crossing, Goal, crossing
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.support import FixedTiming, job_of, nodes_for

VALUES = st.floats(-100, 100)
CURVES = st.lists(VALUES | st.just(math.nan), min_size=1, max_size=12)


@given(values=CURVES, target=VALUES, gaps=st.lists(st.floats(0.01, 10), min_size=12, max_size=12))
def test_a_crossing_lies_on_the_line_between_the_evaluations_around_it(
    values: list[float], target: float, gaps: list[float]
) -> None:
    times = list(itertools.accumulate(gaps[1 : len(values)], initial=0.0))
    found = crossing(target, values)
    reached = [index for index, value in enumerate(values) if value >= target]
    if found is None:
        assert not reached
        return
    assert found.index == reached[0]
    time, before = found.at(times), max(0, found.index - 1)
    assert times[before] <= time <= times[found.index] * (1 + 1e-12)
    assert found.resolution(times) == times[found.index] - times[before]
    if found.index and not math.isnan(values[before]):
        at = np.interp(time, times[before : found.index + 1], values[before : found.index + 1])
        assert at == pytest.approx(target, rel=1e-6, abs=1e-6)
    else:
        assert time == times[found.index]


@given(values=CURVES, target=VALUES)
def test_a_falling_curve_is_a_rising_one_upside_down(values: list[float], target: float) -> None:
    assert crossing(target, values, falling=True) == crossing(-target, [-value for value in values])


@given(shares=st.floats(0, 1), axis=st.lists(st.floats(0, 1e6), min_size=2, max_size=2).map(sorted))
def test_every_axis_is_read_at_the_same_share_of_the_way(shares: float, axis: list[float]) -> None:
    found = Crossing(1, shares)
    assert found.at(axis) == pytest.approx(axis[0] + shares * (axis[1] - axis[0]), abs=1e-6)


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=12), target=st.floats(0.01, 1))
def test_a_run_ends_at_the_evaluation_from_which_its_target_is_read(values: list[float], target: float) -> None:
    for budget, scores, falling in (
        (Budget(accuracy=target), [Evaluation(1.0, value) for value in values], False),
        (Budget(loss=target), [Evaluation(value, None) for value in values], True),
    ):
        goal = Goal(budget)
        ended = next((index for index, score in enumerate(scores) if goal.reached(score)), None)
        found = crossing(target, smoothed(values, SMOOTHING).tolist(), falling=falling)
        assert ended == (None if found is None else found.index)


DRAWN = st.lists(st.sampled_from([0.3, 0.5, 1.0, 1.7]), min_size=48, max_size=48)
SCHEDULES = st.one_of(
    st.builds(Schedule, st.integers(1, 9).map(float), st.just("updates")),
    st.builds(Schedule, st.integers(1, 99).map(float), st.just("samples")),
    st.builds(Schedule, st.sampled_from([0.1, 0.25, 0.7, 1.0, 3.0]), st.just("seconds")),
)


def ran(name: str, times: Sequence[float], schedule: Schedule) -> Trace:
    """Four workers with the drawn step times; the method's own rates leave the bowl at its place."""
    method = METHODS[name]()
    job = job_of(method, 4, steps=12, nodes=nodes_for(method))
    timing = FixedTiming(compute=lambda rank, step: times[(rank * 12 + step) % len(times)], work=0.01)
    return simulate_job(job, timing, NoCost(), schedule)


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd", "async-easgd", "hbs-sgd", "gossip"])
@given(times=DRAWN, schedule=SCHEDULES)
def test_evaluations_cost_no_virtual_time(name: str, times: list[float], schedule: Schedule) -> None:
    often, never = ran(name, times, schedule), ran(name, times, Schedule(math.inf))
    assert often.spans == never.spans and often.updates == never.updates and often.wall_s == never.wall_s
    assert len(never.snapshots) == 2 and often.snapshots[-1].version == never.snapshots[-1].version


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd"])
@given(times=DRAWN, every=st.sampled_from([0.1, 0.25, 0.7, 1.0, 3.0]))
def test_a_tick_shows_the_weights_as_they_were_at_that_time(name: str, times: list[float], every: float) -> None:
    always, ticked = ran(name, times, Schedule(1)), ran(name, times, Schedule(every, "seconds"))
    first, *ticks, last = ticked.snapshots
    assert (first.time_s, last.time_s) == (0.0, always.snapshots[-1].time_s)
    assert [shot.version for shot in ticked.snapshots] == sorted({shot.version for shot in ticked.snapshots})
    for shot in ticks:
        before = [other for other in always.snapshots if other.time_s <= shot.time_s]
        assert shot.version == before[-1].version and (shot.vector == before[-1].vector).all()
        assert shot.time_s / every == pytest.approx(round(shot.time_s / every))
    seen = {shot.version for shot in ticked.snapshots}
    for one, other in itertools.pairwise(always.snapshots):  # versions that lasted until a tick were evaluated
        due = (math.ceil(one.time_s / every - 1e-9) or 1) * every
        assert one.version in seen or due >= other.time_s - 1e-9


@given(every=st.floats(1e-6, 1e6), since=st.floats(0, 1e9), length=st.floats(0, 1e9))
def test_a_tick_lies_where_it_was_asked_for(every: float, since: float, length: float) -> None:
    tick = Schedule(every, "seconds").tick(since, since + length)
    assert tick is None or since <= tick < since + length
    if tick is None:  # there is none, to rounding
        assert length <= every * (1 + 1e-6) + since * 1e-12
