"""Messages and a server's work while other workers compute: all share the cores, so both take longer.

One launch has a single worker that talks to the server, another launch has all of them. In the second, every message
and every handling overlaps with the work of other workers for some share s of its time, and has its full speed for the
rest,

    time alone / time beside = 1 − s · (1 − speed)

which gives the speed of a message, or of a server, while all other workers are busy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.span_costs import handlings, received
from paceline.records.trace import Activity, Span, Trace

SLOWEST = 0.05
"""the lowest speed: below, a difference of measured times means nothing"""
BUSY: frozenset[Activity] = frozenset(("compute", "update", "load", "send"))
"""what a worker does with a core"""
Interval = tuple[float, float]


class Shares:
    """The gradients of a record, and what share of the workers computed during an interval.

    Args:
        spans: the spans of all ranks.
        workers: the number of workers.
    """

    def __init__(self, spans: Iterable[Span], workers: int) -> None:
        self._workers = workers
        self._computing: dict[Rank, list[Interval]] = defaultdict(list)
        for span in spans:
            if span.activity in BUSY:
                self._computing[span.rank].append((span.start_s, span.end_s))

    def of(self, interval: Interval, without: Rank) -> float:
        """Returns the mean share of the other workers that were busy, 0 to 1.

        Args:
            interval: start and end, in seconds.
            without: the worker that is not counted.

        >>> spans = [Span(Rank(1), "main", "compute", None, 0, 1.0, 3.0)]
        >>> Shares(spans, workers=2).of((0.0, 2.0), without=Rank(0))
        0.5
        """
        start_s, end_s = interval
        if end_s <= start_s or self._workers < 2:
            return 0.0
        busy_s = sum(
            max(0.0, min(end_s, last_s) - max(start_s, first_s))
            for rank, gradients in self._computing.items()
            if rank != without
            for first_s, last_s in gradients
        )
        return busy_s / (end_s - start_s) / (self._workers - 1)


def message_shares(job: Job, trace: Trace) -> list[float]:
    """Returns the share of other workers that computed during each message for which a worker or server waited."""
    shares = Shares(trace.spans, job.workers)
    return [
        shares.of((span.ready_s, span.end_s), without=source if me.role == "server" else me.rank)
        for me in job.team
        for source, span in received(me.rank, trace)
        if span.ready_s is not None and span.start_s <= span.ready_s and span.bytes
    ]


def serving_shares(job: Job, trace: Trace) -> list[float]:
    """Returns the share of workers, without the one that is served, that computed while a server served a message."""
    server = job.team[0].server
    if server is None:
        return []
    shares = Shares(trace.spans, job.workers)
    spans = [span for span in trace.spans if span.rank == server and span.activity != "read"]
    sources = {id(span): source for source, span in received(server, trace)}
    return [shares.of((first.end_s, last.start_s), without=sources[id(first)]) for first, last, _ in handlings(spans)]


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
