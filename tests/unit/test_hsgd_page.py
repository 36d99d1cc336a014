"""docs/methods/hsgd.md: its scenario runs, and its figures are those of the shipped one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import paceline
from paceline.algorithms.methods.two_level import Hsgd

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/methods/hsgd.md").read_text(encoding="utf-8")


def row(begins: str) -> list[str]:
    """Returns the cells of the first row of a table that begins like this."""
    (line,) = re.findall(rf"^\| {re.escape(begins)} \|(.*)\|$", PAGE, re.MULTILINE)[:1]
    return [cell.strip() for cell in line.split("|")]


def test_its_scenario_runs_as_long_as_its_schedule() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    scenario = paceline.load(text)
    (method,) = scenario.algorithms
    assert isinstance(method, Hsgd)
    (run,) = paceline.simulate(scenario)
    assert run.summary["updates"] == getattr(method.schedule, "total_steps", None)
    assert run.summary["final_accuracy"] is not None
    assert run.summary["final_accuracy"] > 0.9


def test_the_last_row_of_its_waterfall_is_the_shipped_scenario() -> None:
    """As in the benchmark, from first step to last; with fewer steps, because all steps are equal."""
    scenario = paceline.load("hsgd-tianhe2", ["stop.samples=40000"])
    (run,) = paceline.simulate(scenario)
    batch = scenario.workload.batch_per_worker * scenario.cluster.workers
    step_s = run.summary["step_s"]["mean"]
    assert step_s is not None
    said_batch, said_s, said_rate = (float(cell) for cell in row("+ LARS")[:3])
    assert said_batch == batch
    assert said_s == pytest.approx(step_s, abs=5e-4)
    assert said_rate == pytest.approx(batch / step_s, abs=0.5)


def test_the_published_settings_of_its_batch_are_the_shipped_scenarios() -> None:
    (method,) = paceline.load("hsgd-tianhe2").algorithms
    assert isinstance(method, Hsgd)
    law = method.schedule
    assert law is not None
    said = [float(number) for cell in row("8K") for number in re.findall(r"[\d.]+", cell.replace(",", "", 1))]
    total = getattr(law, "total_steps", None)
    assert said == [method.learning_rate, law.warmup_steps, law.warmup_start, total]
