"""The noisy quadratic as a learning problem: its options, its link, thousands of workers, every method."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from paceline.algorithms import METHODS
from paceline.algorithms.core.job import Evaluation
from paceline.algorithms.core.values import Samples
from paceline.algorithms.methods.baseline import SequentialSgd, SyncSgd
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.simulator.runs.run import simulate
from paceline.workloads import build, problems
from paceline.workloads.learners.quadratic import FEWEST_BLOCKS, KEPT_BYTES, TOP, Noise, Quadratic, QuadraticOptions
from tests.quadratic import play
from tests.support import FixedTiming, built, job_of, nodes_for

ROOT = Path(__file__).parents[2]


def quadratic(**options: Any) -> Quadratic:
    return Quadratic(seed=1, options=QuadraticOptions(**options))


# --- options ---------------------------------------------------------------------------------------------------------


def test_curvatures_share_the_dimensions() -> None:
    np.testing.assert_array_equal(
        quadratic(dimensions=7, curvatures=(4.0, 0.5, 1.0)).curvature, [4] * 3 + [0.5, 0.5, 1, 1]
    )


def test_options_are_used_as_they_were_understood() -> None:
    found = build("quadratic", learning="quadratic", seed=1, dimensions="8", layers=1)
    assert found.layout.size == 8


def test_a_variance_takes_the_place_of_the_noise() -> None:
    options = {"dimensions": 4, "curvatures": (1.0, 2.0)}
    np.testing.assert_array_equal(quadratic(**options, noise=3.0).noise_variance, [3, 3, 6, 6])
    np.testing.assert_array_equal(quadratic(**options, noise=3.0, variance=0.25).noise_variance, [0.25] * 4)


def test_the_noise_of_a_gradient_has_the_given_variance() -> None:
    """At the optimum a gradient is noise alone: 4,000 draws of variance 0.25, whose error is 0.25 √(2 / 4000)."""
    problem = quadratic(dimensions=4, variance=0.25, distance=0.0)
    draws = (problem.load(Samples(worker=0, workers=1, index=index, count=1)) for index in range(1000))
    noise = np.array([problem.gradient(problem.initial(), draw)[0] for draw in draws])
    assert (noise**2).mean() == pytest.approx(0.25, abs=4 * 0.25 * math.sqrt(2 / 4000))


def test_without_noise_and_distance_nothing_moves() -> None:
    problem = quadratic(variance=0.0, distance=0.0)
    start = problem.initial()
    gradient, loss = problem.gradient(start, problem.load(Samples(worker=0, workers=1, index=3, count=32)))
    assert not gradient.any() and loss == 0
    assert problem.evaluate(start) == Evaluation(0.0, None)


@pytest.mark.parametrize("link", [None, 0.25])
def test_the_link_makes_an_accuracy_of_the_risk(link: float | None) -> None:
    """A half at the risk of that name, 1 at the optimum, towards 0 far away."""
    problem = quadratic(dimensions=2, spectrum=0.0, link=link)
    found = [problem.evaluate(problem.target + away) for away in (0.0, 0.5, 1e9)]
    assert [one.loss for one in found] == pytest.approx([0.0, 0.25, 1e18])
    expected = [None] * 3 if link is None else [1.0, 0.5, pytest.approx(0.25e-18)]
    assert [one.accuracy for one in found] == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"curvatures": [1, -2]}, "curvatures: found -2.0, expected 0 or more"),
        ({"curvatures": [1, 2, 3], "dimensions": 2}, "curvatures: found 3, expected no more than the 2 dimensions"),
        ({"variance": -1}, "variance: found -1.0, expected 0 or more"),
        ({"link": 0}, "link: found 0.0, expected a risk above 0"),
        ({"spectrum": math.inf}, "spectrum: found inf, expected a number"),
        ({"distance": math.nan}, "distance: found nan, expected a number"),
        ({"noise": math.nan}, "noise: found nan, expected 0 or more"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], told: str) -> None:
    found = problems("quadratic", dataset=None, learning="quadratic", options={"layers": 1, **options})
    assert found == [f"options.{told}"]


# --- noise -----------------------------------------------------------------------------------------------------------


def test_noise_is_standard_normal_and_samples_are_independent() -> None:
    """20,000 copies; moments and covariances of neighbours in a group, within four standard errors."""
    copies, around = 20_000, range(2**TOP - 4, 2**TOP + 4)
    noise = Noise(seed=3, dimensions=copies)
    rows = np.array([noise.mean(number, 1) for number in around])
    error = 4 / math.sqrt(copies)
    np.testing.assert_allclose(np.cov(rows), np.eye(8), rtol=0, atol=error * math.sqrt(2))
    np.testing.assert_allclose(rows.mean(axis=1), 0, rtol=0, atol=error)
    np.testing.assert_allclose((rows**4).mean(axis=1), 3, rtol=0, atol=error * math.sqrt(96))


@pytest.mark.parametrize("dimensions", [1, 64, 100_000])
def test_blocks_of_noise_are_bounded(dimensions: int) -> None:
    noise = Noise(seed=1, dimensions=dimensions)
    block = noise._block(TOP, 0)
    most = noise._block.cache_info().maxsize
    assert most is not None and most * block.nbytes <= max(KEPT_BYTES, FEWEST_BLOCKS * 2 * 8 * dimensions)


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_it(name: str) -> None:
    learner = build("quadratic", learning="quadratic", seed=1, noise=0.01, spectrum=0.5)
    method = built(name)
    job = job_of(method, nodes=nodes_for(method), steps=24, learner=learner)
    trace = simulate_job(job, FixedTiming(), NoCost(), Schedule(1))
    assert trace.weights.dtype == np.float64
    assert learner.evaluate(trace.weights).loss < 0.8 * learner.evaluate(learner.initial()).loss


def test_a_thousand_workers_are_one_with_a_thousand_times_the_batch() -> None:
    """Step by step, though the gradients are summed in another order."""
    run: dict[str, Any] = {"updates": 4, "copies": 8, "variance": 1.0}
    alone = play(SequentialSgd(), [1.0, 0.5], batch=8 * 1024, **run)
    together = play(SyncSgd(), [1.0, 0.5], batch=8, workers=1024, **run)
    assert len(together.trace.updates) == 4 * 1024
    np.testing.assert_allclose(together.path, alone.path, rtol=0, atol=1e-14)


SCENARIO = {
    "name": "quadratic",
    "algorithms": [{"name": "sync-sgd", "learning_rate": 0.2}, {"name": "async-sgd", "learning_rate": 0.02}],
    "workload": {
        "model": "quadratic",
        "learning": "quadratic",
        "batch_per_worker": 4,
        "options": {"dimensions": 4000, "curvatures": [1.0, 0.25], "variance": 1.0, "link": 50.0},
    },
    "cluster": {
        "nodes": [{"device": {"name": "equal", "overhead": "1 s", "per_sample": "0 s"}, "count": 4}],
        "step_time": {"distribution": "expon"},
    },
    "evaluate": {"every": "16 samples"},
    "stop": {"samples": 512},
    "target": {"accuracy": 0.25},
}


def test_a_scenario_of_it_shows_the_exact_risk() -> None:
    """Σ λ (m² + V) / 2 after every step of sync-sgd, within four standard errors of 4000 dimensions (Q1)."""
    synchronous, _ = simulate(load(SCENARIO))
    curvature, rate = np.array([1.0, 0.25]), 0.2
    mean, variance = np.ones(2), np.zeros(2)
    for found in synchronous.tables.evaluations["loss"]:
        expected = 2000 * (curvature * (mean**2 + variance)).sum() / 2
        spread = 2000 * (curvature**2 * (2 * variance**2 + 4 * mean**2 * variance)).sum() / 4
        assert found == pytest.approx(expected, abs=4 * math.sqrt(spread) + 1e-9)
        shrink = 1 - rate * curvature
        mean, variance = shrink * mean, shrink**2 * variance + rate**2 / 16


def test_a_scenario_of_it_has_a_time_to_accuracy_by_the_link() -> None:
    for run in simulate(load(SCENARIO)):
        table = run.tables.evaluations
        np.testing.assert_allclose(table["accuracy"], 50 / (50 + table["loss"]), rtol=1e-12)
        assert run.summary["time_to_accuracy_s"] is not None


def test_the_page_has_every_option_with_its_default_and_a_scenario_that_loads() -> None:
    page = (ROOT / "docs/quadratic.md").read_text(encoding="utf-8")
    section = page.partition("## Options")[2].partition("\n## ")[0]
    said = {
        name: yaml.safe_load(default)
        for name, default in re.findall(r"^\| `(\w+)` \| `(.+?)` \|", section, re.MULTILINE)
    }
    known = {field.name: field.default for field in fields(QuadraticOptions)}
    assert said == known | {"curvatures": []}
    (scenario,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert load(yaml.safe_load(scenario)).plans()[0].job.workers == 1024
