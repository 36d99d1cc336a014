"""`train --watch`: a real straggler that was not predicted is named, and watching changes nothing about the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.backend.training import train
from paceline.cli.app import app
from paceline.records.store import read_run
from paceline.reports.watching import predict_runs
from paceline.reports.watching.predict_runs import PredictedProgress
from paceline.scenarios import Scenario, load

pytestmark = pytest.mark.backend

SCENARIO = """
name: watched
algorithms: [sync-sgd]
workload: {model: digits-mlp, dataset: digits, batch_per_worker: 8}
cluster:
  nodes: [{device: {name: d, overhead: 4 ms, per_sample: 2 ms}, workers_per_node: 2}]
  stragglers: [{worker: 1, factor: 2}]
train: {pace: device}
stop: {samples: 480}
seed: 5
"""
STEPS = 480 // 16


def test_a_straggler_that_was_not_predicted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prediction lacks the straggler of the scenario; with the scenario's own, rank 1 is as slow as predicted."""
    original = predict_runs.predict_runs

    def unaware(scenario: Scenario, *arguments: Any) -> Any:
        return original(load(scenario.dump(), ["cluster.stragglers=[]"]), *arguments)

    monkeypatch.setattr(predict_runs, "predict_runs", unaware)
    watched = called(tmp_path, "--watch", "--json")
    assert "predicting with the scenario's devices and links" in watched.stderr
    assert "sync-sgd took 1." in watched.stderr
    assert "rank 1 was 1" in watched.stderr, "100 % slower, and more on a busy machine"
    assert "% slower than predicted from step 0 on" in watched.stderr
    (described,) = json.loads(watched.stdout)["runs"]
    assert described["summary"]["steps"] == 2 * STEPS

    plain = json.loads(called(tmp_path, "--json").stdout)["runs"][0]
    assert described["summary"].keys() == plain["summary"].keys()
    first, second = (read_run(Path(one["path"])) for one in (described, plain))
    assert first.scenario == second.scenario
    assert first.weights.tolist() == second.weights.tolist()


def test_quiet_runs_are_not_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_runs, "predict_runs", refused)
    quiet = called(tmp_path, "--watch", "--quiet", "--set", "stop.samples=48")
    assert quiet.stderr == ""


def test_the_counters_are_those_of_the_record() -> None:
    """The last reading has every gradient, its time as in the spans, and the evaluations that can end the run."""
    readings = []
    scenario = load(SCENARIO, ["stop={samples: 160, loss: 0.001}", "evaluate.every=32 samples"])
    (run,) = train(scenario, watch=lambda _, now: readings.append(now))
    last, spans = readings[-1], run.tables.spans.query("activity == 'compute'")
    for rank, one in enumerate(last.by_rank):
        mine = spans[spans["rank"] == rank]
        assert one.gradients == len(mine) == 10
        assert one.gradient_s == pytest.approx((mine["end_s"] - mine["start_s"]).sum(), rel=0.01)
    assert last.scored is not None and 0.0 < last.scored.accuracy < 1.0
    assert last.scored.loss == pytest.approx(run.tables.evaluations["loss"].tail(3).mean(), rel=0.2)


def test_the_prediction_knows_the_stragglers_of_the_scenario() -> None:
    scenario = load(SCENARIO)
    ((key, found),) = predict_runs.predict_runs(scenario, predict_runs.costs_of(scenario, None, joined=False)).items()
    assert key == ("sync-sgd", 5) and isinstance(found, PredictedProgress)
    assert found.gradients == 2 * STEPS and found.stop_reason == "samples"
    assert {rank: times.round(9).tolist() for rank, times in found.gradient_s.items()} == {
        0: [0.02] * STEPS,
        1: [0.04] * STEPS,
    }


def called(folder: Path, *options: str) -> Any:
    scenario = folder / "watched.yaml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    answer = CliRunner().invoke(app, ["train", str(scenario), "--out", str(folder / "runs"), *options])
    assert answer.exit_code == 0, answer.stderr
    return answer


def refused(*_: object) -> Any:
    raise AssertionError("no run is predicted")
