"""`paceline compare --measured`: stored runs beside predictions from a machine file. Measured runs are made up."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.records import Run
from paceline.records.machine import least_disturbed, probe_verdict
from paceline.records.store import read_run, save
from paceline.reports.comparison.conclusion import say_calibration
from paceline.reports.run_answer import answer_of_runs
from paceline.reports.words import kind_of
from paceline.scenarios import load
from paceline.scenarios.machine_file import (
    BusyPart,
    GradientPart,
    MachinePart,
    MadePart,
    save_machine,
    sections_of,
)
from paceline.simulator.runs.run import simulate
from paceline.topologies.catalogue.machine_profile import JoinedHosts, MeasuredCosts, Profile, is_poor

SCENARIO = {
    "name": "measured-before",
    "algorithms": ["sync-sgd", {"name": "agd", "delay": 1}, {"name": "agd", "delay": 2}],
    "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 8},
    "cluster": {
        "nodes": [
            {"device": {"name": "any", "overhead": "1 ms", "per_sample": "0 ms"}, "workers_per_node": 1, "count": 2}
        ]
    },
    "train": {"pace": "none"},
    "evaluate": {"every": "80 samples"},
    "target": {"accuracy": 0.1},
    "stop": {"samples": 320},
}
POINTS = ((0, 0.001), (20_000, 0.003))
COSTS = Profile(
    collectives={("AllReduce", 2): POINTS},
    inside={("AllReduce", 2): POINTS},
    messages=POINTS,
    inside_messages=POINTS,
    update_s=0.002,
)


def machine_part(gradient_s: float = 0.02, *, model: str = "digits-mlp", processor: str = "") -> MachinePart:
    busy = tuple(BusyPart.model_construct(ranks=ranks, mean=gradient_s, low=None, high=None) for ranks in (1, 2))
    return MachinePart.model_construct(
        format=1,
        made=MadePart(date="2026-01-01", processor=processor),
        model=model,
        ranks=2,
        cores=2,
        torch_threads=1,
        gradients=(GradientPart.model_construct(batch=8, busy=busy, factors=(1.0,)),),
        **sections_of(MeasuredCosts(COSTS)),
    )


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    save_machine(machine_part(), tmp_path / "machine.yaml")
    return tmp_path / "machine.yaml"


@cache
def runs_of(changes: tuple[str, ...], gradient_s: float, hosts: int) -> tuple[Run, ...]:
    costs = MeasuredCosts(machine_part(gradient_s).profile(), joined=JoinedHosts() if hosts > 1 else None)
    return tuple(simulate(load(SCENARIO, changes), machine=costs))


def measured(out: Path, *changes: str, gradient_s: float = 0.025, hosts: int = 1, **summary: Any) -> list[Path]:
    """Stores what a machine with these gradients would have measured; `summary` are further changes of the summary."""
    found: list[Path] = []
    for run in runs_of(changes, gradient_s, hosts):
        seats = [{"rank": rank, "host": rank % hosts} for rank in range(2)]
        facts = {**run.machine, "other_load": 0.5, "seats": seats}
        real: Any = {**run.summary, "kind": "measured", **summary}
        stored: Run = save(replace(run, summary=real, machine=facts), out)
        assert stored.path is not None
        found.append(stored.path)
    return found


def call(runs: list[Path], machine: Path | None, out: Path, *more: str) -> Any:
    options = [part for run in runs for part in ("--measured", str(run))]
    options += [] if machine is None else ["--machine", str(machine)]
    return CliRunner().invoke(app, ["compare", *options, "--out", str(out), *more], catch_exceptions=False)


def test_seeds_and_algorithms_are_pooled_and_predicted_from_the_file(tmp_path: Path, machine: Path) -> None:
    runs = measured(tmp_path / "runs", "seeds=2")
    result = call(runs, machine, tmp_path / "out", "--json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["predicts"] == "calibrated machine" and answer["other_load"] == 0.5
    assert [line["name"] for line in answer["algorithms"]] == ["sync-sgd", "agd", "agd delay=2"]
    sync = answer["algorithms"][0]
    step_s = {side: sync[side]["step_s"]["mean"] for side in ("simulated", "measured")}
    assert step_s["measured"]["mean"] - step_s["simulated"]["mean"] == pytest.approx(0.005)
    assert sync["error"]["step_s"]["mean"]["mean"] == pytest.approx(-0.005 / step_s["measured"]["mean"])
    assert set(sync["wrong_models"]) == {"no_message_cost", "no_spread", "alpha_beta"}
    kept = json.loads((tmp_path / "out/measured-before-comparison-1/comparison.json").read_text())
    assert {read_run(Path(path)).kind for path in kept["runs"]} == {"simulated", "measured"}
    assert {str(run) for run in runs} <= set(kept["runs"]) and len(kept["runs"]) == 12


def test_a_machine_that_is_right_has_no_error(tmp_path: Path, machine: Path) -> None:
    runs = measured(tmp_path / "runs", gradient_s=0.02)
    answer = json.loads(call(runs, machine, tmp_path / "out", "--json").stdout)
    for line in answer["algorithms"]:
        assert line["error"]["step_s"]["mean"] == pytest.approx(0.0)
        assert line["error"]["time_to_accuracy_s"] == pytest.approx(0.0)
        assert line["error"]["staleness_tv"] == 0.0


def test_ranks_of_several_hosts_are_predicted_on_several(tmp_path: Path, machine: Path) -> None:
    """Each host has its own cores, and the links of the scenario join them."""
    runs = measured(tmp_path / "runs", gradient_s=0.02, hosts=2)
    answer = json.loads(call(runs, machine, tmp_path / "out", "--json").stdout)
    assert [line["error"]["step_s"]["mean"] for line in answer["algorithms"]] == pytest.approx([0.0] * 3)


def test_for_a_person(tmp_path: Path, machine: Path) -> None:
    save_machine(machine_part(processor="Another processor"), machine)
    result = call(measured(tmp_path / "runs"), machine, tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "Other programs took 50.0 % of the measured machine" in " ".join(result.stdout.split())
    assert "that of the machine file Another processor" in result.stderr


def test_all_mistakes_are_reported_together(tmp_path: Path, machine: Path) -> None:
    good, *_ = measured(tmp_path / "good")
    other, *_ = measured(tmp_path / "other", "stop.samples=160")
    paced, *_ = measured(tmp_path / "paced", "train.pace=device", "cluster.nodes[0].device.overhead=20 ms")
    failed, *_ = measured(tmp_path / "failed", stop_reason="failure")
    simulated = save(simulate(load(SCENARIO))[0], tmp_path / "simulated").path
    assert simulated is not None
    result = call([good, other, paced, failed, simulated, tmp_path / "none"], machine, tmp_path / "out")
    assert result.exit_code == 2 and "Traceback" not in result.output
    lines = result.stderr.splitlines()
    for folder, words in (
        (other, "stop.samples: found 160, expected "),
        (paced, "train.pace: found 'device' with --machine, expected none"),
        (failed, "found a run that failed"),
        (simulated, "found a simulated run, expected a run of `paceline train`"),
        (tmp_path / "none", "run.json"),
    ):
        assert any(f"--measured {folder}: " in line and words in line for line in lines), (folder, result.stderr)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("part", "words"),
    [
        pytest.param(machine_part(model="digits-cnn"), "found gradients of digits-cnn, expected", id="another model"),
        pytest.param(None, "which is no file", id="no file"),
    ],
)
def test_a_machine_that_does_not_fit(tmp_path: Path, part: MachinePart | None, words: str) -> None:
    machine = tmp_path / "machine.yaml"
    if part is not None:
        save_machine(part, machine)
    result = call(measured(tmp_path / "runs"), machine, tmp_path / "out")
    assert result.exit_code == 2 and words in result.stderr and "Traceback" not in result.output


def test_options_that_do_not_go_with_stored_runs(tmp_path: Path) -> None:
    result = call([tmp_path], None, tmp_path / "out", "quickstart", "--seeds", "2", "--no-pace")
    assert result.exit_code == 2
    for words in ("SCENARIO: found beside", "--seeds: found beside", "--pace: found beside", "--machine: missing"):
        assert words in result.stderr


POOR = "poor: other programs used 64 % of the cores, and gradient times are within ±16 % in 5 rounds"


def poor(path: Path) -> Path:
    part = machine_part()
    save_machine(part.model_copy(update={"made": part.made.model_copy(update={"verdict": POOR})}), path)
    return path


def test_a_poor_calibration_is_said_beside_the_errors_that_rest_on_it(tmp_path: Path) -> None:
    machine = poor(tmp_path / "machine.yaml")
    runs = measured(tmp_path / "runs")
    answer = json.loads(call(runs, machine, tmp_path / "out", "--json").stdout)
    assert answer["calibration"] == POOR
    assert all(line["simulated"]["calibration"] == POOR for line in answer["algorithms"])
    said = " ".join(call(runs, machine, tmp_path / "out").stdout.split())
    assert (
        f"The measured costs that predictions rest on are {POOR}. Figures that rest on it are those of a disturbed"
        in said
    )


def test_a_simulation_of_a_poor_calibration_says_so_in_the_table_the_document_and_the_report(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(json.dumps(load(SCENARIO).dump()))
    words = ["simulate", str(scenario), "--machine", str(poor(tmp_path / "machine.yaml")), "--out", str(tmp_path / "o")]
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "simulated, from a poor calibration" in " ".join(shown.stdout.split()), shown.output
    assert f"cluster.machine: the calibration is {POOR}" in " ".join(shown.output.split())
    answer = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)
    runs = answer["runs"] if isinstance(answer, dict) else answer
    assert all(one["summary"]["calibration"] == POOR for one in runs)
    assert all(any(POOR in text for text in one["warnings"]) for one in runs)
    report = answer_of_runs([read_run(Path(one["path"])) for one in runs])
    assert any(POOR in text for text in report.notes)


def test_a_good_calibration_is_no_caution(tmp_path: Path, machine: Path) -> None:
    answer = json.loads(call(measured(tmp_path / "runs"), machine, tmp_path / "out", "--json").stdout)
    assert answer["calibration"] is None


@dataclass
class Shares:
    share: float


@pytest.mark.parametrize(
    ("loads", "best", "verdict"),
    [
        ([0.01], 1, "good: other programs used 1 % of the cores during the probe"),
        ([0.5, 0.1], 2, "fair: other programs used 10 % of the cores during the probe, the quietest of 2"),
        ([0.9, 0.3, 0.6], 2, "poor: other programs used 30 % of the cores during the probe, the quietest of 3"),
    ],
)
def test_a_disturbed_probe_is_repeated_a_bounded_number_of_times(loads: list[float], best: int, verdict: str) -> None:
    made: list[int] = []

    def probe() -> int:
        made.append(len(made) + 1)
        return made[-1]

    found, said = least_disturbed(probe, load=lambda number: nullcontext(Shares(loads[number - 1])))
    assert made == list(range(1, len(loads) + 1))
    assert found == best and said.startswith(verdict)
    assert is_poor(said) is verdict.startswith("poor")


def test_the_verdict_of_a_probe_is_in_the_conclusion() -> None:
    said = probe_verdict([0.4, 0.3, 0.5])
    costs = MeasuredCosts(replace(COSTS, gradients=())).judged(said)
    (run,) = simulate(load(SCENARIO, algorithms=["sync-sgd"]), machine=costs)
    assert run.summary.get("calibration") == said
    assert "from a poor calibration" in kind_of(run.summary)
    assert say_calibration(said).startswith(
        "The measured costs that predictions rest on are poor: other programs used 30 %"
    )
    assert say_calibration(probe_verdict([0.01])) == ""
    assert "the quietest of 2, since they used 40 % in the first" in say_calibration(probe_verdict([0.4, 0.01]))
