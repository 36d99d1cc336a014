"""Messages and a server's work while other workers compute: all share the cores, so both take longer.

One launch has a single worker that talks to the server, another launch has all of them. In the second, every message
and every handling overlaps with the work of other workers for some share s of its time, and has its full speed for the
rest,

    time alone / time beside = 1 − s · (1 − speed)

which gives the speed of a message, or of a server, while all other workers are busy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.span_costs import handlings, received
from paceline.records.trace import Activity, Span, Trace

SLOWEST = 0.05
"""the lowest speed: below, a difference of measured times means nothing"""
BUSY: frozenset[Activity] = frozenset(("compute", "update", "load", "send"))
"""what a worker does with a core"""


class Shares:
    """What share of the workers were busy during an interval of a record.

    Args:
        spans: the spans of all ranks, of programs with one lane.
        workers: the number of workers.
    """

    def __init__(self, spans: Iterable[Span], workers: int) -> None:
        self._workers = workers
        busy: dict[Rank, list[tuple[float, float]]] = defaultdict(list)
        for span in spans:
            if span.activity in BUSY and span.rank < workers:
                busy[span.rank].append((span.start_s, span.end_s))
        self._busy = {rank: _Cumulative.of(sorted(intervals)) for rank, intervals in busy.items()}

    def of(self, start_s: float, end_s: float, without: Rank) -> float:
        """Returns the mean share of the other workers that were busy, 0 to 1.

        Args:
            start_s: the start of the interval.
            end_s: its end.
            without: the worker that is not counted.

        >>> spans = [Span(Rank(1), "main", "compute", None, 0, 1.0, 3.0)]
        >>> Shares(spans, workers=2).of(0.0, 2.0, without=Rank(0))
        0.5
        """
        if end_s <= start_s or self._workers < 2:
            return 0.0
        busy_s = sum(busy.within(start_s, end_s) for rank, busy in self._busy.items() if rank != without)
        return busy_s / (end_s - start_s) / (self._workers - 1)


class _Cumulative(NamedTuple):
    """The busy seconds of a worker up to each start and end of its intervals; linear between them."""

    at_s: np.ndarray
    busy_s: np.ndarray

    @staticmethod
    def of(intervals: Sequence[tuple[float, float]]) -> _Cumulative:
        """Returns the sums for intervals that do not overlap, in the order of time."""
        at_s = np.array(intervals, dtype=np.float64)
        lengths_s = at_s[:, 1] - at_s[:, 0]
        until_s = np.cumsum(lengths_s)
        return _Cumulative(at_s.ravel(), np.column_stack([until_s - lengths_s, until_s]).ravel())

    def within(self, start_s: float, end_s: float) -> float:
        """Returns the busy seconds of an interval."""
        before_s, after_s = np.interp([start_s, end_s], self.at_s, self.busy_s)
        return float(after_s - before_s)


def message_shares(job: Job, trace: Trace, shares: Shares) -> list[float]:
    """Returns the share of other workers that were busy during each message for which a worker or server waited.

    Args:
        job: the job of the probe.
        trace: its record.
        shares: the shares of this record.
    """
    return [
        shares.of(span.ready_s, span.end_s, without=source if me.role == "server" else me.rank)
        for me in job.team
        for source, span in received(me.rank, trace)
        if span.ready_s is not None and span.start_s <= span.ready_s and span.bytes
    ]


def serving_shares(job: Job, trace: Trace, shares: Shares) -> list[float]:
    """Returns the share of workers, without the one that is served, that were busy while a server served each message.

    Args:
        job: the job of the probe.
        trace: its record.
        shares: the shares of this record.
    """
    server = job.team[0].server
    if server is None:
        return []
    spans = [span for span in trace.spans if span.rank == server and span.activity != "read"]
    sources = {id(span): source for source, span in received(server, trace)}
    return [shares.of(first.end_s, last.start_s, without=sources[id(first)]) for first, last, _ in handlings(spans)]


def speed(alone_s: float, beside_s: float, share: float) -> float:
    """Returns the speed while all other workers are busy.

    Args:
        alone_s: the time while no other worker is busy.
        beside_s: the time while a share of them is.
        share: this share, 0 to 1.

    >>> speed(alone_s=1.0, beside_s=1.6, share=0.75)
    0.5
    """
    if not alone_s or not share:
        return 1.0
    return min(1.0, max(SLOWEST, 1.0 - max(0.0, 1.0 - alone_s / beside_s) / min(1.0, share)))
