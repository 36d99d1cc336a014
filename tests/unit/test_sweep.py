"""The command `paceline sweep`: its output, its files and its messages when something goes wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from typer.testing import CliRunner

import paceline
from paceline.cli.app import app
from paceline.records.figures import THROUGHPUT, UNCERTAIN
from paceline.records.metrics import interval
from paceline.records.store import read_run
from paceline.reports.sweeps import sweep as sweeps
from paceline.reports.sweeps.parallel_tasks import Done, TaskFailure
from paceline.reports.sweeps.sweep_answer import charts, means_table
from paceline.reports.sweeps.sweep_table import COSTS, tabulate
from paceline.reports.text import as_text
from paceline.scenarios import load
from tests.thorough import extra

SCENARIO = """
name: tiny
algorithms: [sync-sgd, async-sgd]
workload: {model: lenet, batch_per_worker: 4, learning: none}
cluster:
  nodes: [{device: {name: fast, overhead: 4 ms, per_sample: 0.5 ms}, count: 2}]
  network: {link: {latency: 20 us, bandwidth: 10 Gbit/s}}
  step_time: {distribution: lognorm, sigma: 0.3}
stop: {samples: 400}
seed: 3
"""
COUNT = "cluster.nodes[0].count"
COLUMNS = [
    "algorithm", "seed", "workers", "batch_per_worker",
    "wall_s", "steps", "longest_period", "periods", "updates", "evaluations", "samples",
    "samples_per_s", "step_s_mean", "step_s_p50", "step_s_p95", "time_fraction_compute", "time_fraction_load",
    "time_fraction_update", "time_fraction_communication", "time_fraction_wait",
    "bytes_sent", "staleness_mean", "staleness_mean_of_ranks", "staleness_max",
    "time_to_accuracy_s", "time_to_accuracy_resolution_s", "samples_to_accuracy",
    "updates_to_accuracy", "time_to_loss_s", "time_to_loss_resolution_s", "samples_to_loss",
    "updates_to_loss", "final_loss", "final_accuracy",
    "diverged", "stop_reason", "bytes_per_step",
    "busiest_link", "busiest_link_bytes", "busiest_link_utilisation", "records",
    "step_s_low", "step_s_high", "samples_per_s_low", "samples_per_s_high", "time_to_accuracy_s_low",
    "time_to_accuracy_s_high", "time_to_loss_s_low", "time_to_loss_s_high",
    "base_workers", "base_periods", "speed_up", "efficiency", "speed_up_to_accuracy", "speed_up_to_loss", "error",
]  # fmt: skip


def call(*arguments: str | int | Path) -> Any:
    return CliRunner().invoke(app, ["sweep", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write empty files in place of pictures, where a test is not about them: drawing takes a second."""
    monkeypatch.setattr("paceline.reports.png.save", lambda _charts, path, **_: path.touch())


def in_turn(work: Any, pieces: Sequence[Any], **_: Any) -> Iterator[tuple[int, Any]]:
    """Runs in this process: no time is spent on starting others."""
    for number, piece in enumerate(pieces):
        yield number, Done(work(piece))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, not_drawn: None) -> None:
    monkeypatch.setattr(sweeps, "each", in_turn)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, not_drawn: None) -> None:
    """Runs in this process, of which those with four workers fail."""

    def each(work: Any, pieces: Sequence[Any], **_: Any) -> Iterator[tuple[int, Any]]:
        for number, piece in enumerate(pieces):
            bad = piece.scenario["cluster"]["nodes"][0]["count"] == 4
            yield number, TaskFailure("rank 2 died", "Traceback: here") if bad else Done(work(piece))

    monkeypatch.setattr(sweeps, "each", each)


def test_the_answer_is_every_point_algorithm_and_seed(scenario: Path, tmp_path: Path, not_drawn: None) -> None:
    result = call(scenario, "--vary", f"{COUNT}=1..4x2", "--seeds", 2, "--json", "--out", tmp_path / "runs")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer.keys() - {"crossings"} == {"points", "figures"}
    assert [(point["vary"][COUNT], point["algorithm"], point["seed"]) for point in answer["points"]] == [
        (count, name, seed) for count in (1, 2, 4) for name in ("sync-sgd", "async-sgd") for seed in (3, 4)
    ]
    assert answer == json.loads((tmp_path / "runs/tiny-sweep-1/sweep.json").read_text())
    (run,) = paceline.simulate(load(scenario, [f"{COUNT}=4", "seed=4"], algorithms=["async-sgd"]))
    assert answer["points"][-1]["summary"] == json.loads(json.dumps(run.summary))


def test_several_seeds_have_intervals(scenario: Path) -> None:
    swept = paceline.sweep(scenario, [f"{COUNT}=1,2"], overrides=["seeds=3"], algorithms=["async-sgd"], jobs=1)
    means, answer = tabulate(swept).means(), swept.document()["figures"]
    assert [(one["vary"][COUNT], one["seeds"], one["stop_reason"]) for one in answer] == [
        (count, 3, {"samples": 3}) for count in (1, 2)
    ]
    for row, one in zip(means.to_dict("records"), answer, strict=True):
        values = [entry.summary["wall_s"] for entry in swept.entries if entry.vary == one["vary"]]
        found = interval(values)
        assert one["summary"]["wall_s"] == found and found["low"] < found["high"]
        assert (row["wall_s"], row["wall_s_half"]) == pytest.approx((found["mean"], (found["high"] - found["low"]) / 2))
    half = means["samples_per_s_half"].iloc[0]
    assert f"±{THROUGHPUT.unit.text(half, UNCERTAIN)}" in as_text([means_table(tabulate(swept))], 80)


def test_csv_and_parquet_hold_the_same(scenario: Path, tmp_path: Path, in_process: None) -> None:
    vary = ["--vary", f"{COUNT}=1,2", "--vary", "cluster.network.link=eth-1g,ib-edr"]
    assert call(scenario, *vary, "--out", tmp_path / "runs", "--json").exit_code == 0
    folder = tmp_path / "runs/tiny-sweep-1"
    one = pd.read_parquet(folder / "sweep.parquet")
    assert list(one.columns) == [COUNT, "cluster.network.link", *COLUMNS]
    other = pd.read_csv(folder / "sweep.csv")
    assert len(one) == len(other) == 8
    for name in one.columns:
        assert [None if pd.isna(value) else value for value in one[name]] == [
            None if pd.isna(value) else value for value in other[name]
        ], name
    assert one["efficiency"].between(0, 1.2).all()
    links = one[(one[COUNT] == 2) & (one["cluster.network.link"] == "eth-1g")]
    assert set(links["busiest_link"]) <= {f"{a} -> {b}" for a, b in permutations(("host0", "host1", "switch"), 2)}
    assert (links["busiest_link_bytes"] > 0).all() and links["busiest_link_utilisation"].between(0, 1).all()


def test_records_are_kept_when_asked_for(scenario: Path, tmp_path: Path, in_process: None) -> None:
    vary = ("--vary", f"{COUNT}=1,2", "--algorithms", "sync-sgd", "--keep-runs")
    assert call(scenario, *vary, "--out", tmp_path / "runs", "--json").exit_code == 0
    folder = tmp_path / "runs/tiny-sweep-1"
    table = pd.read_csv(folder / "sweep.csv")
    assert list(table["record"]) == ["runs/0001-sync-sgd-3", "runs/0002-sync-sgd-3"]
    runs = [read_run(folder / place) for place in table["record"]]
    assert [run.summary["wall_s"] for run in runs] == list(table["wall_s"])


def test_a_scenario_with_prices_has_costs(scenario: Path, tmp_path: Path, in_process: None) -> None:
    """3.6 USD per hour and node of one worker: a run costs a thousandth of a dollar per second and worker."""
    known = ["cluster.price_per_hour=3.6 USD/h", "cluster.power=360 W"]
    table = tabulate(paceline.sweep(scenario, [f"{COUNT}=1,2"], overrides=known, algorithms=["sync-sgd"]))
    frame = table.frame
    assert list(frame["cost_usd"]) == pytest.approx(list(1e-3 * frame["wall_s"] * frame["workers"]))
    assert list(frame["energy_kwh"]) == pytest.approx(list(1e-4 * frame["wall_s"] * frame["workers"]))
    assert "cost_to_accuracy_usd" not in frame, "no run has a target"
    titles = [chart.title.partition(" by ")[0] for chart in charts(table)]
    assert "Cost" in titles and "Energy" in titles and not any(title.startswith("Cost to") for title in titles)
    alone = paceline.sweep(scenario, [f"{COUNT}=2"], overrides=known, algorithms=["sequential-sgd"]).entries[0]
    assert alone.cost is not None
    assert alone.cost["cost_usd"] == pytest.approx(1e-3 * alone.summary["wall_s"]), "it uses one node"
    assert not {figure.column for figure in COSTS} & set(tabulate(paceline.sweep(scenario, [f"{COUNT}=1"])).whole)


def test_the_table_says_which_records_were_kept(scenario: Path, in_process: None) -> None:
    swept = paceline.sweep(scenario, ["records=full,summary"], algorithms=["sync-sgd"])
    assert list(tabulate(swept).whole["records"]) == ["full", "summary"]


def test_for_a_person(scenario: Path, tmp_path: Path, in_process: None) -> None:
    result = call(scenario, "--vary", f"{COUNT}=1..8x2", "--set", "stop.samples=200", "--out", tmp_path / "runs")
    words = " ".join(result.stdout.split())
    assert "Sweep of tiny" in words
    assert "scales best: on 8 workers it is" in words
    assert "Take care: " in words  # 200 samples are six or seven steps of eight workers
    assert f"Table, answer and figure stored in {tmp_path}/runs/tiny-sweep-1/" in result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert call(scenario, "--vary", f"{COUNT}=1,2", "--out", tmp_path / "runs", "--quiet").stderr == ""


def test_without_sizes_the_first_path_is_the_axis(scenario: Path, tmp_path: Path, in_process: None) -> None:
    result = call(scenario, "--vary", "workload.batch_per_worker=2,4,8", "--out", tmp_path / "runs")
    assert "sync-sgd is fastest with batch_per_worker=8" in " ".join(result.stdout.split())
    assert pd.read_csv(tmp_path / "runs/tiny-sweep-1/sweep.csv")["speed_up"].isna().all()


def test_wrong_points_are_told_before_anything_runs(scenario: Path, tmp_path: Path, failing: None) -> None:
    result = call(
        scenario, "--vary", f"{COUNT}=1,0", "--vary", "stop.samples=x,1", "--seed", "-1", "--out", tmp_path / "runs"
    )
    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert any(line.endswith(f"(with {COUNT}=0)") for line in lines)
    assert any("stop.samples: found 'x'" in line and line.endswith("(with stop.samples=x)") for line in lines)
    assert any("seed: found -1" in line and "(with" not in line for line in lines)
    assert not (tmp_path / "runs").exists()


def test_a_failed_run_is_told_with_its_values_and_the_others_are_kept(
    scenario: Path, tmp_path: Path, failing: None
) -> None:
    vary = ("--vary", f"{COUNT}=1,2,4", "--algorithms", "sync-sgd", "--out", tmp_path / "runs")
    result = call(scenario, *vary, "--json")
    assert result.exit_code == 1
    assert f"1 of 3 runs failed; the others are kept\n  sync-sgd with {COUNT}=4, seed 3: rank 2 died" in result.stderr
    answer = json.loads(result.stdout)
    assert [point["vary"][COUNT] for point in answer["points"]] == [1, 2]
    assert answer["failed"] == [{"vary": {COUNT: 4}, "algorithm": "sync-sgd", "seed": 3, "error": "rank 2 died"}]
    table = pd.read_csv(tmp_path / "runs/tiny-sweep-1/sweep.csv")
    assert list(table["error"].fillna("")) == ["", "", "rank 2 died"]
    assert list(table["samples_per_s"].isna()) == [False, False, True]
    assert list(table["speed_up"].notna()) == [True, True, False]
    shown = " ".join(call(scenario, *vary).stdout.split())
    assert "sync-sgd: failed 4" in shown
    assert "1 of 3 runs failed and have no part in these figures: sync-sgd with count=4, seed 3." in shown
    assert "Traceback: here" in call(scenario, *vary, "--verbose").stderr


def test_where_all_runs_fail_nothing_is_kept(scenario: Path, tmp_path: Path, failing: None) -> None:
    result = call(scenario, "--vary", f"{COUNT}=4", "--out", tmp_path / "runs")
    assert result.exit_code == 1
    assert "2 of 2 runs failed\n" in result.stderr
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, extra(signal.SIGTERM), extra(signal.SIGKILL)])
def test_interruption_leaves_no_process_and_no_file(scenario: Path, tmp_path: Path, sent: signal.Signals) -> None:
    """Ctrl-C goes to the whole group, as a terminal sends it; the others to the command alone."""
    code = "from paceline.cli import main; main()"
    endless = ["sweep", str(scenario), "--vary", f"{COUNT}=8,9", "--set", "stop.samples=1000000000"]
    command = [sys.executable, "-c", code, *endless, "--out", str(tmp_path / "runs"), "--keep-runs", "--jobs", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        whole = psutil.Process(process.pid)
        workers = _until_working(whole)
        os.killpg(process.pid, sent) if sent == signal.SIGINT else process.send_signal(sent)
        _, errors = process.communicate(timeout=120)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
    if sent != signal.SIGKILL:
        assert process.returncode == 130
        assert errors == "interrupted; nothing is left running\n0 of 4 runs had ended\n"
        assert list((tmp_path / "runs").iterdir()) == []
    assert not (tmp_path / "runs/tiny-sweep-1").exists()


def interrupted_after(number: int) -> Any:
    """Runs in this process; Ctrl-C comes after a number of runs, the second of which fails."""

    def each(work: Any, pieces: Sequence[Any], **_: Any) -> Iterator[tuple[int, Any]]:
        for position, piece in enumerate(pieces[:number]):
            yield position, TaskFailure("rank 2 died") if position == 1 else Done(work(piece))
        raise KeyboardInterrupt

    return each


def test_an_interrupt_keeps_the_runs_that_have_ended(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "each", interrupted_after(2))
    result = call(scenario, "--vary", f"{COUNT}=1,2", "--out", tmp_path / "runs")
    assert result.exit_code == 130
    partial = tmp_path / "runs/tiny-sweep-unfinished-1/sweep-partial.csv"
    assert result.stderr.endswith(
        f"interrupted; nothing is left running\n2 of 4 runs had ended; their table is {partial}\n"
        "the same command continues the sweep\n"
    )
    table = pd.read_csv(partial)
    (run,) = paceline.simulate(load(scenario, [f"{COUNT}=2"], algorithms=["sync-sgd"]))
    assert list(table["wall_s"].fillna(0.0)) == [run.summary["wall_s"], 0.0]
    assert list(table["error"].fillna("")) == ["", "rank 2 died"]


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"  # it holds dates
    }


def test_the_same_command_continues_in_the_same_folder(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: None
) -> None:
    """With the records of the runs; test_sweep_kills has it without."""
    command: tuple[str | Path, ...] = (scenario, "--vary", f"{COUNT}=1,2,4", "--keep-runs", "--out")
    assert call(*command, tmp_path / "whole").exit_code == 0
    for number in (1, 3):
        monkeypatch.setattr(sweeps, "each", interrupted_after(number))
        assert call(*command, tmp_path / "parts").exit_code == 130
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["sweep-points", "tiny-sweep-unfinished-1"]
    monkeypatch.setattr(sweeps, "each", in_turn)
    result = call(*command, tmp_path / "parts")
    assert result.exit_code == 0
    assert "3 of 6 results are of earlier sweeps (--fresh computes them again)" in result.stderr
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["sweep-points", "tiny-sweep-1"]
    assert files_of(tmp_path / "parts/tiny-sweep-1") == files_of(tmp_path / "whole/tiny-sweep-1")


def test_a_larger_sweep_computes_what_is_new(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, not_drawn: None
) -> None:
    computed = []

    def each(work: Any, pieces: Sequence[Any], **_: Any) -> Iterator[tuple[int, Any]]:
        for number, piece in enumerate(pieces):
            computed.append((piece.scenario["cluster"]["nodes"][0]["count"], piece.algorithm, piece.scenario["seed"]))
            yield number, Done(work(piece))

    monkeypatch.setattr(sweeps, "each", each)
    for values, seeds, more in (("1,2", 1, []), ("2,3", 2, []), ("2,3", 2, ["--fresh"])):
        result = call(
            scenario, "--vary", f"{COUNT}={values}", "--algorithms", "sync-sgd", "--seeds", seeds, *more,
            "--out", tmp_path,
        )  # fmt: skip
        assert result.exit_code == 0
        computed.append("end")  # type: ignore[arg-type]
    second_and_third = [(3, "sync-sgd", 3), (3, "sync-sgd", 4), (2, "sync-sgd", 4)]
    assert computed == [
        (2, "sync-sgd", 3), (1, "sync-sgd", 3), "end", *second_and_third, "end",
        (3, "sync-sgd", 3), (3, "sync-sgd", 4), (2, "sync-sgd", 3), (2, "sync-sgd", 4), "end",
    ]  # fmt: skip


def test_a_failed_run_is_tried_again(scenario: Path, tmp_path: Path, failing: None) -> None:
    command = (scenario, "--vary", f"{COUNT}=2,4", "--algorithms", "sync-sgd", "--out", tmp_path)
    for number, reused in ((1, 0), (2, 1)):
        result = call(*command)
        assert result.exit_code == 1
        assert "1 of 2 runs failed" in result.stderr
        assert ("1 of 2 results are of earlier sweeps" in result.stderr) == bool(reused)
        assert (tmp_path / f"tiny-sweep-{number}/sweep.csv").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--scheduler", "tcp://a:1"], "--scheduler: found 'tcp://a:1' without --engine dask, expected both"),
        (["--engine", "dask", "--scheduler", "tcp://a:1", "--jobs", "2"], "--jobs: found also --scheduler, whose"),
        (
            ["--engine", "dask", "--scheduler", "nowhere"],
            "--scheduler: found 'nowhere', where no Dask scheduler answers",
        ),
    ],
)
def test_options_of_engines_that_do_not_fit(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.setattr("paceline.reports.sweeps.parallel_tasks.CONNECT_S", 1.0)
    result = call(scenario, "--vary", f"{COUNT}=2,4", *options, "--out", tmp_path)
    assert result.exit_code == 2
    assert words in result.stderr


def _until_working(whole: psutil.Process) -> list[psutil.Process]:
    """Its descendants, as soon as two of them have children's work to do: fork server, tracker and two workers."""
    while True:
        found: list[psutil.Process] = whole.children(recursive=True)
        if len(found) >= 4 and sum(child.cpu_times().user > 0.1 for child in found) >= 3:
            return found
        time.sleep(0.05)  # a loop without would take time from the workers


def test_workers_do_not_import_torch_for_timing_only(scenario: Path) -> None:
    code = f"""
import sys
from paceline.reports.sweeps.sweep import _Piece, _simulated
from paceline.scenarios import load
_simulated(_Piece(load({str(scenario)!r}, algorithms=["sync-sgd"]).dump(), "sync-sgd", None))
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_page_says_what_the_code_does() -> None:
    """Its scenario loads, and every column of the table is on it."""
    page = (Path(__file__).parents[2] / "docs/sweep.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert load(shown).name == "what-if"
    named = set(re.findall(r"`(\w+)`", page))
    shares = {name for name in COLUMNS if name.startswith("time_fraction_")}
    assert set(COLUMNS) - shares <= named
    assert {"time_fraction_compute", "time_fraction_wait", "record"} <= named
