"""benchmarks/planted_bugs.py: its document has a row for each bug. Its figures depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, str(ROOT / "benchmarks/planted_bugs.py")]
NAMES = ["async-sgd-version-by-two", "sync-sgd-ps-warm-up"]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")


def test_every_bug_has_a_row() -> None:
    command = [*COMMAND, "--names", ",".join(NAMES), "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    assert [row["name"] for row in report["rows"]] == NAMES
    assert [row["interpreter"] for row in report["rows"]] == ["any-order", "simulated"]
    assert report["found"] == 2 and 0 < report["median_s"] <= report["longest_s"]
    assert (report["most_ranks"] <= 3) and (report["most_steps"] <= 5)


def test_an_unknown_bug_is_refused() -> None:
    answer = subprocess.run([*COMMAND, "--names", "no-such-bug"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert answer.returncode == 2
    assert "unknown no-such-bug; there are easgd-replies-after-move" in answer.stderr
