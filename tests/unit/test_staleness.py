"""Staleness of every kind, on tables small enough to compute by hand, and the command that shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.periodic import KAvg
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.records.staleness import (
    CLOCK_GAP,
    COUNTS,
    NAMES,
    ages,
    by_age,
    by_layer,
    by_rank,
    by_staleness,
    clock_gaps,
    over_time,
    slope,
)
from paceline.records.store import read_run
from paceline.records.tables import OPTIONAL, SCHEMAS, assemble, frame
from paceline.records.trace import Schedule, Span, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.stored import seal_run
from tests.support import FixedTiming, Uneven, built, job_of
from tests.thorough import FAMILIES, extra, sampled
from tests.unit.test_commands import SCENARIO, TABLES, call, simulated

PAGE = (Path(__file__).parents[2] / "docs/staleness.md").read_text(encoding="utf-8")


def gradient(rank: int, step: int, start_s: float, end_s: float, layer: str | None = None) -> Span:
    return Span(Rank(rank), "main", "compute", layer, step, start_s, end_s)


# --- the clock gap ----------------------------------------------------------------------------------------------------


def test_the_clock_gap_counts_finished_steps() -> None:
    """Rank 0 finishes at 1, 2, 3, 4; rank 1 at 2 and 4: 1 − 0, together 2 − 1 and 1 − 1, 3 − 1, 4 − 2 and 2 − 2."""
    spans = [gradient(0, step, step, step + 1.0) for step in range(4)]
    spans += [gradient(1, step, 2.0 * step, 2.0 * step + 2) for step in range(2)]
    gaps = clock_gaps(assemble(Trace(spans=spans), num_samples=1).spans, workers=2)
    assert gaps.values.tolist() == [[1, 0, 1], [2, 0, 1], [2, 1, 0], [3, 0, 2], [4, 0, 2], [4, 1, 0]]


def test_a_step_of_several_layers_is_finished_once_and_servers_have_no_clock() -> None:
    spans = [gradient(0, 0, 0.0, 1.0, "fc"), gradient(0, 0, 1.0, 2.0, "conv"), gradient(1, 0, 0.0, 2.0)]
    spans += [Span(Rank(2), "main", "update", None, 0, 2.0, 3.0)]
    gaps = clock_gaps(assemble(Trace(spans=spans), num_samples=1).spans, workers=2)
    assert gaps["value"].tolist() == [0, 0]


def test_one_worker_alone_has_no_clock_gap() -> None:
    tables = assemble(Trace(spans=[gradient(0, 0, 0.0, 1.0)]), num_samples=1)
    assert clock_gaps(tables.spans, workers=1).empty
    assert clock_gaps(frame("spans", ()), workers=2).empty


# --- age --------------------------------------------------------------------------------------------------------------


def test_age_is_from_the_start_of_the_gradient_to_its_application() -> None:
    """Of two layers the first counts; a lost gradient began at its first attempt; unknown values are null."""
    spans = [gradient(0, 0, 1.0, 2.0, "fc"), gradient(0, 0, 2.0, 3.0, "conv"), gradient(1, 0, 4.0, 6.0)]
    spans += [Span(Rank(1), "main", "redo", None, 0, 3.0, 4.0)]
    updates = [Update(5.0, Rank(rank), 0, 0, 0, 0, 8) for rank in (0, 1, 2)]
    updates += [Update(0.5, Rank(0), 0, 0, 1, 1, 8)]
    layers = [LayerUpdate(4.5, Rank(0), 0, "fc", 0, 0, 0)]
    tables = assemble(Trace(spans=spans, updates=updates, layers=layers), num_samples=1)
    expected = [0.0, 4.0, 2.0, float("nan")]  # an exchange that landed before its gradient had begun comes first
    np.testing.assert_array_equal(tables.updates["age_s"], expected)
    assert tables.layers["age_s"].tolist() == [3.5]
    assert ages(tables.updates) == {
        "mean_s": 2.0,
        "p50_s": 2.0,
        "p95_s": pytest.approx(3.8),
        "max_s": 4.0,
        "by_rank": [[0, 2.0], [1, 2.0]],
    }


def test_runs_of_before_have_no_age(tmp_path: Path) -> None:
    """Their updates lack the column, and there is no table of layers."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    run = Path(simulated(path, "--out", tmp_path)[0]["path"])
    table = pq.read_table(run / "updates.parquet")
    pq.write_table(table.drop_columns("age_s"), run / "updates.parquet")
    seal_run(run)
    found = read_run(run).tables
    assert list(found.updates) == SCHEMAS["updates"].names
    assert found.updates["age_s"].isna().all() and len(found.updates)
    assert ages(found.updates)["mean_s"] is None
    assert call("staleness", run).exit_code == 0


# --- figures of a series ----------------------------------------------------------------------------------------------


def series(*rows: tuple[float, int, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["time_s", "rank", "value"])


def test_windows_hold_all_rows_once_and_say_nothing_where_they_are_empty() -> None:
    found = over_time(series((0.0, 0, 7), (1.0, 0, 1), (1.5, 1, 3), (5.0, 1, 4)), wall_s=4.0, windows=4)
    assert [one["count"] for one in found] == [2, 1, 0, 1]
    assert found[0]["histogram"] == [[1, 1], [7, 1]] and found[0]["p50"] == 4.0 and found[0]["max"] == 7
    assert found[2] == {
        "from_s": 2.0, "to_s": 3.0, "count": 0, "mean": None, "p50": None, "p95": None, "max": None, "histogram": [],
    }  # fmt: skip


def test_ranks_and_layers_have_figures_of_their_own() -> None:
    assert by_rank(series((0.0, 1, 4), (1.0, 0, 1), (2.0, 1, 0))) == [
        {"rank": 0, "count": 1, "mean": 1.0, "max": 1},
        {"rank": 1, "count": 2, "mean": 2.0, "max": 4},
    ]
    layers = frame("layers", [(1.0, 0, 0, "fc", 0, 1, 1, 0.5), (2.0, 0, 0, "conv", 0, 1, 1, 1.5)])
    assert by_layer(layers) == [
        {"layer": "fc", "count": 1, "mean": 1.0, "max": 1, "age_s": 0.5},
        {"layer": "conv", "count": 1, "mean": 1.0, "max": 1, "age_s": 1.5},
    ]
    assert by_layer(frame("layers", ())) == []


# --- against the loss -------------------------------------------------------------------------------------------------


def probes(staleness: Any, change: Any) -> pd.DataFrame:
    rows = [
        (float(n), n, float(lag), 9.0, 9.0 + moved)
        for n, (lag, moved) in enumerate(zip(staleness, change, strict=True))
    ]
    return frame("probes", rows)


def test_a_phase_of_the_run_is_not_taken_for_staleness() -> None:
    """Updates do less and less, and staleness falls meanwhile: pooled, the slope would be −0.09; within blocks, −0."""
    phase = np.repeat(np.arange(10.0), 10)
    staleness = 9 - phase + np.tile([0.0, 1.0], 50)
    change = 0.1 * phase
    assert np.polyfit(staleness, change, 1)[0] < -0.08
    found = slope(probes(staleness, change))
    assert found is not None and found["mean"] == pytest.approx(0.0, abs=1e-12)
    with_cost = slope(probes(staleness, change + 0.5 * staleness))
    assert with_cost is not None and with_cost["mean"] == pytest.approx(0.5)


@pytest.mark.parametrize("fading", [extra(0.0), 3.0])
def test_the_interval_of_a_slope_covers_the_truth_as_often_as_it_says(fading: float) -> None:
    """Also where late updates vary e³ times less than early ones."""
    chance, covered = np.random.default_rng(5), 0
    spread = np.exp(-fading * np.linspace(0, 1, 200))
    for _ in range(400):
        staleness = chance.integers(0, 4, 200)
        found = slope(probes(staleness, 0.3 * staleness + spread * chance.normal(0.0, 1.0, 200)))
        assert found is not None and found["low"] is not None and found["high"] is not None
        covered += found["low"] <= 0.3 <= found["high"]
    assert 366 <= covered <= 394, "95 % of 400 are 380; 3.2 standard deviations are 14"


def test_what_was_probed_too_seldom_decides_nothing() -> None:
    assert slope(probes([0] + [1] * 30, [-5.0] + [-0.1] * 30)) is None
    assert slope(probes([], [])) is None
    assert by_staleness(probes([], [])) == []


def test_a_loss_that_is_no_number_is_left_out() -> None:
    (one,) = by_staleness(probes([2, 2], [-1.0, float("nan")]))
    assert one == {"staleness": 2, "count": 1, "loss_change": {"mean": -1.0, "low": None, "high": None}}


# --- on request -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["async-sgd", "k-avg"])
def test_what_is_recorded_on_request_changes_nothing_else(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    words: list[str | Path] = [path, "--algorithms", algorithm, "--out", tmp_path]
    plain = Path(simulated(*words)[0]["path"])
    asked = Path(simulated(*words, "--set", "record.loss_change=1", "--set", "record.drift=1")[0]["path"])
    for table in TABLES:
        assert (plain / table).read_bytes() == (asked / table).read_bytes()
    made = {file.stem for file in asked.glob("*.parquet")} - {file.stem for file in plain.glob("*.parquet")}
    assert made == {"async-sgd": {"probes"}, "k-avg": {"drift"}}[algorithm]


def test_probes_are_evaluations_before_and_after_an_update() -> None:
    """Every second one is probed; each begins where the update before it ended."""
    job = job_of(built("async-sgd"), 3, steps=9)
    trace = simulate_job(job, FixedTiming(), NoCost(), Schedule(1, probes=2))
    losses = [job.learner.evaluate(shot.vector).loss for shot in trace.snapshots]
    assert [probe.version for probe in trace.probes] == [0, 2, 4, 6, 8]
    for probe in trace.probes:
        assert (probe.loss_before, probe.loss_after) == (losses[probe.version], losses[probe.version + 1])
        (row,) = (row for row in trace.updates if row.version_applied == probe.version)
        assert (probe.staleness, probe.time_s) == (row.staleness, row.time_s)


def test_drift_is_the_distance_from_the_mean_of_all_workers() -> None:
    """Without an average up to the end, the last drift is that of the final states."""
    job = job_of(KAvg(k=100), 3, steps=5, learner=Uneven())
    trace = simulate_job(job, FixedTiming(lambda rank, _: 1.0 + rank), NoCost(), Schedule(1, drift=2))
    assert [(row.rank, row.step, row.staleness) for row in trace.drifts] == [
        (rank, step, step) for step in (1, 3) for rank in range(3)
    ]
    trace = simulate_job(job, FixedTiming(lambda rank, _: 1.0 + rank), NoCost(), Schedule(1, drift=5))
    vectors = [trace.states[Rank(rank)].weights.vector for rank in range(3)]
    expected = [float(np.linalg.norm(vector - sum(vectors) / 3)) for vector in vectors]
    assert [row.drift for row in trace.drifts] == pytest.approx(expected) and min(expected) >= 0 < max(expected)
    (found,) = by_age(assemble(trace, num_samples=1).drift)
    assert found == {"staleness": 4, "count": 3, "mean": pytest.approx(np.mean(expected)), "max": max(expected)}


@pytest.mark.parametrize("name", sampled(METHODS, FAMILIES))
def test_every_method_can_be_asked(name: str) -> None:
    """A run without probes or drift shows none, as the page says, and no command fails."""
    job = job_of(built(name), nodes=[[0, 1, 2, 3]], steps=8)
    trace = simulate_job(job, FixedTiming(lambda rank, _: 1.0 + rank / 8), NoCost(), Schedule(100, probes=1, drift=1))
    method: Method = job.method
    rounds = ("post-local-sgd", "slowmo", "diloco", "streaming-diloco", "eager-diloco", "noloco", "co2", "sparse-loco")
    averages = name in ("hbs-sgd", "k-avg", "des-loc", "sasgd", *rounds)
    assert bool(trace.probes) == (not averages and not method.shared)
    assert bool(trace.drifts) == (averages or name == "gossip")


def test_a_real_run_and_a_timing_refuse_probes(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    for command in ("train", "compare"):
        answer = call(command, path, "--set", "record.drift=2", "--set", "record.loss_change=3", "--out", tmp_path)
        assert answer.exit_code == 2
        assert "record.drift: found 2, which only a simulation measures" in answer.stderr
        assert "record.loss_change: found 3" in answer.stderr
    answer = call("simulate", path, "--set", "record.drift=1", "--set", "workload.learning=none", "--out", tmp_path)
    assert (answer.exit_code, "record.drift: found 1, expected null" in answer.stderr) == (2, True)


# --- the command and the page -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each of three methods, the first two with all optional records."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "scenario.yaml").write_text(SCENARIO)
    names = ["async-sgd", "k-avg", "layerwise-agd"]
    words = ["--algorithms", ",".join(names), "--set", "stop.updates=60", "--set", "record.drift=1"]
    made = simulated(folder / "scenario.yaml", *words, "--set", "record.loss_change=1", "--out", folder)
    return {run["algorithm"]: Path(run["path"]) for run in made}


def test_the_answer_is_one_document_with_everything(runs: dict[str, Path]) -> None:
    result = call("staleness", runs["async-sgd"], runs["k-avg"] / "run.json", runs["layerwise-agd"], "--json")
    server, periodic, layerwise = json.loads(result.stdout)["runs"]
    assert [one["algorithm"] for one in (server, periodic, layerwise)] == ["async-sgd", "k-avg", "layerwise-agd"]
    for one in (server, periodic, layerwise):
        summary = read_run(Path(one["path"])).summary["staleness"]
        assert list(one["notions"]) == [one["own"], CLOCK_GAP] == list(summary["notions"])
        for name, figures in one["notions"].items():
            assert {key: figures[key] for key in ("mean", "max", "mean_of_ranks")} == summary["notions"][name]
            for parts in ("over_time", "by_rank"):
                assert sum(part["count"] for part in figures[parts]) == sum(count for _, count in figures["histogram"])
        assert one["notions"][one["own"]]["histogram"] == summary["histogram"]
        assert one["age"]["mean_s"] > 0 and one["loss"]["between_evaluations"]
    assert server["loss"]["by_staleness"] and not server["drift"] and not server["layers"]
    assert sum(one["count"] for one in server["loss"]["by_staleness"]) == 60
    assert [one["staleness"] for one in periodic["drift"]] == list(range(8))
    assert [one["mean"] for one in layerwise["layers"]] == [1.0] * len(layerwise["layers"]) != []


def test_what_is_shown_is_what_was_asked_for(runs: dict[str, Path], tmp_path: Path) -> None:
    short = call("staleness", runs["async-sgd"]).stdout
    assert "Half of the updates have a version lag of" in short and "by layer" not in short and "over time" not in short
    figure = tmp_path / "new" / "figure.png"
    long = call("staleness", *runs.values(), "--layer", "--over-time", "--why", "--out", figure)
    for words in ("by layer", "clock gap over time", "between evaluations", "by update: change", "drift: distance"):
        assert words in long.stdout
    assert "async-sgd applies whole gradients" in long.stdout
    assert "Every update has the same iteration delay, 1." in " ".join(long.stdout.split())
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_run_that_diverges_has_an_answer_too(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    words = [
        "--algorithms",
        "async-sgd,k-avg",
        "--set",
        "hyperparameters.learning_rate=1e9",
        "--set",
        "stop.updates=60",
    ]
    asked = ["--set", "record.loss_change=1", "--set", "record.drift=1", "--out", str(tmp_path)]
    made = simulated(path, *words, *asked)
    assert all(run["summary"]["diverged"] for run in made)
    answer = call("staleness", *[run["path"] for run in made], "--json")
    server, periodic = json.loads(answer.stdout)["runs"]
    assert 0 < sum(one["count"] for one in server["loss"]["by_staleness"]) < 60
    assert periodic["drift"] and call("staleness", *[run["path"] for run in made], "--why").exit_code == 0


def test_mistakes_are_told(runs: dict[str, Path], tmp_path: Path) -> None:
    assert "expected a complete run written by simulate or train" in call("staleness", tmp_path).stderr
    for name, told in (("a.txt", "ends in .png"), ("a.png", "at most 12")):
        answer = call("staleness", *[runs["k-avg"]] * 13, "--out", tmp_path / name)
        assert (answer.exit_code, told in answer.stderr) == (2, True)


def test_the_page_says_which_notions_a_method_has() -> None:
    said = {}
    for methods, notions in re.findall(r"^\| (\[.*?) \| ([a-z, -]+) \|$", PAGE, re.MULTILINE):
        for name in re.findall(r"\[([a-z0-9-]+)\]", methods):
            said[name] = notions.split(", ")
    assert said == {
        name: [NAMES[method.staleness_kind]] + ([] if method.alone else [CLOCK_GAP]) for name, method in METHODS.items()
    }


def test_the_page_says_what_each_notion_counts() -> None:
    section = PAGE.partition("## Six kinds of staleness")[2].partition("The first five")[0]
    rows = re.findall(r"^\| ([a-z -]+) \| (.+?) \| .*`", section, re.MULTILINE)
    assert dict(rows) == dict(COUNTS)


def test_optional_tables_are_tables() -> None:
    assert set(OPTIONAL) < set(SCHEMAS)
