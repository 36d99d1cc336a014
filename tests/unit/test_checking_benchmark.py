"""benchmarks/checking.py: its document has a row for each bug and each method. Its figures depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, str(ROOT / "benchmarks/checking.py")]
NAMES = ["async-sgd-version-by-two", "sync-sgd-ps-warm-up"]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")


def test_every_bug_and_every_method_has_a_row() -> None:
    options = ["--bugs", ",".join(NAMES), "--methods", "async-sgd", "--sizes", "2x1", "--seconds", "20", "--json"]
    report = json.loads(subprocess.run([*COMMAND, *options], capture_output=True, check=True, cwd=ROOT).stdout)
    bugs, (row,) = report["bugs"], report["orders"]["rows"]
    assert [bug["name"] for bug in bugs["rows"]] == NAMES
    assert [bug["interpreter"] for bug in bugs["rows"]] == ["any-order", "simulated"]
    assert bugs["found"] == 2 and 0 < bugs["median_seconds"] <= bugs["most_seconds"]
    assert (bugs["most_ranks"] <= 3) and (bugs["most_steps"] <= 5)
    assert row["orders"] > 1, "the server takes the push of either worker first"
    assert (row["complete"], row["redundant"], row["violations"]) == (True, 0, 0)


def test_an_unknown_bug_is_refused() -> None:
    answer = subprocess.run([*COMMAND, "--bugs", "no-such-bug"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert answer.returncode == 2
    assert "unknown no-such-bug; there are easgd-replies-after-move" in answer.stderr
