"""Runs of methods that learn in shared memory: their end, their placement, and what they do not support."""

from __future__ import annotations

import pytest

import paceline
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.hogwild import HogwildEasgd, HogwildSgd, SharedMemorySgd
from paceline.checking.replay import Recording, ReplayError, replay
from paceline.records.trace import Schedule
from paceline.scenarios import ScenarioError, load
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.support import FixedTiming, job_of

BOTH = pytest.mark.parametrize("method", [HogwildSgd, HogwildEasgd])


@BOTH
def test_the_quick_take_more_of_the_budget(method: type[SharedMemorySgd]) -> None:
    """Rank r's step takes 1 + r seconds: all ranks together use up the budget, in proportion to their speeds."""
    job = job_of(method(), nodes=[[0, 1, 2]], steps=110)
    trace = simulate_job(job, FixedTiming(compute=lambda rank, _: 1.0 + rank), NoCost(), Schedule(every=1))
    assert [trace.states[Rank(rank)].step for rank in range(3)] == [60, 30, 20]
    assert trace.snapshots[-1].samples == 110 * job.batches[0]


@BOTH
def test_seconds_end_everybody_at_once(method: type[SharedMemorySgd]) -> None:
    """No rank begins a step after 10 s; steps of 1, 2 and 3 seconds that have begun are finished."""
    job = job_of(method(), nodes=[[0, 1, 2]], steps=None, seconds=10.0)
    trace = simulate_job(job, FixedTiming(compute=lambda rank, _: 1.0 + rank), NoCost(), Schedule(every=1))
    assert [trace.states[Rank(rank)].step for rank in range(3)] == [10, 5, 4]
    assert trace.wall_s == 12.0
    assert max(span.start_s for span in trace.spans if span.activity == "compute") < 10.0


@BOTH
def test_all_workers_must_be_on_one_node(method: type[SharedMemorySgd]) -> None:
    one, two = [[Rank(0), Rank(1)]], [[Rank(0)], [Rank(1)]]
    assert method().problems(one) == []
    (problem,) = method().problems(two)
    assert problem.startswith(f"name: {method.name} shares memory; found workers on 2 nodes, expected one; ")


@BOTH
def test_a_method_as_an_object_is_checked_like_its_name(method: type[SharedMemorySgd]) -> None:
    for given in (method.name, method()):
        with pytest.raises(ScenarioError, match=f"{method.name} shares memory; found workers on 4 nodes"):
            load("quickstart", ["cluster.nodes=[{device: p100-sxm2, count: 4}]"], algorithms=[given])


@BOTH
def test_a_run_is_not_replayed(method: type[SharedMemorySgd]) -> None:
    """Number 57 excludes it: the record does not contain the order of accesses to the memory."""
    job = job_of(method(), nodes=[[0, 1]], steps=4)
    trace = simulate_job(job, FixedTiming(), NoCost(), Schedule(every=1))
    with pytest.raises(ReplayError, match="asks for Access, whose answer is not in the record"):
        replay(job, Recording.of(trace.heard))


@pytest.mark.parametrize("name", ["hogwild-sgd", "hogwild-easgd"])
def test_it_runs_without_numbers(name: str) -> None:
    """Timing only: losses are computed anyway, and accesses take the time of the node's memory."""
    node = "{device: {name: socket, overhead: 4 ms, per_sample: 0.5 ms}, workers_per_node: 4}"
    changes = ["workload.learning=none", "stop.epochs=null", "stop.updates=40", f"cluster.nodes=[{node}]"]
    scenario = paceline.load("quickstart", changes, algorithms=[name])
    (run,) = paceline.simulate(scenario)
    lost = run.summary["lost_updates"]
    assert lost is not None and lost["adds"] == 40 and 0 <= lost["lost_share"] <= 1
    assert run.summary["updates"] == run.summary["steps"] == 40
