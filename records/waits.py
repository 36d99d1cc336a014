"""Which rank a collective or a receive waits for, and until when.

* A member of a collective waits for the member that enters last. A receive waits for the rank that sends the message,
  until it is sent.
* The n-th receive of a rank, in the order of their ends, has the n-th source that the rank has heard. If their numbers
  differ, which happens in runs that failed, the sources of that rank are unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from paceline.records.trace import Span, Trace


class RankWait(NamedTuple):
    """The wait at the beginning of a span.

    Args:
        until_s: its end, which may be before the span begins.
        rank: the rank that is waited for; None if it is unknown.
    """

    until_s: float
    rank: int | None


def waits_of(trace: Trace) -> dict[int, RankWait]:
    """Returns the wait of each collective, and of each receive whose sending was recorded, by the index of its span.

    >>> early = Span(0, "main", "collective", None, 0, start_s=1.0, end_s=5.0, bytes=8, key="mean")
    >>> late = Span(1, "main", "collective", None, 0, start_s=4.0, end_s=5.0, bytes=8, key="mean")
    >>> waits_of(Trace(spans=[early, late]))[0]
    RankWait(until_s=4.0, rank=1)
    """
    spans, waits = trace.spans, dict[int, RankWait]()
    for number, span in enumerate(spans):
        if span.activity == "collective" and span.ready_s is not None:  # others' spans may not have been kept
            waits[number] = RankWait(span.ready_s, None)
    for members in collective_members(spans):
        last = spans[max(members, key=lambda number: spans[number].start_s)]
        waits |= dict.fromkeys(members, RankWait(last.start_s, int(last.rank)))
    sources = _sources(spans, trace)
    for number, span in enumerate(spans):
        if span.activity == "receive" and span.ready_s is not None:
            waits[number] = RankWait(span.ready_s, sources.get(number))
    return waits


def collective_members(spans: Sequence[Span]) -> list[list[int]]:
    """Returns the indices of the spans of each collective whose last entry is not recorded, one for each member.

    A key may be used several times; the n-th entries of all ranks belong together.

    Args:
        spans: the spans of a run, in any order.
    """
    entries: dict[tuple[str | None, int], list[int]] = defaultdict(list)
    uses: Counter[tuple[str | None, int]] = Counter()
    collectives = (
        number for number, span in enumerate(spans) if span.activity == "collective" and span.ready_s is None
    )
    for number in sorted(collectives, key=lambda number: spans[number].start_s):
        span = spans[number]
        entries[span.key, uses[span.key, span.rank]].append(number)
        uses[span.key, span.rank] += 1
    return list(entries.values())


def _sources(spans: Sequence[Span], trace: Trace) -> dict[int, int]:
    """Returns the source of each receive, by the index of its span."""
    received: dict[int, list[int]] = defaultdict(list)
    for number, span in enumerate(spans):
        if span.activity == "receive":
            received[int(span.rank)].append(number)
    for numbers in received.values():
        numbers.sort(key=lambda number: spans[number].end_s)
    return _matched(received, ((int(rank), None if source is None else int(source)) for rank, source in trace.heard))


def _matched(received: Mapping[int, Sequence[int]], heard: Iterable[tuple[int, int | None]]) -> dict[int, int]:
    """Returns the source of each receive, for ranks with as many receives as sources; both in the order of ends."""
    sources: dict[int, list[int]] = defaultdict(list)
    for rank, source in heard:
        if source is not None:
            sources[rank].append(source)
    known = {rank: numbers for rank, numbers in received.items() if len(numbers) == len(sources[rank])}
    return {
        number: source for rank, numbers in known.items() for number, source in zip(numbers, sources[rank], strict=True)
    }
