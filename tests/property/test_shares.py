"""Invariant 56: compute, exposed communication and waiting add up to a worker's time in every run."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank
from paceline.records.figures import ACTIVITIES
from paceline.records.summary import shares
from paceline.records.tables import assemble
from paceline.records.trace import Activity, Span, Trace

TICKS = st.integers(0, 40)
PRIORITY = {"compute": 0, "load": 1, "update": 2, "communication": 3, "wait": 4}
UNCOUNTED = {"read", "copy"}
"""beside the program, by storage and by copy engines; the time that it waits for them is its own"""
COUNTS_AS = {"redo": "compute", "checkpoint": "wait", "crash": "wait", "recovery": "wait"}


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start, end = sorted((draw(TICKS), draw(TICKS)))
    activity = draw(st.sampled_from(get_args(Activity)))
    lane, key = draw(st.sampled_from(["main", "1"])), draw(st.sampled_from(["a", "b"]))
    ready = draw(st.none() | TICKS.map(float))
    return Span(Rank(draw(st.integers(0, 2))), lane, activity, None, 0, float(start), float(end), 8, ready, key)


@given(st.lists(spans(), max_size=12), st.integers(1, 40))
def test_shares_are_those_of_every_tick_counted_by_hand(recorded: list[Span], wall: int) -> None:
    """Compared with a second algorithm: for each tick of each rank, take the first activity that covers it."""
    table = assemble(Trace(spans=recorded), num_samples=1).spans
    counted = dict.fromkeys(ACTIVITIES, 0)
    rows = list(table[["rank", "activity", "start_s", "end_s"]].itertuples(index=False, name=None))
    for rank in range(2):
        for tick in range(wall):
            here = [
                COUNTS_AS.get(str(activity), str(activity))
                for of, activity, start_s, end_s in rows
                if of == rank and start_s <= tick and tick + 1 <= end_s and activity not in UNCOUNTED
            ]
            counted[min(here, key=PRIORITY.__getitem__, default="wait")] += 1
    found = shares(table, wall_s=float(wall), workers=2)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    assert found == pytest.approx({activity: ticks / (2 * wall) for activity, ticks in counted.items()})


@given(st.lists(spans(), max_size=12))
def test_splitting_keeps_time_and_bytes(recorded: list[Span]) -> None:
    """The rows of a span last as long as the span, and only what was sent is counted."""
    table = assemble(Trace(spans=recorded), num_samples=1).spans
    assert (table["end_s"] - table["start_s"]).sum() == sum(span.end_s - span.start_s for span in recorded)
    assert (table["end_s"] >= table["start_s"]).all()
    assert table["bytes"].sum() == sum(span.bytes for span in recorded if span.activity not in ("receive", "copy"))
