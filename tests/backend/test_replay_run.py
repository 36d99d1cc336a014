"""`train`, and then `train --replay` on its record: the same bits, or a clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors
from typer.testing import CliRunner

from paceline.checking.replay import Recording, replay_run
from paceline.cli.app import app
from paceline.records.store import read_run
from tests.stored import rewrite, seal_run

pytestmark = pytest.mark.backend

SCENARIO = """
name: again
algorithms: [async-sgd, backup-workers]
workload: {model: digits-mlp, dataset: digits, batch_per_worker: 8}
cluster:
  nodes:
    - {device: {name: fast, overhead: 3 ms, per_sample: 0 ms}, workers_per_node: 2}
    - {device: {name: slow, overhead: 5 ms, per_sample: 0 ms}}
  network: {link: eth-10g}
  step_time: {distribution: lognorm, sigma: 0.5}
evaluate: {every: 100 updates}
stop: {seconds: 0.4 s}
seed: 5
"""
ONE_NODE = ["--set", "cluster.nodes=[{device: {name: one, overhead: 3 ms, per_sample: 0 ms}, workers_per_node: 3}]"]


def call(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def trained(folder: Path, *arguments: str) -> dict[str, Path]:
    """Returns the folder of the run of each algorithm."""
    scenario = folder / "again.yaml"
    scenario.write_text(SCENARIO)
    result = call("train", scenario, "--out", folder / "runs", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return {run["algorithm"]: Path(run["path"]) for run in json.loads(result.stdout)["runs"]}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained(tmp_path_factory.mktemp("stored"))


@pytest.mark.parametrize("algorithm", ["async-sgd", "backup-workers"])
def test_a_stored_run_is_replayed_bit_for_bit(stored: dict[str, Path], algorithm: str) -> None:
    """The run was ended by the clock, which a replay does not have; the number of steps is in the record."""
    result = call("train", "--replay", stored[algorithm], "--json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)["replayed"]
    run = read_run(stored[algorithm])
    assert answer["bit_identical"] is True and answer["largest_difference"] == 0.0
    assert answer["heard"] == len(run.tables.heard) > 20
    assert answer["steps"] == int(run.tables.updates["version_applied"].max()) + 1
    assert not np.array_equal(run.weights, run_from_start(run.scenario))
    assert "bit for bit" in call("train", "--replay", stored[algorithm]).stdout.replace("\n", " ")


def run_from_start(scenario: Any) -> Any:
    from paceline.scenarios import load

    (plan,) = load(scenario).plans(paced=True)
    return plan.job.learner.initial().numpy()


def test_what_is_stored_is_what_was_recorded(stored: dict[str, Path]) -> None:
    """Timeouts and outcomes are in the record, too."""
    recording = Recording.of_tables(read_run(stored["backup-workers"]).tables)
    assert set(recording.steps) == {0, 1, 2, 3} == set(recording.heard)
    assert all(len(recording.hearers[rank]) == len(heard) for rank, heard in recording.heard.items())


def spoiled(folder: Path, into: Path) -> Path:
    """A copy of a run's folder."""
    into.mkdir()
    for path in folder.iterdir():
        if path.is_file():
            (into / path.name).write_bytes(path.read_bytes())
    return into


def test_one_other_bit_is_seen(stored: dict[str, Path], tmp_path: Path) -> None:
    folder = spoiled(stored["async-sgd"], tmp_path / "run")
    weights = from_safetensors((folder / "weights.safetensors").read_bytes())["weights"].copy()
    weights.view(np.uint8)[0] ^= 1
    (folder / "weights.safetensors").write_bytes(to_safetensors({"weights": weights}))
    seal_run(folder)
    result = call("train", "--replay", folder, "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)["replayed"]
    assert answer["bit_identical"] is False and 0.0 < answer["largest_difference"] < 1e-6


def test_another_order_ends_elsewhere(stored: dict[str, Path], tmp_path: Path) -> None:
    """The order determines the weights: with two of the server's messages swapped they differ."""
    folder = spoiled(stored["async-sgd"], tmp_path / "run")
    heard = pd.read_parquet(folder / "heard.parquet")
    server = heard.index[heard["rank"] == heard["rank"].max()].tolist()
    sources = heard["source"].tolist()
    first = next(at for at in server[len(server) // 2 :] if sources[at] != sources[at + 1])
    sources[first], sources[first + 1] = sources[first + 1], sources[first]
    heard["source"] = sources
    heard.to_parquet(folder / "heard.parquet")
    seal_run(folder)
    assert not replay_run(read_run(folder)).bit_identical


def test_what_is_unlike_is_named(stored: dict[str, Path], tmp_path: Path) -> None:
    folder = spoiled(stored["async-sgd"], tmp_path / "run")

    def older(record: dict[str, Any]) -> None:
        record["versions"]["torch"], record["scenario"]["seed"] = "0.1", 6

    rewrite(folder / "run.json", older)
    result = call("train", "--replay", folder, "--json")
    assert result.exit_code == 1
    (unlike,) = json.loads(result.stdout)["replayed"]["unlike"]
    assert unlike.startswith("the run had torch 0.1, this is ")


def test_what_has_no_order_is_refused_with_the_reason(stored: dict[str, Path], tmp_path: Path) -> None:
    shared = trained(tmp_path, "--algorithms", "hogwild-sgd", *ONE_NODE)["hogwild-sgd"]
    failed = spoiled(stored["async-sgd"], tmp_path / "failed")
    rewrite(failed / "run.json", lambda record: record["summary"].update(stop_reason="failure"))
    lost = spoiled(stored["async-sgd"], tmp_path / "lost")
    paused = spoiled(stored["async-sgd"], tmp_path / "paused")
    rewrite(lost / "run.json", lambda record: record["summary"].update(failed_ranks=[{}]))
    rewrite(paused / "run.json", lambda record: record | {"machine": {"checkpoints": {}}})
    simulated = call("simulate", "quickstart", "--algorithms", "async-sgd", "--set", "stop={updates: 3}", "--json",
                     "--out", tmp_path)  # fmt: skip
    for folder, words in (
        (shared, "hogwild-sgd has no order to replay"),
        (failed, "the run failed"),
        (lost, "ranks died in the run"),
        (paused, "paused for checkpoints"),
        (json.loads(simulated.stdout)["runs"][0]["path"], "a simulated run; expected a measured one"),
        (tmp_path / "nowhere", "run.json: cannot be read (No such file"),
    ):
        result = call("train", "--replay", folder)
        assert result.exit_code == 2 and result.stdout == ""
        assert words in result.stderr and "Traceback" not in result.stderr


def test_a_replay_has_its_own_scenario(stored: dict[str, Path]) -> None:
    result = call("train", "quickstart", "--replay", stored["async-sgd"])
    assert result.exit_code == 2 and "'quickstart'" in result.stderr
    assert call("train").exit_code == 2
