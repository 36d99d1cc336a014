"""From a log to a prediction: `paceline calibrate --import-only`, then a simulation that takes the log's times."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline import simulate
from paceline.cli.app import app
from paceline.records import Run, store
from paceline.scenarios import load
from paceline.scenarios.machine_file import load_machine
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import JoinedHosts, MeasuredCosts, Profile, seconds_at
from tests.logs import nccl_log, step_events, trace_text

DATA = Path(__file__).parents[1] / "data/measurements"
LENET_BYTES = 431_080 * 4
US = 1e-6


def scenario(workers: int = 8, model: str = "lenet", nodes: int = 1) -> dict[str, Any]:
    return {
        "name": "imported",
        "algorithms": ["sync-sgd"],
        "workload": {"model": model, "learning": "none", "batch_per_worker": 64},
        "cluster": {
            "nodes": [
                {
                    "device": {"name": "even", "overhead": "4 ms", "per_sample": "0 s"},
                    "workers_per_node": workers // nodes,
                    "count": nodes,
                }
            ]
        },
        "train": {"pace": "none"},
        "stop": {"updates": 10},
    }


def calibrated(tmp_path: Path, given: dict[str, Any] | str | None, *options: str) -> str:
    """Runs the command and returns the path of its file."""
    source: list[str] = []
    if isinstance(given, dict):
        (tmp_path / "scenario.json").write_text(json.dumps(given))
        source = [str(tmp_path / "scenario.json")]
    elif given is not None:
        source = [given]
    out = str(tmp_path / "machine.yaml")
    done = CliRunner().invoke(app, ["calibrate", *source, "--import-only", "--out", out, *options])
    assert done.exit_code == 0, done.output
    return out


def predicted(given: dict[str, Any], machine: str, *changes: str) -> Run:
    (run,) = simulate(load(given, [f"cluster.machine={machine}", *changes]), jitter=False)
    return run


def all_reduce_s(run: Run) -> list[float]:
    rows = run.tables.spans.query("activity == 'communication'")
    return list(rows["end_s"] - rows["start_s"])


def test_an_all_reduce_takes_the_time_of_an_nccl_log(tmp_path: Path) -> None:
    """Between 1 MiB in 37 us and 16 MiB in 157.07 us; gradients are those of the scenario's devices."""
    machine = calibrated(tmp_path, scenario(), "--nccl-tests", str(DATA / "all-reduce-8.txt"))
    run = predicted(scenario(), machine)
    expected_s = seconds_at(((1_048_576, 37 * US), (16_777_216, 157.07 * US)), LENET_BYTES)
    assert all_reduce_s(run) == pytest.approx([expected_s] * 80)
    assert run.summary["step_s"]["mean"] == pytest.approx(4e-3 + expected_s)
    (curve,) = load_machine(machine).costs
    assert curve.origin is not None
    assert (curve.origin.file, curve.origin.tool, curve.origin.version) == (
        "all-reduce-8.txt", "nccl-tests all_reduce", "2.17.4"
    )  # fmt: skip
    assert any("gradients take the times of the scenario's devices" in line for line in run.machine["warnings"])


def test_a_log_of_two_hosts_is_used_between_hosts(tmp_path: Path) -> None:
    rows = [(1_048_576, 38.07, 37.0), (16_777_216, 159.06, 157.07)]
    (tmp_path / "two.txt").write_text(nccl_log("all_reduce", [4, 4], rows))
    machine = calibrated(tmp_path, scenario(nodes=2), "--nccl-tests", str(tmp_path / "two.txt"))
    expected_s = seconds_at(((1_048_576, 37 * US), (16_777_216, 157.07 * US)), LENET_BYTES)
    assert all_reduce_s(predicted(scenario(nodes=2), machine)) == pytest.approx([expected_s] * 80)
    inside = predicted(scenario(), machine)
    assert all_reduce_s(inside)[0] != pytest.approx(expected_s, rel=0.1)
    assert any("the scenario's links carry AllReduce inside a host" in line for line in inside.machine["warnings"])


def test_what_was_assumed_of_a_log_is_said_with_every_figure_from_it(tmp_path: Path) -> None:
    """A log that gives no hosts; `--machine FILE` and `cluster.machine` say the same, on screen and in the record."""
    log = str(DATA / "osu.txt")
    machine = calibrated(tmp_path, "digits-mlp", "--workers", "4", "--osu", log)
    assumed = load_machine(machine).assumed[0]
    assert "one is assumed" in assumed
    path = tmp_path / "s.json"
    path.write_text(json.dumps(scenario(4, "digits-mlp")))
    for given in (["--machine", machine], ["--set", f"cluster.machine={machine}"]):
        words = ["simulate", str(path), *given, "--out", str(tmp_path)]
        assert f"note: cluster.machine: {assumed}" in CliRunner().invoke(app, words).stderr
        answer = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["runs"][0]
        assert any(assumed in text for text in answer["warnings"])
        record = json.loads((Path(answer["path"]) / "run.json").read_text())
        assert any(assumed in text for text in record["machine"]["warnings"])


@pytest.mark.parametrize("given", [str(DATA / "osu.txt"), f"4={DATA / 'osu.txt'}"])
def test_an_all_reduce_takes_the_time_of_an_osu_log(given: str, tmp_path: Path) -> None:
    machine = calibrated(tmp_path, "digits-mlp", "--workers", "4", "--osu", given)
    expected_s = seconds_at(((1024, 6.2 * US), (1_048_576, 410.55 * US)), 4810 * 4)
    assert all_reduce_s(predicted(scenario(4, "digits-mlp"), machine)) == pytest.approx([expected_s] * 40)


def test_a_gradient_takes_the_time_of_a_trace(tmp_path: Path) -> None:
    """Of 100 us forward, 200 us backward, 20 us loading and 30 us of the optimizer; backward as on the device."""
    phases = {"loading": 20.0, "forward": 100.0, "backward": 200.0, "optimizer": 30.0}
    events = [one for step in range(3) for one in step_events(step, (1 + step) * 1e6, phases)]
    trace = tmp_path / "trace.json"
    trace.write_text(trace_text(events))
    machine = calibrated(tmp_path, scenario(1), "--torch-profile", f"64={trace}")
    assert predicted(scenario(1), machine).summary["step_s"]["p50"] == pytest.approx(350 * US)
    (part,) = load_machine(machine).gradients
    _, shares = load(scenario(1)).plans()[0].layer_shares()
    assert part.forward == pytest.approx(1 / 3)
    assert part.backward == pytest.approx([2 / 3 * share / sum(shares) for share in shares])
    assert part.origin is not None and part.origin.tool == "torch.profiler"


def test_gradients_and_collectives_of_a_stored_run_are_predicted_again(tmp_path: Path) -> None:
    """The record of a simulated run, stored as a measured one, so that its costs are known."""
    costs = Profile(
        gradients=(GradientTimes(batch=64, busy=((1, 0.01), (2, 0.01))),),
        cores=2,
        inside={("AllReduce", 2): ((LENET_BYTES, 3e-3),)},
        update_s=1e-3,
        load_s=0.5e-3,
        rest_s=0.25e-3,
    )
    (made,) = simulate(load(scenario(2)), machine=MeasuredCosts(costs, joined=JoinedHosts()))
    measured = replace(made, summary={**made.summary, "kind": "measured"}, machine={"cores": 2, "processor": "any"})
    folder = store.save(measured, tmp_path).path
    machine = calibrated(tmp_path, None, "--run", str(folder))
    again = predicted(scenario(2), machine)
    assert again.summary["step_s"]["mean"] == pytest.approx(made.summary["step_s"]["mean"], rel=1e-9)
    assert all_reduce_s(again) == pytest.approx([3e-3] * 20)
    assert load_machine(machine).made.processor == "any"


def test_broken_files_give_one_error_and_exit_code_2(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text((DATA / "all-reduce-8.txt").read_text().replace("37.00   28.34", "37.00   99.00"))
    trace = tmp_path / "trace.json"
    trace.write_text("{")
    options = ["--nccl-tests", str(log), "--torch-profile", str(trace), "--osu", str(tmp_path / "none.txt")]
    done = CliRunner().invoke(app, ["calibrate", "lenet", "--import-only", *options])
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr
    for part in (f"{log}: line 22: found algbw 99", f"{trace}: line 1", "none.txt: cannot be read"):
        assert part in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--import-only"], "SCENARIO: missing"),
        (["lenet", "--import-only"], "found nothing to import"),
        (["quickstart", "--workers", "3"], "--workers: found 3 without the name of a model"),
        (["lenet,lenett"], "found 'lenett' among models (did you mean lenet?)"),
        (["lenet", "--import-only", "--osu", "1=log"], "--osu: found '1=log'"),
        (["lenet,digits-mlp", "--import-only", "--torch-profile", "t"], "found beside 2 models"),
    ],
)
def test_wrong_requests_are_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["calibrate", *arguments])
    assert done.exit_code == 2
    assert said in done.stderr
