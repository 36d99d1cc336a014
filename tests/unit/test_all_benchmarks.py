"""benchmarks/run_all.py has a short form of every command, and compare_results.py finds what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
WITHOUT_SHORT_FORM = {"run_all", "compare_results", "outputs"}
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the repository")


def command(name: str, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, str(BENCHMARKS / name), *arguments]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == status, done.stderr
    return done


def test_every_benchmark_has_a_short_form() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "from common.commands import *; print(*(one.command for one in SHORT_FORMS))"],
        capture_output=True,
        text=True,
        cwd=BENCHMARKS,
        check=True,
    )
    assert set(found.stdout.split()) == {path.stem for path in BENCHMARKS.glob("*.py")} - WITHOUT_SHORT_FORM


def test_one_file_has_figures_machine_and_versions(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    done = command("run_all.py", "--only", "collectives", "--out", str(out))
    document = json.loads(out.read_text())
    assert document["machine"]["cores"] >= 1 and "paceline" in document["versions"]
    (outcome,) = document["results"].values()
    assert outcome["exit"] == 0 and outcome["figures"]["large"] and "1 of 1 benchmarks" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    same = command("compare_results.py", str(out), str(out))
    assert "0 of" in same.stdout


def test_changes_are_sorted_by_their_size(tmp_path: Path) -> None:
    def written(name: str, rows: list[dict[str, object]], processor: str) -> str:
        outcome = {"command": "x", "seconds": 1.0, "exit": 0, "other_load": 0.0, "figures": {"rows": rows}}
        document = {"machine": {"processor": processor}, "versions": {}, "results": {"x": outcome}}
        (tmp_path / name).write_text(json.dumps(document))
        return str(tmp_path / name)

    before = written("a.json", [{"case": "ring", "s": 2.0}, {"case": "tree", "s": 1.0, "gone": 1}], "one")
    after = written("b.json", [{"case": "tree", "s": 1.1}, {"case": "ring", "s": 0.5}], "other")
    shown = command("compare_results.py", before, after).stdout
    assert "processor was one, now other" in shown
    assert "rows.ring.s" in shown and "0.25" in shown and "rows.tree.s" not in shown
    assert "only before: 1 figures, such as x: rows.tree.gone" in shown


def test_a_wrong_file_or_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text("[]")
    assert (
        "no file of benchmarks/run_all.py"
        in command("compare_results.py", str(tmp_path / "wrong.json"), str(tmp_path / "wrong.json"), status=2).stderr
    )
    assert "unknown nothing" in command("run_all.py", "--only", "nothing", status=2).stderr


def test_outputs_of_one_version_are_the_same_and_a_change_is_shown(tmp_path: Path) -> None:
    before, after = str(tmp_path / "before"), tmp_path / "after"
    for folder in (before, str(after)):
        command("outputs.py", "--out", folder, "--only", "list-links,mistakes")
    assert command("outputs.py", "--compare", before, str(after)).stdout.strip() == ""
    changed = after / "list-links.txt"
    changed.write_text(changed.read_text().replace("ib-hdr", "ib-hrd"))
    assert "ib-hrd" in command("outputs.py", "--compare", before, str(after), status=1).stdout
    assert "unknown list-cats" in command("outputs.py", "--out", before, "--only", "list-cats", status=2).stderr
