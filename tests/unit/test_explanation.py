"""Explanations: the parts of a step add up to it, and closed forms give the parts and the effects of changes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Rank
from paceline.cli.app import app
from paceline.cli.options import EXIT_INPUT
from paceline.records import Run
from paceline.records.summary import steps_of
from paceline.reports.attribution.error_sources import error_sources
from paceline.reports.attribution.explain import (
    Effect,
    Explanation,
    changes,
    conclusion,
    effects,
    explain,
    shorter,
    timing_only,
)
from paceline.reports.attribution.recording import (
    RecordedRun,
    attribute,
    mean_step,
    mean_step_s,
    record,
    short_trace,
    windows,
)
from paceline.reports.attribution.rows import MOST_ROWS, ExplainedRow, breakdown, total
from paceline.reports.attribution.timeline import RankActivity, Timelines, from_trace
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.simulator.runs.run import simulate
from paceline.simulator.runs.short_runs import LONGEST, length_of, mean_of
from paceline.topologies.closed_forms import ring_all_reduce_s

GRADIENT_S, ALPHA_S, BYTES_PER_S = 0.01, 50e-6, 1.25e9
LENET_BYTES = 1_724_320
STAR = """
name: star
algorithms: [sync-sgd]
workload: {model: lenet, learning: none, batch_per_worker: 10}
cluster:
  nodes: [{device: {name: even, overhead: 0 ms, per_sample: 1 ms}, count: 4}]
  network: {topology: star, link: {latency: 50 us, bandwidth: 10 Gbit/s}, allreduce_algorithm: ring}
stop: {updates: 10}
"""
SMALL = """
name: small
algorithms: [sync-sgd]
workload: {model: lenet, learning: none, batch_per_worker: 4}
cluster:
  nodes:
    - {device: {name: fast, overhead: 1 ms, per_sample: 1 ms}, workers_per_node: 2}
    - {device: {name: slow, overhead: 2 ms, per_sample: 1.5 ms}, workers_per_node: 2}
  network: {topology: star, link: eth-1g}
  step_time: {distribution: lognorm, sigma: 0.3}
stop: {updates: 8}
"""
METHODS = [
    "sync-sgd",
    "sync-sgd-ps",
    "async-sgd",
    "easgd",
    "async-easgd",
    "layerwise-sgd",
    "layerwise-sgd-next-forward",
    "hbs-sgd",
    "hsgd",
    "gossip",
    "hogwild-sgd",
    "sequential-sgd",
]


def plan_of(text: str, algorithm: str, *changes: str) -> Plan:
    (plan,) = load(text, list(changes), algorithms=[algorithm]).plans()
    return plan


def recorded(text: str, algorithm: str, *changes: str, steps: int | None = 8) -> RecordedRun:
    plan = plan_of(text, algorithm, *changes)
    return record(plan, length_of(plan, steps))


def of_group(rows: list[ExplainedRow], group: str) -> list[ExplainedRow]:
    return [row for row in rows if row.group == group]


def explained(text: str, algorithm: str, *changes: str, steps: int | None = 8) -> Explanation:
    (found,) = explain(load(text, list(changes), algorithms=[algorithm]), steps=steps)
    return found


# --- the parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", METHODS)
def test_the_rows_add_up_to_the_step_time(algorithm: str) -> None:
    text = SMALL if algorithm != "hogwild-sgd" else SMALL.replace("    - {device: {name: slow", "    # - {")
    run = recorded(text, algorithm)
    step_s, rows = breakdown(run)
    assert step_s == pytest.approx(mean_of(windows(run)), rel=1e-12)
    assert total(rows) == pytest.approx(step_s, rel=1e-9)
    assert sum(row.percent for row in rows) == pytest.approx(100, rel=1e-9)
    assert all(row.seconds >= 0 and row.hidden_s >= 0 for row in rows)
    assert all(row.formula and row.provenance for row in rows)


def test_the_parts_are_those_of_the_time_fractions() -> None:
    """Without jitter each step is the same, so the fractions of a whole run are those of its steps."""
    (run,) = simulate(load(STAR))
    _, rows = breakdown(recorded(STAR, "sync-sgd"))
    fractions = run.summary["time_fraction"]
    assert sum(row.percent for row in of_group(rows, "gradient")) == pytest.approx(100 * fractions["compute"])
    assert sum(row.percent for row in of_group(rows, "collective")) == pytest.approx(100 * fractions["communication"])


def test_the_step_time_of_an_asynchronous_method_is_that_of_a_run() -> None:
    """Except for the first steps, which do not count here."""
    (run,) = simulate(load(SMALL, ["stop.updates=800"], algorithms=["async-sgd"]))
    assert mean_of(windows(recorded(SMALL, "async-sgd", steps=198))) == pytest.approx(
        run.summary["step_s"]["mean"], rel=0.02
    )


@pytest.mark.parametrize("algorithm", ["sync-sgd", "async-sgd", "layerwise-sgd"])
def test_what_is_not_recorded_does_not_change_the_step_time(algorithm: str) -> None:
    """With 16 ranks, synchronous methods run vectorised if messages are not recorded."""
    (plan,) = load(STAR, ["cluster.nodes[0].count=16"], algorithms=[algorithm]).plans()
    length = length_of(plan, 4)
    assert mean_step_s(plan, length) == pytest.approx(mean_of(windows(record(plan, length))), rel=1e-9)


@pytest.mark.parametrize("algorithm", [name for name in METHODS if name != "hogwild-sgd"])  # it has no messages
def test_what_is_not_recorded_does_not_change_the_waiting(algorithm: str) -> None:
    plan = plan_of(SMALL, algorithm)
    length = length_of(plan, 4)
    workers = plan.job.workers
    expected = mean_step(record(plan, length).trace, workers, length)
    assert mean_step(short_trace(plan, length), workers, length) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_waiting_is_the_row_of_the_slowest_member() -> None:
    run = recorded(SMALL, "sync-sgd")
    _, rows = breakdown(run)
    (row,) = of_group(rows, "waiting")
    assert row.seconds > 0
    assert mean_step(run.trace, run.workers, run.length).wait_s == pytest.approx(row.seconds)


def test_on_a_star_a_step_is_a_gradient_and_a_ring() -> None:
    step_s, rows = breakdown(recorded(STAR, "sync-sgd"))
    ring_s = ring_all_reduce_s(4, LENET_BYTES, ALPHA_S, 1 / BYTES_PER_S)
    assert step_s == pytest.approx(GRADIENT_S + ring_s)
    assert total(of_group(rows, "gradient")) == pytest.approx(GRADIENT_S)
    (reduced,) = of_group(rows, "collective")
    assert reduced.seconds == pytest.approx(ring_s)
    assert reduced.formula == (
        "ring all-reduce: 2 (4 − 1) · 50 µs + 2 (4 − 1)/4 · 1.72 MB / 1.25 GB/s = 2.37 ms, × 1 per step"
    )
    assert reduced.name == "all-reduce of 1.72 MB among 4, ring"


def test_a_gradient_is_divided_by_the_shares_of_the_layers() -> None:
    run = recorded(STAR, "sync-sgd")
    forward, backward = run.plan.layer_shares()
    layers = run.plan.job.learner.layout.layers
    _, rows = breakdown(run)
    expected = {
        layer.name: GRADIENT_S * (ahead + back) for layer, ahead, back in zip(layers, forward, backward, strict=True)
    }
    assert {row.name: row.seconds for row in of_group(rows, "gradient")} == pytest.approx(expected)


def test_many_layers_are_summed() -> None:
    _, rows = breakdown(recorded(STAR.replace("lenet", "resnet50"), "sync-sgd", steps=2))
    gradient = of_group(rows, "gradient")
    assert len(gradient) == MOST_ROWS + 1
    assert gradient[-1].name.endswith("other layers")
    assert total(gradient) == pytest.approx(GRADIENT_S)


def test_communication_behind_a_gradient_is_hidden() -> None:
    _, flat = breakdown(recorded(STAR, "sync-sgd"))
    _, overlapped = breakdown(recorded(STAR, "layerwise-sgd"))
    assert sum(row.hidden_s for row in flat) == 0
    assert sum(row.hidden_s for row in of_group(overlapped, "collective")) > 0


def test_two_messages_of_a_server_on_another_node() -> None:
    """One worker is beside the server. The other one pushes its gradient and receives the weights over the star."""
    text = STAR.replace("count: 4", "count: 2")
    step_s, rows = breakdown(recorded(text, "async-sgd"))
    message_s = ALPHA_S + LENET_BYTES / BYTES_PER_S
    push, pull = of_group(rows, "message")
    assert {push.name, pull.name} == {"worker → server, 1.72 MB", "server → worker, 1.72 MB"}
    assert f"1.72 MB / 1.25 GB/s + 50 µs = {1e3 * message_s:.2f} ms" in push.formula
    assert step_s == pytest.approx(total(of_group(rows, "gradient")) + push.seconds + pull.seconds)


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charges of workers take 1 ms, those of servers 6 ms."""

    def work_s(self: PlanTiming, rank: Rank, op: Charge) -> float:
        return 0.006 if rank == self.plan.job.team[0].server else 0.001

    monkeypatch.setattr(PlanTiming, "work_s", work_s)


def test_charges_of_workers_are_rows(charged: None) -> None:
    step_s, rows = breakdown(recorded(STAR, "sync-sgd"))
    (update,) = of_group(rows, "charge")
    assert update.name == "update on the device, 1.72 MB"
    assert update.seconds == pytest.approx(0.001)
    assert update.formula == "1.72 MB at 1.72 GB/s: 1 ms each, × 1 per step"
    ring_s = ring_all_reduce_s(4, LENET_BYTES, ALPHA_S, 1 / BYTES_PER_S)
    assert step_s == pytest.approx(GRADIENT_S + ring_s + 0.001)


def test_a_busy_server_is_a_queue(charged: None) -> None:
    """Four workers whose gradients take 10 ms, and a server that needs 6 ms for each: it is always busy."""
    step_s, rows = breakdown(recorded(STAR, "async-sgd", steps=40))
    assert step_s == pytest.approx(4 * 0.006, rel=0.02)
    queue = {row.name: row for row in of_group(rows, "queue")}
    assert set(queue) == {"queue at the server", "work of the server on the own message"}
    assert queue["work of the server on the own message"].seconds == pytest.approx(0.006, rel=0.02)
    found = explained(STAR, "async-sgd", steps=40)
    assert found.effects[0].words == "work of the server at half its cost"


# --- attribution -----------------------------------------------------------------------------------------------------


def test_the_first_activity_counts_and_the_rest_is_hidden() -> None:
    """A collective that the program has started, and after the gradient a wait for another member."""
    timelines = Timelines(
        [
            RankActivity(0, "main/1", "collective", 1.0, 1.0, 4.0),
            RankActivity(0, "main", "compute", 0.0, 0.0, 3.0),
            RankActivity(0, "main", "collective", 3.0, 5.0, 5.0, waits_for=1),
            RankActivity(0, "main", "compute", 9.0, 9.0, 9.5),
        ]
    )
    own = {"compute": 2.5, "collective": 1.0, "wait": 1.0, "unrecorded": 1.0}
    assert timelines.own(0, 0.5, 6.0) == own
    assert [piece[:3] for piece in timelines.hidden(0, 0.5, 6.0)] == [(1.0, 3.0, "collective")]


@pytest.mark.parametrize("algorithm", ["sync-sgd", "async-sgd", "hbs-sgd", "layerwise-sgd"])
def test_a_comparison_divides_the_predicted_steps_among_the_same_activities(algorithm: str) -> None:
    (plan,) = load("quickstart", ["workload.learning=none"], algorithms=[algorithm]).plans()
    short = record(plan, length_of(plan, 8))
    explained = attribute(short)
    assert sum(explained.exposed_s.values()) == pytest.approx(explained.whole_s)
    simulated, measured = (
        Run.of(short.trace, job=short.plan.job, kind=kind, scenario={"name": "quickstart"}, name="quickstart")
        for kind in ("simulated", "measured")
    )
    sources = error_sources([simulated], [measured])
    assert sources is not None
    spans, seconds, explained_s = simulated.tables.spans, Counter[str](), Counter[str]()
    steps = steps_of(spans, short.workers).set_index(["rank", "step"])["start_s"]
    for step in sources.alignment.steps:
        if windows(short)[Rank(step.rank)].holds(steps[step.rank, step.step]):
            seconds.update(step.predicted.own)
    timelines = Timelines(from_trace(short.trace))
    for rank, window in windows(short).items():
        explained_s.update(timelines.own(rank, window.start_s, window.end_s))
    assert seconds == pytest.approx(explained_s)


def test_accesses_to_shared_memory_and_their_lock_are_rows() -> None:
    """Four workers on a node, which hold the lock longer than their gradients take."""
    text = SMALL.replace("    - {device: {name: slow", "    # - {")
    text = text.replace("[sync-sgd]", "[{name: hogwild-sgd, lock: true}]").replace(
        "per_sample: 1 ms", "per_sample: 0 ms"
    )
    nodes = ["cluster.nodes[0].workers_per_node=4", "cluster.step_time=null"]
    _, rows = breakdown(recorded(text, "hogwild-sgd", *nodes))
    assert "access to shared memory" in {row.name for row in of_group(rows, "charge")}
    assert {row.name for row in of_group(rows, "queue")} == {"lock of shared memory"}


# --- length ----------------------------------------------------------------------------------------------------------


def test_a_run_covers_whole_periods() -> None:
    plan = plan_of(SMALL, "hbs-sgd")
    period = plan.job.method.longest_period(4)
    length = length_of(plan, period + 1)
    assert (length.steps, length.period) == (2 * period, period)
    assert {window.steps for window in windows(record(plan, length)).values()} == {2 * period}
    assert length_of(plan).steps >= 2 * period


def test_a_very_long_period_is_cut_with_a_note() -> None:
    plan = plan_of(SMALL.replace("[sync-sgd]", f"[{{name: k-avg, k: {10 * LONGEST}}}]"), "k-avg")
    length = length_of(plan)
    assert length.steps == LONGEST
    assert f"--steps {10 * LONGEST}" in length.note


# --- what would shorten it -------------------------------------------------------------------------------------------


def test_twice_the_bandwidth_halves_the_transfer() -> None:
    found = explained(STAR, "sync-sgd")
    transfer_s = 2 * 3 / 4 * LENET_BYTES / BYTES_PER_S
    latency_s = 6 * ALPHA_S
    saved_s = {effect.words: found.step_s - effect.step_s for effect in found.effects}
    assert saved_s == pytest.approx(
        {
            "devices twice as fast": GRADIENT_S / 2,
            "twice the bandwidth between nodes": transfer_s / 2,
            "half the latency between nodes": latency_s / 2,
        }
    )
    assert found.conclusion == (
        "Devices twice as fast would shorten a step of sync-sgd from 12.4 ms to 7.37 ms (−40 %); "
        "nothing else by more than 9 %."
    )


def test_only_changes_that_apply_are_tried() -> None:
    stragglers = "cluster.stragglers=[{worker: 0, factor: 3}]"
    words = [effect.words for effect in explained(SMALL, "sync-sgd", stragglers, steps=4).effects]
    assert {
        "no jitter",
        "no stragglers",
        "every device as fast as the fastest",
        "twice the bandwidth inside nodes",
    } <= {*words}
    assert "storage twice as fast" not in words
    alone = [effect.words for effect in explained(STAR, "sequential-sgd", steps=4).effects]
    assert alone == ["devices twice as fast"]


def test_ties_and_small_changes_are_said() -> None:
    def said(*steps: float) -> str:
        effects = [Effect(f"change {number}", step, 1.0) for number, step in enumerate(steps)]
        return conclusion("agd", 1.0, effects, lambda value: f"{value:g} s")

    assert said(0.9, 0.9, 0.999) == (
        "Change 0 or change 1 (each about the same) would shorten a step of agd from 1 s to 0.9 s (−10 %); "
        "nothing else by 0.5 % or more."
    )
    assert said(0.999) == "No change that was tried shortens a step of agd (1 s) by 0.5 % or more."
    assert said(0.98) == "Change 0 would shorten a step of agd from 1 s to 0.98 s (−2.0 %)."


# --- the command -----------------------------------------------------------------------------------------------------


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["explain", *arguments])


def test_the_answer_has_the_promised_keys(tmp_path: Any) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    result = call(str(path), "--steps", "4", "--algorithms", "sync-sgd,async-sgd", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert list(answer) == ["scenario", "algorithms"]
    assert [one["name"] for one in answer["algorithms"]] == ["sync-sgd", "async-sgd"]
    for one in answer["algorithms"]:
        assert {"name", "step_s", "rows", "what_if", "conclusion"} <= set(one)
        assert sum(row["seconds"] for row in one["rows"]) == pytest.approx(one["step_s"])
        keys = {"group", "name", "seconds", "percent", "hidden_s", "formula", "provenance"}
        assert all(set(row) == keys for row in one["rows"])
        assert all(set(effect) == {"change", "step_s", "saved_s", "saved_percent"} for effect in one["what_if"])


def test_the_tables_are_printed(tmp_path: Any) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    result = call(str(path), "--steps", "4", "--set", "cluster.step_time.sigma=0.1", "--quiet")
    assert result.exit_code == 0, result.output
    assert "sync-sgd: a step takes" in result.stdout
    assert "one change at a time" in result.stdout
    assert "would shorten a step of sync-sgd" in " ".join(result.stdout.split())


def test_the_same_scenario_gives_the_same_answer() -> None:
    one, other = (explained(SMALL, "async-sgd", steps=4).record() for _ in range(2))
    assert one == other


@pytest.mark.parametrize("arguments", [["no-such-scenario"], ["quickstart", "--algorithms", "no-such-method"]])
def test_wrong_input_is_refused(arguments: list[str]) -> None:
    assert call(*arguments).exit_code == EXIT_INPUT


def test_a_gradient_of_a_catalogue_device_is_divided_by_kinds_of_layers() -> None:
    """The kinds, memory traffic and launches add up to the device's time; nothing slows it down here."""
    (plan,) = load("dgx1-p100", ["workload.learning=none", "cluster.step_time=null"], algorithms=["sync-sgd"]).plans()
    device, batch = plan.cluster.nodes[0].device, plan.job.batches[0]
    assert device.times is not None
    parts = device.times.by_kind(batch)
    assert sum(part.seconds for part in parts) == pytest.approx(device.compute_s(batch), rel=1e-12)
    assert {"3x3", "dense", "memory", "launches"} <= {part.kind for part in parts}
    assert all(part.seconds > 0 and part.amount > 0 for part in parts)


def test_changes_over_fewer_steps_have_the_same_effects() -> None:
    """Without jitter all steps are alike."""
    run = recorded(STAR, "sync-sgd")
    step_s, _ = breakdown(run)
    some, all_of_them = (
        {one.words: one.step_s for one in effects(run, step_s, length=length)}
        for length in (replace(run.length, steps=1), run.length)
    )
    assert some == pytest.approx(all_of_them)
    assert all_of_them["devices twice as fast"] == pytest.approx(step_s - GRADIENT_S / 2)


def test_runs_with_very_many_activities_are_changed_over_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(STAR, "sync-sgd", steps=8)
    assert shorter(run) == run.length
    monkeypatch.setattr("paceline.reports.attribution.explain.MOST_SPANS", len(run.trace.spans) // 4)
    assert shorter(run).steps == 2
    few, all_of_them = (explained(STAR, "sync-sgd", steps=steps) for steps in (None, 8))
    (note,) = [text for text in few.notes if "very many operations" in text]
    assert note.startswith("sync-sgd: changes were evaluated over 2 steps of each worker")
    assert not [text for text in all_of_them.notes if "very many operations" in text]


# --- copies between hosts and devices ---------------------------------------------------------------------------------


TWO_GPUS = """
name: two
workload: {model: lenet, learning: none, batch_per_worker: 1000}
cluster:
  nodes:
    - node: pcie-tree
      settings: {switches: 1, gpus_per_switch: 2, nics: 1}
      device: {name: even, overhead: 2 ms, per_sample: 0 ms}
stop: {updates: 10}
"""
BATCH = 1000 * 4 * 28 * 28
"""bytes; two copies share an uplink of 12 GB/s"""


def run_of(algorithm: str, *settings: str) -> RecordedRun:
    scenario = timing_only(load(TWO_GPUS + f"algorithms: [{algorithm}]\n", settings))
    (plan,) = scenario.plans()
    return record(plan, length_of(plan, 6))


def staged(run: RecordedRun) -> dict[str, ExplainedRow]:
    step_s, rows = breakdown(run)
    assert total(rows) == pytest.approx(step_s, rel=1e-9)
    return {row.name: row for row in rows if row.group == "staging"}


def test_a_hidden_copy_costs_nothing() -> None:
    (row,) = staged(run_of("sync-sgd")).values()
    assert row.seconds == pytest.approx(0.0, abs=1e-9)
    assert row.hidden_s == pytest.approx(2 * BATCH / 12e9 + 4.2e-6, rel=1e-6)
    assert row.formula.startswith(
        "simulated with contention: 527 µs on average; alone 1000 × 3.14 kB = 3.14 MB / 12 GB/s"
    )
    assert "pcie3" in row.provenance and "MEMORY" in row.provenance


def test_a_copy_that_is_waited_for_is_part_of_the_step() -> None:
    (row,) = staged(run_of("sync-sgd", "cluster.staging.batches=pageable")).values()
    assert row.seconds == pytest.approx(2 * BATCH / 12e9 + 2 * BATCH / 12e9 + 4.2e-6, rel=1e-3)
    assert "3.14 MB / 6 GB/s by a core" in row.formula


@pytest.mark.parametrize("algorithm", ["sync-sgd", "async-sgd", "gossip", "easgd"])
def test_copies_of_vectors_are_not_communication(algorithm: str) -> None:
    run = run_of(algorithm, "cluster.network.library=gloo", "cluster.staging.batches=none")
    (row,) = staged(run).values()
    each = [span.end_s - span.start_s for span in run.trace.spans if span.activity == "copy"]
    assert min(each) >= 1_724_320 / 12e9
    assert 0.5 * min(each) < row.seconds + row.hidden_s < 8 * max(each)
    assert row.provenance.endswith("gloo copies whole vectors")


def test_changes_that_avoid_copies_are_tried() -> None:
    def tried(*settings: str) -> set[str]:
        return {change.words for change in changes(run_of("sync-sgd", *settings))}

    ahead, direct = "batches copied ahead from pinned memory", "GPUDirect RDMA"
    assert not tried() & {ahead, direct}
    assert ahead in tried("cluster.staging.prefetch=0")
    mpi = "cluster.network.library=mpi"
    assert direct in tried(mpi, "cluster.staging.gpudirect=off") and direct not in tried(mpi)
    (found,) = explain(load(TWO_GPUS + "algorithms: [sync-sgd]\n", [mpi, "cluster.staging.gpudirect=off"]), steps=4)
    assert found.effects[0].words == direct or found.effects[0].saved >= 0
