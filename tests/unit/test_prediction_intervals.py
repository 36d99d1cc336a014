"""Intervals of predictions in summaries, tables, files and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from paceline import simulate
from paceline.cli.app import app
from paceline.records.prediction_interval import PredictionInterval, StepFactors, mean_interval, prediction_interval
from paceline.reports.sweeps.sweep import SweepEntry, SweepResult
from paceline.reports.sweeps.sweep_answer import charts
from paceline.reports.sweeps.sweep_table import BOUNDS, SweepTable, tabulate
from paceline.scenarios import load

FEW = ["stop.updates=4", "workload.batch_per_worker=16"]
COLUMN = "workload.batch_per_worker"


@pytest.fixture(scope="module")
def predicted() -> dict[str, Any]:
    """The summary of a run on a device of the catalogue."""
    (run,) = simulate(load("dgx1-p100", FEW, algorithms=["sync-sgd"]))
    return dict(run.summary)


@pytest.fixture(scope="module")
def given() -> dict[str, Any]:
    """The summary of a run on devices that the scenario describes itself."""
    (run,) = simulate(load("quickstart", ["stop.updates=4", "workload.learning=none"], algorithms=["sync-sgd"]))
    return dict(run.summary)


def table_of(*summaries: dict[str, Any]) -> SweepTable:
    """Returns the table of a sweep with a point of each summary, twice the batch each time."""
    entries = [
        SweepEntry(vary={COLUMN: 16 * 2**number}, algorithm="sync-sgd", seed=1, workers=8, summary=summary)
        for number, summary in enumerate(summaries)
    ]
    return tabulate(SweepResult(scenario="made", paths=(COLUMN,), target=None, entries=tuple(entries)))


BAR = "bar: 80 % of similar predictions"


def bars_of(table: SweepTable) -> dict[str, list[list[float]]]:
    """Returns the error bars of each chart, by its figure: [position, low, high] of each."""
    return {
        chart.title.partition(" by ")[0]: [
            [x, low, high]
            for x, low, high in zip(series.x, series.low or (), series.high or (), strict=True)
            if low is not None and high is not None
        ]
        for chart in charts(table)
        for series in chart.plots[""].series
        if series.name == BAR
    }


def test_a_rate_falls_where_a_time_rises() -> None:
    figures = {
        "step_s": {"mean": 0.1}, "samples_per_s": 100.0, "time_to_accuracy_s": 20.0, "time_to_loss_s": None,
    }  # fmt: skip
    found = prediction_interval(figures, StepFactors(0.5, 2.0, 0.8, ("these",)))
    assert found["step_s"] == {"low": 0.05, "high": 0.2}
    assert found["samples_per_s"] == {"low": 50.0, "high": 200.0}
    assert found["time_to_accuracy_s"] == {"low": 10.0, "high": 40.0}
    assert found["time_to_loss_s"] is None


def test_seeds_have_the_means_of_their_ends() -> None:
    def one(low: float, high: float, *, reached: bool) -> PredictionInterval:
        return PredictionInterval(
            share=0.8, similar=[], step_s={"low": low, "high": high}, samples_per_s=None,
            time_to_accuracy_s={"low": 1.0, "high": 2.0} if reached else None, time_to_loss_s=None,
        )  # fmt: skip

    found = mean_interval([one(1.0, 3.0, reached=True), one(2.0, 5.0, reached=False)])
    assert found["step_s"] == {"low": 1.5, "high": 4.0}
    assert found["time_to_accuracy_s"] is None


def test_only_devices_of_the_catalogue_have_one(predicted: dict[str, Any], given: dict[str, Any]) -> None:
    assert "prediction_interval" not in given
    bounds = predicted["prediction_interval"]["step_s"]
    assert bounds["low"] < predicted["step_s"]["mean"] < bounds["high"]
    (run,) = simulate(load("dgx1-p100", FEW, algorithms=["sync-sgd"]))
    (gradient,) = run.machine["gradient_times"]
    # messages and updates are not in the interval, so that a step's is narrower in relation to its time
    assert 1 < bounds["high"] / bounds["low"] < gradient["high_s"] / gradient["low_s"]


def test_the_columns_of_a_sweep(predicted: dict[str, Any], given: dict[str, Any]) -> None:
    frame = table_of(predicted, given).frame
    ends = [column for columns in BOUNDS.values() for column in columns]
    assert len(ends) == 8 and set(ends) <= set(frame.columns)
    bounds = predicted["prediction_interval"]
    assert frame["step_s_low"].tolist()[0] == bounds["step_s"]["low"]
    assert frame["samples_per_s_high"].tolist()[0] == bounds["samples_per_s"]["high"]
    assert frame["time_to_accuracy_s_low"].isna().all()
    assert all(frame[column].isna().tolist()[1] for column in ends)


def test_a_chart_has_bars_from_low_to_high(predicted: dict[str, Any], given: dict[str, Any]) -> None:
    bounds = predicted["prediction_interval"]
    bars = bars_of(table_of(predicted, predicted, given))
    assert set(bars) == {"Throughput", "Step time"} and bounds["share"] == 0.8
    for title, name in (("Step time", "step_s"), ("Throughput", "samples_per_s")):
        assert bars[title] == [[batch, bounds[name]["low"], bounds[name]["high"]] for batch in (16.0, 32.0)]


def test_given_devices_have_no_bars(given: dict[str, Any]) -> None:
    assert bars_of(table_of(given, given)) == {}


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_table_of_simulate_has_the_range_below_the_step_time(seeds: int, tmp_path: Path) -> None:
    changes = [part for change in (*FEW, f"seeds={seeds}") for part in ("--set", change)]
    arguments = ["simulate", "dgx1-p100", "--algorithms", "sync-sgd", *changes, "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    answer = json.loads(CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout)
    bounds = answer["figures"][0]["summary"]["prediction_interval"]["step_s"]
    assert f"{1e3 * bounds['low']:.3g}–{1e3 * bounds['high']:.3g}" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert shown.stderr.count("a range below a time: 80 % of similar predictions") == 1
    assert shown.stderr.count("note: workload.batch_per_worker: found 16; the time of p100-sxm2 was fitted at") == 1


def test_a_sweep_warns_once_and_keeps_the_intervals(tmp_path: Path) -> None:
    arguments = [
        "sweep", "dgx1-p100", "--vary", "workload.batch_per_worker=16", "--algorithms", "sync-sgd", "--seeds", "2",
        "--jobs", "1", "--set", "stop.updates=4", "--out", str(tmp_path),
    ]  # fmt: skip
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert shown.exit_code == 0
    assert shown.stderr.count("the time of p100-sxm2 was fitted at") == 1
    assert "A range below a figure: 80 % of similar predictions." in " ".join(shown.stdout.split())
    (folder,) = tmp_path.glob("*-sweep-1")
    frame, document = pd.read_csv(folder / "sweep.csv"), json.loads((folder / "sweep.json").read_text())
    assert (frame["step_s_low"] < frame["step_s_mean"]).all() and (frame["step_s_mean"] < frame["step_s_high"]).all()
    ends = [point["summary"]["prediction_interval"]["step_s"]["low"] for point in document["points"]]
    assert frame["step_s_low"].tolist() == pytest.approx(ends)
    assert document["figures"][0]["summary"]["prediction_interval"]["step_s"]["low"] == pytest.approx(sum(ends) / 2)
