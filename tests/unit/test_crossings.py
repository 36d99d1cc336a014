"""Where the order of two algorithms changes: the place by hand, the interval by repeated experiments, and the words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.reports.comparison.ranking import Aim
from paceline.reports.sweeps.crossings import (
    LineCrossing,
    crossings,
    enough,
    interval_ends,
    place_and_interval,
    resamples,
    tail,
)
from paceline.reports.sweeps.sweep import SweepEntry, SweepResult
from paceline.reports.sweeps.sweep_table import SweepTable, tabulate
from paceline.reports.sweeps.sweep_words import crossing_words, first_words
from paceline.scenarios.values.units import RATE
from tests.made_up import run
from tests.thorough import cases

SIZES = (1, 2, 4, 8, 16, 32, 64)
BASE: dict[str, Any] = dict(run("sync-sgd").summary)
Times = Callable[[int, int], float | None]
"""the time to accuracy by workers and seed"""


TARGET = Aim("accuracy", 0.93)


def table_of(
    times: Mapping[str, Times],
    *,
    seeds: int = 1,
    sizes: Sequence[int] = SIZES,
    target: Aim | None = TARGET,
    figure: str = "time_to_accuracy_s",
) -> SweepTable:
    same = {"samples_per_s": 1.0, "time_to_accuracy_s": 1.0, "periods": 2.0}
    entries = [
        SweepEntry(
            vary={"gpus": workers},
            algorithm=name,
            seed=seed,
            workers=workers,
            summary={**BASE, **same, figure: made(workers, seed)},
        )
        for workers in sizes
        for name, made in times.items()
        for seed in range(seeds)
    ]
    return tabulate(SweepResult(scenario="s", paths=("gpus",), target=target, entries=tuple(entries)))


def only(table: SweepTable) -> LineCrossing:
    (found,) = crossings(table)
    return found


def test_the_place_is_interpolated_on_a_logarithmic_axis() -> None:
    """64 / P against 2: equal at 32; in logarithms the lines are straight, so that the place is exact between sizes."""
    table = table_of({"steady": lambda _workers, _: 3.0, "scaling": lambda workers, _: 64 / workers})
    found = only(table)
    assert (found.before, found.after, found.leads, found.repeated) == ("steady", "scaling", True, False)
    assert found.at == pytest.approx(64 / 3)
    assert math.isnan(found.low) and found.document()["interval"] is None


def test_the_place_is_interpolated_between_evenly_spaced_sizes() -> None:
    """Logarithms of the ratio are ±log 2 at 9 and 17, so that the line between them is 0 in the middle."""
    values = {1: 0.25, 9: 0.5, 17: 2.0, 25: 4.0}
    table = table_of({"a": lambda workers, _: values[workers], "b": lambda _workers, _: 1.0}, sizes=tuple(values))
    assert only(table).at == pytest.approx(13.0)


def test_more_samples_per_second_are_better() -> None:
    table = table_of(
        {"flat": lambda _workers, _: 8.0, "linear": lambda workers, _: float(workers)},
        target=None,
        figure="samples_per_s",
    )
    found = only(table)
    assert (found.figure.key, found.before, found.after) == ("samples_per_s", "flat", "linear")
    assert found.at == pytest.approx(8.0)
    assert "From 8 workers on, linear processes more samples per second than flat." in crossing_words(table)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda _workers, _: 2.0, id="never better"),
        pytest.param(lambda _workers, _: 0.5, id="always better"),
        pytest.param(lambda workers, _: 1.0 + 1e-3 * (-1) ** workers.bit_length(), id="equal to three digits"),
        pytest.param(lambda workers, _: 1.0 if workers == 1 else 0.5, id="equal at the smallest size only"),
        pytest.param(lambda workers, _: 2.0 if workers > 16 else 1.0, id="equal before it is worse"),
        pytest.param(lambda _workers, _: None, id="never there"),
        pytest.param(lambda workers, _: 0.5 if workers == 64 else None, id="there at one size only"),
    ],
)
def test_where_the_order_does_not_change_there_is_no_crossing(other: Times) -> None:
    table = table_of({"a": lambda _workers, _: 1.0, "b": other})
    assert crossings(table) == []
    assert crossing_words(table) == ""


def test_a_size_that_one_algorithm_does_not_reach_is_left_out() -> None:
    table = table_of({"a": lambda _workers, _: 10.0, "b": lambda workers, _: None if workers == 8 else 64 / workers})
    assert only(table).at == pytest.approx(6.4)


def test_the_last_of_several_changes_counts() -> None:
    order: dict[int, float] = dict(zip(SIZES, (2.0, 0.5, 2.0, 2.0, 0.5, 0.5, 0.5), strict=True))
    table = table_of({"a": lambda _workers, _: 1.0, "b": lambda workers, _: order[workers]})
    found = only(table)
    assert found.repeated and found.at == pytest.approx(8 * math.sqrt(2))
    assert "b reaches 93 % accuracy before a, after earlier changes of their order." in crossing_words(table)


def test_few_seeds_have_no_interval_and_the_words_say_so() -> None:
    times: dict[str, Times] = {"a": lambda _workers, seed: 4.0 + seed / 10, "b": lambda workers, _: 64 / workers}
    words = crossing_words(table_of(times, seeds=3))
    assert words == (
        "From 16 workers on, b reaches 93 % accuracy before a. 3 seeds are too few for 95 % intervals of these places; "
        "give --seeds 5 or more."
    )
    one = crossing_words(table_of(times, seeds=1))
    assert "One seed is too few" in one


def test_enough_seeds_have_an_interval() -> None:
    """The place is 64 / t for the mean t of a resample; the outer quantiles of five seeds are means of nearly one."""
    times: dict[str, Times] = {"a": lambda _workers, seed: 4.0 + seed / 10, "b": lambda workers, _: 64 / workers}
    table = table_of(times, seeds=5)
    found = only(table)
    assert found.at == pytest.approx(64 / 4.2)
    means = sorted(float(mean) for mean in resamples(5)[0] @ (4.0 + np.arange(5) / 10))
    assert 64 / means[-1] <= found.low < found.at < found.high <= 64 / means[0]
    assert crossing_words(table) == "From 16 workers on (95 % interval 14 to 16), b reaches 93 % accuracy before a."


def test_an_interval_that_leaves_the_axis_says_so() -> None:
    """Means up to 1.72 (four times 1.8, once 1.4) have all but less than 0.00095 of the resamples: 50 / 1.72 = 29.1."""
    times: dict[str, Times] = {
        "a": lambda _workers, seed: 1.0 + 0.4 * (seed - 2),
        "b": lambda workers, _: 50 / workers,
    }
    table = table_of(times, seeds=5)
    assert only(table).document()["interval"]["high"] is None
    assert "(95 % interval 29 to over 64), b reaches 93 %" in crossing_words(table)


def test_of_many_algorithms_only_the_best_are_said() -> None:
    """Each is best somewhere, except the last, which crosses others without being the best."""
    times: dict[str, Times] = {
        "a": lambda _workers, _: 4.0,
        "b": lambda workers, _: 16.0 / workers,
        "c": lambda workers, _: 256.0 / workers**2,
        "d": lambda workers, _: 64.0 / workers**0.9,
    }
    table = table_of(times)
    assert ("a", "d") in {(one.before, one.after) for one in crossings(table)}
    words = crossing_words(table)
    assert "b reaches 93 % accuracy before a" in words and "c reaches 93 % accuracy before b" in words
    assert "d reaches" not in words


def test_five_seeds_are_the_fewest_for_an_interval() -> None:
    assert [enough(count) for count in (1, 2, 3, 4, 5, 6, 20)] == [False] * 4 + [True] * 3


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7])
def test_resamples_have_the_mean_and_variance_of_a_bootstrap(count: int) -> None:
    weights, probabilities = resamples(count)
    values = np.arange(count, dtype=float) ** 2
    means = weights @ values
    assert weights.sum(axis=1) == pytest.approx(1.0) and probabilities.sum() == pytest.approx(1.0)
    drawn = 0.0 if count <= 6 else 0.02  # of 20,000 drawn resamples; the others are complete
    assert probabilities @ means == pytest.approx(values.mean(), rel=1e-12 + drawn)
    assert probabilities @ (means - values.mean()) ** 2 == pytest.approx(values.var() / count, rel=1e-12 + 2 * drawn)


def test_infinite_ends() -> None:
    values = np.array([-np.inf, 1.0, np.inf])
    assert interval_ends(values, np.array([0.1, 0.8, 0.1]), 0.05) == (-np.inf, np.inf)
    assert interval_ends(values, np.array([0.01, 0.98, 0.01]), 0.05) == (1.0, 1.0)
    assert tail(5) < tail(10) < tail(1000) < 0.025


CONTAINED = 0.93
"""part of the intervals of five seeds that contain the true place, which docs/sweep.md states"""


def test_intervals_contain_the_true_place_as_often_as_the_page_says() -> None:
    """Normal noise of 20 % on the times of one algorithm, five seeds; the true place is 16."""
    rng, inside, experiments = np.random.default_rng(7), 0, cases(500, 4000)
    for _ in range(experiments):
        one = np.repeat(4.0 * (1 + 0.2 * rng.standard_normal((5, 1))), len(SIZES), axis=1)
        other = np.repeat([64 / np.array(SIZES)], 5, axis=0)
        _, low, high = place_and_interval(one, other, np.array(SIZES, dtype=float), -1)
        inside += low <= 16 <= high
    assert abs(inside / experiments - CONTAINED) <= 3 * math.sqrt(CONTAINED * (1 - CONTAINED) / experiments)
    assert "93 %" in (Path(__file__).parents[2] / "docs/sweep.md").read_text(encoding="utf-8")


def test_times_to_a_loss_are_compared_if_the_target_is_a_loss() -> None:
    times: dict[str, Times] = {"a": lambda _workers, _: 40.0, "b": lambda workers, _: 640.0 / workers}
    table = table_of(times, figure="time_to_loss_s", target=Aim("loss", 0.8))
    assert "b reaches a loss of 0.8 before a" in crossing_words(table)
    assert not crossings(table_of(times, figure="time_to_loss_s"))


LATENCY_S, GRADIENT_S, BYTES, PERIOD = 0.03, 0.2, 100e6, 16
"""two methods with constant times: an exchange in each step, and one in sixteen that computes a slower gradient"""
SLOWER_S = 0.25


def bandwidth_table(bandwidths: Sequence[str], times: Mapping[str, Callable[[float], float]]) -> SweepTable:
    """The sweep over a bandwidth; the target loss is reached after 1000 steps."""
    entries = [
        SweepEntry(
            vary={"cluster.network.link.bandwidth": bandwidth},
            algorithm=name,
            seed=0,
            workers=4,
            summary={
                **BASE,
                "samples_per_s": 1.0,
                "periods": 2.0,
                "time_to_loss_s": 1000 * step_s(RATE.parse(bandwidth)),
            },
        )
        for bandwidth in bandwidths
        for name, step_s in times.items()
    ]
    paths = ("cluster.network.link.bandwidth",)
    return tabulate(SweepResult(scenario="s", paths=paths, target=Aim("loss", 0.8), entries=tuple(entries)))


def test_the_bandwidth_at_which_two_methods_are_equal_is_that_of_the_formula() -> None:
    """T1 = c + α + n/b and T2 = d + (α + n/b) / H are equal at b = n / ((d − c) / (1 − 1/H) − α).

    The interpolation is linear in logarithms, so its error falls with the square of the logarithm of the spacing.
    """
    times: dict[str, Callable[[float], float]] = {
        "each-step": lambda rate: GRADIENT_S + LATENCY_S + BYTES / rate,
        "rare": lambda rate: SLOWER_S + (LATENCY_S + BYTES / rate) / PERIOD,
    }
    exact = BYTES / ((SLOWER_S - GRADIENT_S) / (1 - 1 / PERIOD) - LATENCY_S)
    errors = []
    for lowest, ratio in ((100, 2.0), (10_000, 1.02)):
        steps = math.ceil(math.log(1e5 / lowest) / math.log(ratio))
        grid = [f"{lowest * ratio**step:.6g} Mbit/s" for step in range(steps + 1)]
        table = bandwidth_table(grid, times)
        found = only(table)
        assert (found.figure.key, found.before, found.after) == ("time_to_loss_s", "rare", "each-step")
        errors.append(abs(math.log(found.at / exact)))
    assert errors[0] < math.log(2.0)
    assert errors[1] < 1e-3
    assert "From 10 Gbit/s to" in first_words(table) and "rare reaches a loss of 0.8 first." in first_words(table)
    assert f"From bandwidth {RATE.brief(found.at)} on, each-step reaches a loss of 0.8 before rare." in crossing_words(
        table
    )


def test_names_are_no_axis_of_crossings() -> None:
    table = bandwidth_table(["1 Gbit/s", "10 Gbit/s"], {"a": lambda _rate: 1.0, "b": lambda _rate: 2.0})
    table.frame["cluster.network.link.bandwidth"] = ["eth-1g", "eth-1g", "eth-10g", "eth-10g"]
    assert crossings(table) == [] and first_words(table) == ""
