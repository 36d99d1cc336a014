"""The curve through measured points against hand-computed values, and its properties for any points."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device import MeasuredTimes, measured_times

POINTS = st.lists(st.tuples(st.integers(1, 4096), st.floats(1e-6, 1e3)), min_size=1, max_size=8)


def test_neighbours_are_joined_and_the_outer_segments_go_on() -> None:
    curve = measured_times([(40, 0.5), (10, 0.1), (20, 0.15)])
    assert curve == MeasuredTimes((10, 20, 40), (0.1, 0.15, 0.5))
    found = [curve.seconds(batch) for batch in (2, 10, 15, 20, 30, 40, 60)]
    assert found == pytest.approx([0.06, 0.1, 0.125, 0.15, 0.325, 0.5, 0.85])


def test_a_small_batch_never_takes_no_time() -> None:
    """The first segment would reach 0 at 15 samples, so time is proportional to the samples."""
    curve = measured_times([(20, 1.0), (40, 5.0)])
    assert [curve.seconds(batch) for batch in (5, 10)] == pytest.approx([0.25, 0.5])


def test_a_flat_end_does_not_go_on_for_ever() -> None:
    curve = measured_times([(10, 0.2), (20, 0.2)])
    assert [curve.seconds(batch) for batch in (1, 15, 30)] == pytest.approx([0.2, 0.2, 0.3])


def test_a_single_point_is_a_rate() -> None:
    assert [measured_times([(32, 0.16)]).seconds(batch) for batch in (16, 64)] == pytest.approx([0.08, 0.32])


def test_points_that_fall_are_pooled_by_relative_errors() -> None:
    """Weights 1 / t²: 4 and 2 have the mean (4 / 16 + 2 / 4) / (1 / 16 + 1 / 4) = 2.4."""
    assert measured_times([(1, 1.0), (2, 4.0), (3, 2.0), (4, 5.0)]).times_s == pytest.approx((1.0, 2.4, 2.4, 5.0))


def test_points_at_one_batch_count_with_their_mean() -> None:
    assert measured_times([(8, 0.1), (8, 0.3), (16, 0.4)]).times_s == pytest.approx((0.2, 0.4))


@pytest.mark.parametrize(("points", "words"), [([], "no points"), ([(0, 1.0)], "above 0"), ([(4, 0.0)], "above 0")])
def test_wrong_points_are_told(points: list[tuple[float, float]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        measured_times(points)


@given(POINTS, st.lists(st.integers(1, 10_000), min_size=2, max_size=6))
def test_time_is_above_0_and_does_not_fall(points: list[tuple[int, float]], batches: list[int]) -> None:
    curve = measured_times(points)
    found = [curve.seconds(batch) for batch in sorted(batches)]
    assert found[0] > 0
    assert all(before <= after * (1 + 1e-9) for before, after in pairwise(found))


@given(st.floats(0, 1), st.floats(1e-6, 1), st.lists(st.integers(1, 4096), min_size=2, max_size=8, unique=True))
def test_points_on_a_line_give_that_line(overhead_s: float, per_sample_s: float, batches: list[int]) -> None:
    curve = measured_times([(batch, overhead_s + batch * per_sample_s) for batch in batches])
    for batch in (1, 7, 100, 5000):
        assert curve.seconds(batch) == pytest.approx(overhead_s + batch * per_sample_s, rel=1e-6)
