"""Stored runs: listed, filtered, compared, deleted and shown; only run.json is read, except to show a run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError
from paceline.cli.app import app
from paceline.records.store import save
from paceline.records.stored_runs import Filter, RunFolders, condition, delete_runs, find_runs, seconds_of
from paceline.reports.stored_run_tables import answer_of_compared_runs, rank_rows
from tests.made_up import run
from tests.stored import flip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with three runs, a run whose run.json is damaged, and a folder that is no run."""
    out = tmp_path / "runs"
    save(run("async-sgd", step_s=1.0), out)
    save(run("async-sgd", "measured", step_s=1.5, seed=2), out)
    save(
        replace(run("sync-sgd", step_s=2.0, lags=(0, 0, 0, 0)), name="other", scenario={"workload": {"model": "m"}}),
        out,
    )
    damaged = save(run("agd"), out).path
    assert damaged is not None
    flip(damaged / "run.json", 40)
    (out / "quickstart-comparison-1").mkdir()
    return out


def names(found: RunFolders) -> list[str]:
    return sorted(one.path.name for one in found.runs)


ALL = ["other-sync-sgd-1-simulated-1", "tiny-async-sgd-1-simulated-1", "tiny-async-sgd-2-measured-1"]


def paceline(*arguments: str, status: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return result.stdout, result.stderr


def test_runs_are_found_and_damage_is_reported(folder: Path) -> None:
    found = find_runs([folder])
    assert names(found) == ALL
    ((path, reason),) = found.damaged
    assert path.name == "tiny-agd-1-simulated-1" and "run.json" in reason
    one = folder / ALL[1]
    assert names(find_runs([one, one / "run.json"])) == [ALL[1]]
    with pytest.raises(InputError, match=r"(?s)no-such.*nor-this"):
        find_runs([folder / "no-such", folder / "nor-this"])


@pytest.mark.parametrize(
    ("asked", "selected"),
    [
        (Filter(), [0, 1, 2]),
        (Filter(scenarios=["tiny"], kind="measured"), [2]),
        (Filter(algorithms=["async-sgd"], seeds=[1, 3]), [1]),
        (Filter(conditions=[condition("wall_s>=6")]), [0, 2]),
        (Filter(conditions=[condition("wall_s>=6"), condition("staleness.mean=0")]), [0]),
        (Filter(conditions=[condition("kind!=measured")]), [0, 1]),
        (Filter(conditions=[condition("no.such.figure!=1")]), []),
    ],
)
def test_filters(asked: Filter, selected: list[int], folder: Path) -> None:
    runs = sorted(find_runs([folder]).runs, key=lambda one: one.path.name)
    assert asked.select(runs) == [runs[number] for number in selected]


def test_ages(folder: Path) -> None:
    runs = find_runs([folder]).runs
    now = datetime.now(UTC)
    assert Filter(older_s=seconds_of("2 days")).select(runs, now) == []
    assert len(Filter(older_s=seconds_of("2 days")).select(runs, now + timedelta(days=3))) == 3


@pytest.mark.parametrize("text", ["wall_s", "<3", "wall_s<fast", "wall_s<", "wall_s<nan"])
def test_conditions_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="--where: found"):
        condition(text)


def test_all_mistakes_are_said_together(folder: Path) -> None:
    _, said = paceline("runs", str(folder), "--where", "x<", "--where", "y", "--older-than", "7 moons", status=2)
    assert [part in said for part in ("'x<'", "'y'", "'7 moons'")] == [True, True, True]


def test_a_comparison_has_relative_figures_and_the_keys_that_differ(folder: Path) -> None:
    runs = {one.path.name: one for one in find_runs([folder]).runs}
    answer = answer_of_compared_runs([runs[ALL[1]], runs[ALL[2]], runs[ALL[0]]])
    document = answer.data()
    assert document["figures"][0]["values"] == [4.0, 6.0, 8.0]
    assert [answer.tables[0].text(0, column) for column in (1, 2, 3)] == ["4", "6\n+50.0", "8\n+100.0"]
    assert {row["key"]: row["values"] for row in document["differences"]} == {
        "kind": ["simulated", "measured", "simulated"],
        "algorithm": ["async-sgd", "async-sgd", "sync-sgd"],
        "seed": [1, 2, 1],
        "name": ["tiny", "tiny", None],
        "workload.model": [None, None, "m"],
    }
    with pytest.raises(InputError, match="found 1 run; expected 2 to 6"):
        answer_of_compared_runs([runs[ALL[0]]])


def test_only_selected_runs_are_deleted_and_links_are_not(folder: Path) -> None:
    runs = Filter(kind="measured").select(find_runs([folder]).runs)
    size = sum(file.stat().st_size for file in runs[0].path.iterdir())
    assert delete_runs(runs) == size
    assert names(find_runs([folder])) == ALL[:2]
    assert not list(folder.glob(".*"))
    (folder / "link").symlink_to(folder / ALL[0])
    with pytest.raises(InputError, match="link: found a link"):
        delete_runs(find_runs([folder]).runs)
    assert (folder / ALL[0] / "run.json").exists()


def test_the_command_lists_sorts_and_names_what_is_there(folder: Path) -> None:
    shown, said = paceline("runs", str(folder), "--sort", "wall_s", "--json")
    answer = json.loads(shown)
    assert [one["summary"]["wall_s"] for one in answer["runs"]] == [4.0, 6.0, 8.0]
    assert [one["path"] for one in answer["damaged"]] == [str(folder / "tiny-agd-1-simulated-1")]
    assert "left out:" in said
    shown, _ = paceline("runs", str(folder))
    assert "3 stored runs" in shown
    shown, said = paceline("runs", str(folder), "--algorithm", "asink-sgd")
    assert "none of 3 runs is selected" in said and "async-sgd, sync-sgd" in said and shown == ""
    _, said = paceline("runs", str(folder), "--sort", "speed", status=2)
    assert "--sort: found 'speed'" in said
    shown, _ = paceline("runs", str(folder), "--compare", "--json")
    assert len(json.loads(shown)["runs"]) == 3


def test_the_command_deletes_only_after_a_yes(folder: Path) -> None:
    _, said = paceline("runs", str(folder), "--kind", "measured", "--delete", status=2)
    assert "expected --yes to delete 1 run" in said and names(find_runs([folder])) == ALL
    _, said = paceline("runs", str(folder), "--yes", status=2)
    assert "--yes without --delete" in said
    shown, _ = paceline("runs", str(folder), "--kind", "measured", "--delete", "--yes", "--json")
    assert json.loads(shown)["deleted"] == [str(folder / ALL[2])]
    assert names(find_runs([folder])) == ALL[:2]


@pytest.mark.parametrize(("answer", "left"), [("n", ALL), ("", ALL), ("y", ALL[:2])])
def test_on_a_terminal_the_command_asks(
    answer: str, left: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    result = CliRunner().invoke(app, ["runs", str(folder), "--kind", "measured", "--delete"], input=f"{answer}\n")
    assert result.exit_code == 0 and "Delete 1 run? This cannot be undone." in result.output
    assert names(find_runs([folder])) == left


def test_show_says_in_words_what_the_tables_hold(folder: Path) -> None:
    shown, _ = paceline("show", str(folder / ALL[1]))
    for part in (
        "tiny: async-sgd, seed 1, simulated",
        "It took 4 s of virtual time",
        "spans.parquet",
        "90 % accuracy, after 2 s",
    ):
        assert part in shown
    shown, _ = paceline("show", str(folder / ALL[1] / "run.json"), "--json")
    answer = json.loads(shown)
    assert answer["ranks"][0]["compute"] == pytest.approx(0.5) and answer["ranks"][0]["step_s"] == pytest.approx(1.0)


def test_show_verifies_all_files(folder: Path) -> None:
    flip(folder / ALL[1] / "spans.parquet", 100)
    _, said = paceline("show", str(folder / ALL[1]), status=2)
    assert "spans.parquet" in said


def test_fractions_of_sampled_runs_come_from_the_table_of_ranks() -> None:
    from paceline.scenarios import load
    from paceline.simulator.runs.run import simulate

    scenario = load("quickstart", ["seed=1", "stop.updates=20", "records=sampled"], algorithms=["sync-sgd"])
    (sampled,) = simulate(scenario)
    (full,) = simulate(load("quickstart", ["seed=1", "stop.updates=20"], algorithms=["sync-sgd"]))
    assert len(sampled.tables.ranks)
    for one, other in zip(rank_rows(sampled), rank_rows(full), strict=True):
        assert one["compute"] == pytest.approx(other["compute"])
        assert one["step_s"] == pytest.approx(other["step_s"])
