"""benchmarks/two_level.py: three exchanges on two hosts, the bytes that cross between them, and the predictions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.backend.test_hosts import LACKING, needs_hosts

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository"),
]
BENCHMARK = [sys.executable, str(ROOT / "benchmarks/two_level.py")]
TINY = ["--rate", "200 Mbit/s", "--megabytes", "0.1", "--repeats", "1", "--steps", "8", "--gradient-ms", "5"]


def benchmark(*options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*BENCHMARK, *options], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )


@pytest.mark.thorough
@needs_hosts
def test_what_it_says_is_what_was_run() -> None:
    done = benchmark(*TINY, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    (size,) = found["sizes"]
    flat, gloo, shared = size["rows"]
    assert [one["theory_bytes"] for one in (flat, gloo, shared)] == [150_000, 100_000, 100_000]
    for one in (flat, gloo, shared):
        assert one["theory_with_headers_bytes"] <= one["crossed_bytes"] < 1.4 * one["theory_bytes"]
        (run,) = one["runs"]
        assert one["step_s"] == run["step_s"] > 0.005  # a paced gradient
        assert one["error"] == pytest.approx(one["predicted_s"] / one["step_s"] - 1)
        wire_s = one["theory_bytes"] / size["machine"]["flat"]["payload_bytes_per_s"]
        assert sum(stage["predicted"] for stage in one["stages_s"].values()) > wire_s
        assert one["predicted_s"] > 0.005 + wire_s
    assert list(flat["stages_s"]) == ["flat"] and set(shared["stages_s"]) == {"up", "across", "down"}
    assert flat["of_flat"] == 1.0
    assert shared["of_flat"] == pytest.approx(shared["step_s"] / flat["step_s"])


@pytest.mark.thorough
@needs_hosts
def test_it_shows_tables_for_a_person() -> None:
    done = benchmark(*TINY)
    assert done.returncode == 0, done.stderr
    assert "0.1 MB of gradients" in done.stdout and "Probed, two-level, shared memory" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--rate", "1"], "found '1', expected a bandwidth"), (["--steps", "4"], "found too little to measure")],
)
def test_an_option_that_makes_no_sense_is_refused(options: list[str], message: str) -> None:
    done = benchmark(*options)
    assert done.returncode == 2 and message in done.stderr


@pytest.mark.skipif(LACKING != "needs root", reason="this process may make hosts")
def test_without_root_it_says_what_it_needs() -> None:
    done = benchmark(*TINY)
    assert done.returncode == 2 and "needs root" in done.stderr
