"""Sixteen paced ranks on a few cores: the pace that the run reports is correct, however busy the machine is."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.records.store import read_run
from paceline.scenarios import load

pytestmark = pytest.mark.backend

SCENARIO = """
name: many
algorithms: [async-sgd]
workload: {model: quadratic, learning: quadratic, batch_per_worker: 4}
cluster:
  nodes: [{device: {name: even, overhead: 20 ms, per_sample: 0 ms}, count: 16}]
  network: {link: eth-10g}
  step_time: {distribution: lognorm, sigma: 0.2}
evaluate: {every: 1000 updates}
stop: {seconds: 1.5 s}
"""


def test_what_sixteen_ranks_say_of_their_pace_is_true(tmp_path: Path) -> None:
    """The mean of each rank is computed again, gradient by gradient, from the stored spans and the devices."""
    path = tmp_path / "many.yaml"
    path.write_text(SCENARIO)
    result = CliRunner().invoke(app, ["train", str(path), "--out", str(tmp_path / "runs"), "--json"])
    assert result.exit_code == 0, result.stderr
    (answer,) = json.loads(result.stdout)["runs"]
    run, pace = read_run(Path(answer["path"])), answer["summary"]["pace"]
    (plan,) = load(run.scenario).plans(paced=True)
    asked_s: dict[int, list[float]] = defaultdict(list)
    took_s: dict[int, list[float]] = defaultdict(list)
    ended_s: dict[int, float] = {}
    rows: list[Any] = sorted(run.tables.spans.itertuples(), key=lambda row: (row.start_s, row.end_s))
    for row in rows:
        if row.activity == "compute":
            asked_s[row.rank].append(plan.compute_s(row.rank, row.step, 4))
            took_s[row.rank].append(row.end_s - min(row.start_s, ended_s.get(row.rank, row.start_s)))
        ended_s[row.rank] = max(row.end_s, ended_s.get(row.rank, 0.0))
    ratios = {rank: sum(took_s[rank]) / sum(asked_s[rank]) for rank in asked_s}
    assert set(ratios) == set(range(16)) and all(ratio >= 1.0 for ratio in ratios.values())
    assert dict(pace["by_rank"]) == pytest.approx(ratios)
    assert pace["ratio"] == pytest.approx(sum(map(sum, took_s.values())) / sum(map(sum, asked_s.values())))
    assert pace["worst"]["ratio"] == pytest.approx(max(ratios.values()))
    assert pace["held"] == (max(ratios.values()) <= 1.05)
    said = [words for words in answer["warnings"] if "the pace was not held" in words]
    assert len(said) == (not pace["held"])
    assert all(f"rank {max(ratios, key=lambda rank: ratios[rank])} took" in words for words in said)
    assert all(words in result.stderr.replace("\n", " ") for words in said)
