"""Separates a rank's own time in the spans of a probe by kind of work.

Rules of this file: the programs are those of `probes`. Each has one lane, in which nothing overlaps except a started
collective and the update after it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from paceline.algorithms.core.values import Rank
from paceline.backend.rank.pacing import Pace
from paceline.records.trace import Activity, Span, Trace

How = Literal["entered", "started"]
Kind = tuple[str, int, int]
"""a collective's operation, members and bytes"""


def lasting(spans: Sequence[Span], activity: Activity) -> list[float]:
    """Returns the duration of each span of an activity, in seconds."""
    return [span.end_s - span.start_s for span in spans if span.activity == activity]


class Updates(NamedTuple):
    """The seconds of a worker's updates in a probe."""

    new: list[float]
    """of all weights, into new memory"""
    into: list[float]
    """of all weights, into memory in use"""
    beside: list[float]
    """of all weights, into new memory, while a collective was in flight"""
    few: list[float]
    """of a few numbers"""


def updates(spans: Sequence[Span], turns: int) -> Updates:
    """Returns the updates of a worker.

    Args:
        spans: the spans of the worker. The first update of a step is of all weights, the second of a few numbers.
        turns: the steps of a turn; all weights of odd turns are updated into memory in use. 0: those of no step.
    """
    found = Updates([], [], [], [])
    overlapping = {span.step for span in spans if span.key is not None and unlabel(span.key)[2] == "started"}
    steps: dict[int, list[float]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_s):
        if span.activity == "update":
            steps[span.step].append(span.end_s - span.start_s)
    for step, (whole_s, *few_s) in steps.items():
        if step in overlapping:
            found.beside.append(whole_s)
            continue
        odd = turns and step // turns % 2
        (found.into if odd else found.new).append(whole_s)
        found.few.extend(few_s)
    return found


def late(spans: Sequence[Span], batch: int, pace: Pace) -> list[float]:
    """Returns by how much each gradient took longer than its modelled time."""
    return [
        span.end_s - span.start_s - pace.compute_s(span.rank, span.step, batch)
        for span in spans
        if span.activity == "compute"
    ]


def served(spans: Sequence[Span]) -> list[float]:
    """Returns a server's time for each update without sends, from having the message to waiting for the next.

    Args:
        spans: the spans of the server.
    """
    return [last.start_s - first.end_s - sending_s for first, last, sending_s in handlings(spans)]


def handlings(spans: Sequence[Span]) -> list[tuple[Span, Span, float]]:
    """Returns the receive of each message that a server applied, its next receive, and the seconds of sends between.

    Args:
        spans: the spans of the server.
    """
    found = []
    mine = sorted(spans, key=lambda span: span.start_s)
    receives = [place for place, span in enumerate(mine) if span.activity == "receive"]
    for first, last in itertools.pairwise(receives):
        between = mine[first + 1 : last]
        if lasting(between, "update"):
            found.append((mine[first], mine[last], sum(lasting(between, "send"))))
    return found


def received(rank: Rank, trace: Trace) -> list[tuple[Rank, Span]]:
    """Returns a rank's receives with their sources, for a program of one lane, in whose order both are."""
    spans = [span for span in trace.spans if span.rank == rank and span.activity == "receive"]
    sources = [source for receiver, source in trace.heard if receiver == rank and source is not None]
    return list(zip(sources, spans, strict=True))


def uncovered(spans: Sequence[Span]) -> list[float]:
    """Returns, for each of a worker's steps except the last, the time until the next step that no span covers.

    The program and the interpreter need it between operations. Steps that start an operation are left out.
    """
    steps: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_s):
        steps[span.step].append(span)
    found = []
    for step, following in itertools.pairwise(sorted(steps)):
        if any(span.key is not None and unlabel(span.key)[2] == "started" for span in steps[step]):
            continue
        free_s, at_s = 0.0, steps[step][0].start_s
        for span in (*steps[step], steps[following][0]):
            free_s += max(0.0, span.start_s - at_s)
            at_s = max(at_s, span.end_s)
        found.append(free_s)
    return found


def started(spans: Sequence[Span], all_spans: Sequence[Span]) -> Mapping[Kind, list[float]]:
    """Returns how long a worker was busy with starting each collective, until its update began.

    Args:
        spans: the spans of the worker.
        all_spans: the spans of all ranks, which give the number of members of a collective.
    """
    members: dict[str | None, int] = defaultdict(int)
    for span in all_spans:
        members[span.key] += 1
    found: dict[Kind, list[float]] = defaultdict(list)
    updates: dict[int, float] = {}
    for span in spans:
        if span.activity == "update":
            updates[span.step] = min(span.start_s, updates.get(span.step, span.start_s))
    for span in spans:
        if span.key is None or span.step not in updates:
            continue
        operation, nbytes, how = unlabel(span.key)
        if how == "started":
            found[operation, members[span.key], nbytes].append(updates[span.step] - span.start_s)
    return found


def lanes(now_s: Sequence[float]) -> list[float]:
    """Returns how long a worker was busy with starting each sub-program: the difference of each pair of `Now`.

    >>> lanes([1.0, 1.5, 4.0, 4.25])
    [0.5, 0.25]
    """
    return [after_s - before_s for before_s, after_s in zip(now_s[::2], now_s[1::2], strict=False)]


def waits(spans: Sequence[Span], now_s: Sequence[float]) -> list[float]:
    """Returns how long after the end of a started collective its worker, which waited for it, went on.

    Args:
        spans: the spans of the worker.
        now_s: what it read from the clock; each first reading of a pair follows a wait.
    """
    found = []
    ordered = sorted(spans, key=lambda span: span.end_s)
    ends_s = [span.end_s for span in ordered]
    for read_s in now_s[::2]:
        before = bisect_right(ends_s, read_s)
        last = ordered[before - 1]
        if before and last.key is not None and unlabel(last.key)[2] == "started":  # otherwise it was over before
            found.append(read_s - last.end_s)
    return found


def unlabel(key: str) -> tuple[str, int, How]:
    """Returns the operation, its bytes and how it was begun, from a key of `ProbeCollectives` after the interpreter's
    own.

    >>> unlabel("ranks 0,1/7 AllReduce 800 entered 7")
    ('AllReduce', 800, 'entered')
    """
    operation, nbytes, how, _ = key.split(" ")[-4:]
    return operation, int(nbytes), "started" if how == "started" else "entered"
