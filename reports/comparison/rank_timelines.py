"""The exclusive timelines of a run: each instant of a rank belongs to one activity, and each wait to its cause.

* If several activities overlap, the first counts of: compute, load, update, communication, wait. So are the time
  fractions of a run defined (`records.summary`). Among equals, an activity of the program itself comes before those
  that it started, and then the one that began first.
* The program does not wait for communication that ends after its own next activity has begun. So the time before this
  activity does not belong to that communication, although the time fractions count it as communication.
* A wait is followed: its time is charged to what the rank that it waits for does at the same instant. If that rank
  waits, too, the next one is followed, and so on. So a wait for the slowest member of a collective is charged to the
  gradient, loading or message that delayed this member.
* Communication that a program has started costs nothing while the rank also waits for a rank that computes, loads or
  updates: the instant is charged to the latter, as communication during a rank's own gradient costs nothing.
* What a server does besides communication and waits is "server". A wait for a server while it handles requests of
  other workers, a queue, is charged to "server", too.
* "wait" remains where the rank that is waited for is unknown, or where ranks wait for each other in a circle.
* "unrecorded" is time in which no activity of the rank is recorded: the program and the interpreter between operations,
  locks, and a process that the operating system does not run.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from paceline.reports.comparison.rank_activities import RankActivity

UNRECORDED, WAIT, SERVER = "unrecorded", "wait", "server"
COMMUNICATION = ("collective", "send", "receive", "communication")
"""the last is that of stored runs, which do not distinguish the others"""
PRIORITY: Mapping[str, int] = {"compute": 0, "load": 1, "update": 2, **dict.fromkeys(COMMUNICATION, 3)}
"""the order of `records.tables.ACTIVITIES`"""
LEAST_PRIORITY = 4
"""waits, and checkpoints and recoveries, which count as waits in the time fractions of a run"""


BUSY = ("compute", "load", "update", SERVER)
"""activities that started communication does not delay"""


class Source(NamedTuple):
    """An activity of a rank, to which time is charged."""

    activity: str
    rank: int


class Piece(NamedTuple):
    """An interval of a rank's timeline, which belongs to one activity."""

    start_s: float
    end_s: float
    activity: str
    waits_for: int | None = None
    """the rank that a wait waits for, or that another lane waits for during communication that the program started"""


Entry = tuple[tuple[int, bool, float, int], Piece]
"""an interval with its order of precedence: priority, whether the program started it, start, and number"""


class Timeline:
    """Pieces of one rank, sorted, without overlaps.

    Args:
        pieces: the pieces.
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = list(pieces)
        self._starts = [piece.start_s for piece in self._pieces]

    def during(self, start_s: float, end_s: float) -> Iterator[Piece]:
        """Yields the pieces of an interval, and pieces that are "unrecorded" for the gaps.

        Args:
            start_s: the start of the interval.
            end_s: its end.

        >>> for piece in Timeline([Piece(1.0, 2.0, "compute")]).during(0.5, 1.5):
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
                yield Piece(start_s, piece.start_s, UNRECORDED)
            until_s = min(piece.end_s, end_s)
            yield piece._replace(start_s=max(piece.start_s, start_s), end_s=until_s)
            start_s = until_s
        if start_s < end_s:
            yield Piece(start_s, end_s, UNRECORDED)


class Timelines:
    """The exclusive timelines of all ranks of a run.

    Args:
        activities: what the ranks did, in any order.
    """

    def __init__(self, activities: Iterable[RankActivity]) -> None:
        by_rank: dict[int, list[RankActivity]] = defaultdict(list)
        for one in activities:
            by_rank[one.rank].append(one)
        self._workers = {rank for rank, mine in by_rank.items() if any(one.name == "compute" for one in mine)}
        self._exclusive = {rank: Timeline(exclusive(mine)) for rank, mine in by_rank.items()}
        self._by_name = {
            (rank, name): Timeline(union(one for one in mine if one.name == name))
            for rank, mine in by_rank.items()
            for name in {one.name for one in mine}
        }
        self._names = {rank: sorted({one.name for one in mine}) for rank, mine in by_rank.items()}

    def own(self, rank: int, start_s: float, end_s: float) -> dict[str, float]:
        """Returns the seconds of a rank's own activities in an interval; their sum is its length.

        Args:
            rank: the rank.
            start_s: the start of the interval.
            end_s: its end.
        """
        found: defaultdict[str, float] = defaultdict(float)
        for piece in self._during(rank, start_s, end_s):
            found[self._name(rank, piece.activity)] += piece.end_s - piece.start_s
        return dict(found)

    def whole(self, rank: int, start_s: float, end_s: float) -> dict[str, float]:
        """Returns the seconds of a rank's activities in an interval, also while they overlap with others.

        Args:
            rank: the rank.
            start_s: the start of the interval.
            end_s: its end.
        """
        return {
            name: sum(
                piece.end_s - piece.start_s
                for piece in self._by_name[rank, name].during(start_s, end_s)
                if piece.activity == name
            )
            for name in self._names[rank]
        }

    def charged(self, rank: int, start_s: float, end_s: float) -> tuple[dict[str, float], dict[Source, float]]:
        """Returns the seconds of an interval of a rank by what is responsible for them; their sum is its length.

        Args:
            rank: the rank.
            start_s: the start of the interval.
            end_s: its end.

        Returns:
            The seconds of the rank's own activities, and those of the activities of other ranks that it waits for.
        """
        direct, waited = defaultdict[str, float](float), defaultdict[Source, float](float)
        for source, seconds in self._followed(rank, start_s, end_s, frozenset()):
            if source.rank == rank:
                direct[source.activity] += seconds
            else:
                waited[source] += seconds
        return dict(direct), dict(waited)

    def _followed(
        self, rank: int, start_s: float, end_s: float, waiting: frozenset[int]
    ) -> Iterator[tuple[Source, float]]:
        waiting |= {rank}
        for piece in self._during(rank, start_s, end_s):
            mine, other = Source(self._name(rank, piece.activity), rank), piece.waits_for
            if other is None or other in waiting:
                yield mine, piece.end_s - piece.start_s
                continue
            for source, seconds in self._followed(other, piece.start_s, piece.end_s, waiting):
                yield (source if piece.activity == WAIT or source.activity in BUSY else mine), seconds

    def _during(self, rank: int, start_s: float, end_s: float) -> Iterator[Piece]:
        timeline = self._exclusive.get(rank)
        return iter([Piece(start_s, end_s, UNRECORDED)]) if timeline is None else timeline.during(start_s, end_s)

    def _name(self, rank: int, activity: str) -> str:
        return activity if rank in self._workers or activity in (WAIT, *COMMUNICATION) else SERVER


def exclusive(activities: Iterable[RankActivity]) -> Iterator[Piece]:
    """Yields the timeline of one rank, sorted, without overlaps; gaps are times without activity.

    >>> gradient = RankActivity(0, "main", "compute", 0.0, 0.0, 2.0)
    >>> started = RankActivity(0, "main/1", "collective", 1.0, 2.5, 3.0, waits_for=1)
    >>> for piece in exclusive([gradient, started]):
    ...     print(*piece)
    0.0 2.0 compute None
    2.0 2.5 wait 1
    2.5 3.0 collective None
    """
    activities = list(activities)
    begun = sorted(one.start_s for one in activities if one.lane == "main")
    parts = [(part, one.lane) for one in activities for part in _parts(one, _waited_from(one, begun))]
    coming = sorted(((_key(piece, lane), piece) for piece, lane in parts), key=_start)
    edges = sorted({edge for _, piece in coming for edge in (piece.start_s, piece.end_s)})
    active, waits = list[Entry](), list[Entry]()
    at = 0
    last: Piece | None = None
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


def union(activities: Iterable[RankActivity]) -> Iterator[Piece]:
    """Yields the times in which any of these activities of one name is going on, without their waits, sorted.

    >>> first, other = (RankActivity(0, "main", "send", start_s, start_s, start_s + 2.0) for start_s in (0.0, 1.0))
    >>> [piece[:3] for piece in union([first, other])]
    [(0.0, 3.0, 'send')]
    """
    last: Piece | None = None
    for one in sorted(activities, key=lambda one: one.ready_s):
        if last is not None and one.ready_s <= last.end_s:
            last = last._replace(end_s=max(last.end_s, one.end_s))
            continue
        if last is not None:
            yield last
        last = Piece(one.ready_s, one.end_s, one.name)
    if last is not None:
        yield last


def _waited_from(one: RankActivity, begun: Sequence[float]) -> float:
    """Returns when the program may begin to wait for an activity: when its last own activity before the end has begun.

    Args:
        one: the activity.
        begun: when the program's own activities begin, sorted.
    """
    if one.lane == "main" or one.name in BUSY or not (at := bisect_left(begun, one.end_s)):
        return one.start_s
    return begun[at - 1]


def _parts(one: RankActivity, from_s: float) -> Iterator[Piece]:
    if one.ready_s > max(one.start_s, from_s):
        yield Piece(max(one.start_s, from_s), one.ready_s, WAIT, one.waits_for)
    if one.end_s > max(one.ready_s, from_s):
        yield Piece(max(one.ready_s, from_s), one.end_s, one.name)


def _key(piece: Piece, lane: str) -> tuple[int, bool, float]:
    return PRIORITY.get(piece.activity, LEAST_PRIORITY), lane != "main", piece.start_s


def _start(entry: tuple[tuple[int, bool, float], Piece]) -> float:
    return entry[1].start_s
