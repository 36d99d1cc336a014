"""Attributes the difference of aligned steps to activities of ranks, as far as these themselves differ.

* A rank's own activity explains at most the seconds by which it took longer or shorter itself, hidden or not. If it
  took as long as predicted and only fewer of its seconds were hidden behind a gradient, the difference is "overlap".
* In the steps of the other workers it explains at most as much for each of them, because a second more of one rank
  delays every other worker by at most a second. A wait is explained by the activity that it is charged to. What this
  activity does not explain, and "overlap", is explained by the activities that differ most, because a rank is late
  whatever it does while the others wait.
* The rest remains "wait" or "overlap". If all ranks take as long as predicted, the order or the spread of their steps
  differs, not their mean.
* Time that is charged to a server is not limited, because a server has no steps that could be compared.
* Seconds are moved on the side that has more of them, so that those of both sides still add up to their step times.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paceline.reports.comparison.rank_timelines import WAIT, Source
from paceline.reports.comparison.step_alignment import Alignment, StepTime

OVERLAP = "overlap"
UNLIMITED = (WAIT, OVERLAP)
ROUNDING = 1e-12
"""relative difference of sums that are the same except for rounding"""

Both = tuple[float, float]
"""seconds of a mean step, predicted and measured"""


@dataclass
class Sums:
    """Weighted sums of seconds by source on both sides."""

    predicted: defaultdict[Source, float] = field(default_factory=lambda: defaultdict(float))
    measured: defaultdict[Source, float] = field(default_factory=lambda: defaultdict(float))

    def known(self) -> set[Source]:
        """Returns the sources that have seconds on a side."""
        return self.predicted.keys() | self.measured.keys()

    def of(self, source: Source) -> Both:
        """Returns the seconds of a source."""
        return self.predicted.get(source, 0.0), self.measured.get(source, 0.0)

    def difference_s(self, source: Source) -> float:
        """Returns predicted − measured."""
        ours, theirs = self.of(source)
        return ours - theirs

    def move(self, source: Source, to: Source, seconds: float, into: Sums) -> None:
        """Moves a part of a difference to another source, from the side that has more.

        Args:
            source: the source.
            to: the other source.
            seconds: the part of predicted − measured.
            into: the sums that contain the other source.
        """
        side, other = (self.predicted, into.predicted) if seconds > 0 else (self.measured, into.measured)
        side[source] -= abs(seconds)
        other[to] += abs(seconds)


def attribute(alignment: Alignment) -> dict[Source, Both]:
    """Returns the seconds of a mean step by responsible activity and rank; their sums are the mean step times.

    The rank of a "wait" is the one that is waited for, or if that is unknown, the one that waits.

    Args:
        alignment: the aligned steps.
    """
    direct = sums_of(alignment, lambda rank, time: _of(rank, time.direct))
    waited, consequences = sums_of(alignment, lambda _, time: time.waited), Sums()
    changed_s, others = _changes(alignment), len({step.rank for step in alignment.steps}) - 1
    for source in sorted(direct.known() & changed_s.keys()):
        _limit(direct, source, changed_s[source], Source(OVERLAP, source.rank), consequences)
    left_s = {source: others * seconds for source, seconds in changed_s.items()}
    for source in sorted(waited.known() & changed_s.keys()):
        left_s[source] -= _limit(waited, source, left_s[source], Source(WAIT, source.rank), consequences)
    _explain(consequences, left_s, waited)
    total: dict[Source, Both] = {}
    rounding_s = ROUNDING * alignment.mean(lambda step: step.measured.seconds)
    for sums in (direct, waited, consequences):
        for source in sorted(sums.known()):
            before, one = total.get(source, (0.0, 0.0)), sums.of(source)
            if sums is consequences and max(map(abs, one)) <= rounding_s:
                continue
            total[source] = before[0] + one[0], before[1] + one[1]
    return total


def _changes(alignment: Alignment) -> dict[Source, float]:
    """Returns predicted − measured of each worker's own activities, hidden or not."""
    own = sums_of(alignment, lambda rank, time: _of(rank, {**time.own, **time.whole}))
    return {source: own.difference_s(source) for source in sorted(own.known()) if source.activity not in UNLIMITED}


def _of(rank: int, seconds: Mapping[str, float]) -> dict[Source, float]:
    return {Source(name, rank): one for name, one in seconds.items()}


def _limit(sums: Sums, source: Source, most_s: float, to: Source, consequences: Sums) -> float:
    """Moves the part of a source's difference that is beyond a limit; returns the part that is explained.

    Args:
        sums: the seconds of the source.
        source: the source.
        most_s: the largest difference that it explains, with its sign.
        to: the consequence to which the rest is moved.
        consequences: the seconds of consequences.
    """
    difference_s = sums.difference_s(source)
    explained_s = within(difference_s, most_s)
    if abs(difference_s - explained_s) > ROUNDING * max(sums.of(source)):
        sums.move(source, to, difference_s - explained_s, consequences)
    return explained_s


def _explain(consequences: Sums, left_s: dict[Source, float], explained: Sums) -> None:
    """Moves consequences to activities that differ by more than they explain so far, largest first.

    Only the sum of all consequences is moved: if the slowest rank is another one than predicted, the others wait less
    for the one and more for the other.

    Args:
        consequences: the seconds of consequences.
        left_s: the difference that each activity can still explain.
        explained: receives the seconds.
    """
    rest_s = math.fsum(consequences.difference_s(one) for one in sorted(consequences.known()))
    largest = sorted(consequences.known(), key=lambda one: (-abs(consequences.difference_s(one)), one))
    for source in sorted(left_s, key=lambda source: -abs(left_s[source])):
        part_s = within(rest_s, left_s[source])
        rest_s -= part_s
        for one in largest:
            moved_s = within(part_s, consequences.difference_s(one))
            if moved_s:
                consequences.move(one, source, moved_s, explained)
                part_s -= moved_s


def within(value: float, limit: float) -> float:
    """Returns the part of a value between 0 and a limit; 0 if they have different signs.

    >>> within(3.0, 2.0), within(-3.0, -5.0), within(3.0, -5.0)
    (2.0, -3.0, 0.0)
    """
    if value * limit <= 0:
        return 0.0
    return math.copysign(min(abs(value), abs(limit)), value)


def sums_of(alignment: Alignment, seconds: Callable[[int, StepTime], Mapping[Source, float]]) -> Sums:
    """Returns weighted sums over all aligned steps.

    Args:
        alignment: the aligned steps.
        seconds: the seconds of one side of a step by source, from its rank and its time.
    """
    sums = Sums()
    for step in alignment.steps:
        for side, time in ((sums.predicted, step.predicted), (sums.measured, step.measured)):
            for source, one in seconds(step.rank, time).items():
                side[source] += step.weight * one
    return sums
