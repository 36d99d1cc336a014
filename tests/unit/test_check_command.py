"""`paceline check`: arguments, output, exit status and files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app

RUN = CliRunner()
FAULTY = Path(__file__).parents[1] / "faulty_methods.py"
PAGE = Path(__file__).parents[2] / "docs" / "check.md"


def test_a_table_and_exit_status_0(tmp_path: Path) -> None:
    done = RUN.invoke(app, ["check", "sync-sgd", "--schedules", "20", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "sync-sgd: 20 schedules" in done.output
    assert re.search(r"synchronous +holds +\d+", done.output)
    assert list(tmp_path.iterdir()) == []


def test_a_violation_is_told_saved_and_replayed(tmp_path: Path) -> None:
    method = f"{FAULTY}:Deadlocked"
    done = RUN.invoke(app, ["check", method, "--schedules", "30", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    (violated,) = (one for one in document["guarantees"] if one["verdict"] == "violated")
    assert (document["algorithm"], violated["name"]) == (method, "no-deadlock")
    file = Path(violated["counterexample"])
    assert file.parent == tmp_path
    assert file.with_suffix(".svg").is_file()
    again = RUN.invoke(app, ["check", "--replay", str(file)])
    assert again.exit_code == 1, again.output
    assert "no-deadlock" in again.output


def test_several_methods_are_results() -> None:
    done = RUN.invoke(app, ["check", "sync-sgd", "agd", "--schedules", "3", "--json"])
    assert [one["algorithm"] for one in json.loads(done.stdout)["results"]] == ["sync-sgd", "agd"]


def test_every_order_with_their_numbers() -> None:
    done = RUN.invoke(app, ["check", "sync-sgd", "--exhaustive", "--steps", "1"])
    assert done.exit_code == 0, done.output
    assert re.search(r"^ +2 +1 +1 +[\d.e-]+ +yes +[\d,]+$", done.output, re.MULTILINE), (
        "workers, steps, orders, time, all"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["METHOD: found none"]),
        (["sync-sdg", "nothing.py:Method"], ["did you mean sync-sgd", "nothing.py"]),
        (["gossip", "--workers", "1"], ["gossip: accepts no cluster of up to 1 workers", "--workers"]),
        (["agd", "--replay", "a.json"], ["expected no METHOD with --replay"]),
        (["--replay", "nothing.json"], ["nothing.json"]),
        (["agd", "--schedules", "0"], ["schedules"]),
        (["agd", "--deaths"], ["--deaths", "without --exhaustive"]),
    ],
)
def test_wrong_input_has_exit_status_2(arguments: list[str], words: list[str]) -> None:
    done = RUN.invoke(app, ["check", *arguments])
    assert done.exit_code == 2
    for part in words:
        assert part in re.sub(r"\s+", " ", done.output)


def test_the_examples_of_the_page_work() -> None:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if "my_file.py" not in block and "load_counterexample" not in block:  # those of test_counterexamples.py
            exec(block, names)
    assert names["found"].schedules == 100  # type: ignore[attr-defined]


def test_the_page_has_every_invariant() -> None:
    from paceline.checking.cases.invariants import INVARIANTS

    section = PAGE.read_text(encoding="utf-8").partition("## What is checked")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)) == set(INVARIANTS)
