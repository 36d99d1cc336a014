"""Long runs of methods with a server: extrapolated from their beginnings, and close to what the whole run gives."""

from __future__ import annotations

from typing import Any

import pytest

from paceline import load
from paceline.records import Run
from paceline.scenarios import Scenario
from paceline.simulator.runs import long_runs
from paceline.simulator.runs.run import simulate
from tests.thorough import extra

STEPS = 400


def scenario(method: str, *changes: str) -> Scenario:
    """Eight workers on a star, unlike in speed, without learning."""
    return load(
        {
            "name": "long",
            "algorithms": [method],
            "workload": {"model": "resnet50", "learning": "none", "batch_per_worker": 32},
            "cluster": {
                "nodes": [{"device": "v100-sxm2", "count": 6}, {"device": "p100-sxm2", "count": 2}],
                "network": {"topology": "star", "link": {"latency": "2 us", "bandwidth": "100 Gbit/s"}},
                "step_time": {"distribution": "lognorm", "sigma": 0.1},
            },
            "stop": {"samples": 8 * 32 * STEPS},
        },
        list(changes),
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of 1,000 gradients count as long, and 800 gradients are simulated."""
    monkeypatch.setattr(long_runs, "LARGE", 1000)
    monkeypatch.setattr(long_runs, "SIMULATED", 800)


def both(method: str) -> tuple[Run, Run]:
    (short,), (whole,) = (simulate(scenario(method), engine=engine) for engine in ("auto", "events"))
    return short, whole


def warnings(run: Run) -> str:
    return "\n".join(run.machine["warnings"])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", ["async-sgd", extra("async-easgd"), extra("downpour")])
def test_the_figures_are_those_of_the_whole_run(method: str) -> None:
    short, whole = both(method)
    made, simulated = len(short.tables.spans), len(whole.tables.spans)
    assert made < simulated / 3
    for key in ("samples", "steps", "updates", "bytes_sent"):
        expected: Any = whole.summary[key]
        assert short.summary[key] == pytest.approx(expected, rel=0.02), key
    assert short.summary["wall_s"] == pytest.approx(whole.summary["wall_s"], rel=0.02)
    assert short.summary["samples_per_s"] == short.summary["samples"] / short.summary["wall_s"]
    intervals = [run.summary.get("prediction_interval") for run in (short, whole)]
    assert None not in intervals
    interval, expected = (one and one["samples_per_s"] for one in intervals)
    assert interval == pytest.approx(expected, rel=0.05)
    assert "gradients were simulated; time, counts and bytes of the whole run are extrapolated" in warnings(short)
    assert "extrapolated" not in warnings(whole)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "changes",
    [
        ["stop.samples=8000"],
        ["stop.seconds=5 s"],
        ["cluster.slowdowns=[{at: 1 s, lasts: 2 s, factor: 2}]"],
        ["algorithms=[sync-sgd]"],
    ],
)
def test_other_runs_are_simulated_to_their_end(changes: list[str]) -> None:
    (plan,) = scenario("async-sgd", *changes).plans()
    assert long_runs.beginnings(plan, "auto") is None


@pytest.mark.usefixtures("small")
def test_whole_periods_are_simulated() -> None:
    (plan,) = scenario("downpour").plans()
    parts = long_runs.beginnings(plan, "auto")
    assert parts is not None
    period = plan.job.method.longest_period(plan.job.workers)
    samples = [part.job.budget.samples for part in parts]
    assert period > 1 and samples[1] == 2 * samples[0]  # type: ignore[operator]
    assert samples[0] % (period * plan.job.global_batch) == 0  # type: ignore[operator]
