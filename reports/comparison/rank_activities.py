"""What every rank of a run did and when, from its trace or from its stored tables.

* A collective and a receive begin with a wait (`records.waits`).
* A stored run has no trace. Its table of spans distinguishes neither collectives from messages nor the ranks that are
  waited for; the table of transfers of a measured run does. Runs that were stored without it are divided less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from paceline.records.tables import NO_SOURCE, TRANSFERRED, Tables
from paceline.records.trace import Trace
from paceline.records.waits import waits_of

NAMES = {"redo": "compute"} | {
    name: name
    for name in ("compute", "load", "update", "collective", "receive", "send", "copy", "checkpoint", "recovery")
}
"""the activities that count; prefetching ("read") runs beside the program, and a crash has no length"""


Row = tuple[int, str, str, float, float]
"""rank, lane, activity, start and end of a row of `spans`"""


class RankActivity(NamedTuple):
    """One activity of one lane of a rank. Until `ready_s` it waits for rank `waits_for`, None if that is unknown."""

    rank: int
    lane: str
    name: str
    start_s: float
    ready_s: float
    end_s: float
    waits_for: int | None = None


def activities_of(trace: Trace | None, tables: Tables) -> list[RankActivity]:
    """Returns the activities of all ranks, in any order.

    Args:
        trace: the trace of the run; None to use only its tables.
        tables: its tables.
    """
    return from_tables(tables) if trace is None else from_trace(trace)


def from_trace(trace: Trace) -> list[RankActivity]:
    """Returns the activities of a trace.

    >>> from paceline.records.trace import Span
    >>> early = Span(0, "main", "collective", None, 0, start_s=1.0, end_s=5.0, bytes=8, key="mean")
    >>> late = Span(1, "main", "collective", None, 0, start_s=4.0, end_s=5.0, bytes=8, key="mean")
    >>> for one in from_trace(Trace(spans=[early, late])):
    ...     print(one.rank, one.name, one.start_s, one.ready_s, one.waits_for)
    0 collective 1.0 4.0 1
    1 collective 4.0 4.0 None
    """
    spans, waits = trace.spans, waits_of(trace)
    return [
        _activity(span.rank, span.lane, NAMES[span.activity], span.start_s, span.end_s, waits.get(number))
        for number, span in enumerate(spans)
        if span.activity in NAMES and span.end_s > span.start_s
    ]


def _activity(
    rank: int, lane: str, name: str, start_s: float, end_s: float, wait: tuple[float, int | None] | None
) -> RankActivity:
    ready_s, source = wait or (start_s, None)
    ready_s = min(max(ready_s, start_s), end_s)
    return RankActivity(int(rank), lane, name, start_s, ready_s, end_s, source if ready_s > start_s else None)


def is_divided(tables: Tables) -> bool:
    """Returns whether tables distinguish collectives, sends and receives, and know the ranks that are waited for."""
    return len(tables.transfers) == int(tables.spans["activity"].isin(TRANSFERRED).sum())


def from_tables(tables: Tables) -> list[RankActivity]:
    """Returns the activities of stored tables, which are those of the trace if the tables have transfers.

    Args:
        tables: the tables of a run.
    """
    if not is_divided(tables):
        return from_spans(tables)
    transfers = zip(*(tables.transfers[name].tolist() for name in ("activity", "waits_for")), strict=True)
    return list(_joined(_rows(tables), transfers))


def from_spans(tables: Tables) -> list[RankActivity]:
    """Returns the activities of a table of spans alone: communication is not divided, and waits are not followed.

    A wait is an activity without an end of its own.

    Args:
        tables: the tables of a run.
    """
    return [
        RankActivity(rank, lane, NAMES.get(name, name), start_s, end_s if name == "wait" else start_s, end_s)
        for rank, lane, name, start_s, end_s in _rows(tables)
        if end_s > start_s and (name in NAMES or name in TRANSFERRED)
    ]


def _rows(tables: Tables) -> Iterator[Row]:
    columns = ("rank", "lane", "activity", "start_s", "end_s")
    return zip(*(tables.spans[column].tolist() for column in columns), strict=True)


def _joined(rows: Iterable[Row], transfers: Iterator[tuple[str, int]]) -> Iterator[RankActivity]:
    """Yields the activities of a table of spans, in which a wait and the communication after it are one activity."""
    waits: dict[tuple[int, str, str, float], tuple[float, int]] = {}
    """the start of each wait and the rank that is waited for, until its communication begins"""
    for rank, lane, name, start_s, end_s in rows:
        if name not in TRANSFERRED:
            if name in NAMES and end_s > start_s:
                yield RankActivity(rank, lane, NAMES[name], start_s, start_s, end_s)
            continue
        operation, source = next(transfers)
        if name == "wait":
            waits[rank, lane, operation, end_s] = start_s, source
            continue
        begun_s, source = waits.pop((rank, lane, operation, start_s), (start_s, NO_SOURCE))
        if end_s > begun_s:
            yield RankActivity(rank, lane, operation, begun_s, start_s, end_s, None if source == NO_SOURCE else source)
