"""`train`: a scenario in a real run, with the same tables and the same summary as a simulated one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from paceline.backend.training import train
from paceline.records import Run, store
from paceline.records.figures import ACTIVITIES
from paceline.records.summary import StepTime, Summary
from paceline.records.tables import SCHEMAS
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate
from tests.thorough import cases

pytestmark = pytest.mark.backend

SCENARIO = """
name: tiny
algorithms: [{name: sync-sgd, learning_rate: 0.1}, async-sgd, {name: agd, delay: 1}]
workload: {model: digits-mlp, dataset: digits, batch_per_worker: 8}
cluster:
  nodes:
    - {device: {name: fast, overhead: 2 ms, per_sample: 0.125 ms}, workers_per_node: 2}
    - {device: {name: slow, overhead: 4 ms, per_sample: 0.25 ms}}
  network: {link: eth-10g}
  step_time: {distribution: lognorm, sigma: 0.2}
train: {pace: device, time_dilation: 2}
evaluate: {every: 96 samples}
target: {accuracy: 0.3}
stop: {samples: 480}
seed: 5
"""
COMPUTE_S = {0: 0.003, 1: 0.003, 2: 0.006}


def runs_of(*changes: str) -> list[Run]:
    return train(load(SCENARIO, list(changes)))


@pytest.fixture(scope="module")
def trained() -> list[Run]:
    return runs_of()


def test_there_is_one_run_for_every_algorithm_and_seed(trained: list[Run]) -> None:
    assert [(run.algorithm, run.seed, run.kind) for run in trained] == [
        (name, 5, "measured") for name in ("sync-sgd", "async-sgd", "agd")
    ]


def test_all_algorithms_run_with_a_seed_before_the_next_seed() -> None:
    made: list[tuple[str, int]] = []

    def keep(run: Run) -> Run:
        made.append((run.algorithm, run.seed))
        return run

    runs = train(load(SCENARIO, ["seeds=2", "algorithms=[sync-sgd,easgd]", "stop.samples=48"]), keep=keep)
    assert made == [("sync-sgd", 5), ("easgd", 5), ("sync-sgd", 6), ("easgd", 6)]
    assert [(run.algorithm, run.seed) for run in runs] == [
        (name, seed) for name in ("sync-sgd", "easgd") for seed in (5, 6)
    ]


def test_a_measured_run_has_every_key_and_table_of_a_simulated_one(trained: list[Run]) -> None:
    predicted = simulate(load(SCENARIO))
    for run, other in zip(trained, predicted, strict=True):
        summary: Any = run.summary
        assert (
            summary.keys() - {"pace"}
            == other.summary.keys() - {"links"}  # real messages do not cross the scenario's links
            == Summary.__annotations__.keys()
            - {
                "faults",
                "reads",
                "extrapolated",
                "pace",
                "failed_ranks",
                "ended",
                "stand_in",
                "calibration",
                "broken_promises",
                "prediction_interval",
                "published_errors",
                "records",
                "links",
            }
        )
        assert summary["step_s"].keys() == StepTime.__annotations__.keys()
        assert summary["time_fraction"].keys() == set(ACTIVITIES)
        assert sum(summary["time_fraction"].values()) == pytest.approx(1.0)
        for name, schema in SCHEMAS.items():
            assert list(getattr(run.tables, name)) == schema.names


def test_the_figures_are_those_of_the_run(trained: list[Run]) -> None:
    for run in trained:
        summary = run.summary
        # synchronous ones end together after 480 samples; the server drops the gradient in flight of each of three
        # workers
        assert summary["samples"] == 480 - 24 * (run.algorithm == "agd")
        assert 60 <= summary["steps"] <= 63
        assert summary["wall_s"] > 0.12
        assert summary["bytes_sent"] > 0
        assert summary["final_loss"] is not None and summary["final_loss"] < 2.4
        assert not summary["diverged"]
    delays = [run.summary["staleness"]["histogram"] for run in trained]
    assert delays[0] == [[0, 60]] and delays[2] == [[1, 57]]


def test_a_paced_run_says_so_and_keeps_to_its_stretched_devices(trained: list[Run]) -> None:
    for run in trained:
        assert run.summary["paced"] and not run.summary["emulated_network"]
        compute = run.tables.spans.query("activity == 'compute'")
        for rank, device_s in COMPUTE_S.items():
            mine = compute[compute["rank"] == rank]
            factors = ((mine["end_s"] - mine["start_s"]) / (2 * device_s)).to_numpy()
            assert median(factors) > 0.8 and factors.min() < 1.2
            assert factors.max() - factors.min() > 0.2, "the spread is paced too"


def test_paced_steps_are_those_of_the_prediction(trained: list[Run]) -> None:
    """Rank by rank, step by step: never shorter than the plan's; how much longer depends on the machine's load."""
    plans = load(SCENARIO).plans(paced=True)
    for run, plan in zip(trained, plans, strict=True):
        compute = run.tables.spans.query("activity == 'compute'")
        lasted = (compute["end_s"] - compute["start_s"]).tolist()
        steps = zip(compute["rank"].tolist(), compute["step"].tolist(), strict=True)
        due = [plan.compute_s(rank, step, 8) for rank, step in steps]
        beyond = [took - planned for took, planned in zip(lasted, due, strict=True)]
        assert min(beyond) >= -1e-9
        assert min(beyond) < 5e-3, "not even one is on time"


def test_an_unpaced_run_says_so() -> None:
    for run in runs_of("train.pace=none", "train.time_dilation=1", "algorithms=[async-sgd]"):
        assert not run.summary["paced"]
        assert run.summary["samples"] >= 456
        compute = run.tables.spans.query("activity == 'compute'")
        assert (compute["end_s"] - compute["start_s"]).min() < min(COMPUTE_S.values())


def test_a_run_that_diverges_says_so_without_warnings() -> None:
    quadratic = "workload={model: quadratic, learning: quadratic, batch_per_worker: 4}"
    names = ("async-sgd", "layerwise-sgd", "easgd", "sync-easgd3")[: cases(1, 4)]
    diverging = f"algorithms=[{', '.join(f'{{name: {name}, learning_rate: 1e15}}' for name in names)}]"
    for run in runs_of(quadratic, diverging, "stop={updates: 120}"):
        assert run.summary["diverged"] and run.summary["final_loss"] is None


def test_what_differs_between_runs_is_in_the_machine_part_alone(trained: list[Run], tmp_path: Path) -> None:
    folder = store.save(trained[0], tmp_path).path
    assert folder is not None
    assert sorted(path.name for path in folder.iterdir()) == [
        "evaluations.parquet",
        "logs",
        "run.json",
        "spans.parquet",
        "steps.parquet",
        "transfers.parquet",
        "updates.parquet",
        "weights.safetensors",
    ]
    record = json.loads((folder / "run.json").read_text())
    assert 0.0 <= record["machine"]["other_load"] <= 1.0
    assert {"processor", "cores", "memory_bytes", "started_monotonic_s", "pace_late_s"} <= record["machine"].keys()
    del record["machine"]
    for fact in ("other_load", "started_monotonic_s", "pace_late_s", "processor"):
        assert fact not in json.dumps(record)


def test_the_weights_are_those_of_the_last_evaluation(trained: list[Run]) -> None:
    for run, plan in zip(trained, load(SCENARIO).plans(paced=True), strict=True):
        score = plan.job.learner.evaluate(run.weights)
        assert score.loss == run.summary["final_loss"]
        assert score.accuracy == run.summary["final_accuracy"]


def test_progress_is_told_and_grows() -> None:
    told: list[tuple[str, float]] = []
    train(
        load(SCENARIO, ["algorithms=[sync-sgd, async-sgd]", "stop.samples=240"]),
        progress=lambda what, done: told.append((what, done)),
    )
    shares = [done for _, done in told]
    assert shares == sorted(shares)
    assert shares[0] >= 0.0 and shares[-1] <= 1.0
    assert {what.split(",")[0] for what, _ in told} == {"sync-sgd", "async-sgd"}
    last = [what for what, _ in told if what.startswith("async-sgd")][-1]
    assert re.fullmatch(r"async-sgd, step 30, \d+ samples/s, loss \d\.?\d*, staleness \d\.?\d*", last)
