"""What every rank of a run did and when, from its trace or from its stored tables.

* A collective and a receive begin with a wait. A member of a collective waits for the member that entered last. A
  receive waits for the rank that sends the message, until it is sent.
* The n-th receive of a rank, in the order of their ends, has the n-th source that the rank has heard. If their numbers
  differ, which happens in runs that failed, the sources of that rank are unknown.
* A stored run has no trace. Its table of spans does not distinguish collectives from messages, but they can be told
  apart: only a receive has no bytes of its own, and the members of a collective leave their waits at the same instant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from paceline.records import Run
from paceline.records.tables import NO_SOURCE, Tables, collective_members
from paceline.records.trace import Span, Trace

NAMES = {"redo": "compute"} | {
    name: name for name in ("compute", "load", "update", "collective", "receive", "send", "checkpoint", "recovery")
}
"""the activities that count; prefetching ("read") runs beside the program, and a crash has no length"""

Place = tuple[int, str]
"""a rank and one of its lanes"""


class RankActivity(NamedTuple):
    """One activity of one lane of a rank. Until `ready_s` it waits for rank `waits_for`, None if that is unknown."""

    rank: int
    lane: str
    name: str
    start_s: float
    ready_s: float
    end_s: float
    waits_for: int | None = None


def activities_of(run: Run) -> list[RankActivity]:
    """Returns the activities of all ranks, in any order."""
    return from_tables(run.tables) if run.trace is None else from_trace(run.trace)


def from_trace(trace: Trace) -> list[RankActivity]:
    """Returns the activities of a trace.

    >>> early = Span(0, "main", "collective", None, 0, start_s=1.0, end_s=5.0, bytes=8, key="mean")
    >>> late = Span(1, "main", "collective", None, 0, start_s=4.0, end_s=5.0, bytes=8, key="mean")
    >>> for one in from_trace(Trace(spans=[early, late])):
    ...     print(one.rank, one.name, one.start_s, one.ready_s, one.waits_for)
    0 collective 1.0 4.0 1
    1 collective 4.0 4.0 None
    """
    spans, waits = trace.spans, dict[int, tuple[float, int | None]]()
    for members in collective_members(spans):
        last = spans[max(members, key=lambda number: spans[number].start_s)]
        waits |= {number: (last.start_s, int(last.rank)) for number in members}
    sources = _sources(spans, trace)
    for number, span in enumerate(spans):
        if span.activity == "receive" and span.ready_s is not None:
            waits[number] = span.ready_s, sources.get(number)
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


def _sources(spans: Sequence[Span], trace: Trace) -> dict[int, int]:
    """Returns the source of each receive, by the index of its span."""
    received: dict[int, list[int]] = defaultdict(list)
    for number, span in enumerate(spans):
        if span.activity == "receive":
            received[int(span.rank)].append(number)
    for mine in received.values():
        mine.sort(key=lambda number: spans[number].end_s)
    heard = ((int(rank), int(source)) for rank, source in trace.heard if source is not None)
    return _matched(received, heard)


def _matched(received: Mapping[int, Sequence[int]], heard: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Returns the source of each receive, for ranks with as many receives as sources.

    Args:
        received: the numbers of the receives of each rank, in the order of their ends.
        heard: (rank, source) in the order in which each rank received.
    """
    sources: dict[int, list[int]] = defaultdict(list)
    for rank, source in heard:
        sources[rank].append(source)
    known = {rank: mine for rank, mine in received.items() if len(mine) == len(sources[rank])}
    return {number: source for rank, mine in known.items() for number, source in zip(mine, sources[rank], strict=True)}


def from_tables(tables: Tables) -> list[RankActivity]:
    """Returns the activities of stored tables, in which each wait is joined with the communication that follows it."""
    rows, waits = _communication(tables.spans)
    entered = {row.ready_s for row in rows if row.ready_s > row.start_s and row.name == "collective"}
    last = {
        row.start_s: row.rank for row in rows if row.start_s == row.ready_s and row.name == "send"
    }  # the last member does not wait, so that its row looks like a send
    rows = [_last_member(row, entered) for row in rows]
    received: dict[int, list[int]] = defaultdict(list)
    for number in sorted(range(len(rows)), key=lambda number: rows[number].end_s):
        if rows[number].name == "receive":
            received[rows[number].rank].append(number)
    heard = tables.heard[tables.heard["source"] != NO_SOURCE]
    sources = _matched(received, zip(heard["rank"].tolist(), heard["source"].tolist(), strict=True))
    joined = [
        row._replace(waits_for=last.get(row.ready_s) if row.name == "collective" else sources.get(number))
        if row.ready_s > row.start_s
        else row
        for number, row in enumerate(rows)
    ]
    return [*joined, *waits, *_other(tables.spans)]


def _last_member(row: RankActivity, entered: set[float]) -> RankActivity:
    return row._replace(name="collective") if row.name == "send" and row.start_s in entered else row


def _communication(spans: pd.DataFrame) -> tuple[list[RankActivity], list[RankActivity]]:
    """Returns rows of communication, each with the wait before it, and waits without communication after them."""
    chosen = spans[spans["activity"].isin(("wait", "communication")) & (spans["end_s"] > spans["start_s"])]
    pending: dict[tuple[int, str, float], float] = {}
    rows = list(_rows(chosen.sort_values("start_s", kind="stable")))
    for rank, lane, activity, start_s, end_s, _ in rows:
        if activity == "wait":
            pending[rank, lane, end_s] = start_s
    made = []
    for rank, lane, activity, start_s, end_s, nbytes in rows:
        if activity == "communication":
            begun_s = pending.pop((rank, lane, start_s), start_s)
            name = "receive" if nbytes == 0 else "collective" if begun_s < start_s else "send"
            made.append(RankActivity(rank, lane, name, begun_s, start_s, end_s))
    alone = [
        RankActivity(rank, lane, "receive", start_s, end_s, end_s) for (rank, lane, end_s), start_s in pending.items()
    ]
    return made, alone


def _other(spans: pd.DataFrame) -> Iterator[RankActivity]:
    """Yields the rows without communication and waits."""
    for rank, lane, activity, start_s, end_s, _ in _rows(spans[spans["end_s"] > spans["start_s"]]):
        if activity in NAMES:
            yield RankActivity(rank, lane, NAMES[activity], start_s, start_s, end_s)


def _rows(spans: pd.DataFrame) -> Iterator[tuple[int, str, str, float, float, int]]:
    columns = ("rank", "lane", "activity", "start_s", "end_s", "bytes")
    return zip(*(spans[column].tolist() for column in columns), strict=True)
