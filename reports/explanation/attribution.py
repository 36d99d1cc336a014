"""Divides the time of every worker among its causes. Each instant belongs to exactly one cause.

* If several activities overlap, the first in the order of `records.tables.ACTIVITIES` counts, as in the time fractions
  of a run: computing, loading, updating, communication, waiting. Of equal activities, the one of the program itself
  counts, then the one that began first.
* A wait for a message that answers the worker's own message is followed to the other rank: the transfer of the own
  message, the time until the other rank takes it, and the time until the answer is sent.
* Communication, and the copy of a batch, during a gradient cost no time; they are counted separately, as hidden.
* The part of a load, a collective or a message during which its data are copied between a host and a device belongs to
  the copy.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Rank
from paceline.records.figures import ACTIVITIES
from paceline.records.trace import COPY_TO_DEVICE, COPY_TO_HOST, Span
from paceline.reports.explanation.recording import Performed, Recorded, windows

COMPUTE, LOAD, UPDATE, COMMUNICATION, WAIT = range(len(ACTIVITIES))
BACKGROUND = len(ACTIVITIES)
"""copies ahead, which a rank's time never belongs to"""
BATCH_COPY, VECTOR_COPY = ("staging", ("batch",)), ("staging", ("vector",))
CLOSE = 1e-9
"""relative difference of durations that are the same except for rounding"""


Interval = tuple[float, float]
"""start and end, seconds"""


class Cause(NamedTuple):
    """What a worker spends time on; `about` holds the details that distinguish the rows of one group."""

    group: str
    about: tuple[Any, ...] = ()


class Segment(NamedTuple):
    """A cause during an interval."""

    activity: int
    beside: bool
    """whether a started operation caused it, not the program itself"""
    start_s: float
    end_s: float
    cause: Cause


@dataclass
class Attributed:
    """The seconds of all workers by cause, in their windows."""

    steps: int = 0
    whole_s: float = 0.0
    exposed_s: defaultdict[Cause, float] = field(default_factory=lambda: defaultdict(float))
    hidden_s: defaultdict[Cause, float] = field(default_factory=lambda: defaultdict(float))
    """communication and copies during gradients"""

    @property
    def step_s(self) -> float:
        """The mean time of a step."""
        return self.whole_s / self.steps


class Taken(NamedTuple):
    """A message that a rank received."""

    end_s: float
    start_s: float
    sent_s: float
    bytes: int


def attribute(run: Recorded) -> Attributed:
    """Divides the windows of all workers of a run among causes."""
    found, segments = Attributed(), Segments(run)
    for rank, window in windows(run).items():
        found.steps += window.steps
        found.whole_s += window.end_s - window.start_s
        sweep(segments.of(rank), window.start_s, window.end_s, found)
    return found


def sweep(segments: Iterable[Segment], start_s: float, end_s: float, found: Attributed) -> None:
    """Adds the time of one rank to its causes.

    Args:
        segments: what the rank did.
        start_s: the start of the interval that counts.
        end_s: its end.
        found: the sums.
    """
    inside = [
        one._replace(start_s=max(one.start_s, start_s), end_s=min(one.end_s, end_s))
        for one in segments
        if one.end_s > start_s and one.start_s < end_s and one.end_s > one.start_s
    ]
    inside.sort(key=lambda one: one.start_s)
    edges = sorted({start_s, end_s, *(one.start_s for one in inside), *(one.end_s for one in inside)})
    coming, active = deque(inside), list[Segment]()
    for before_s, after_s in itertools.pairwise(edges):
        active = [one for one in active if one.end_s > before_s]
        while coming and coming[0].start_s <= before_s:
            active.append(coming.popleft())
        first = min(active, default=None)
        if first is None or first.activity == BACKGROUND:
            locked = coming and coming[0].cause.group == "charge" and coming[0].cause.about[0] == "access"
            found.exposed_s[Cause("lock" if locked else "other waiting")] += after_s - before_s
            continue
        found.exposed_s[first.cause] += after_s - before_s
        if first.activity == COMPUTE:
            for cause in {one.cause for one in active if one.activity in (COMMUNICATION, BACKGROUND)}:
                found.hidden_s[cause] += after_s - before_s


class Segments:
    """The segments of all ranks of a run.

    Args:
        run: the run.
    """

    def __init__(self, run: Recorded) -> None:
        self._run, spans = run, run.trace.spans
        self._by_rank: dict[Rank, list[Span]] = defaultdict(list)
        for span in spans:
            self._by_rank[span.rank].append(span)
        self._members = _members(spans, run.network.performed)
        self._charges = {rank: _matched(mine, run.charges.get(rank, [])) for rank, mine in self._by_rank.items()}
        self._sources, self._taken = self._mail()
        self._updates = {
            rank: sorted((span.start_s, span.end_s) for span in mine if span.activity == "update")
            for rank, mine in self._by_rank.items()
        }
        self._copies: dict[tuple[Rank, str | None, str], list[Interval]] = defaultdict(list)
        """the copies of each rank, of batches or vectors, on each lane"""
        for span in sorted((span for span in spans if span.activity == "copy"), key=lambda span: span.start_s):
            self._copies[span.rank, span.key, span.lane].append((span.start_s, span.end_s))

    def of(self, rank: Rank) -> Iterator[Segment]:
        """Yields the segments of a worker, in any order."""
        for span in self._by_rank[rank]:
            yield from self._parts(span)

    def _parts(self, span: Span) -> Iterator[Segment]:
        start_s, end_s, beside = span.start_s, span.end_s, span.lane != "main"
        match span.activity:
            case "compute":
                yield Segment(COMPUTE, beside, start_s, end_s, Cause("gradient"))
            case "redo":
                yield Segment(COMPUTE, beside, start_s, end_s, Cause("lost work"))
            case "load":
                copies = self._copies[span.rank, "batch", COPY_TO_DEVICE]
                for part in divided(copies, start_s, end_s, Cause(*BATCH_COPY), Cause("loading")):
                    yield Segment(LOAD, beside, *part)
            case "copy" if span.key == "batch":
                yield Segment(BACKGROUND, True, start_s, end_s, Cause(*BATCH_COPY))
            case "update":
                cause = Cause("charge", self._charges[span.rank].get(span, ("update", "device", 0)))
                yield Segment(UPDATE, beside, start_s, end_s, cause)
            case "send":
                yield Segment(COMMUNICATION, beside, start_s, end_s, Cause("sending"))
            case "checkpoint" | "recovery":
                yield Segment(WAIT, beside, start_s, end_s, Cause(span.activity))
            case "collective":
                yield from self._collective(span, beside)
            case "receive":
                yield from self._receive(span, beside)

    def _collective(self, span: Span, beside: bool) -> Iterator[Segment]:
        last_s, one = self._members[span]
        about = (str(span.key).partition(" ")[0], 0, 0) if one is None else about_collective(one)
        turn_s = min(max(last_s, span.start_s), span.end_s)
        called_s, begin_s, done_s = turn_s, turn_s, span.end_s
        if one is not None:
            called_s = min(max(one.called_s, turn_s), span.end_s)
            begin_s = min(max(one.begin_s, called_s), span.end_s)
            done_s = one.end_s if begin_s <= one.end_s <= span.end_s else span.end_s
        yield Segment(WAIT, beside, span.start_s, turn_s, Cause("slowest member", about[:1]))
        yield Segment(COMMUNICATION, beside, turn_s, called_s, Cause(*VECTOR_COPY))
        yield Segment(COMMUNICATION, beside, called_s, begin_s, Cause("collective queue", about[:1]))
        yield Segment(COMMUNICATION, beside, begin_s, done_s, Cause("collective", about))
        yield Segment(COMMUNICATION, beside, done_s, span.end_s, Cause(*VECTOR_COPY))

    def _receive(self, span: Span, beside: bool) -> Iterator[Segment]:
        sent_s = span.start_s if span.ready_s is None else span.ready_s
        turn_s = min(max(sent_s, span.start_s), span.end_s)
        source = self._sources.get(span)
        role = "" if source is None else self._role(source)
        if turn_s > span.start_s and source is not None:
            for start_s, end_s, cause in self._waiting(span.rank, source, sent_s):
                yield Segment(WAIT, beside, max(start_s, span.start_s), min(end_s, turn_s), cause)
        about = (role, self._role(span.rank), span.bytes)
        copies = self._copies[span.rank, "vector", COPY_TO_DEVICE]
        if source is not None:
            copies = sorted([*copies, *self._copy_of(source, sent_s)])
        for part in divided(copies, turn_s, span.end_s, Cause(*VECTOR_COPY), Cause("message", about)):
            yield Segment(COMMUNICATION, beside, *part)

    def _copy_of(self, source: Rank, sent_s: float) -> list[Interval]:
        """Returns the copy to the host of a message that was sent at this time, if there is one."""
        copies = self._copies[source, "vector", COPY_TO_HOST]
        at = bisect_left(copies, (sent_s * (1 - CLOSE), 0.0))
        return [one for one in copies[at : at + 1] if one[0] <= sent_s * (1 + CLOSE)]

    def _waiting(self, rank: Rank, source: Rank, sent_s: float) -> Iterator[tuple[float, float, Cause]]:
        """Yields what delayed a message of `source` to `rank` until it was sent, in order."""
        role = self._role(source)
        mine = self._taken.get((source, rank), [])
        at = bisect_right(mine, (sent_s * (1 + CLOSE), float("inf"))) - 1
        if at < 0:
            yield 0.0, sent_s, Cause("late sender", (role,))
            return
        asked = mine[at]
        arrived_s = self._arrived_s(rank, source, asked)
        taken_s = asked.start_s if asked.start_s > arrived_s else asked.end_s
        message = Cause("message", (self._role(rank), role, asked.bytes))
        yield 0.0, asked.sent_s, Cause("late sender", (role,))
        yield from divided(self._copy_of(rank, asked.sent_s), asked.sent_s, arrived_s, Cause(*VECTOR_COPY), message)
        charges = self._updates.get(source, [])
        yield from divided(charges, arrived_s, taken_s, Cause("queue", (role,)), Cause("turn", (role,)))
        yield from divided(charges, taken_s, sent_s, Cause("server work", (role,)), Cause("others", (role,)))

    def _arrived_s(self, source: Rank, to: Rank, taken: Taken) -> float:
        """Returns when a message arrived, before a receive took it."""
        arrivals = self._run.network.arrivals.get((source, to), [])
        at = bisect_left(arrivals, (taken.sent_s * (1 - CLOSE), 0.0, 0))
        return min(arrivals[at][1], taken.end_s) if at < len(arrivals) else taken.end_s

    def _mail(self) -> tuple[dict[Span, Rank], dict[tuple[Rank, Rank], list[Taken]]]:
        """Returns the source of each receive, and what each rank received from each other one, in order."""
        heard: dict[Rank, deque[Rank]] = defaultdict(deque)
        for receiver, source in self._run.trace.heard:
            if source is not None:
                heard[receiver].append(source)
        sources, taken = dict[Span, Rank](), defaultdict[tuple[Rank, Rank], list[Taken]](list)
        for span in self._run.trace.spans:
            if span.activity == "receive" and heard[span.rank]:
                source = sources[span] = heard[span.rank].popleft()
                sent_s = span.start_s if span.ready_s is None else span.ready_s
                taken[span.rank, source].append(Taken(span.end_s, span.start_s, sent_s, span.bytes))
        return sources, {pair: sorted(mine) for pair, mine in taken.items()}

    def _role(self, rank: Rank) -> str:
        return self._run.plan.job.team[rank].role


def divided(
    intervals: Sequence[Interval], start_s: float, end_s: float, inside: Cause, outside: Cause
) -> Iterator[tuple[float, float, Cause]]:
    """Divides the time from `start_s` to `end_s` into that inside and outside of intervals.

    Args:
        intervals: by their starts.
        start_s: the start of the time.
        end_s: its end.
        inside: the cause of the time inside an interval.
        outside: that of the rest.
    """
    for begin_s, until_s in intervals[max(0, bisect_left(intervals, (start_s, 0.0)) - 1) :]:
        if begin_s >= end_s:
            break
        if until_s <= start_s:
            continue
        yield start_s, max(start_s, begin_s), outside
        yield max(start_s, begin_s), min(end_s, until_s), inside
        start_s = min(end_s, until_s)
    yield start_s, end_s, outside


def about_collective(one: Performed) -> tuple[str, int, int]:
    """Returns the details of a collective: kind, bytes and number of members."""
    return one.kind, one.nbytes, len(one.group)


def _members(
    spans: Iterable[Span], performed: Mapping[str, list[Performed]]
) -> dict[Span, tuple[float, Performed | None]]:
    """Returns the last entry of each collective, and what the network performed; by the span of each member."""
    together: dict[tuple[str | None, int], list[Span]] = defaultdict(list)
    uses: Counter[tuple[str | None, Rank]] = Counter()
    for span in sorted((one for one in spans if one.activity == "collective"), key=lambda one: one.start_s):
        together[span.key, uses[span.key, span.rank]].append(span)
        uses[span.key, span.rank] += 1
    found: dict[Span, tuple[float, Performed | None]] = {}
    for (key, use), members in together.items():
        known = performed.get(key or "", [])
        last_s = max(span.start_s for span in members)
        found |= {span: (last_s, known[use] if use < len(known) else None) for span in members}
    return found


def _matched(spans: Iterable[Span], charges: Iterable[tuple[Charge, float]]) -> dict[Span, tuple[str, str, int]]:
    """Returns kind, place and bytes of the charge of each update of one rank, by order and duration."""
    left, found = [charge for charge in charges if charge[1] > 0], dict[Span, tuple[str, str, int]]()
    for span in spans:
        if span.activity != "update" or span.end_s <= span.start_s:
            continue
        for at, (op, seconds) in enumerate(left[:64]):
            if abs(span.end_s - span.start_s - seconds) <= CLOSE * max(span.end_s, seconds):
                found[span] = op.kind, op.where, op.bytes
                del left[at]
                break
    return found
