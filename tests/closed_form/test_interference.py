"""Communication that overlaps a gradient: both run at 1 / (1 + share) of their speed while they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    AllReduce,
    Gradient,
    LayerGradients,
    Load,
    NextStep,
    Now,
    Send,
    Start,
    Wait,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.crash_timeline import AscendingTimes, CrashTimeline
from paceline.simulator.kernel.shared_processor import SharedProcessor, fair_share
from paceline.simulator.network.interference import Demand, Processors
from paceline.topologies.faults.worker_faults import CrashModel, FaultPlace, SlowdownModel, Speed
from paceline.topologies.faults.worker_faults import given as slowed
from tests.clusters import Written, answer, fixed_costs
from tests.support import FixedTiming, job_of

EXACT = 1e-9
"""relative tolerance: sums of a few rounded float64 numbers"""
SHARE = 0.25


def run(
    first: Callable[..., Any],
    *,
    workers: int = 2,
    compute: float = 3.0,
    collective_s: float = 1.0,
    message_s: float = 0.0,
    shares: dict[int, float] | None = None,
    timing: FixedTiming | None = None,
) -> Trace:
    """Simulates a program on devices of which communication takes a share."""
    of = shares or dict.fromkeys(range(workers), SHARE)
    processors = Processors(lambda rank: Demand(rank, 1.0, of[rank], message=of[rank]))
    network = fixed_costs(collective_s=collective_s, message_s=message_s)
    job = job_of(Written(first=first), workers)
    return simulate_job(
        job, timing or FixedTiming(compute=compute), network, Schedule(1), hosts=HostCosts(processors=processors)
    )


@program
def overlapped(me: RankContext, state: Replica) -> Program[tuple[float, float]]:
    """Starts an all-reduce, computes a gradient, and returns the ends of both."""
    step = yield from NextStep(state)
    assert step
    batch = yield from Load(step.samples)
    handle = yield from Start(ended_at(me))
    yield from Gradient(state.weights, batch)
    computed_s = yield from Now()
    return computed_s, (yield from Wait(handle))


@program
def ended_at(me: RankContext) -> Program[float]:
    yield from AllReduce(value=np.ones(4), group=me.workers, key="sum")
    return (yield from Now())


@pytest.mark.parametrize(("compute", "collective_s"), [(3.0, 1.0), (1.0, 3.0), (2.0, 2.0)])
def test_an_overlapping_all_reduce_and_a_gradient_lengthen_each_other(compute: float, collective_s: float) -> None:
    """The shorter one, of s seconds, takes s (1 + share); the longer one loses the same share · s."""
    trace = run(overlapped, compute=compute, collective_s=collective_s)
    lost = SHARE * min(compute, collective_s)
    for rank in range(2):
        assert answer(trace, rank) == pytest.approx((compute + lost, collective_s + lost), rel=EXACT)


def test_the_slowest_member_decides() -> None:
    """Rank 1 shares nothing; its all-reduce is late because rank 0 computes, its gradient is not."""
    trace = run(overlapped, shares={0: SHARE, 1: 0.0})
    assert answer(trace, 0) == pytest.approx((3 + SHARE, 1 + SHARE), rel=EXACT)
    assert answer(trace, 1) == pytest.approx((3.0, 1 + SHARE), rel=EXACT)


def test_communication_alone_keeps_its_time() -> None:
    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        for number in range(3):
            yield from AllReduce(value=np.ones(4), group=me.workers, key=f"sum {number}")
        return (yield from Now())

    assert answer(run(main)) == 3.0


def test_collectives_of_one_stream_follow_the_lengthened_ones() -> None:
    """Two all-reduces of 1 s in one stream beside a gradient of 10 s: the second ends at 2 (1 + share)."""

    @program
    def both(me: RankContext) -> Program[float]:
        handles = []
        for number in range(2):
            handles.append((yield from Start(AllReduce(value=np.ones(4), group=me.workers, key=f"sum {number}"))))
        for handle in handles:
            yield from Wait(handle)
        return (yield from Now())

    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        step = yield from NextStep(state)
        assert step
        batch = yield from Load(step.samples)
        handle = yield from Start(both(me))
        yield from Gradient(state.weights, batch)
        return (yield from Wait(handle))

    assert answer(run(main, compute=10.0)) == pytest.approx(2 * (1 + SHARE), rel=EXACT)


def test_a_message_takes_from_sender_and_receiver() -> None:
    """A message of 1 s to a rank that computes for 3 s arrives after 1 + share."""

    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        step = yield from NextStep(state)
        assert step
        batch = yield from Load(step.samples)
        if me.rank == 0:
            yield from Send(Rank(1), np.ones(4))
        yield from Gradient(state.weights, batch)
        return (yield from Now())

    trace = run(main, message_s=1.0)
    assert [answer(trace, rank) for rank in range(2)] == pytest.approx([3 + SHARE, 3 + SHARE], rel=EXACT)


def test_layers_are_lengthened_while_a_collective_runs() -> None:
    """An all-reduce of 1 s beside a layer-wise gradient of 3 s, a third of which is forward."""

    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        step = yield from NextStep(state)
        assert step
        batch = yield from Load(step.samples)
        handle = yield from Start(ended_at(me))
        parts = yield from LayerGradients(state.weights, batch)
        for part in parts:
            yield from Wait(part)
        computed_s = yield from Now()
        yield from Wait(handle)
        return computed_s

    assert answer(run(main)) == pytest.approx(3 + SHARE, rel=EXACT)


def test_a_slowed_down_device_is_slowed_further() -> None:
    """Half speed from 1 s on: 1 s of work by then at 1 / (1 + share), then the rest at half speed."""
    slow = Speed((slowed(SlowdownModel(place=FaultPlace(), factor=2.0, at_s=1.0, lasts_s=100.0)),))
    timing = FixedTiming(compute=3.0, faults=lambda _: CrashTimeline(AscendingTimes(iter(())), CrashModel(), slow))
    computed_s, reduced_s = answer(run(overlapped, timing=timing, collective_s=1.0))
    assert reduced_s == pytest.approx(1 + SHARE, rel=EXACT)
    done = 1 / (1 + SHARE) + 0.5 * SHARE / (1 + SHARE)  # until 1 s at full speed, then SHARE seconds at half
    assert computed_s == pytest.approx(1 + SHARE + 2 * (3 - done), rel=EXACT)


ACTIVITIES = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 8), st.sampled_from([0.25, 0.5, 1.0])), min_size=1, max_size=6
)


@given(ACTIVITIES, st.sampled_from([0.5, 1.0, 2.0]))
def test_a_shared_processor_agrees_with_small_steps(activities: list[tuple[int, int, float]], capacity: float) -> None:
    """Ends of activities (start, work, demand), against a simulation in steps of 1/1024 of a second."""
    env, ends = simpy.Environment(), dict[int, float]()
    processor = SharedProcessor(env, fair_share(capacity))

    def activity(number: int, start_s: float, work_s: float, demand: float) -> Any:
        yield env.timeout(start_s)
        with processor.activity("compute", demand):
            yield from processor.work("compute", work_s)
        ends[number] = env.now

    for number, one in enumerate(activities):
        env.process(activity(number, *one))
    env.run()

    tick, left, now = 1 / 1024, [float(work) for _, work, _ in activities], 0.0
    found = dict[int, float]()
    while len(found) < len(activities):
        active = [n for n, (start, _, _) in enumerate(activities) if start <= now and n not in found]
        demand = sum(activities[n][2] for n in active)
        for n in active:
            left[n] -= tick * min(1.0, capacity / demand)
            if left[n] <= tick / 2:
                found[n] = now + tick
        now += tick
    tolerance = 4 * tick * len(activities) / min(1.0, capacity / sum(one[2] for one in activities))
    assert ends == pytest.approx(found, abs=tolerance)


def test_without_shared_processors_nothing_changes() -> None:
    job = job_of(Written(first=overlapped), 2)
    trace = simulate_job(job, FixedTiming(compute=3.0), fixed_costs(collective_s=1.0), Schedule(1))
    assert answer(trace) == (3.0, 1.0)
