"""Workers that die and do not return: which runs go on, how the others end, and what is said about it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline import load, simulate
from paceline.algorithms import METHODS
from paceline.algorithms.core.errors import DeadlockError, PeerFailed
from paceline.algorithms.core.job import Job, PlannedDeath
from paceline.algorithms.core.values import Rank
from paceline.checking.cases.observed import WithDeaths
from paceline.checking.moves import Shuffled
from paceline.records.trace import Schedule, Trace
from paceline.reports.attribution.explain import explain
from paceline.scenarios import ScenarioError
from paceline.scenarios.resolution.plan import refuse_simulated_only
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork
from tests.support import FixedTiming, built, job_of, nodes_for

WORKERS = 4
SHARED = {name for name, method in METHODS.items() if method.shared}
MANY = [name for name in METHODS if len(job_of(built(name), WORKERS, nodes=nodes_for(built(name))).team[0].workers) > 1]


def job_with(name: str, *deaths: PlannedDeath, steps: int = 48) -> Job:
    method = built(name)
    return replace(job_of(method, WORKERS, nodes=nodes_for(method), steps=steps), deaths=deaths)


def simulated(job: Job) -> Trace:
    network = MeasuredNetwork(lambda _kind, _members, _size: 0.25, lambda _size: 0.1)
    return simulate_job(job, FixedTiming(compute=lambda rank, _: 1.0 + 0.1 * rank), network, Schedule(every=1))


def goes_on_in_any_order(job: Job, deaths: list[tuple[int, int]], seed: int) -> bool:
    """Whether the run reaches its end in the interpreter without a clock."""
    try:
        WithDeaths(job, deaths).run(Shuffled(seed))
    except (PeerFailed, DeadlockError):
        return False
    return True


# --- which methods go on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MANY)
def test_simulated_and_any_order_runs_agree_on_whether_a_method_goes_on(name: str) -> None:
    job = job_with(name)
    for dead in sorted({1, min(job.spare, WORKERS - 1), min(job.spare + 1, WORKERS)} - {0}):
        deaths = tuple(PlannedDeath(Rank(rank), step=2 + rank) for rank in range(dead))
        trace = simulated(replace(job, deaths=deaths))
        assert (trace.ended is None) == (dead <= job.spare), trace.ended
        assert (trace.stop_reason == "failure") == (trace.ended is not None)
        # two ends have no counterpart there: nobody waits for a worker that shares its weights, and the launcher does
        # not let a program come to the point where it has lost more workers than it promises to survive
        if name not in SHARED and dead <= max(1, job.spare):
            moves = [(rank, 40 + 10 * rank) for rank in range(dead)]
            assert {goes_on_in_any_order(job, moves, seed) for seed in range(3)} == {dead <= job.spare}


@pytest.mark.parametrize("name", MANY)
def test_a_death_that_ends_a_run_is_told_with_who_waited_for_what(name: str) -> None:
    job = job_with(name, PlannedDeath(Rank(1), at_s=7.3))
    trace = simulated(job)
    (lost,) = trace.failed_ranks
    assert (lost["rank"], lost["role"], lost["time_s"]) == (1, "worker", 7.3)
    spans = [span for span in trace.spans if span.rank == 1]
    assert max(span.start_s for span in spans) <= 7.3, "it does nothing after its death"
    if job.spare:
        assert trace.ended is None and set(trace.states) == {me.rank for me in job.team} - {1}
        return
    assert trace.ended is not None
    assert trace.ended.startswith(
        f"rank 1 (worker) died at step {lost['step']} (cluster.deaths), at 7.3 s; {name} needs"
    )
    waited = trace.ended.split(" s: ", 1)[1]
    assert ("begins no further step" if name in SHARED else "rank 1") in waited, waited
    assert ": waits " in waited or name in SHARED


# --- when, and what it costs ------------------------------------------------------------------------------------------


def test_others_learn_of_a_death_after_its_detection_time() -> None:
    flat = MeasuredNetwork(lambda *_: 0.0, lambda _: 0.0)

    def ended(*deaths: PlannedDeath) -> Trace:
        return simulate_job(job_with("sync-sgd", *deaths), FixedTiming(), flat, Schedule(every=math.inf))

    assert ended(PlannedDeath(Rank(2), at_s=2.5)).wall_s == 3.0, "at the end of the step, when they need its gradient"
    late = ended(PlannedDeath(Rank(2), at_s=2.5, detection_s=10.0))
    assert (late.wall_s, late.failed_ranks[0]["time_s"]) == (12.5, 2.5)
    twice = ended(PlannedDeath(Rank(2), at_s=2.5, detection_s=10.0), PlannedDeath(Rank(3), at_s=4.0, detection_s=1.0))
    assert twice.wall_s == 5.0 and [one["rank"] for one in twice.failed_ranks] == [2, 3]
    assert ended(PlannedDeath(Rank(2), at_s=1e9)).ended is None, "the run is over before"


def test_the_average_is_that_of_the_living() -> None:
    with_all, without = (
        simulated(job_with("diloco", *deaths, steps=16)) for deaths in ((), (PlannedDeath(Rank(3), step=0),))
    )
    rows = {row.rank for row in without.updates}
    assert rows == {0, 1, 2} and {row.rank for row in with_all.updates} == {0, 1, 2, 3}
    first, *others = [state.start for _, state in sorted(without.states.items())]
    assert all(np.array_equal(first, other) for other in others)
    assert not np.array_equal(first, with_all.states[Rank(0)].start)


def test_the_weights_of_the_next_worker_are_learned_from_then_on() -> None:
    trace = simulated(job_with("diloco", PlannedDeath(Rank(0), step=6), steps=16))
    assert trace.snapshots[-1].version == 8 and np.array_equal(trace.weights, trace.states[Rank(1)].start)


# --- in scenarios -----------------------------------------------------------------------------------------------------

CLUSTER: dict[str, Any] = {
    "nodes": [{"device": {"name": "d", "overhead": "4 ms", "per_sample": "0.5 ms"}, "count": 2, "workers_per_node": 2}],
}


def scenario(deaths: Any, **more: Any) -> dict[str, Any]:
    return {
        "name": "deaths",
        "algorithms": ["sync-sgd", "diloco"],
        "workload": {"model": "digits-mlp", "batch_per_worker": 32, "learning": "none"},
        "cluster": {**CLUSTER, "deaths": deaths},
        "stop": {"updates": 60},
        **more,
    }


def test_a_node_dies_with_all_its_workers_and_the_summary_says_what_it_cost() -> None:
    ended, goes_on = simulate(scenario([{"node": 1, "at": "200 ms"}]))
    assert ended.summary["stop_reason"] == "failure" and "gradient 9" in ended.summary.get("ended", "")
    lost = goes_on.summary.get("failed_ranks", [])
    assert [one["rank"] for one in lost] == [2, 3]
    wall_s = goes_on.summary["wall_s"]
    assert [one.get("absent_s") for one in lost] == pytest.approx([wall_s - 0.2] * 2)
    assert "ended" not in goes_on.summary and json.dumps(lost)
    assert ended.machine["engine"]["name"] == "events"


def test_the_vectorised_interpreter_leaves_deaths_to_the_other() -> None:
    (run,) = simulate(scenario([{"worker": 1, "step": 3}], algorithms=["sync-sgd"]), engine="cohort")
    assert run.machine["engine"]["name"] == "events" and "workers die" in run.machine["engine"]["reason"]


@pytest.mark.parametrize(
    ("deaths", "said"),
    [
        ([{"at": "1 s"}], "cluster.deaths[0]: found no place; expected node, worker or share"),
        ([{"worker": 1}], "cluster.deaths[0]: found neither at nor step; expected one of them"),
        ([{"worker": 1, "at": "1 s", "step": 3}], "cluster.deaths[0]: found at and step; expected one of them"),
        ([{"worker": 4, "step": 3}], "cluster.deaths[0].worker: found 4, expected a worker below 4"),
        ([{"node": 2, "step": 3}], "cluster.deaths[0].node: found 2, expected a node below 2"),
    ],
)
def test_mistakes_of_deaths_are_reported(deaths: Any, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(scenario(deaths))
    assert said in str(caught.value)


def test_a_recovery_that_never_ends_leads_to_deaths() -> None:
    crashes = {"at": [{"worker": 1, "at": "1 s"}], "recovery": "never"}
    with pytest.raises(ScenarioError, match=r"recovery: .*cluster\.deaths"):
        load(scenario([], cluster={**CLUSTER, "crashes": crashes}))


def test_real_runs_accept_deaths() -> None:
    refuse_simulated_only(load(scenario([{"worker": 1, "step": 3}])))


def test_explain_says_how_steps_go_on() -> None:
    ends, goes_on = explain(load(scenario([{"worker": 1, "at": "1 s"}])), steps=4)
    assert "before worker 1 dies (cluster.deaths); sync-sgd needs all of its workers" in ends.notes[-1]
    assert "with the others, a step takes 20 ms" in goes_on.notes[-1]
