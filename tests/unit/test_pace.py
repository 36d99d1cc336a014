"""Whether a run kept its pace: lengths and late starts of gradients against the requested times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.values import Rank
from paceline.records.pace import idle_before, pace_figures, say_pace
from paceline.records.tables import frame, split
from paceline.records.trace import Activity, Span


def span(rank: int, activity: Activity, step: int, start_s: float, end_s: float, layer: str | None = None) -> Span:
    return Span(Rank(rank), "main", activity, layer, step, start_s, end_s)


def pace_of(spans: Iterable[Span], asked_s: float = 1.0) -> Any:
    return pace_figures(frame("spans", list(split(spans))), lambda *_: asked_s)


def test_a_gradient_is_late_at_its_end_and_at_its_start() -> None:
    """The first starts on time and lasts 1.1; the second starts 0.2 late, after a receive, and lasts 1."""
    found = pace_of(
        [
            span(0, "compute", 0, 0.0, 1.1),
            span(0, "receive", 0, 1.1, 2.0),
            span(0, "compute", 1, 2.2, 3.2),
        ]
    )
    assert found["late_start_s"] == pytest.approx(0.1)
    assert found["achieved_s"] == pytest.approx(1.15) and found["asked_s"] == 1.0
    assert found["ratio"] == pytest.approx(1.15) and not found["held"]


def test_the_worst_rank_decides() -> None:
    spans = [span(rank, "compute", 0, 0.0, took_s) for rank, took_s in enumerate((1.0, 1.01, 1.07, 1.0))]
    found = pace_of(spans)
    assert found["ratio"] == pytest.approx(1.02)
    assert found["worst"]["rank"] == 2 and not found["held"]
    assert pace_of(spans[:2])["held"]


def test_layers_of_a_gradient_are_one_gradient() -> None:
    found = pace_of([span(0, "compute", 0, 0.0, 0.6, "last"), span(0, "compute", 0, 0.6, 1.0, "first")])
    assert (found["ratio"], found["held"]) == (1.0, True)


def test_a_gradient_that_was_given_up_has_no_pace() -> None:
    assert pace_of([span(0, "compute", 0, 0.0, 0.3)]) is None
    assert pace_of([span(0, "compute", 0, 0.0, 0.3), span(0, "compute", 1, 0.3, 1.4)])["ratio"] == pytest.approx(1.1)


def test_nothing_is_idle_under_what_lasts_longer() -> None:
    """A long span of one lane covers the end of a short one of another."""
    starts, ends = np.array([0.0, 1.0]), np.array([5.0, 2.0])
    np.testing.assert_allclose(idle_before(np.array([3.0, 6.0]), starts, ends), [0.0, 1.0])
    np.testing.assert_allclose(idle_before(np.array([3.0]), np.array([]), np.array([])), [0.0])


def test_words_are_for_a_pace_that_was_not_held() -> None:
    assert say_pace(pace_of([span(0, "compute", 0, 0.0, 1.0)]), 1.0) is None
    said = say_pace(pace_of([span(0, "compute", 0, 0.0, 1.5)]), 1.0)
    assert said is not None and "rank 0" in said and "50 % more" in said and "train.time_dilation: 10`" in said
