"""The command on the real simulator, and on scenarios that are wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.records.store import read_run

TABLES = ("spans.parquet", "updates.parquet", "evaluations.parquet", "weights.safetensors")

SCENARIO = """
name: tiny
algorithms: [{name: hbs-sgd, k1: 1, k2: 2, group: 2}]
workload: {model: quadratic, batch_per_worker: 4, learning: quadratic}
cluster:
  nodes:
    - {device: {name: fast, overhead: 4 ms, per_sample: 0.5 ms}, workers_per_node: 2}
    - {device: {name: slow, overhead: 4 ms, per_sample: 1 ms}, workers_per_node: 2}
  network: {link: {latency: 20 us, bandwidth: 10 Gbit/s}}
  step_time: {distribution: lognorm, sigma: 0.3}
stop: {updates: 8}
evaluate: {every: 2 updates}
seed: 3
"""
WRONG = SCENARIO.replace("updates: 8", "updates: many").replace("sigma: 0.3", "sigma: -1")


def call(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def simulated(*arguments: str | Path) -> list[dict[str, Any]]:
    result = call("simulate", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    runs: list[dict[str, Any]] = json.loads(result.stdout)["runs"]
    return runs


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO)
    return path


def test_the_same_scenario_and_seed_give_the_same_bytes(scenario: Path, tmp_path: Path) -> None:
    one, other = (Path(simulated(scenario, "--out", tmp_path)[0]["path"]) for _ in range(2))
    assert one != other
    for table in TABLES:
        assert (one / table).read_bytes() == (other / table).read_bytes()


def test_a_run_json_runs_again(scenario: Path, tmp_path: Path) -> None:
    changed = ["--set", "algorithms.hbs-sgd.k2=4", "--seed", "9"]
    first = Path(simulated(scenario, *changed, "--out", tmp_path)[0]["path"])
    again = Path(simulated(first / "run.json", "--out", tmp_path)[0]["path"])
    assert again.name == "tiny-hbs-sgd-9-simulated-2"
    for table in TABLES:
        assert (first / table).read_bytes() == (again / table).read_bytes()
    assert read_run(first).scenario == read_run(again).scenario


def test_another_seed_gives_another_run(scenario: Path, tmp_path: Path) -> None:
    one, other = simulated(scenario, "--seeds", "2", "--out", tmp_path)
    assert one["summary"]["wall_s"] != other["summary"]["wall_s"]


def test_an_epoch_of_digits(tmp_path: Path) -> None:
    (run,) = simulated("quickstart", "--algorithms", "async-sgd", "--set", "stop.epochs=1", "--out", tmp_path)
    summary = run["summary"]
    assert summary["kind"] == "simulated"
    assert summary["samples"] >= 1437
    assert summary["staleness"]["max"] >= 3
    assert summary["final_accuracy"] > 0.5
    assert sum(summary["time_fraction"].values()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(WRONG, ["stop.updates", "'many'", "step_time"], id="two mistakes"),
        pytest.param(None, ["no such file"], id="missing file"),
        pytest.param("name: [tiny", ["YAML", "line 2"], id="not YAML"),
    ],
)
def test_a_malformed_scenario(tmp_path: Path, text: str | None, words: list[str]) -> None:
    path = tmp_path / "wrong.yaml"
    if text is not None:
        path.write_text(text)
    for command in ("simulate",) if text != WRONG else ("simulate", "train", "compare"):
        result = call(command, path, "--out", tmp_path / "runs")
        assert result.exit_code == 2
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        for word in ("wrong.yaml", *words):
            assert word in result.stderr
        assert not (tmp_path / "runs").exists()


def test_csv_is_the_main_table_with_the_names_of_frames(scenario: Path, tmp_path: Path) -> None:
    result = call("simulate", scenario, "--out", tmp_path, "--no-report", "--csv")
    assert result.exit_code == 0
    header, row = csv.reader(result.stdout.splitlines())
    cells = dict(zip(header, row, strict=True))
    (folder,) = tmp_path.glob("*-simulated-1")
    assert cells["algorithm"] == "hbs-sgd"
    assert float(cells["step_s_mean"]) == read_run(folder).summary["step_s"]["mean"]
    assert "stored in" in result.stderr


def test_csv_of_a_list_and_of_stored_runs(scenario: Path, tmp_path: Path) -> None:
    listed = call("list", "topologies", "--csv").stdout
    assert listed.startswith("name,description\n")
    call("simulate", scenario, "--out", tmp_path, "--no-report")
    header, row = csv.reader(call("runs", tmp_path, "--csv").stdout.splitlines())
    assert len(header) == len(row) and row[0].endswith("-simulated-1")


def test_csv_does_not_go_with_json(scenario: Path) -> None:
    result = call("simulate", scenario, "--csv", "--json")
    assert result.exit_code == 2
    assert "--csv: found beside --json, expected one of them" in result.stderr
