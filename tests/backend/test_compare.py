"""`compare` as a whole: probed, predicted, measured, compared. benchmarks/promises.py measures the accuracy."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import paceline
from paceline.backend.calibration import calibrate, gradient_costs, message_costs, rounds
from paceline.backend.calibration.rounds import probe
from paceline.cli.app import app
from paceline.records import Run
from paceline.records.figures import STEP_TIME, number
from paceline.records.machine_speed import MachineSpeed
from paceline.records.store import read_run
from paceline.reports.comparison import compare as comparison
from paceline.reports.comparison import turns
from paceline.scenarios import Scenario
from paceline.scenarios.machine_file import load_machine
from paceline.simulator.runs.dry_run import dry_run
from paceline.topologies.catalogue.machine_profile import Asked, Profile
from tests.thorough import sampled

pytestmark = [pytest.mark.backend, pytest.mark.slow]

SCENARIO = """
name: side-by-side
algorithms: [sync-sgd, async-sgd, easgd]
workload: {model: digits-mlp, dataset: digits, batch_per_worker: 8}
cluster:
  nodes:
    - {device: {name: fast, overhead: 5 ms, per_sample: 0.1 ms}, workers_per_node: 2}
    - {device: {name: slow, overhead: 10 ms, per_sample: 0.2 ms}}
  network: {link: eth-10g}
  step_time: {distribution: lognorm, sigma: 0.2}
evaluate: {every: 96 samples}
target: {accuracy: 0.3}
stop: {samples: 480}
seed: 5
"""


def short(patch: pytest.MonkeyPatch) -> None:
    """One launch of few steps of each probe, and no second probe on a busy machine: costs are only less exact."""
    patch.setattr(rounds, "LAUNCHES", 1)
    patch.setattr(message_costs, "UNPACED", 1)
    patch.setattr(message_costs, "MESSAGE_STEPS", 20)
    patch.setattr(message_costs, "COLLECTIVE_STEPS", 40)
    patch.setattr(comparison, "least_disturbed", lambda measure: (measure(), "good: not judged"))


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("comparison")
    (folder / "scenario.yaml").write_text(SCENARIO)
    options = ["--json", "--out", str(folder / "out")]
    with pytest.MonkeyPatch.context() as patch:
        short(patch)
        result = CliRunner().invoke(app, ["compare", str(folder / "scenario.yaml"), *options])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), folder / "out"


def test_the_answer_has_every_algorithm_on_both_sides(answered: tuple[Any, Path]) -> None:
    answer, _ = answered
    assert answer["scenario"] == "side-by-side" and answer["predicts"] == "this machine"
    assert answer["transports"] == {"collectives": ["gloo"], "messages": ["gloo", "shared memory"]}
    assert [line["name"] for line in answer["algorithms"]] == ["sync-sgd", "async-sgd", "easgd"]
    for line in answer["algorithms"]:
        assert (line["simulated"]["kind"], line["measured"]["kind"]) == ("simulated", "measured")
        assert line["measured"]["paced"] is True
        assert line["simulated"]["updates"] == line["measured"]["updates"]
        assert set(line["wrong_models"]) == {"no_message_cost", "no_spread", "alpha_beta"}
        step_s, real_s = (line[side]["step_s"]["mean"] for side in ("simulated", "measured"))
        assert line["error"]["step_s"]["mean"] == pytest.approx((step_s - real_s) / real_s)
    assert 0.0 <= answer["other_load"] <= 1.0


def test_deterministic_methods_have_exactly_the_predicted_staleness(answered: tuple[Any, Path]) -> None:
    lines = {line["name"]: line for line in answered[0]["algorithms"]}
    for name in ("sync-sgd", "easgd"):
        assert lines[name]["error"]["staleness_tv"] == 0.0
        assert lines[name]["simulated"]["staleness"] == lines[name]["measured"]["staleness"]


def test_both_sides_are_stored_and_the_figure_is_drawn(answered: tuple[Any, Path]) -> None:
    _, out = answered
    runs = [read_run(path) for path in sorted(out.iterdir()) if (path / "run.json").exists()]
    assert sorted((run.algorithm, run.kind) for run in runs) == sorted(
        (name, kind) for name in ("sync-sgd", "async-sgd", "easgd") for kind in ("simulated", "measured")
    )
    assert (out / "side-by-side-comparison-1" / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def host_costs(scenario: Scenario, asked: Sequence[Asked]) -> Profile:
    """What a probe measures of this machine."""
    costs = probe(scenario, asked)
    assert costs is not None, "no other process has the result"
    return costs.host


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    short(monkeypatch)


@pytest.mark.usefixtures("brief")
def test_a_probe_finds_costs_of_everything_the_prediction_asks_for() -> None:
    """By name, members and bytes: a server counts as one more worker, a barrier has no bytes."""
    compressed = {"name": "sync-sgd", "compression": {"kind": "top-k", "ratio": 0.1}}
    data = yaml.safe_load(SCENARIO) | {
        "algorithms": [compressed, "hsgd", "sync-easgd1", {"name": "layerwise-sgd", "bucket": None}]
    }
    scenario = paceline.load(data)
    asked = dry_run(scenario.plans(paced=True))
    nbytes = 4810 * 4
    assert {(one.operation, one.members, one.nbytes) for one in asked} == {
        ("AllGather", 3, 3 * 2 * 481 * 4),
        ("Reduce", 2, nbytes),
        ("AllReduce", 2, nbytes),
        ("Broadcast", 2, nbytes),
        ("Broadcast", 4, nbytes),
        ("Reduce", 4, nbytes),
        ("AllReduce", 3, 4160 * 4),
        ("AllReduce", 3, 650 * 4),
    }
    assert {one.operation for one in asked if one.inside} == {"Reduce", "Broadcast"}, "hsgd's, of the two on one node"
    assert all(one.groups == ((0, 1),) for one in asked if one.inside)
    profile = host_costs(scenario, [*asked, Asked("Barrier", 3, 0, ((0, 1, 2),))])
    assert set(profile.inside) == {("Reduce", 2), ("Broadcast", 2)}
    assert 0.0 < profile.message_s(nbytes) < 1.0 and 0.0 < profile.message_s(nbytes, inside=True) < 1.0
    for one in asked:
        assert 0.0 < profile.collective_s(one.operation, one.members, one.nbytes, one.inside) < 1.0
    assert 0.0 < profile.collective_s("Barrier", 3, 0) < 1.0
    assert 0.0 < profile.load_s < 0.1 and 0.0 < profile.serve_s < 0.1
    for inside in (False, True):
        assert profile.handling_s("send", nbytes, inside) > 0.0 and profile.handling_s("send", 0, inside) > 0.0
        assert profile.handling_s("receive", nbytes, inside) > 0.0 and profile.handling_s("start", nbytes, inside) > 0.0
    assert profile.handling_s("start", 4160 * 4, inside=False) > 0.0


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("workers", sampled([1, 2], [1]))
def test_a_probe_measures_what_workers_do_where_no_collective_is_asked_for(workers: int) -> None:
    """Also that of a single one, which enters no collective."""
    data = yaml.safe_load(SCENARIO) | {"algorithms": ["async-easgd"]}
    data["cluster"]["nodes"] = [data["cluster"]["nodes"][0] | {"workers_per_node": workers}]
    profile = host_costs(paceline.load(data), [])
    assert 0.0 < profile.update_s < 0.1 and 0.0 < profile.load_s < 0.1 and 0.0 < profile.serve_s < 0.1
    assert 0.0 < profile.rest_s < 0.1 and 0.0 < profile.late_s < 0.1
    assert profile.handling_s("receive", 4810 * 4, inside=True) > 0


UNPACED = """
name: unpaced
algorithms: [sync-sgd]
workload: {model: digits-mlp, dataset: digits, batch_per_worker: 16}
cluster: {nodes: [{device: {name: core, overhead: 1 ms, per_sample: 0 ms}, workers_per_node: 2}]}
train: {pace: none}
stop: {samples: 320}
"""


@pytest.fixture
def shortest(brief: None, monkeypatch: pytest.MonkeyPatch) -> None:  # a fixture that patches
    """Few and short launches of all probes."""
    monkeypatch.setattr(turns, "OPENING", 2)
    monkeypatch.setattr(turns, "BUSY", 1.0)  # nothing is repeated, however busy the machine is
    monkeypatch.setattr(turns, "least_disturbed", lambda measure: (measure(), "good: not judged"))
    monkeypatch.setattr(gradient_costs, "SECONDS", 0.1)
    monkeypatch.setattr(gradient_costs, "MOST", 5)
    monkeypatch.setattr(calibrate, "FEWEST_ROUNDS", 1)
    monkeypatch.setattr(calibrate, "NARROW", math.inf)  # one round is enough


@pytest.mark.usefixtures("shortest")
def test_unpaced_runs_are_predicted_in_turn_with_their_calibration() -> None:
    """Each prediction is stored before its run, and the speed of the machine in the run gives another one."""
    kept: list[tuple[str, int]] = []

    def keep(run: Run) -> Run:
        kept.append((run.kind, run.seed))
        return run

    found = comparison.compare(paceline.load(yaml.safe_load(UNPACED) | {"seeds": 2, "seed": 1}), keep=keep)
    assert kept == [("simulated", 1), ("measured", 1), ("simulated", 2), ("measured", 2)]
    (line,) = found.lines
    assert line.measured["paced"] is False
    assert line.simulated["updates"] == line.measured["updates"]
    assert number(line.error["staleness_tv"]) == 0.0
    assert line.simulated["step_s"]["mean"]["mean"] > 0
    speeds = [MachineSpeed.read(run.machine["speed"]) for run in line.measured_runs]
    assert all(speed is not None and speed.slowness > 0 and set(speed.ranks) == {0, 1} for speed in speeds)
    assert line.machine_change is not None and line.corrected is not None and line.within in (0.0, 0.5, 1.0)
    errors = [number(STEP_TIME.of(each)) for each in (line.error, line.corrected)]
    predicted, corrected = (1 + each for each in errors if each is not None)
    changed = corrected / predicted - 1  # both are in proportion to the same measurement
    assert changed == pytest.approx(line.machine_change, abs=0.1 + abs(line.machine_change) / 2)


@pytest.mark.usefixtures("shortest")
def test_a_calibrated_machine_predicts_without_a_probe(tmp_path: Path) -> None:
    scenario, machine = tmp_path / "unpaced.yaml", tmp_path / "machine.yaml"
    scenario.write_text(UNPACED)
    made = CliRunner().invoke(
        app, ["calibrate", str(scenario), "--batches", "8,16", "--seconds", "1", "--out", str(machine), "--json"]
    )
    assert made.exit_code == 0, made.stderr
    assert json.loads(made.stdout)["ranks"] == 2
    part = load_machine(machine)
    assert [one.batch for one in part.gradients] == [8, 16]
    assert [one.ranks for one in part.gradients[0].busy] == [1, 2]
    assert len(part.gradients[0].backward) == 2 and 0 < part.gradients[0].overlap <= 1
    options = ["--machine", str(machine), "--json", "--out", str(tmp_path / "out")]
    answered = CliRunner().invoke(app, ["compare", str(scenario), *options])
    assert answered.exit_code == 0, answered.stderr
    assert "probing" not in answered.stderr
