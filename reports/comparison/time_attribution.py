"""Attributes the difference of aligned steps to activities of ranks, as far as these themselves differ.

* A rank's own activity explains at most the seconds by which it took longer or shorter itself, hidden or not. If it
  took as long as predicted and only fewer of its seconds were hidden behind a gradient, the difference is "overlap".
* A wait explains at most as much for each waiting worker: a second more of one rank delays every other worker by at
  most a second. If the ranks that are waited for took as long as predicted, the difference is "wait": the order or the
  spread of the steps differs, not their mean.
* Time that is charged to a server is not limited, because a server has no steps that could be compared.
* What is moved to "overlap" or "wait" is moved on the side that has more of it, so that the seconds of both sides
  still add up to their step times.
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
ROUNDING = 1e-9
"""relative difference of sums that are the same except for rounding"""

Both = tuple[float, float]
"""seconds of a mean step, predicted and measured"""


@dataclass
class Sums:
    """Weighted sums of seconds by source on both sides."""

    predicted: defaultdict[Source, float] = field(default_factory=lambda: defaultdict(float))
    measured: defaultdict[Source, float] = field(default_factory=lambda: defaultdict(float))

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
    workers = {step.rank for step in alignment.steps}
    whole = sums_of(alignment, lambda rank, time: {Source(name, rank): one for name, one in time.whole.items()})
    own = sums_of(alignment, lambda rank, time: {Source(name, rank): one for name, one in time.own.items()})
    direct = sums_of(alignment, lambda rank, time: {Source(name, rank): one for name, one in time.direct.items()})
    waited = sums_of(alignment, lambda _, time: time.waited)
    consequences = Sums()
    for sums, most, name in ((direct, 1, OVERLAP), (waited, len(workers) - 1, WAIT)):
        for source in {**sums.predicted, **sums.measured}:
            if source.rank not in workers or source.activity in UNLIMITED:
                continue
            changed_s = (whole if source in whole.predicted or source in whole.measured else own).difference_s(source)
            difference_s = sums.difference_s(source)
            rest_s = difference_s - within(difference_s, most * changed_s)
            if abs(rest_s) > ROUNDING * max(sums.of(source)):
                sums.move(source, Source(name, source.rank), rest_s, consequences)
    total: dict[Source, Both] = {}
    for sums in (direct, waited, consequences):
        for source in {**sums.predicted, **sums.measured}:
            before, one = total.get(source, (0.0, 0.0)), sums.of(source)
            total[source] = before[0] + one[0], before[1] + one[1]
    return total


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
