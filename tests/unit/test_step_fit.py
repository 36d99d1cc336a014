"""`paceline calibrate --steps`: the process that measured steps are fitted by, and its file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from paceline import load, simulate
from paceline.backend.calibration.step_fit import drawn_together, fit_steps
from paceline.backend.calibration.step_sources import read_all
from paceline.cli.app import app
from paceline.topologies.faults.jitter import Jitter
from paceline.topologies.faults.step_times import StepTimes
from paceline.topologies.importing.step_series import StepSeries

WORKERS, STEPS, STEP_S = 16, 1500, 0.1
MADE = StepTimes(
    law=Jitter.of("lognorm", sigma=0.2), node=0.2, correlated=0.5, correlation_time_s=5.0, node_correlation_time_s=5.0,
    workers=(1.0, 1.0, 1.2, 1.6) * 4,
)  # fmt: skip
NODES = tuple(rank // 4 for rank in range(WORKERS))


def drawn(times: StepTimes, steps: int = STEPS) -> NDArray[np.float64]:
    """Returns the seconds of steps that all workers begin together, shape (workers, steps)."""
    return drawn_together(times, NODES, steps, step_s=STEP_S).seconds


def test_a_fit_finds_the_process_that_made_the_steps() -> None:
    fit = fit_steps(StepSeries.together("made", drawn(MADE), NODES))
    assert np.array(fit.times.workers) == pytest.approx(np.array(MADE.workers) / 1.2, rel=0.08)
    assert fit.times.node == pytest.approx(0.2, abs=0.08)
    assert fit.times.correlated == pytest.approx(0.5, abs=0.08)
    assert fit.times.correlation_time_s == pytest.approx(5.0, rel=0.35)
    for _, measured, fitted in fit.compared:
        assert fitted == pytest.approx(measured, rel=0.02)


def test_independent_steps_of_equal_workers_have_no_parts() -> None:
    independent = StepTimes(law=Jitter.of("gamma", shape=4.0))
    fit = fit_steps(StepSeries.together("made", drawn(independent), NODES))
    assert fit.persistent < 0.02 and fit.times.node < 0.05 and fit.times.correlated < 0.05
    assert abs(fit.lag_1) < 0.05


def test_the_fitted_process_repeats_correlations_and_the_distribution() -> None:
    fit = fit_steps(StepSeries.together("made", drawn(MADE), NODES))
    for _, measured, fitted in fit.correlations:
        assert fitted == pytest.approx(measured, abs=0.12)
    assert fit.correlations[0][1] == pytest.approx(fit.lag_1)
    assert fit.distances["process"] < 0.05 < fit.distances["weibull_min"]
    for halves in (fit.change, fit.distance_of_halves):
        assert halves.measured <= halves.most


def test_the_distance_to_the_process_is_that_of_its_distribution() -> None:
    """All steps of the process together are every factor of its distribution at every worker."""
    fit = fit_steps(StepSeries.together("made", drawn(MADE), NODES))
    steps = np.concatenate([run.seconds.ravel() / run.seconds.mean() for run in fit.runs])
    again = np.sort(np.outer(fit.times.workers, fit.times.law.values).ravel())
    again /= again.mean()
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert np.quantile(again, share) == pytest.approx(float(np.quantile(steps, share)), rel=0.01)


def test_the_first_half_does_not_announce_that_a_worker_becomes_slower_in_the_second() -> None:
    """The fit to all steps has slow phases that explain the change; that to the first half does not have them."""
    seconds = drawn(StepTimes(law=Jitter.of("lognorm", sigma=0.1)), steps=400)
    seconds[3:5, 300:] *= 4.0
    change = fit_steps(StepSeries.together("changed", seconds)).change
    assert change.most_from_first < 1.1 < 2.0 < change.measured
    assert change.most_from_first < 1.2 < change.most


def test_workers_that_change_more_than_the_process_does_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seconds = drawn(StepTimes(law=Jitter.of("lognorm", sigma=0.1)), steps=400)
    written(tmp_path / "steady.csv", seconds)
    seconds[3, 200:] *= 1.3
    written(tmp_path / "changed.csv", seconds)
    answers = {}
    for name in ("steady", "changed"):
        result = CliRunner().invoke(app, ["calibrate", "--steps", f"{name}.csv", "--json"])
        assert result.exit_code == 0, result.output
        answers[name] = result.output
    assert "cannot predict which one comes next" in answers["changed"]
    assert "cannot predict which one comes next" not in answers["steady"]


def test_the_second_half_is_predicted_where_independent_steps_are_wrong() -> None:
    series = StepSeries.together("made", drawn(MADE), NODES)
    fit = fit_steps(series.part(0, STEPS // 2))
    later = series.part(STEPS // 2, STEPS)
    for period, _, fitted in fit.compared:
        assert fitted == pytest.approx(later.slowdown(period), rel=0.05)
    shuffled = np.random.default_rng(1).permutation(later.seconds.ravel()).reshape(later.seconds.shape)
    assert StepSeries.together("shuffled", shuffled).slowdown(32) < 0.9 * later.slowdown(32)


def written(path: Path, seconds: NDArray[np.float64], *, nodes: bool = True) -> Path:
    head = "worker,step,seconds" + ",node" * nodes
    rows = [
        f"{rank},{step},{float(value)!r}" + f",host{NODES[rank]}" * nodes
        for (rank, step), value in np.ndenumerate(seconds)
    ]
    path.write_text("\n".join([head, *rows]), encoding="utf-8")
    return path


def test_the_command_writes_a_section_that_a_scenario_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "steps.csv", drawn(MADE, steps=300))
    result = CliRunner().invoke(app, ["calibrate", "--steps", "steps.csv", "--json"])
    assert result.exit_code == 0, result.output
    (job,) = json.loads(result.stdout)["jobs"]
    assert [entry["steps"] for entry in job["slowdown"]] == [1, 8, 32]
    printed = load("quickstart", [f"cluster.step_time={json.dumps(job['step_time'])}"])
    changes = ["cluster.step_time={file: step-time.yaml}", "stop={samples: 512}"]
    scenario = load("quickstart", changes, algorithms=["sync-sgd"])
    times = scenario.cluster.step_time
    assert times.correlated > 0 and len(times.workers) == WORKERS
    assert times == printed.cluster.step_time and simulate(scenario)
    again = load(scenario.dump())
    assert again.cluster.step_time == times, "a stored scenario does not need the file"


def test_several_jobs_are_fitted_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ["job,worker,step,duration"]
    rows += [f"{job},{w},{s},{1 + w + s % 3}" for job in ("a", "b") for w in range(3) for s in range(40)]
    (tmp_path / "steps.csv").write_text("\n".join(rows), encoding="utf-8")
    result = CliRunner().invoke(app, ["calibrate", "--steps", "steps.csv", "--out", "fits.yaml"])
    assert result.exit_code == 0, result.output
    assert load("quickstart", ["cluster.step_time={file: fits.yaml, job: b}"]).cluster.step_time.workers
    result = CliRunner().invoke(app, ["simulate", "quickstart", "--set", "cluster.step_time={file: fits.yaml}"])
    assert result.exit_code == 2 and "one of a, b" in result.output


def test_steps_of_a_stored_run_are_its_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["simulate", "quickstart", "--algorithms", "sync-sgd", "--set", "stop={samples: 4096}", "--quiet"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    (series,) = read_all([path.parent for path in (tmp_path / "runs").glob("*/run.json")])
    assert series.seconds.shape == (4, 32) and series.nodes == (0, 0, 1, 1) and not series.assumed
    assert series.seconds[2:].mean() > 1.5 * series.seconds[:2].mean()


def test_traces_of_profilers_are_the_workers_of_a_series(tmp_path: Path) -> None:
    def trace(name: str, seconds: float) -> Path:
        events = [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1,
             "ts": 1e6 * step * seconds, "dur": 1e6 * seconds}
            for step in range(20)
        ]  # fmt: skip
        path = tmp_path / name
        path.write_text(json.dumps({"traceEvents": events, "schemaVersion": 1}), encoding="utf-8")
        return path

    (series,) = read_all([trace("a.json", 0.1), trace("b.json", 0.3)])
    assert series.seconds.mean(axis=1) == pytest.approx([0.1, 0.3], rel=1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker,step\n0,1\n", "without seconds"),
        ("a,b\n0,1\n", "without worker (or rank) and seconds"),
        ("worker,step,seconds\n" + "0,1,2.0\n" * 3, "expected 16 or more"),
        ("worker,step,seconds\n" + "".join(f"0,{s},{s - 3}\n" for s in range(20)), "expected a time above 0; 4 of 20"),
        ("worker,step,seconds\n0,1,soon\n", "found 'soon'"),
        ("", "cannot be read"),
    ],
)  # fmt: skip
def test_wrong_tables_are_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "steps.csv").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["calibrate", "--steps", str(tmp_path / "steps.csv")])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "step-time.yaml").exists()


def test_mistakes_of_all_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("worker,step\n0,1\n", encoding="utf-8")
    paths = [option for name in ("a.csv", "b.csv") for option in ("--steps", str(tmp_path / name))]
    result = CliRunner().invoke(app, ["calibrate", *paths])
    assert result.exit_code == 2
    assert "without seconds" in " ".join(result.output.split()) and "no such file" in " ".join(result.output.split())
