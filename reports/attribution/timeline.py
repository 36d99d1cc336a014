"""Divides the time of every rank of a run among activities, and follows each wait to the rank that causes it.

* If several activities overlap, the first counts of: compute, load, update, communication, wait. So are the time
  fractions of a run defined (`records.summary`). Among equals, an activity of the program itself comes before those
  that it started, and then the activity that began first.
* The program does not wait for communication that ends after its own next activity has begun. So the time before this
  activity does not belong to that communication, although the time fractions count it as communication. The recovery
  from a crash is no activity of the program, which still waits for the same communication.
* A collective and a receive begin with a wait (`records.waits`). It is followed: its time is charged to what the rank
  that it waits for does at the same instant. If that rank waits, too, the next rank is followed, and so on. So a wait
  for the slowest member of a collective is charged to the gradient, loading or message that delayed this member.
* Communication that a program has started costs nothing while the rank also waits for a rank that computes, loads or
  updates: the instant is charged to the latter, as communication during a rank's own gradient costs nothing.
* What a server does besides communication and waits is "server". A wait for a server while it handles requests of
  other workers, a queue, is charged to "server", too.
* A stored run has no trace. Its table of spans distinguishes neither collectives from messages nor the ranks that are
  waited for; the table of transfers of a measured run does. Runs that were stored without it are divided less.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from paceline.records.tables import NO_SOURCE, TRANSFERRED, Tables
from paceline.records.trace import Trace
from paceline.records.waits import RankWait, waits_of

SERVER, UNRECORDED, WAIT = "server", "unrecorded", "wait"
LABELS: Mapping[str, str] = {
    "compute": "compute",
    "load": "loading",
    "update": "updates",
    "collective": "collectives",
    "send": "sending messages",
    "receive": "the transfer of messages",
    "communication": "collectives and messages",
    "copy": "copies between hosts and devices",
    "checkpoint": "checkpoints",
    "recovery": "recovery from crashes",
    WAIT: "waiting",
    SERVER: "the server",
    UNRECORDED: "time without a recorded activity",
}
"""the activities, in the order of precedence of equals, with their names in sentences"""
COMMUNICATION = ("collective", "send", "receive", "communication")
"""the last is that of stored runs, which do not distinguish the others"""
PRIORITY: Mapping[str, int] = {"compute": 0, "load": 1, "update": 2, **dict.fromkeys(COMMUNICATION, 3)}
"""the order of `records.figures.ACTIVITIES`"""
LEAST_PRIORITY = 4
"""waits, copies, and checkpoints and recoveries, which count as waits in the time fractions of a run"""
BUSY = ("compute", "load", "update", SERVER)
"""activities that started communication does not delay"""
RECORDED: Mapping[str, str] = {"redo": "compute"} | {
    name: name
    for name in ("compute", "load", "update", "collective", "receive", "send", "copy", "checkpoint", "recovery")
}
"""the activity of each activity of a span; prefetching ("read") runs beside the program, and a crash has no length"""

Row = tuple[int, str, str, float, float]
"""rank, lane, activity, start and end of a row of `spans`"""


def named(activity: str) -> str:
    """Returns the name of an activity in a sentence.

    Args:
        activity: a key of `LABELS`, or the name of a consequence.
    """
    return LABELS.get(activity, activity)


class RankActivity(NamedTuple):
    """An activity of a lane of a rank. Until `ready_s` it waits for rank `waits_for`, None if that is unknown."""

    rank: int
    lane: str
    name: str
    start_s: float
    ready_s: float
    end_s: float
    waits_for: int | None = None
    span: int | None = None
    """the index of its span in the trace; None for stored tables"""


class TimeSource(NamedTuple):
    """An activity of a rank, to which time is charged."""

    activity: str
    rank: int


class TimelinePiece(NamedTuple):
    """An interval of a rank's timeline, which belongs to one activity."""

    start_s: float
    end_s: float
    activity: str
    waits_for: int | None = None
    """the rank that a wait waits for, or that another lane waits for during communication that the program started"""
    span: int | None = None
    """as in `RankActivity`"""

    def within(self, start_s: float, end_s: float) -> TimelinePiece:
        """Returns the part of the piece in an interval."""
        return self._replace(start_s=max(self.start_s, start_s), end_s=min(self.end_s, end_s))


# --- the activities of a run -----------------------------------------------------------------------------------------


def from_trace(trace: Trace, waits: Mapping[int, RankWait] | None = None) -> list[RankActivity]:
    """Returns the activities of a trace.

    Args:
        trace: the trace.
        waits: the waits of its spans, if they are known.

    >>> from paceline.records.trace import Span
    >>> early = Span(0, "main", "collective", None, 0, start_s=1.0, end_s=5.0, bytes=8, key="mean")
    >>> late = Span(1, "main", "collective", None, 0, start_s=4.0, end_s=5.0, bytes=8, key="mean")
    >>> for activity in from_trace(Trace(spans=[early, late])):
    ...     print(activity.rank, activity.name, activity.start_s, activity.ready_s, activity.waits_for)
    0 collective 1.0 4.0 1
    1 collective 4.0 4.0 None
    """
    stretches = []
    waits = waits_of(trace) if waits is None else waits
    for number, span in enumerate(trace.spans):
        if span.activity not in RECORDED or span.end_s <= span.start_s:
            continue
        until_s, source = waits.get(number) or (span.start_s, None)
        ready_s = min(max(until_s, span.start_s), span.end_s)
        waits_for = source if ready_s > span.start_s else None
        name = RECORDED[span.activity]
        stretches.append(RankActivity(span.rank, span.lane, name, span.start_s, ready_s, span.end_s, waits_for, number))
    return stretches


def is_divided(tables: Tables) -> bool:
    """Returns whether tables distinguish collectives, sends and receives, and know the ranks that are waited for."""
    return len(tables.transfers) == int(tables.spans["activity"].isin(TRANSFERRED).sum())


def from_tables(tables: Tables) -> list[RankActivity]:
    """Returns the activities of stored tables with transfers, which are those of the trace.

    Args:
        tables: the tables of a run.
    """
    transfers = zip(*(tables.transfers[name].tolist() for name in ("activity", "waits_for")), strict=True)
    return list(_joined(_rows(tables), transfers))


def from_spans(tables: Tables) -> list[RankActivity]:
    """Returns the activities of a table of spans alone: communication is not divided, and waits are not followed.

    A wait is an activity without an end of its own.

    Args:
        tables: the tables of a run.
    """
    return [
        RankActivity(rank, lane, RECORDED.get(name, name), start_s, end_s if name == "wait" else start_s, end_s)
        for rank, lane, name, start_s, end_s in _rows(tables)
        if end_s > start_s and (name in RECORDED or name in TRANSFERRED)
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
            if name in RECORDED and end_s > start_s:
                yield RankActivity(rank, lane, RECORDED[name], start_s, start_s, end_s)
            continue
        operation, source = next(transfers)
        if name == "wait":
            waits[rank, lane, operation, end_s] = start_s, source
            continue
        begun_s, source = waits.pop((rank, lane, operation, start_s), (start_s, NO_SOURCE))
        if end_s > begun_s:
            yield RankActivity(rank, lane, operation, begun_s, start_s, end_s, None if source == NO_SOURCE else source)


# --- the exclusive timelines -----------------------------------------------------------------------------------------


class RankTimeline:
    """Pieces of one rank, sorted, without overlaps.

    Args:
        pieces: the pieces.
    """

    def __init__(self, pieces: Iterable[TimelinePiece]) -> None:
        self._pieces = list(pieces)
        self._starts = [piece.start_s for piece in self._pieces]

    def during(self, start_s: float, end_s: float) -> Iterator[TimelinePiece]:
        """Yields the pieces of an interval, and pieces that are "unrecorded" for the gaps.

        Args:
            start_s: the start of the interval.
            end_s: its end.

        >>> for piece in RankTimeline([TimelinePiece(1.0, 2.0, "compute")]).during(0.5, 1.5):
        ...     print(*piece[:3])
        0.5 1.0 unrecorded
        1.0 1.5 compute
        """
        for at in range(max(0, bisect_right(self._starts, start_s) - 1), len(self._pieces)):
            piece = self._pieces[at]
            if piece.start_s >= end_s:
                break
            if piece.end_s <= start_s:
                continue
            if piece.start_s > start_s:
                yield TimelinePiece(start_s, piece.start_s, UNRECORDED)
            piece = piece.within(start_s, end_s)
            yield piece
            start_s = piece.end_s
        if start_s < end_s:
            yield TimelinePiece(start_s, end_s, UNRECORDED)


class Timelines:
    """The exclusive timelines of all ranks of a run.

    Args:
        activities: what the ranks did, in any order.
    """

    def __init__(self, activities: Iterable[RankActivity]) -> None:
        self._activities: dict[int, list[RankActivity]] = defaultdict(list)
        for activity in activities:
            self._activities[activity.rank].append(activity)
        self._exclusive = {rank: RankTimeline(exclusive(own)) for rank, own in self._activities.items()}
        self._by_name = {
            rank: {
                name: RankTimeline(union(activity for activity in own if activity.name == name))
                for name in sorted({activity.name for activity in own})
            }
            for rank, own in self._activities.items()
        }

    def during(self, rank: int, start_s: float, end_s: float) -> Iterator[TimelinePiece]:
        """Yields the pieces of a rank in an interval, without gaps and overlaps.

        Args:
            rank: the rank.
            start_s: the start of the interval.
            end_s: its end.
        """
        return self._exclusive.get(rank, NOTHING).during(start_s, end_s)

    def own(self, rank: int, start_s: float, end_s: float) -> dict[str, float]:
        """Returns the seconds of a rank's own activities in an interval; their sum is its length.

        Args:
            rank: the rank.
            start_s: the start of the interval.
            end_s: its end.
        """
        totals: defaultdict[str, float] = defaultdict(float)
        for piece in self.during(rank, start_s, end_s):
            totals[self._name(rank, piece.activity)] += piece.end_s - piece.start_s
        return dict(totals)

    def whole(self, rank: int, start_s: float, end_s: float) -> dict[str, float]:
        """Returns the seconds of a rank's activities in an interval, also while they overlap with others.

        Args:
            rank: the rank.
            start_s: the start of the interval.
            end_s: its end.
        """
        return {
            name: sum(
                piece.end_s - piece.start_s for piece in timeline.during(start_s, end_s) if piece.activity != UNRECORDED
            )
            for name, timeline in self._by_name[rank].items()
        }

    def hidden(self, rank: int, start_s: float, end_s: float) -> Iterator[TimelinePiece]:
        """Yields the communication and the copies of a rank during its own gradients. They may overlap.

        Args:
            rank: the rank.
            start_s: the start of the interval that counts.
            end_s: its end.
        """
        for activity in self._activities[rank]:
            beside = activity.name in (*COMMUNICATION, "copy")
            if beside and activity.end_s > start_s and activity.ready_s < end_s:
                for piece in self.during(rank, max(activity.ready_s, start_s), min(activity.end_s, end_s)):
                    if piece.activity == "compute":
                        yield piece._replace(activity=activity.name, span=activity.span)

    def charged(self, rank: int, start_s: float, end_s: float) -> tuple[dict[str, float], dict[TimeSource, float]]:
        """Returns the seconds of an interval of a rank by what is responsible for them; their sum is its length.

        Args:
            rank: the rank.
            start_s: the start of the interval.
            end_s: its end.

        Returns:
            The seconds of the rank's own activities, and those of the activities of other ranks that it waits for.
        """
        direct, waited = defaultdict[str, float](float), defaultdict[TimeSource, float](float)
        for source, seconds in self._followed(rank, start_s, end_s, frozenset()):
            if source.rank == rank:
                direct[source.activity] += seconds
            else:
                waited[source] += seconds
        return dict(direct), dict(waited)

    def _followed(
        self, rank: int, start_s: float, end_s: float, waiting: frozenset[int]
    ) -> Iterator[tuple[TimeSource, float]]:
        waiting |= {rank}
        for piece in self.during(rank, start_s, end_s):
            own, other = TimeSource(self._name(rank, piece.activity), rank), piece.waits_for
            if other is None or other in waiting:
                yield own, piece.end_s - piece.start_s
                continue
            for source, seconds in self._followed(other, piece.start_s, piece.end_s, waiting):
                yield (source if piece.activity == WAIT or source.activity in BUSY else own), seconds

    def _name(self, rank: int, activity: str) -> str:
        return activity if "compute" in self._by_name.get(rank, ()) or activity in (WAIT, *COMMUNICATION) else SERVER


NOTHING = RankTimeline(())
"""of a rank without activities"""

Entry = tuple[tuple[int, bool, float, int], TimelinePiece]
"""an interval with its order of precedence: priority, whether the program started it, start, and number"""


def exclusive(activities: Iterable[RankActivity]) -> Iterator[TimelinePiece]:
    """Yields the timeline of one rank, sorted, without overlaps; gaps are times without activity.

    >>> gradient = RankActivity(0, "main", "compute", 0.0, 0.0, 2.0)
    >>> started = RankActivity(0, "main/1", "collective", 1.0, 2.5, 3.0, waits_for=1)
    >>> for piece in exclusive([gradient, started]):
    ...     print(*piece[:4])
    0.0 2.0 compute None
    2.0 2.5 wait 1
    2.5 3.0 collective None
    """
    activities = list(activities)
    begun = sorted(
        activity.start_s for activity in activities if activity.lane == "main" and activity.name != "recovery"
    )
    parts = [(part, activity.lane) for activity in activities for part in _parts(activity, begun)]
    coming = sorted(((_key(piece, lane), piece) for piece, lane in parts), key=_start)
    edges = sorted({edge for _, piece in coming for edge in (piece.start_s, piece.end_s)})
    active, waits = list[Entry](), list[Entry]()
    at = 0
    last: TimelinePiece | None = None
    for before_s, after_s in itertools.pairwise(edges):
        while at < len(coming) and coming[at][1].start_s <= before_s:
            key, piece = coming[at]
            heapq.heappush(active, ((*key, at), piece))
            if piece.waits_for is not None:
                heapq.heappush(waits, ((*key, at), piece))
            at += 1
        for heap in (active, waits):
            while heap and heap[0][1].end_s <= before_s:
                heapq.heappop(heap)
        if not active:
            continue
        (_, started, *_), piece = active[0]
        if waits and started and piece.activity in COMMUNICATION:
            piece = piece._replace(waits_for=waits[0][1].waits_for)
        piece = piece._replace(start_s=before_s, end_s=after_s)
        if last is not None and last.end_s == before_s and last[2:] == piece[2:]:
            last = last._replace(end_s=after_s)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _parts(activity: RankActivity, begun: Sequence[float]) -> Iterator[TimelinePiece]:
    """Yields the wait and the rest of an activity, from when the program may begin to wait for it.

    The program waits for communication that it started only after its last own activity before the end has begun.
    """
    lane, name, from_s, ready_s, end_s, waits_for, span = activity[1:]
    if lane != "main" and name not in BUSY and (at := bisect_left(begun, end_s)):
        from_s = max(from_s, begun[at - 1])
    if ready_s > from_s:
        yield TimelinePiece(from_s, ready_s, WAIT, waits_for, span)
    if end_s > max(ready_s, from_s):
        yield TimelinePiece(max(ready_s, from_s), end_s, name, span=span)


def _key(piece: TimelinePiece, lane: str) -> tuple[int, bool, float]:
    return PRIORITY.get(piece.activity, LEAST_PRIORITY), lane != "main", piece.start_s


def _start(entry: tuple[tuple[int, bool, float], TimelinePiece]) -> float:
    return entry[1].start_s


def union(activities: Iterable[RankActivity]) -> Iterator[TimelinePiece]:
    """Yields the times in which any of these activities of one name is going on, without their waits, sorted.

    >>> first, other = (RankActivity(0, "main", "send", start_s, start_s, start_s + 2.0) for start_s in (0.0, 1.0))
    >>> [piece[:3] for piece in union([first, other])]
    [(0.0, 3.0, 'send')]
    """
    last: TimelinePiece | None = None
    for activity in sorted(activities, key=lambda activity: activity.ready_s):
        if last is not None and activity.ready_s <= last.end_s:
            last = last._replace(end_s=max(last.end_s, activity.end_s))
            continue
        if last is not None:
            yield last
        last = TimelinePiece(activity.ready_s, activity.end_s, activity.name)
    if last is not None:
        yield last
