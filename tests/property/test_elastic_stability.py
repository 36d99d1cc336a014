"""The stability of elastic averaging (numbers 11 and 16; Q17 and Q18): closed forms against the methods as matrices.

On f = h x² / 2 every method is a linear map of (x_1, …, x_P, c). `matrix_of` finds the matrix by runs from the unit
vectors, so a closed form is compared with the program itself, not with a copy of its rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline.algorithms.methods.async_elastic import AsyncEasgd, AsyncMeasgd, Eamsgd
from paceline.algorithms.methods.elastic import Easgd
from paceline.algorithms.methods.sync_elastic import SyncEasgd1, SyncEasgd2, SyncEasgd3
from tests.elastic import matrix_of, radius

SYNCHRONOUS: list[Any] = [SyncEasgd1, SyncEasgd2, SyncEasgd3]
EDGE = 1e-3
"""distance from the limit of stability within which nothing is asserted"""


@pytest.mark.parametrize("method", SYNCHRONOUS)
@given(workers=st.integers(1, 6), rate=st.floats(0.01, 2.5), alpha=st.floats(0.01, 1.5), curvature=st.floats(0.1, 2.0))
def test_synchronous_easgd_is_stable_iff_the_polynomial_says_so(
    method: Any, workers: int, rate: float, alpha: float, curvature: float
) -> None:
    """Q17, with g = ηh and b = Pα: 4 − 2 (g + α + b) + g b > 0, |(1 − g − α)(1 − b) − α b| < 1, |1 − g − α| < 1."""
    g, b = rate * curvature, workers * alpha
    size = radius(matrix_of(method(learning_rate=rate, elastic=alpha), workers, 1, curvature=curvature))
    assume(abs(size - 1) > EDGE)
    together = 4 - 2 * (g + alpha + b) + g * b > 0 and abs((1 - g - alpha) * (1 - b) - alpha * b) < 1
    apart = workers == 1 or abs(1 - g - alpha) < 1
    assert (size < 1) == (together and apart)


@given(workers=st.integers(1, 6), alpha=st.floats(0.01, 1.5))
def test_without_gradients_the_modes_are_those_of_number_11(workers: int, alpha: float) -> None:
    """The sum stays (1), differences of workers shrink by 1 − α, the gap of mean and centre by 1 − α − Pα."""
    found = np.sort(np.linalg.eigvals(matrix_of(SyncEasgd3(learning_rate=0.0, elastic=alpha), workers, 1)).real)
    expected = np.sort([1.0, 1 - alpha - workers * alpha, *[1 - alpha] * (workers - 1)])
    np.testing.assert_allclose(found, expected, atol=1e-12 + 1e-7 * (workers > 2))  # a repeated root is found less well


@given(workers=st.integers(1, 8), rate=st.floats(0.01, 1.99), share=st.floats(0.01, 0.99))
def test_round_robin_is_stable_inside_its_region(workers: int, rate: float, share: float) -> None:
    """Number 16 and Q18: with 0 ≤ η ≤ 2 every α below (4 − 2η) / (4 − η) is stable, for any number of workers."""
    alpha = share * (4 - 2 * rate) / (4 - rate)
    assert radius(matrix_of(Easgd(learning_rate=rate, elastic=alpha), workers, workers)) < 1


@given(rate=st.floats(0.01, 1.99), excess=st.floats(1.01, 2.0))
def test_for_one_worker_the_region_is_exact(rate: float, excess: float) -> None:
    """Q18: outside, one worker diverges."""
    alpha = excess * (4 - 2 * rate) / (4 - rate)
    assert radius(matrix_of(Easgd(learning_rate=rate, elastic=alpha), 1, 1)) > 1


def test_with_more_workers_the_region_is_only_sufficient() -> None:
    """Q18: a stable case outside, without which the two tests above could test the same condition."""
    rate, alpha = 1.0, 1.02 * (4 - 2) / (4 - 1)
    assert radius(matrix_of(Easgd(learning_rate=rate, elastic=alpha), 1, 1)) > 1
    assert radius(matrix_of(Easgd(learning_rate=rate, elastic=alpha), 2, 2)) < 1


ALONE: list[Any] = [AsyncEasgd(), AsyncEasgd(sends="delta"), AsyncMeasgd(momentum=0.0), *(one() for one in SYNCHRONOUS)]


@pytest.mark.parametrize("other", ALONE, ids=repr)
@given(rate=st.floats(0.01, 1.9), alpha=st.floats(0.01, 0.9), steps=st.integers(1, 4))
def test_alone_all_are_one_matrix(other: Any, rate: float, alpha: float, steps: int) -> None:
    """Number 13, from all starts at once."""
    expected = matrix_of(Easgd(learning_rate=rate, elastic=alpha), 1, steps)
    found = matrix_of(replace(other, learning_rate=rate, elastic=alpha), 1, steps)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@given(rate=st.floats(0.01, 1.9), alpha=st.floats(0.01, 0.9), steps=st.integers(1, 4))
def test_alone_eamsgd_is_that_matrix_too(rate: float, alpha: float, steps: int) -> None:
    """Number 13: with period 1 and no momentum, after the local step with which it begins."""
    begins = np.diag([1 - rate, 1.0])
    expected = matrix_of(Easgd(learning_rate=rate, elastic=alpha), 1, steps) @ begins
    found = matrix_of(Eamsgd(learning_rate=rate, elastic=alpha, momentum=0.0, period=1), 1, steps)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
