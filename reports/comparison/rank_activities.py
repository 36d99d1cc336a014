"""What every rank of a run did and when, from its trace or from its stored tables.

* A collective and a receive begin with a wait. A member of a collective waits for the member that entered last. A
  receive waits for the rank that sends the message, until it is sent.
* The n-th receive of a rank, in the order of their ends, has the n-th source that the rank has heard. If their numbers
  differ, which happens in runs that failed, the sources of that rank are unknown.
* A stored run has no trace. Its table of spans distinguishes neither collectives from messages nor the ranks that are
  waited for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from paceline.records.tables import Tables, collective_members
from paceline.records.trace import Span, Trace

NAMES = {"redo": "compute"} | {
    name: name
    for name in ("compute", "load", "update", "collective", "receive", "send", "copy", "checkpoint", "recovery")
}
"""the activities that count; prefetching ("read") runs beside the program, and a crash has no length"""


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
    """Returns the activities of stored tables; a wait is an activity without an end of its own."""
    spans = tables.spans[tables.spans["end_s"] > tables.spans["start_s"]]
    columns = (spans[column].tolist() for column in ("rank", "lane", "activity", "start_s", "end_s"))
    return [
        RankActivity(rank, lane, NAMES.get(name, name), start_s, end_s if name == "wait" else start_s, end_s)
        for rank, lane, name, start_s, end_s in zip(*columns, strict=True)
        if name in NAMES or name in ("communication", "wait")
    ]
