"""Exact counts of a run whose spans and updates are not all kept, for all ranks.

`Counters` counts one span or update at a time, as the event-by-event simulator writes them.
`records.whole_cohorts` adds those of many ranks at once. The memory is some numbers for each rank and does not grow
with the length of the run.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.core.values import Rank
from paceline.records.gradient_counters import GradientCounters
from paceline.records.update_counters import UpdateCounters

if TYPE_CHECKING:
    from paceline.records.trace import Span

Slowed = Callable[[Rank, float, float], float]
"""seconds that slowdowns added to a rank's work between two times"""


class Counters:
    """The counts of a run.

    Args:
        workers: number of workers, ranks 0 … workers − 1.
        ranks: number of ranks, servers included.
        by_step: whether local steps between two versions are separate updates.
        each_counts: whether each input is a separate update.
        slowed: the seconds that slowdowns added to work, for a run with slowdowns or crashes.

    >>> from paceline.records.trace import Span
    >>> counters = Counters(workers=1, ranks=1)
    >>> counters.add_span(Span(Rank(0), "main", "compute", None, 0, 0.0, 0.5))
    >>> counters.add_span(Span(Rank(0), "main", "collective", None, 0, 0.5, 1.0, bytes=8, ready_s=0.75))
    >>> counters.bytes_sent, {name: sum(seconds) for name, seconds in counters.seconds.items()}
    (8, {'compute': 0.5, 'communication': 0.25, 'wait': 0.25})
    """

    def __init__(
        self,
        workers: int,
        ranks: int,
        *,
        by_step: bool = False,
        each_counts: bool = False,
        slowed: Slowed | None = None,
    ) -> None:
        self.workers, self.ranks = workers, ranks
        self.gradients = GradientCounters(workers)
        self.updates = UpdateCounters(ranks, by_step=by_step, each_counts=each_counts)
        self.spans: defaultdict[str, int] = defaultdict(int)
        """number of spans by their activity, of all ranks"""
        self.seconds: defaultdict[str, array[float]] = defaultdict(lambda: array("d", bytes(8 * ranks)))
        """length of the spans of each rank, by the activity that the table of spans has; lanes are not merged"""
        self.bytes_sent = 0
        self.last_end_s = 0.0
        """the end of the last span that is not a copy"""
        self.ended_s = array("d", bytes(8 * ranks))
        """the same of each rank"""
        self.slowed, self.slowed_s = slowed, 0.0

    @staticmethod
    def of(job: Job, slowed: Slowed | None = None) -> Counters:
        """Returns the counters of a run that begins.

        Args:
            job: the run's job.
            slowed: the seconds that slowdowns added to work, for a run with slowdowns or crashes.
        """
        return Counters(
            job.workers,
            len(job.team),
            by_step=job.method.staleness_kind is StalenessKind.LOCAL_AGE,
            each_counts=job.method.independent,
            slowed=slowed,
        )

    def add_span(self, span: Span) -> None:
        """Counts a span; the spans of a rank's gradients come in the order of time.

        Args:
            span: the span.
        """
        rank, _, activity, _, step, start_s, end_s, size, ready_s, _ = span
        self.spans[activity] += 1
        if activity in ("collective", "receive"):
            turn_s = start_s if ready_s is None else min(max(ready_s, start_s), end_s)
            self.seconds["communication"][rank] += end_s - turn_s
            if turn_s > start_s:
                self.seconds["wait"][rank] += turn_s - start_s
            self.bytes_sent += size if activity == "collective" else 0
        else:
            self.seconds["communication" if activity == "send" else activity][rank] += end_s - start_s
            if activity == "copy":
                return
            self.bytes_sent += size
        if end_s > self.ended_s[rank]:
            self.ended_s[rank] = end_s
            if end_s > self.last_end_s:
                self.last_end_s = end_s
        if activity == "compute" and rank < self.workers:
            self.gradients.begin(rank, step, start_s, end_s)
        elif activity == "redo" and rank < self.workers:
            self.gradients.redo(rank, step, start_s)
        if self.slowed is not None and activity in ("compute", "redo"):
            self.slowed_s += self.slowed(rank, start_s, end_s)
