"""benchmarks/dbs.py: its output agrees with the runs. The figures on the method's page come from longer runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")


@pytest.mark.thorough
def test_differences_are_paired_and_staleness_is_by_node() -> None:
    options = ["--seeds", "3", "--seconds", "0.3", "--rates", "0.1", "--against", "async-sgd", "--json"]
    command = [sys.executable, str(ROOT / "benchmarks/dbs.py"), *options]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    (row,) = answer["rows"]
    ours, theirs = (row["methods"][name] for name in ("dbs-sgd", "async-sgd"))
    found: dict[str, Any] = row["difference"]["loss"]["async-sgd"]
    pairs = np.subtract(ours["loss"], theirs["loss"])
    assert found["mean"] == pytest.approx(pairs.mean())
    half = 4.302653 * pairs.std(ddof=1) / 3**0.5  # Student's t with 2 degrees of freedom, 97.5 %
    assert [found["low"], found["high"]] == pytest.approx([pairs.mean() - half, pairs.mean() + half], rel=1e-6)
    assert ours["staleness"]["mean_of_ranks"] < theirs["staleness"]["mean_of_ranks"]
    assert len(ours["staleness"]["by_rank"]) == 8
