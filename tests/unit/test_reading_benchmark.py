"""benchmarks/reading.py: its output follows from its measurements. It reports the accuracy of the prediction itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from paceline.backend.calibration.storage_costs import MEMORY, file_system

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository"),
]


def called(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/reading.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_every_cell_is_measured_and_simulated(tmp_path: Path) -> None:
    if file_system(tmp_path) in MEMORY:
        pytest.skip(f"{tmp_path} is in memory")
    sizes = ["--mebibytes", "1", "--inputs", "504", "--buffer", "64", "--batch", "8", "--readers", "1,2"]
    said = called("--folder", str(tmp_path), *sizes, "--rounds", "3", "--json")
    assert said.returncode in (0, 1), said.stderr
    answer = json.loads(said.stdout)
    figures = ("scattered", "strided", "contiguous", "contiguous / scattered")
    assert [(row["readers"], row["what"]) for row in answer["rows"]] == [(n, what) for n in (1, 2) for what in figures]
    for row in answer["rows"]:
        measured, simulated = row["measured"], row["simulated"]
        assert len(measured) == len(simulated) == 3 and min(*measured, *simulated) > 0
        assert row["median"] == median(measured) and row["low"] <= sum(measured) / 3 <= row["high"]
        errors = [theirs / ours - 1 for theirs, ours in zip(simulated, measured, strict=True)]
        assert row["error"] == pytest.approx(median(errors))
        assert row["holds"] == (abs(row["error"]) <= 0.2)
    by_name = {(row["readers"], row["what"]): row for row in answer["rows"]}
    for readers in (1, 2):
        whole, single, ratio = (
            by_name[readers, what]["measured"] for what in (*figures[2:3], *figures[:1], figures[3])
        )
        assert ratio == pytest.approx([one / other for one, other in zip(whole, single, strict=True)])
    assert answer["holds"] == all(row["holds"] for row in answer["rows"]) == (said.returncode == 0)
    assert "O_DIRECT" in answer["past_cache"] or "posix_fadvise" in answer["past_cache"]
    assert answer["storage"]["latency_s"] >= 0 and 0 <= answer["other_load"] <= 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(file_system(Path("/dev/shm")) not in MEMORY, reason="needs a file system in memory")
def test_a_folder_in_memory_is_refused() -> None:
    said = called("--folder", "/dev/shm")
    assert said.returncode == 2 and said.stderr.startswith("error: /dev/shm: found a file system in memory")
