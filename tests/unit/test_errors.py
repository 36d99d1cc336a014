"""Errors of predictions, computed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.records.metrics import interval
from paceline.reports.comparison.prediction_errors import error, figure, relative, relative_figure, together
from tests.made_up import run


def summary(**more: Any) -> dict[str, Any]:
    return dict(run("sync-sgd", **more).summary)


def test_one_seed() -> None:
    found = error([summary(step_s=1.1, accuracies=(0.0, 0.5, 0.8))], [summary(kind="measured", accuracies=(0.0, 0.9))])
    assert found["step_s"] == pytest.approx({"mean": 0.1, "p50": 0.1, "p95": 0.1})
    assert found["wall_s"] == pytest.approx(0.1)
    assert found["samples_per_s"] == pytest.approx(1 / 1.1 - 1)
    assert found["bytes_sent"] == 0
    assert found["time_to_accuracy_s"] is None  # the simulated run never got there
    assert found["final_accuracy"] == pytest.approx(-0.1)  # a difference, not a ratio
    assert found["final_loss"] == pytest.approx(1.0)
    assert found["staleness_tv"] == 0


def test_staleness() -> None:
    found = error([summary(lags=(0, 0, 2, 2))], [summary(lags=(0, 1, 2, 1))])
    assert found["staleness"]["mean"] == 0
    assert found["staleness"]["mean_of_ranks"] == 0
    assert found["staleness"]["by_rank"] == [[0, 0.0], [1, 0.0]]
    assert found["staleness_tv"] == 0.5
    other = error([summary(lags=(0, 0, 2, 3))], [summary(lags=(0, 2, 2, 1))])
    assert other["staleness"]["max"] == 0.5
    assert other["staleness"]["by_rank"] == [[0, 0.0], [1, 0.0]]
    assert error([summary(lags=(0, 3))], [summary(lags=(1, 2))])["staleness"]["by_rank"] == [[0, -1.0], [1, 0.5]]


def test_both_zero_is_no_error_and_only_measured_zero_has_none() -> None:
    synchronous = error([summary(lags=(0, 0))], [summary(lags=(0, 0))])
    assert synchronous["staleness"]["mean"] == 0
    assert relative(1.0, 0.0) is None


def test_several_seeds_by_students_t() -> None:
    """Differences 0.1, 0.2, 0.3 over measured 1: mean 0.2, s = 0.1, t(0.975, 2) = 4.302653, half width 0.248414."""
    found = relative_figure([1.1, 1.2, 1.3], [1.0, 1.0, 1.0])
    assert found == pytest.approx({"mean": 0.2, "low": 0.2 - 0.2484138, "high": 0.2 + 0.2484138})


def test_figures_of_runs_that_came_apart_have_an_interval_too() -> None:
    assert interval([1e200, 3e200])["mean"] == 2e200


def test_several_seeds_where_both_are_zero() -> None:
    assert relative_figure([0, 0], [0, 0]) == {"mean": 0.0, "low": 0.0, "high": 0.0}


def test_a_figure_that_one_seed_lacks_is_missing() -> None:
    reached, missed = summary(accuracies=(0.1, 0.95)), summary(accuracies=(0.1, 0.5), seed=2)
    assert together([reached, missed])["time_to_accuracy_s"] is None
    assert error([reached, missed], [reached, reached])["time_to_accuracy_s"] is None


def test_together_pools_histograms_and_keeps_words() -> None:
    found = together([summary(lags=(0, 1)), summary(lags=(1, 2), seed=2)])
    assert found["staleness"]["histogram"] == [[0, 1], [1, 2], [2, 1]]
    assert found["kind"] == "simulated"
    assert found["target_accuracy"] == 0.9
    assert found["diverged"] is False
    assert found["step_s"]["mean"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert found["staleness"]["by_rank"][1] == [1, pytest.approx(interval([1.0, 2.0]))]


def test_together_of_one_is_itself_and_changes_nothing() -> None:
    one = summary()
    assert together([one]) == one
    before = summary()
    together([one, summary(seed=2)])
    assert one == before


@pytest.mark.parametrize("sides", [([], []), ([1], [1, 2])])
def test_sides_must_match(sides: tuple[list[int], list[int]]) -> None:
    with pytest.raises(ValueError, match="same seeds"):
        error([summary(seed=s) for s in sides[0]], [summary(seed=s) for s in sides[1]])


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=6))
def test_the_interval_holds_its_mean(values: list[float]) -> None:
    found = interval(values)
    assert found["low"] <= found["mean"] <= found["high"]
    assert math.isclose(found["mean"] - found["low"], found["high"] - found["mean"], rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize("make", [figure, lambda values: relative_figure(values, values)])
def test_none_is_contagious(make: Callable[[list[float | None]], Any]) -> None:
    assert make([1.0, None]) is None


def test_an_interval_of_errors_rises_where_the_figure_is_negative() -> None:
    error = relative_figure([-1.1, -1.3], [-1.0, -1.0])
    assert error["low"] < error["mean"] < error["high"]
