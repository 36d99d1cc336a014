"""The speed of one worker over time, and the duration of its work.

Work is counted in seconds at full speed. It is integrated over the slow intervals exactly: a step that includes the
beginning or the end of one takes the right time. Times are on the run's own clock. Results depend on the arguments
alone, not on the order of calls.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.topologies.faults.worker_faults import BLOCK, GAPS, LASTING, SlowdownModel


@dataclass(slots=True)
class Intervals:
    """The slow intervals of one slowdown at one place, in order; random ones are drawn as far as they are requested."""

    factor: float
    coming: Iterator[tuple[float, float]]
    starts_s: list[float] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)

    def at(self, time_s: float) -> tuple[float, float]:
        """Returns the factor at a time, and until when it applies."""
        while not self.starts_s or self.starts_s[-1] <= time_s:
            start_s, end_s = next(self.coming, (math.inf, math.inf))
            self.starts_s.append(start_s)
            self.ends_s.append(end_s)
        index = bisect_right(self.starts_s, time_s) - 1
        if index >= 0 and time_s < self.ends_s[index]:
            return self.factor, self.ends_s[index]
        return 1.0, self.starts_s[index + 1]


@dataclass(frozen=True, slots=True)
class Speed:
    """One worker's speed over time: 1 / (product of the factors of the slowdowns that apply).

    >>> from paceline.topologies.faults.worker_faults import FaultPlace
    >>> twice_as_long = given(SlowdownModel(place=FaultPlace(), factor=2.0, at_s=10.0, lasts_s=4.0))
    >>> speed = Speed((twice_as_long,))
    >>> speed.end_s(9.0, 2.0), speed.end_s(9.0, 4.0)  # 1 s at full speed, then half; the slow 4 s do 2 s of work
    (12.0, 15.0)
    >>> speed.work_s(9.0, 15.0)
    4.0
    """

    sources: tuple[Intervals, ...] = ()

    def end_s(self, start_s: float, work_s: float) -> float:
        """Returns when work that takes `work_s` seconds at full speed and begins at `start_s` is done.

        Args:
            start_s: when the work begins, in seconds on the run's clock.
            work_s: the work in seconds at full speed.
        """
        now_s = start_s
        while True:
            factor, until_s = self._at(now_s)
            if now_s + work_s * factor <= until_s:
                return now_s + work_s * factor
            work_s = max(0.0, work_s - (until_s - now_s) / factor)
            now_s = until_s

    def work_s(self, start_s: float, end_s: float) -> float:
        """Returns the work that is done between two times, in seconds at full speed.

        Args:
            start_s: the first time, in seconds on the run's clock.
            end_s: the second time.
        """
        now_s, done_s = start_s, 0.0
        while now_s < end_s:
            factor, until_s = self._at(now_s)
            until_s = min(until_s, end_s)
            done_s += (until_s - now_s) / factor
            now_s = until_s
        return done_s

    def _at(self, time_s: float) -> tuple[float, float]:
        factor, until_s = 1.0, math.inf
        for source in self.sources:
            own, own_until_s = source.at(time_s)
            factor *= own
            until_s = min(until_s, own_until_s)
        return factor, until_s


FULL_SPEED = Speed()


def given(slowdown: SlowdownModel) -> Intervals:
    """Returns the single interval of a slowdown at a fixed time."""
    assert slowdown.at_s is not None
    return Intervals(slowdown.factor, iter([(slowdown.at_s, slowdown.at_s + slowdown.lasts_s)]))


def recurring(slowdown: SlowdownModel, seed: int, entry: int, place: int) -> Intervals:
    """Returns the intervals of a recurring slowdown at one place.

    Args:
        slowdown: its gaps and durations.
        seed: the seed of the run.
        entry: the index of the slowdown in its list.
        place: the number of the node or worker.
    """
    return Intervals(slowdown.factor, _renewals(slowdown, seed, entry, place))


def _renewals(slowdown: SlowdownModel, seed: int, entry: int, place: int) -> Iterator[tuple[float, float]]:
    """Yields the beginnings and ends after alternating gaps and durations."""
    assert slowdown.every_s is not None
    generator = np.random.default_rng(np.random.SeedSequence((seed, GAPS, entry, place)))
    lasting = np.random.SeedSequence((seed, LASTING, entry)).generate_state(1).tolist()[0]
    now_s, number = 0.0, 0
    while True:
        for gap_s in generator.exponential(slowdown.every_s, BLOCK).tolist():
            start_s = now_s + gap_s
            now_s = start_s + slowdown.lasts_s * slowdown.duration.factor(lasting, place, number)
            number += 1
            yield start_s, now_s


def speed_of(slowdowns: Sequence[SlowdownModel], *, rank: int, node: int, nodes: int, seed: int) -> Speed:
    """Returns the speed of a worker under these slowdowns.

    Args:
        slowdowns: all slowdowns of the cluster.
        rank: the worker.
        node: the index of its node.
        nodes: the number of nodes.
        seed: the seed of the run.
    """
    sources = []
    for entry, slowdown in enumerate(slowdowns):
        if not slowdown.place.holds(rank=rank, node=node, nodes=nodes, seed=seed, entry=entry):
            continue
        if slowdown.at_s is not None:
            sources.append(given(slowdown))
        else:
            sources.append(recurring(slowdown, seed, entry, node if slowdown.place.worker is None else rank))
    return Speed(tuple(sources)) if sources else FULL_SPEED
