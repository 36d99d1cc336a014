"""benchmarks/hsgd.py: every row is a run of the shipped scenario, and its factors are those of the rows."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import paceline

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")


def test_the_waterfall_is_what_the_runs_say(tmp_path: Path) -> None:
    drawn, small = tmp_path / "waterfall.png", ["cluster.nodes[0].count=2", "workload.model=lenet"]
    changes = [part for change in small for part in ("--set", change)]
    options = ["--images", "20000", *changes, "--figure", str(drawn), "--json"]
    command = [sys.executable, str(ROOT / "benchmarks/hsgd.py"), *options]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    rows = answer["rows"]
    features = ["two levels", "shared memory", "contiguous", "prefetch", "LARS"]
    assert [row["name"] for row in rows] == ["native", *features]
    assert [row["name"] for row in answer["left_out"]] == features
    rates = [row["images_per_s"] for row in rows]
    assert [row["over_native"] for row in rows] == pytest.approx([rate / rates[0] for rate in rates])
    pairs = zip(rates[1:], rates, strict=False)
    assert [row["times"] for row in rows[1:]] == pytest.approx([after / before for after, before in pairs])
    for row in rows:
        assert sum(row["time_fraction"].values()) == pytest.approx(1.0)
    # the last row is the complete scenario as shipped
    assert rows[-1]["changes"] == [*small, "workload.batch_per_worker=1365", "stop.samples=20000"]
    (run,) = paceline.simulate(paceline.load("hsgd-tianhe2", rows[-1]["changes"]))
    assert run.summary["step_s"]["mean"] == rows[-1]["step_s"] == pytest.approx(1365 * 6 / rates[-1])
    # each row lacks exactly the features of the later rows
    lacking = [set(row["changes"][2:-2]) for row in rows]
    assert all(after < before for before, after in pairwise(lacking))
    assert answer["paper"] == 20
    page = " ".join((ROOT / "docs/methods/hsgd.md").read_text(encoding="utf-8").split())
    assert answer["assumed"]
    assert all(f"- {line[0].upper()}{line[1:]}." in page for line in answer["assumed"])
    assert drawn.stat().st_size > 10_000
