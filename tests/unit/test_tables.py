"""Traces small enough to compute by hand, and their tables."""

from __future__ import annotations

import math

import pytest

from paceline.algorithms.core.job import Evaluation
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.weights_owner import Update
from paceline.records.tables import SCHEMAS, assemble
from paceline.records.trace import Snapshot, Span, Trace


def span(rank: int, activity: str, start_s: float, end_s: float, **more: object) -> Span:
    return Span(Rank(rank), "main", activity, None, more.pop("step", 0), start_s, end_s, **more)  # type: ignore[arg-type]


def rows(trace: Trace) -> list[tuple[int, str, float, float, int]]:
    columns = ["rank", "activity", "start_s", "end_s", "bytes"]
    return list(assemble(trace, num_samples=100).spans[columns].itertuples(index=False, name=None))


def test_a_collective_waits_for_the_last_to_come() -> None:
    trace = Trace(
        spans=[
            span(0, "collective", 1.0, 5.0, key="mean", bytes=40),
            span(1, "collective", 3.0, 5.5, key="mean", bytes=40),
        ]
    )
    assert rows(trace) == [
        (0, "wait", 1.0, 3.0, 0),
        (0, "communication", 3.0, 5.0, 40),
        (1, "communication", 3.0, 5.5, 40),
    ]


def test_a_key_used_twice_names_two_collectives() -> None:
    trace = Trace(
        spans=[
            span(0, "collective", 0.0, 2.0, key="mean"),
            span(1, "collective", 1.0, 2.0, key="mean"),
            span(0, "collective", 3.0, 6.0, key="mean", step=1),
            span(1, "collective", 5.0, 6.0, key="mean", step=1),
        ]
    )
    waits = [(rank, start_s, end_s) for rank, activity, start_s, end_s, _ in rows(trace) if activity == "wait"]
    assert waits == [(0, 0.0, 1.0), (0, 3.0, 5.0)]


def test_a_member_that_left_before_the_last_came_only_waited() -> None:
    """A root that a broadcast lets go early: the wait is clipped to the span."""
    trace = Trace(
        spans=[span(0, "collective", 0.0, 1.0, key="k", bytes=8), span(1, "collective", 4.0, 5.0, key="k", bytes=8)]
    )
    assert rows(trace)[:2] == [(0, "wait", 0.0, 1.0, 0), (0, "communication", 1.0, 1.0, 8)]


@pytest.mark.parametrize(
    ("ready_s", "expected"),
    [
        pytest.param(2.5, [(0, "wait", 2.0, 2.5, 0), (0, "communication", 2.5, 3.0, 0)], id="sent while waiting"),
        pytest.param(1.0, [(0, "communication", 2.0, 3.0, 0)], id="sent before asking"),
        pytest.param(9.0, [(0, "wait", 2.0, 3.0, 0), (0, "communication", 3.0, 3.0, 0)], id="clipped"),
        pytest.param(None, [(0, "communication", 2.0, 3.0, 0)], id="unknown"),
    ],
)
def test_a_receive_waits_until_its_message_was_sent(ready_s: float | None, expected: list[object]) -> None:
    assert rows(Trace(spans=[span(0, "receive", 2.0, 3.0, ready_s=ready_s, bytes=8)])) == expected


def test_a_message_is_counted_once_by_its_sender() -> None:
    trace = Trace(spans=[span(0, "send", 1.0, 1.0, bytes=8), span(1, "receive", 0.0, 2.0, ready_s=1.0, bytes=8)])
    assert assemble(trace, num_samples=1).spans["bytes"].sum() == 8


def test_evaluations_are_the_snapshots_that_have_a_score() -> None:
    trace = Trace(
        snapshots=[
            Snapshot(4.0, 2, 150, None, Evaluation(0.5, None)),
            Snapshot(0.0, 0, 0, None, Evaluation(2.0, 0.25)),
            Snapshot(2.0, 1, 50, None, None),
        ]
    )
    table = assemble(trace, num_samples=100).evaluations
    assert table["time_s"].tolist() == [0.0, 4.0]
    assert table["epoch"].tolist() == [0.0, 1.5]
    assert table["loss"].tolist() == [2.0, 0.5]
    assert table["accuracy"][0] == 0.25
    assert math.isnan(table["accuracy"][1])


def test_rows_come_in_order_of_time_then_rank() -> None:
    updates = [
        Update(2.0, Rank(0), 1, 1, 1, 0, 8),
        Update(1.0, Rank(1), 0, 0, 0, 0, 8),
        Update(1.0, Rank(0), 0, 0, 0, 0, 8),
    ]
    spans = [span(1, "compute", 0.0, 1.0), span(0, "compute", 0.0, 1.0)]
    tables = assemble(Trace(updates=updates, spans=spans), num_samples=1)
    assert tables.updates[["time_s", "rank"]].values.tolist() == [[1.0, 0], [1.0, 1], [2.0, 0]]
    assert tables.spans["rank"].tolist() == [0, 1]


def test_an_empty_trace_has_all_columns() -> None:
    tables = assemble(Trace(), num_samples=1)
    for name, schema in SCHEMAS.items():
        assert list(getattr(tables, name).columns) == schema.names
        assert len(getattr(tables, name)) == 0
