"""Faults in scenarios: their effect on plans, runs and comparisons, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Cancel, Gradient, Load, NextStep, Receive, Start, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank
from paceline.backend.training import train
from paceline.records import Run
from paceline.reports.comparison.compare import compare
from paceline.reports.comparison.prediction_errors import together
from paceline.scenarios import Scenario, ScenarioError, load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.kernel.crash_timeline import MOST_CRASHES, AscendingTimes, CrashTimeline, TimelineState
from paceline.simulator.runs.run import simulate
from paceline.topologies import NO_JITTER, Jitter
from paceline.topologies.faults.worker_faults import CrashModel
from tests.clusters import played
from tests.support import FixedTiming

DOCS = Path(__file__).parents[2] / "docs/faults.md"
STEP_S = 0.02


def four(*changes: str) -> Scenario:
    """Four nodes with a worker each, and steps of 20 ms."""
    described = {
        "name": "four",
        "algorithms": ["sync-sgd"],
        "workload": {"model": "digits-mlp", "batch_per_worker": 32, "learning": "none"},
        "cluster": {"nodes": [{"device": {"name": "d", "overhead": "4 ms", "per_sample": "0.5 ms"}, "count": 4}]},
        "stop": {"samples": 20 * 4 * 32},
    }
    return load(described, changes)


def plan(*changes: str) -> Plan:
    return four(*changes).plans()[0]


def steps(made: Plan) -> list[float]:
    return [round(made.compute_s(Rank(rank), 0, 32) / STEP_S, 9) for rank in range(4)]


def told(run: Run) -> dict[str, Any]:
    """Returns the summary's figures on faults."""
    found = run.summary.get("faults")
    assert found is not None
    return dict(found)


def mistakes(*changes: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        four(*changes)
    return [line.removeprefix("scenario: ") for line in str(caught.value).splitlines()]


# --- what they mean ---------------------------------------------------------------------------------------------------


def test_slow_places_multiply() -> None:
    assert steps(plan("cluster.stragglers=[{node: 3, factor: 2}, {worker: 0, factor: 3}, {factor: 1.5}]")) == [
        4.5,
        1.5,
        1.5,
        3.0,
    ]


def test_a_share_is_drawn_by_the_seed() -> None:
    drawn = {
        tuple(steps(plan("cluster.stragglers=[{share: 50 %, factor: 2}]", f"seed={seed}"))) for seed in range(1, 30)
    }
    assert all(sorted(one) == [1.0, 1.0, 2.0, 2.0] for one in drawn) and len(drawn) == 6


def test_the_nearest_spread_counts() -> None:
    nodes = "cluster.nodes[0].step_time={distribution: gamma, shape: 4}"
    own = "cluster.step_times=[{worker: 2, step_time: {distribution: expon}}, {node: 3, step_time: null}]"
    cluster = plan("cluster.step_time={distribution: lognorm, sigma: 0.3}", nodes, own).cluster
    gamma = Jitter.of("gamma", shape=4.0)
    assert [cluster.step_times_of(Rank(rank), 1).law for rank in range(4)] == [
        gamma,
        gamma,
        Jitter.of("expon"),
        NO_JITTER,
    ]
    common = plan("cluster.step_time={distribution: lognorm, sigma: 0.3}").cluster
    assert common.step_times_of(Rank(1), 1).law == Jitter.of("lognorm", sigma=0.3)


def test_without_spread_what_is_slow_stays_slow() -> None:
    scenario = four(
        "cluster.step_time={distribution: lognorm, sigma: 0.5}",
        "cluster.nodes[0].step_time={distribution: gamma, shape: 4}",
        "cluster.step_times=[{worker: 1, step_time: {distribution: expon}}]",
        "cluster.stragglers=[{node: 3, factor: 2}]",
    )
    (run,) = simulate(scenario, jitter=False, message_cost=False)
    assert run.summary["wall_s"] == pytest.approx(20 * 2 * STEP_S)
    assert "faults" not in run.summary


def test_a_slowdown_is_in_the_runs_clock_and_counted() -> None:
    """The slowest is node 2: from 0.1 s to 0.3 s it does 0.1 s of work, so the run is 0.1 s longer."""
    (run,) = simulate(four("cluster.slowdowns=[{node: 2, at: 0.1 s, lasts: 0.2 s, factor: 2}]"), message_cost=False)
    assert run.summary["wall_s"] == pytest.approx(20 * STEP_S + 0.1)
    assert told(run) == {
        "crashes": 0,
        "lost_s": 0.0,
        "recovery_s": 0.0,
        "checkpoint_s": 0.0,
        "slowed_s": pytest.approx(0.1),
    }


def test_all_workers_of_a_node_are_slow_at_the_same_times() -> None:
    again = "{every: 1 s, lasts: 0.1 s, duration: {distribution: expon}, factor: 5}"
    made = plan("cluster.nodes[0].workers_per_node=2", f"cluster.slowdowns=[{again}]")
    ends = [made.end_s(Rank(rank), 0.0, 20.0) for rank in range(8)]
    assert ends[0::2] == ends[1::2] and len(set(ends)) == 4


def test_crashes_are_counted_and_shares_are_one() -> None:
    crashes = "cluster.crashes={at: [{node: 1, at: 0.1 s}], recovery: 50 ms, checkpoint: {every: 60 ms, cost: 5 ms}}"
    (run,) = simulate(four(crashes), message_cost=False)
    faults = told(run)
    # checkpoints after every third step, at 60–65 ms; so 35 ms are lost at 100 ms
    assert faults["crashes"] == 1
    assert [faults["recovery_s"], faults["lost_s"]] == pytest.approx([0.05, 0.035])
    assert faults["checkpoint_s"] == pytest.approx(4 * 6 * 0.005)
    assert run.summary["wall_s"] == pytest.approx(20 * STEP_S + 6 * 0.005 + 0.05 + 0.035)
    assert sum(run.summary["time_fraction"].values()) == pytest.approx(1.0)
    assert run.summary["steps"] == 80


@pytest.mark.parametrize("name", ["async-sgd", "layerwise-sgd", "agd", "easgd", "hbs-sgd"])
def test_values_do_not_change(name: str) -> None:
    """Deterministic methods learn the same; all take the same number of steps, and repeated runs are equal."""
    faults = "cluster.crashes={mtbf: 300 ms, recovery: 10 ms, checkpoint: {every: 50 ms, cost: 1 ms}}"
    changes = ["workload.learning=train", "algorithms=[" + name + "]", "stop.samples=2560"]
    (calm,), (hard,), (again,) = (simulate(four(*changes, *more)) for more in ([], [faults], [faults]))
    assert told(hard)["crashes"] > 0
    assert hard.summary["wall_s"] > calm.summary["wall_s"]
    assert hard.tables.spans.equals(again.tables.spans)
    if name != "async-sgd":
        assert (hard.weights == calm.weights).all()


def test_figures_of_several_seeds_are_intervals() -> None:
    runs = simulate(four("cluster.slowdowns=[{every: 50 ms, lasts: 20 ms, factor: 2}]", "seeds=3"))
    tree = together([dict(run.summary) for run in runs])
    assert set(tree["faults"]["slowed_s"]) == {"mean", "low", "high"}


def test_a_worker_that_never_gets_through_ends_the_run() -> None:
    endless = CrashTimeline(AscendingTimes(iter(lambda: 0.0, 1.0)), CrashModel(checkpoint_every_s=1.0))
    with pytest.raises(RunFailed, match=f"crashed {MOST_CRASHES} times in one step of 1 s; use a larger time"):
        endless.live(TimelineState(), 0.0, 1.0)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_all_mistakes_at_once() -> None:
    assert mistakes(
        "cluster.stragglers=[{nod: 1, factor: 0.5}, {node: 1, share: 5 %, factor: 2}, {share: 120 %, factor: 2}]",
        "cluster.slowdowns=[{factor: 2, lasts: 1 s},"
        "{factor: 2, lasts: 1 s, at: 2 s, duration: {distribution: expon}}]",
        "cluster.crashes={mtbf: 5, recovry: 1 s, checkpoint: {cost: 1 s}}",
        "cluster.step_times=[{node: 1, step_time: {distribution: lognormal}}]",
    ) == [
        "cluster.step_times[0].step_time.distribution: unknown distribution 'lognormal' (did you mean lognorm?)",
        "cluster.stragglers[0].factor: found 0.5, expected a number of 1 or more",
        "cluster.stragglers[0].nod: unknown key (did you mean node?); there are node, worker, share, factor",
        (
            "cluster.stragglers[1]: found node and share; "
            "expected node, worker or share: at most one of them; none means all workers"
        ),
        "cluster.stragglers[2].share: found '120 %', expected a share above 0 and at most 1, such as '5 %' or 0.05",
        "cluster.slowdowns[0]: found neither at nor every; expected one of them",
        "cluster.slowdowns[1].duration: is there for slowdowns that recur; expected every instead of at",
        "cluster.crashes.mtbf: found 5, expected a time above 0 with its unit, such as '30 s'",
        "cluster.crashes.checkpoint.every: missing; expected a time with its unit: useful work between two checkpoints",
        (
            "cluster.crashes.recovry: unknown key (did you mean recovery?); "
            "there are at, mtbf, node_mtbf, recovery, checkpoint"
        ),
    ]  # fmt: skip


def test_what_would_never_end_is_refused() -> None:
    crashes = "cluster.crashes={mtbf: 1 s, checkpoint: {every: 20 s, cost: 1 s}}"
    found = mistakes(crashes, "cluster.slowdowns=[{factor: 2, lasts: 1 s, every: 1 us}]")
    assert any("crashes.checkpoint: found 21 s from one to the next with a failure every 1 s" in line for line in found)
    assert any("slowdowns[0].every: found '1 us', expected a time of 1 ms or more" in line for line in found)


def test_places_that_are_not_there() -> None:
    assert mistakes(
        "cluster.stragglers=[{worker: 4, factor: 2}, {share: 1 %, factor: 2}]",
        "cluster.crashes={at: [{node: 4, at: 1 s}]}",
    ) == [
        "cluster.stragglers[0].worker: found 4, expected a worker below 4, the number of workers",
        "cluster.stragglers[1].share: found 0.01, expected a share that is a node at least: 0.12 or more of 4 nodes",
        "cluster.crashes.at[0].node: found 4, expected a node below 4, the number of nodes",
    ]
    assert mistakes("cluster.stragglers=3", "cluster.crashes={recovery: 1 s}") == [
        "cluster.stragglers: found 3, expected a list of mappings",
        "cluster.crashes: found no crash; expected at, mtbf or node_mtbf",
    ]


@pytest.mark.parametrize("real", [train, compare])
def test_a_real_run_with_crashes_is_refused(real: Any) -> None:
    with pytest.raises(InputError, match=r"four: cluster\.crashes: found crashes, which only a simulation has"):
        real(four("cluster.crashes={mtbf: 1 h}"))


# --- cancelled gradients ----------------------------------------------------------------------------------------------


def test_a_cancelled_gradient_frees_its_device_at_once() -> None:
    """Cancelled at 0.5 s of 1 s: the next gradient begins then, and a later crash loses both."""

    @program
    def impatient(me: RankContext, state: Replica) -> Program[Replica]:
        step = yield from NextStep(state)
        assert step is not None
        batch = yield from Load(step.samples)
        first = yield from Start(Gradient(state.weights, batch))
        with pytest.raises(Exception, match="no message"):
            yield from Receive(timeout_s=0.5)
        yield from Cancel(first)
        second = yield from Start(Gradient(state.weights, batch))
        yield from Wait(second)
        return state

    timing = FixedTiming(faults=lambda _: CrashTimeline(AscendingTimes(iter([1.0])), CrashModel(recovery_s=0.25)))
    trace = played(impatient, timing=timing)
    # up to 1.0: half a second cancelled, half done; then 0.25 down, 1.0 again, 0.5 to go
    assert trace.wall_s == pytest.approx(2.75)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_pages_scenario_is_right_and_its_keys_are_the_schemas() -> None:
    text = DOCS.read_text(encoding="utf-8")
    shown, varying, deaths, _ = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    scenario = load(shown)
    step_time = yaml.safe_load(varying)["cluster"]["step_time"]
    document = scenario.dump()
    assert load({**document, "cluster": {**document["cluster"], "step_time": step_time}}).cluster.step_time.correlated
    assert load(scenario.dump()) == scenario
    assert load(scenario.dump() | yaml.safe_load(deaths)).cluster.deaths
    section = text.partition("## What a run says")[2].partition("\n##")[0]
    figures = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    (run,) = simulate(four("cluster.crashes={mtbf: 1 h}"))
    assert figures == set(told(run))
