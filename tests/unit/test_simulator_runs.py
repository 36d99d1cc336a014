"""Complete simulated runs: their end, their records, that they repeat, and their expected cost."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import METHODS, Method, find
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import changed
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.layerwise import Agd
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.records.metrics import smoothed
from paceline.records.store import read_run, save
from paceline.records.summary import reduce_tables, summarise
from paceline.records.tables import assemble
from paceline.records.targets import SMOOTHING, has_diverged
from paceline.records.trace import Schedule, Trace
from paceline.reports.attribution.recording import record
from paceline.reports.attribution.rows import breakdown
from paceline.scenarios import Scenario, load
from paceline.scenarios.values.fields import COLLECTIVES
from paceline.simulator.collectives.patterns import PATTERNS
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork, NoCost
from paceline.simulator.runs.run import simulate
from paceline.simulator.runs.short_runs import length_of
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile
from tests.clusters import fixed_costs, star
from tests.support import ONE_NODE, FixedTiming, built, job_of, nodes_for
from tests.thorough import WAYS, sampled

UNLIKE = FixedTiming(compute=lambda rank, step: 1.0 + 0.25 * ((3 * rank + step) % 4), work=0.125, load=0.0625)
NAMES = [name for name in METHODS if name != "sequential-sgd"]


def steps_by_rank(trace: Trace) -> dict[int, int]:
    """How many gradients each rank computed."""
    steps: dict[int, set[int]] = defaultdict(set)
    for span in trace.spans:
        if span.activity == "compute":
            steps[span.rank].add(span.step)
    return {rank: len(of_rank) for rank, of_rank in sorted(steps.items())}


# --- times of steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_the_times_of_steps_add_up_to_the_wall_time(name: str) -> None:
    """Σ over workers of (last activity − first gradient) = steps · mean; a worker that ends last has the wall time."""
    method = built(name)
    job = job_of(method, nodes=(nodes := nodes_for(method)), steps=12)
    trace = simulate_job(job, UNLIKE, ClusterNetwork(star(*map(len, nodes), latency_s=0.015625)), Schedule(1))
    figures = summarise(
        reduce_tables(
            assemble(trace, num_samples=job.learner.num_samples),
            wall_s=trace.wall_s,
            workers=job.workers,
            staleness_kind=method.staleness_kind,
            each_counts=method.independent,
        ),
        kind="simulated",
    )
    begun, ended = dict[int, float](), dict[int, float]()
    for span in trace.spans:
        if span.rank < job.workers:
            ended[span.rank] = max(span.end_s, ended.get(span.rank, 0.0))
            if span.activity == "compute":
                begun[span.rank] = min(span.start_s, begun.get(span.rank, span.start_s))
    mean_s = figures["step_s"]["mean"]
    assert mean_s is not None and figures["steps"] >= 12
    assert figures["steps"] * mean_s == pytest.approx(sum(ended[rank] - begun[rank] for rank in begun))
    assert max(ended.values()) <= trace.wall_s
    if not method.has_server and all(end_s == pytest.approx(trace.wall_s) for end_s in ended.values()):
        steps = figures["steps"] / job.workers
        assert trace.wall_s == pytest.approx(steps * mean_s + sum(begun.values()) / job.workers)


@pytest.mark.parametrize("name", ["diloco", "k-avg", "slowmo", "sasgd"])
def test_the_step_of_a_short_run_is_that_of_explain(name: str) -> None:
    """One round of 10 local steps, whose average is the last thing that the run does."""
    period = "k" if name == "k-avg" else "period"
    scenario = {
        "name": "rounds",
        "algorithms": [{"name": name, period: 10}],
        "workload": {"model": "resnet50", "learning": "none"},
        "cluster": {
            "nodes": [{"device": {"name": "gpu", "overhead": "4 ms", "per_sample": "3 ms"}, "count": 4}],
            "network": {"topology": "star", "link": {"latency": "30 ms", "bandwidth": "1 Gbit/s"}},
        },
        "stop": {"updates": 20},
    }
    (run,) = simulate(load(scenario))
    (plan,) = load(scenario).plans()
    explained_s, _ = breakdown(record(plan, length_of(plan, 10)))
    assert run.summary["step_s"]["mean"] == pytest.approx(run.summary["wall_s"] / 20)
    assert run.summary["step_s"]["mean"] == pytest.approx(explained_s, rel=1e-3)


# --- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sync-sgd", "sync-easgd3", "hbs-sgd", "layerwise-sgd", "agd"])
@pytest.mark.parametrize("budget", [Budget(seconds=6.3), Budget(accuracy=0.12)])
def test_synchronous_ranks_all_stop_at_the_same_step(name: str, budget: Budget) -> None:
    job = dataclasses.replace(job_of(METHODS[name](), 3, steps=None), budget=budget)
    steps = steps_by_rank(simulate_job(job, UNLIKE, fixed_costs(collective_s=0.3), Schedule(1)))
    assert len(steps) == 3 and len(set(steps.values())) == 1 and 2 <= steps[0] < 12


def test_a_run_ends_with_the_step_in_which_its_time_is_up() -> None:
    trace = simulate_job(job_of(SyncSgd(), 2, steps=None, seconds=3.5), FixedTiming(), NoCost(), Schedule(1))
    assert steps_by_rank(trace) == {0: 4, 1: 4} and trace.wall_s == 4.0


def test_ranks_behind_go_as_far_as_the_foremost_had_got() -> None:
    """Without synchronisation, the stop finds rank 1 far behind; it does not stop short of rank 0."""
    job = job_of(Agd(delay=10), 2, steps=None, seconds=4.5)
    trace = simulate_job(job, FixedTiming(compute=lambda rank, _: 1.0 + 3 * rank), NoCost(), Schedule(1))
    assert steps_by_rank(trace) == {0: 5, 1: 5}


def test_a_smoothed_accuracy_ends_the_run_at_the_evaluation_that_reaches_it() -> None:
    job = job_of(SyncSgd(), 2, steps=100, accuracy=0.2)
    trace = simulate_job(job, FixedTiming(), NoCost(), Schedule(2))
    accuracies = [shot.score.accuracy for shot in trace.snapshots if shot.score is not None]
    curve = smoothed([accuracy or 0.0 for accuracy in accuracies], SMOOTHING)
    assert curve[-1] >= 0.2 and all(curve[:-1] < 0.2)
    assert len(accuracies) == len(trace.snapshots) > 2


def test_a_run_that_ends_for_its_accuracy_has_a_time_to_it() -> None:
    changes = ["stop.accuracy=0.6", "target=null", "evaluate.every=128 samples"]
    (run,) = simulate(load("quickstart", changes, algorithms=["sync-sgd"]))
    assert run.tables.evaluations["epoch"].iloc[-1] < 2  # of 14: it ended because of its accuracy
    assert run.summary["time_to_accuracy_s"] is not None


@pytest.mark.parametrize(
    ("budget", "why", "steps"),
    [
        pytest.param({"steps": 5}, "samples", 5, id="the samples are spent"),
        pytest.param({"steps": 5, "counted": "epochs"}, "epochs", 5, id="which were given as epochs"),
        pytest.param({"steps": 5, "seconds": 2.5}, "seconds", 3, id="before that, the time is up"),
        pytest.param({"steps": 5, "seconds": 5.0}, "samples", 5, id="the time is up with the samples"),
        pytest.param({"steps": None, "loss": 12.0}, "loss", 7, id="the loss is there"),
        pytest.param({"steps": None, "accuracy": 0.08}, "accuracy", 8, id="the accuracy is there"),
    ],
)
def test_a_run_says_why_it_ended(budget: dict[str, Any], why: str, steps: int) -> None:
    """One worker's weights go 2 % of the way, then 2 % of the rest …, from a loss of 15 to none."""
    job = job_of(SyncSgd(learning_rate=0.02), 1, **budget)
    trace = simulate_job(job, FixedTiming(), NoCost(), Schedule(1))
    assert (trace.stop_reason, steps_by_rank(trace)[0]) == (why, steps)


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd", "layerwise-sgd", "gossip"])
def test_divergence_ends_a_run_at_the_first_evaluation_that_shows_it(name: str) -> None:
    fast = {"learning_rate": 2.5}
    method = dataclasses.replace(METHODS[name](), **fast)
    job = job_of(method, nodes=nodes_for(method), steps=100, divergence=True)
    trace = simulate_job(job, UNLIKE, NoCost(), Schedule(1))
    losses = [job.learner.evaluate(shot.vector).loss for shot in trace.snapshots]
    first = next(number for number in range(len(losses)) if has_diverged(losses[: number + 1]))
    assert trace.stop_reason == "divergence"
    assert trace.snapshots[first].score is not None and losses[first] > 10 * losses[0]
    assert len(losses) - first <= 3, "what was under way ends"
    budget = dataclasses.replace(job.budget, divergence=False)
    on = simulate_job(dataclasses.replace(job, budget=budget), UNLIKE, NoCost(), Schedule(1))
    assert on.stop_reason == "samples" and all(shot.score is None for shot in on.snapshots)
    assert len(trace.updates) < len(on.updates) / 2


def test_a_scenario_ends_at_divergence_unless_it_says_otherwise() -> None:
    changes = ["algorithms.agd.learning_rate=40", "evaluate.every=32 samples"]
    (run,) = simulate(load("quickstart", changes, algorithms=["agd"]))
    assert (run.summary["stop_reason"], run.summary["diverged"]) == ("divergence", True)
    (on,) = simulate(load("quickstart", [*changes, "stop.divergence=false", "stop.epochs=1"], algorithms=["agd"]))
    assert on.summary["stop_reason"] == "epochs" and on.summary["updates"] > run.summary["updates"]


def test_a_prediction_of_a_real_run_ends_as_that_does() -> None:
    """Accuracy is evaluated during a run only if it may end the run."""
    ends = ["algorithms.agd.learning_rate=40", "evaluate.every=32 samples", "stop.epochs=1"]
    points = ((0, 1e-4), (10**6, 1e-3))
    machine = MeasuredCosts(Profile(collectives={("AllReduce", 4): points}, messages=points))
    (free,) = simulate(load("quickstart", ends, algorithms=["agd"]), machine=machine)
    (watched,) = simulate(load("quickstart", [*ends, "stop.loss=0.01"], algorithms=["agd"]), machine=machine)
    assert (free.summary["stop_reason"], watched.summary["stop_reason"]) == ("epochs", "divergence")


def test_a_quadratic_has_a_time_to_a_loss() -> None:
    quadratic = "workload={model: quadratic, learning: quadratic, batch_per_worker: 8}"
    changes = [
        quadratic,
        "target={loss: 0.5}",
        "hyperparameters.learning_rate=0.2",
        "stop.epochs=2",
        "evaluate.every=8 samples",
    ]
    (run,) = simulate(load("quickstart", changes, algorithms=["async-sgd"]))
    found, table = run.summary, run.tables.evaluations
    curve = smoothed(table["loss"].tolist(), SMOOTHING)
    after = int(np.argmax(curve <= 0.5))
    assert found["time_to_accuracy_s"] is None and found["time_to_loss_s"] is not None
    for name, column in (("time_to_loss_s", "time_s"), ("samples_to_loss", "samples")):
        share = (0.5 - curve[after - 1]) / (curve[after] - curve[after - 1])
        low, high = table[column].iloc[after - 1], table[column].iloc[after]
        assert found[name] == pytest.approx(low + share * (high - low))  # type: ignore[literal-required]
    samples = found["samples_to_loss"]
    assert samples is not None and found["updates_to_loss"] == pytest.approx(samples / 8)  # a gradient each
    gap = table["time_s"].iloc[after] - table["time_s"].iloc[after - 1]
    assert found["time_to_loss_resolution_s"] == pytest.approx(gap)


def test_a_server_counts_single_gradients_and_says_goodbye_to_all() -> None:
    trace = simulate_job(job_of(AsyncSgd(), 3, steps=10), FixedTiming(), NoCost(), Schedule(1))
    assert len(trace.updates) == 10 and sum(update.samples for update in trace.updates) == 80
    assert len(trace.states) == 4
    assert sum(steps_by_rank(trace).values()) == 10 + 3  # one of each worker was in flight


# --- what is recorded -------------------------------------------------------------------------------------------------


def test_the_weights_are_kept_at_the_start_when_due_and_at_the_end() -> None:
    trace = simulate_job(job_of(SyncSgd(), 2, steps=5), FixedTiming(), NoCost(), Schedule(2))
    assert [(shot.time_s, shot.version, shot.samples) for shot in trace.snapshots] == [
        (0.0, 0, 0),
        (2.0, 2, 32),
        (4.0, 4, 64),
        (5.0, 5, 80),
    ]
    assert trace.snapshots[0].vector.tolist() == [0.0] * 4
    assert trace.weights is trace.snapshots[-1].vector


LOCAL = [changed(find(name)(), k=10, period=10) for name in ("k-avg", "diloco", "noloco", "streaming-diloco")]


@pytest.mark.parametrize("method", [find("sync-sgd")(), find("async-sgd")(), *LOCAL], ids=lambda method: method.name)
def test_an_update_is_the_same_in_evaluate_stop_and_figures(method: Method) -> None:
    """One step of a worker or of the server; local steps count too, and evaluations wait for the next average."""
    changes = ["stop.updates=100", "evaluate.every=20 updates", "target.accuracy=0.9"]
    (run,) = simulate(load("quickstart", changes, algorithms=[method]))
    per_update = run.scenario["workload"]["batch_per_worker"] * (1 if method.has_server else 4)
    assert run.summary["updates"] == 100
    assert run.summary["evaluations"] == len(run.tables.evaluations) == 6
    done = run.tables.evaluations["samples"].to_numpy() / per_update
    assert all(20 * number <= at <= 20 * number + 10 for number, at in enumerate(done[:-1]))
    assert done[-1] > 90  # after the last average


def test_the_steps_of_all_workers_are_updates_where_each_steps_independently() -> None:
    (run,) = simulate(load("quickstart", ["stop.updates=100", "evaluate.every=20 updates"], algorithms=["ad-psgd"]))
    assert run.summary["updates"] == run.summary["steps"] == 100
    steps = run.tables.evaluations["samples"].to_numpy() / run.scenario["workload"]["batch_per_worker"]
    assert set(np.diff(steps[:-1])) == {20}  # counted from those of the worker that is evaluated


def test_progress_is_told_samples_and_time() -> None:
    told: list[tuple[int, float]] = []
    simulate_job(job_of(SyncSgd(), 2, steps=3), FixedTiming(), NoCost(), Schedule(1), lambda *now: told.append(now))
    assert told == [(0, 0.0), (16, 1.0), (32, 2.0)]


# --- cost -------------------------------------------------------------------------------------------------------------


def test_events_per_step_do_not_creep_up() -> None:
    """Sync SGD on P ranks: a compute event each, then those of the network and the gate; a step is P + 2 events."""
    for workers in (2, 16):
        counts = [events(job_of(SyncSgd(), workers, steps=steps)) for steps in (10, 20)]
        assert counts[1] - counts[0] == 10 * (workers + 2)


def events(job: Job) -> int:
    return int(simulate_job(job, FixedTiming(), NoCost(), Schedule(10**9)).notes["events"])


# --- scenarios --------------------------------------------------------------------------------------------------------

STEPS = 12


def placed(name: str) -> list[str]:
    """Changes of a scenario with two nodes of two workers: one of four, where the method must have one."""
    if nodes_for(METHODS[name]()) != ONE_NODE:
        return []
    return ["cluster.nodes=[{device: {name: fast, overhead: 4 ms, per_sample: 0.5 ms}, workers_per_node: 4}]"]


def scenario_of(*algorithms: str, changes: Sequence[str] = ()) -> Scenario:
    """Two workers at 20 ms a step and two at 40 ms, for 12 steps each, without numbers."""
    nodes = [
        {"device": {"name": name, "overhead": "4 ms", "per_sample": per_sample}, "workers_per_node": 2}
        for name, per_sample in (("fast", "0.5 ms"), ("slow", "1.125 ms"))
    ]
    described = {
        "name": "four",
        "algorithms": list(algorithms),
        "workload": {"model": "digits-mlp", "batch_per_worker": 32, "learning": "none"},
        "cluster": {
            "nodes": nodes,
            "network": {"link": "eth-1g"},
            "step_time": {"distribution": "lognorm", "sigma": 0.3},
        },
        "evaluate": {"every": "256 samples"},
        "stop": {"samples": STEPS * 4 * 32},
    }
    return load(described, changes)


def test_a_scenario_gives_one_run_per_algorithm_and_seed(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    scenario = scenario_of("sync-sgd", "agd", changes=["seeds=2"])
    runs = simulate(scenario, progress=lambda *now: told.append(now), keep=lambda run: save(run, tmp_path))
    assert [(run.algorithm, run.seed, run.kind) for run in runs] == [
        (name, seed, "simulated") for name in ("sync-sgd", "agd") for seed in (1, 2)
    ]
    shares = [share for _, share in told]
    assert shares == sorted(shares) and 0.9 < shares[-1] <= 1.0 and {name for name, _ in told} == {"sync-sgd", "agd"}
    assert all(run.path is not None and read_run(run.path).summary == run.summary for run in runs)


@pytest.mark.parametrize("name", sampled(NAMES, WAYS))
def test_the_same_scenario_and_seed_give_the_same_tables_and_shares_add_up(name: str) -> None:
    scenario = scenario_of(name, changes=placed(name))
    (run,), (again,) = simulate(scenario), simulate(scenario)
    for field in dataclasses.fields(run.tables):
        table, other = getattr(run.tables, field.name), getattr(again.tables, field.name)
        assert table.equals(other), field.name
    assert sum(run.summary["time_fraction"].values()) == pytest.approx(1.0)


LONG_STEPS = {"demo": "update: plain", "noloco": "inner: sgd", "des-loc": "optimizer: sgd"}
"""settings of the methods whose default steps are as long as the learning rate, whatever the gradient: by the sign, or
by Adam and AdamW without weight decay. With those, weights grow in proportion to the number of steps and never become
NaN"""


@pytest.mark.parametrize("name", sampled(NAMES, WAYS))
def test_a_run_that_diverges_says_so_without_warnings(name: str) -> None:
    quadratic = "workload={model: quadratic, learning: quadratic, batch_per_worker: 4}"
    settings = ", ".join([f"name: {name}", "learning_rate: 1e15", *filter(None, [LONG_STEPS.get(name)])])
    changes = [quadratic, f"algorithms=[{{{settings}}}]", "hyperparameters={}"]
    late = ["stop={updates: 600}", "evaluate={every: 600 updates}"]  # when the weights become NaN
    (run,) = simulate(load("quickstart", [*changes, *late, *placed(name)]))
    assert run.summary["diverged"] and run.summary["final_loss"] is None


def test_what_a_model_leaves_out_makes_it_faster() -> None:
    scenario = scenario_of("sync-sgd")
    whole, free, even, neither = (
        simulate(scenario, jitter=spread, message_cost=message_cost)[0].summary["wall_s"]
        for spread, message_cost in ((True, True), (True, False), (False, True), (False, False))
    )
    assert neither < even < free < whole
    assert neither == pytest.approx(STEPS * 0.04)


def test_a_profile_predicts_its_machine() -> None:
    """Collectives, messages, loading and updates take what was measured there; the server has a host of two workers."""
    points, longer = ((0, 0.5), (10**6, 0.5)), ((0, 0.75), (10**6, 0.75))
    machine = Profile(
        collectives={("AllReduce", 4): points},
        messages=longer,
        inside_messages=points,
        load_s=0.25,
        update_s=0.125,
        serve_s=2.0,
    )
    scenario = scenario_of("sync-sgd", "async-sgd")
    sync, server = simulate(scenario, machine=MeasuredCosts(machine), jitter=False)
    assert sync.summary["wall_s"] == pytest.approx(STEPS * (0.04 + 0.5 + 0.25 + 0.125))
    # the server is the bottleneck: 2 s each, the first after loading, a gradient of 20 ms and the way there
    updates = server.tables.updates
    assert updates["time_s"].diff()[1:].tolist() == pytest.approx([2.0] * (len(updates) - 1))
    assert updates["time_s"][0] == pytest.approx(0.25 + 0.02 + 0.5 + 2.0)


# --- collectives ------------------------------------------------------------------------------------------------------


def test_a_run_says_what_its_collectives_took(tmp_path: Path) -> None:
    scenario = load("quickstart", ["stop.epochs=1", "cluster.network.library=gloo"], algorithms=["sync-sgd"])
    (run,) = simulate(scenario, keep=lambda run: save(run, tmp_path))
    assert run.path is not None
    (taken,) = read_run(run.path).machine["collectives"]
    assert (taken["kind"], taken["algorithm"], taken["protocol"]) == ("AllReduce", "ring", "segments")
    assert taken["ranks"] == 4 and taken["bytes"] > 0 and taken["predicted_s"] > 0.0


def test_scenarios_offer_the_patterns_that_there_are() -> None:
    assert set(COLLECTIVES) == {"auto", *PATTERNS["AllReduce"]}
