"""Counts, numbers and texts that would fill the memory or never end are refused, each with the value found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.scenarios import SHIPPED, ScenarioError, load
from paceline.scenarios.resolution.grid import axis, grid
from paceline.scenarios.values.limits import MOST_REPORTED
from paceline.simulator.runs.run import simulate

QUICKSTART = SHIPPED["quickstart"].read_text(encoding="utf-8")


def mistakes(source: str | Path, *changes: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(source, changes)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cluster.network={topology: {}}", "cluster.network.topology: found {}, expected star, ring, "),
        (
            "hyperparameters.learning_rate=1e308",
            "hyperparameters.learning_rate: found 1e+308, expected a number, from -1e+15 to 1e+15",
        ),
        ("algorithms.agd.delay=10001", "algorithms[5].delay: found 10001, expected a number of steps from 0 to 10000"),
        ("seeds=10000000", "seeds: found 10000000, which makes 60000000 runs; expected at most 10000 runs"),
        (
            "train.torch_threads=1000000000",
            "train.torch_threads: found 1000000000, expected a whole number from 1 to 1024",
        ),
        ("stop.updates=1e16", "stop.updates: found 1e+16, expected a whole number of 1 or more"),
        ("stop.updates=10000000000000000", "expected a whole number of 1 or more, at most 1e+15"),
        ("stop.seconds=1e-30 s", "stop.seconds: found '1e-30 s', expected a time above 0 with its unit, such as "),
        ("workload.reading={prefetch: 10001}", "found 10001, expected a whole number from 0 to 10000"),
        (
            "workload={model: quadratic, learning: quadratic, options: {noise: 1e300}}",
            "found 1e+300, expected at most 1e+15",
        ),
        ("name=" + "a" * 101, "expected a name of at most 100 letters, digits, '.', '-' and '_'"),
        ("name=" + "a" * 5000, "--set name: found a text of 5000 characters, expected at most 4096"),
        ("stop=" + "[" * 100_000, "--set stop: found lists or mappings nested more than 100 deep in line 1"),
        ("a." * 200 + "a=1", "expected path=value"),
    ],
)
def test_a_single_value(change: str, message: str) -> None:
    (line,) = mistakes("quickstart", change)
    assert message in line


def test_a_rate_that_overflows_the_weights_is_a_run_that_diverges() -> None:
    (run,) = simulate(
        load("quickstart", ["hyperparameters.learning_rate=1e15", "evaluate.every=1 updates"], algorithms=["agd"])
    )
    assert run.summary["diverged"] and run.summary["stop_reason"] == "divergence"


def test_storage_of_too_many_stripes() -> None:
    change = "cluster.storage={latency: 1 ms, bandwidth: 1 GB/s, stripes: 100001}"
    assert "found 100001, expected a whole number from 1 to 100000" in mistakes("quickstart", change)[0]


def test_a_list_of_500000_items_is_refused_before_it_is_composed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def composed(*_: Any, **__: Any) -> Any:
        raise AssertionError("composed")

    monkeypatch.setattr("yaml.compose", composed)
    (tmp_path / "long.yaml").write_text(QUICKSTART + "x: [" + "1, " * 500_000 + "1]\n")
    (line,) = mistakes(tmp_path / "long.yaml")
    assert line.startswith("long.yaml: found more than 100000 values by line ")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text("# " + "x" * 8_000_000)
    assert mistakes(tmp_path / "large.yaml") == ["large.yaml: found 8000002 characters, expected at most 8000000"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ([1] * 100_001, "found more than 100000 values"),
        ({f"key{number}": 1 for number in range(1001)}, "x: found a mapping of 1001 keys, expected at most 1000"),
        ("a" * 4097, "x: found a text of 4097 characters, expected at most 4096"),
        ({"a" * 4097: 1}, "x: found a key of 4097 characters, expected at most 4096"),
        (json.loads("[" * 200 + "]" * 200), "nested more than 100 deep|more than 100 brackets inside each other"),
    ],
)
def test_json_and_mappings_have_the_same_limits(part: Any, message: str, tmp_path: Path) -> None:
    data = {"name": "large", "x": part}
    (tmp_path / "large.json").write_text(json.dumps(data))
    for source in (tmp_path / "large.json", data):
        with pytest.raises(ScenarioError, match=message):
            load(source)


def test_of_many_mistakes_the_first_are_listed_and_the_others_counted() -> None:
    lines = mistakes("quickstart", f"cluster.nodes=[{'{device: {name: a, x: 1}},' * 500}]")
    assert len(lines) == MOST_REPORTED + 1
    assert lines[-1] == f"quickstart.yaml: and {500 - MOST_REPORTED} more mistakes"


def test_too_many_algorithms_are_refused_before_each_is_checked() -> None:
    (line,) = mistakes("quickstart", f"algorithms=[{'1,' * 1001}]")
    assert line == "quickstart.yaml: algorithms: found 1001 algorithms, expected at most 1000"


def test_an_axis_of_too_many_values() -> None:
    for values in (",".join(map(str, range(10_001))), "1..9999,1..9999"):
        with pytest.raises(ScenarioError, match=r"--vary stop\.epochs: found more than 10000 values"):
            axis(f"stop.epochs={values}")


def test_a_sweep_of_too_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.scenarios.resolution.grid.MOST_SWEPT_RUNS", 5)
    with pytest.raises(ScenarioError, match=r"--vary: found 6 runs in all \(2 points, .*\), expected at most 5"):
        grid("quickstart", ["stop.epochs=1,2"], ["seeds=3"], algorithms=["agd"])


def test_too_many_jobs() -> None:
    command = ["sweep", "quickstart", "--vary", "stop.epochs=1,2", "--jobs", "1000000"]
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, result.stderr) == (2, "error: --jobs: found 1000000, expected at most 1024\n")
