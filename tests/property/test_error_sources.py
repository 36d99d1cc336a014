"""The parts of an error add up to it exactly, for all methods and costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS
from paceline.records import Run
from paceline.records.summary import Kind
from paceline.records.trace import Schedule
from paceline.reports.attribution.error_sources import error_sources
from paceline.reports.attribution.timeline import RankActivity, Timelines
from paceline.simulator.interpreter.interpreter import simulate_job
from tests.clusters import fixed_costs
from tests.support import FixedTiming, job_of
from tests.thorough import examples

NAMES = ("sync-sgd", "async-sgd", "easgd", "layerwise-sgd", "agd", "sync-easgd3", "ad-psgd", "ssp", "hbs-sgd")
SECONDS = st.floats(0.0, 0.02)
COSTS = st.tuples(st.lists(st.floats(0.001, 0.05), min_size=6, max_size=6), SECONDS, SECONDS, SECONDS, SECONDS)
Costs = tuple[list[float], float, float, float, float]


def run(method: str, kind: Kind, costs: Costs) -> Run:
    gradients, work, rest, collective_s, message_s = costs
    job = job_of(METHODS[method](), 2, steps=12)
    timing = FixedTiming(compute=lambda rank, step: gradients[(2 * step + rank) % len(gradients)], work=work, rest=rest)
    network = fixed_costs(collective_s=collective_s, message_s=message_s)
    trace = simulate_job(job, timing, network, Schedule(every=1000))
    return Run.of(trace, job=job, kind=kind, scenario={"name": "pair"}, name="pair")


@given(st.sampled_from(NAMES), COSTS, COSTS)
@examples(12, 200)
def test_the_differences_add_up(method: str, predicted: Costs, measured: Costs) -> None:
    found = error_sources([run(method, "simulated", predicted)], [run(method, "measured", measured)])
    assert found is not None
    whole, close = found.whole, 1e-9 * (found.whole.predicted_s + found.whole.measured_s)
    assert sum(step.weight for step in found.alignment.steps) == pytest.approx(1.0)
    for parts in (found.sources.values(), found.activities.values()):
        assert math.fsum(part.predicted_s for part in parts) == pytest.approx(whole.predicted_s, abs=close)
        assert math.fsum(part.measured_s for part in parts) == pytest.approx(whole.measured_s, abs=close)
        assert all(part.predicted_s >= -close and part.measured_s >= -close for part in parts)
    for step in found.alignment.steps:
        for time in (step.predicted, step.measured):
            assert math.fsum(time.own.values()) == pytest.approx(time.seconds, abs=close)
            charged = math.fsum([*time.direct.values(), *time.waited.values()])
            assert charged == pytest.approx(time.seconds, abs=close)
    if abs(whole.difference_s) > 1e3 * close:
        assert math.fsum(part.share or 0.0 for part in found.phases.values()) == pytest.approx(1.0, abs=1e-6)


def activity(rank: int, lane: str, name: str, instants: list[float], waits_for: int | None) -> RankActivity:
    start_s, ready_s, end_s = instants
    return RankActivity(rank, lane, name, start_s, ready_s, end_s, waits_for)


INSTANT = st.integers(0, 20).map(float)
ACTIVITY = st.builds(
    lambda rank, lane, name, instants, waits_for: activity(rank, lane, name, sorted(instants), waits_for),
    st.integers(0, 2),
    st.sampled_from(["main", "1"]),
    st.sampled_from(["compute", "load", "update", "collective", "send", "receive", "checkpoint"]),
    st.tuples(INSTANT, INSTANT, INSTANT),
    st.one_of(st.none(), st.integers(0, 2)),
)


@given(st.lists(ACTIVITY, max_size=12), st.tuples(INSTANT, INSTANT))
def test_every_instant_has_one_activity(activities: list[RankActivity], interval: tuple[float, float]) -> None:
    """Also with waits in circles, waits for ranks without activities, and overlaps of any kind."""
    start_s, end_s = sorted(interval)
    timelines = Timelines(activities)
    for rank in range(3):
        own = timelines.own(rank, start_s, end_s)
        direct, waited = timelines.charged(rank, start_s, end_s)
        assert math.fsum(own.values()) == end_s - start_s
        assert math.fsum([*direct.values(), *waited.values()]) == end_s - start_s
        assert all(source.rank != rank for source in waited)
        gradients = [one for one in activities if one.rank == rank and one.name == "compute"]
        busy = {
            second for one in gradients for second in range(int(max(one.ready_s, start_s)), int(min(one.end_s, end_s)))
        }
        assert own.get("compute", 0.0) == len(busy)
