"""Faults of a cluster as frozen values: stragglers, slowdowns, crashes, deaths.

A value defines what happens and where. The nodes of a share, and the times of random events, follow from the seed
alone, so that simulated and paced real runs have the same faults. Only gradients are slowed and lost. Messages,
loading, updates and servers have no faults here. The factors of several stragglers or slowdowns that apply to one
worker at one time multiply.

The speed of one worker over time, and the duration of its work.

Work is counted in seconds at full speed. It is integrated over the slow intervals exactly: a step that includes the
beginning or the end of one takes the right time. Times are on the run's own clock. Results depend on the arguments
alone, not on the order of calls.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from paceline.topologies.faults.jitter import NO_JITTER, Jitter
from paceline.topologies.faults.step_times import StepTimes

CHOICE, GAPS, LASTING, FAILURES, NODE_FAILURES = 11, 12, 13, 14, 15
"""separate draws with one seed from each other, and from those of `jitter`"""
BLOCK = 64
"""random times drawn together"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlace:
    """A node with all its workers, one worker, a share of the nodes drawn by the seed, or, by default, all workers.

    >>> places = FaultPlace(node=2), FaultPlace(worker=3)
    >>> [place.holds(rank=5, node=2, nodes=4, seed=1) for place in places]
    [True, False]
    >>> half = FaultPlace(share=0.5)
    >>> sum(half.holds(rank=node, node=node, nodes=10, seed=1) for node in range(10))
    5
    """

    node: int | None = None
    worker: int | None = None
    share: float | None = None

    def holds(self, *, rank: int, node: int, nodes: int, seed: int, entry: int = 0) -> bool:
        """Whether a worker is included; `entry` is the index in a list of places, which draw nodes independently."""
        if self.worker is not None:
            return rank == self.worker
        if self.node is not None:
            return node == self.node
        return self.share is None or node in drawn_nodes(self.share, nodes, seed, entry)


def count_of(share: float, nodes: int) -> int:
    """Returns the number of nodes in a share, rounded to the nearest integer.

    Args:
        share: the share, 0 to 1.
        nodes: the number of nodes.

    >>> count_of(0.05, 64), count_of(0.05, 4)
    (3, 0)
    """
    return math.floor(share * nodes + 0.5)


@lru_cache(maxsize=64)
def drawn_nodes(share: float, nodes: int, seed: int, entry: int) -> frozenset[int]:
    """Draws the nodes of a share: `count_of` them, each set with equal probability.

    Args:
        share: the share, 0 to 1.
        nodes: the number of nodes.
        seed: the seed of the run.
        entry: the index in the list of places.
    """
    generator = np.random.default_rng(np.random.SeedSequence((seed, CHOICE, entry)))
    return frozenset(generator.permutation(nodes)[: count_of(share, nodes)].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStepTimeModel:
    """Workers whose steps have a distribution of their own."""

    place: FaultPlace
    step_time: StepTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerModel:
    """Workers that always take `factor` times as long for a step."""

    place: FaultPlace
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownModel:
    """Workers that are slower for some time, once or repeatedly.

    Args:
        place: the workers; all workers of a node are slow at the same times, and each node at times of its own.
        factor: work takes this many times as long.
        lasts_s: the mean duration.
        at_s: when it begins, if it occurs once.
        every_s: if it recurs: mean time from the end of one to the beginning of the next, exponential.
        spread: the distribution, with mean 1, by which the durations of recurring ones vary.
    """

    place: FaultPlace
    factor: float
    lasts_s: float
    at_s: float | None = None
    every_s: float | None = None
    duration: Jitter = NO_JITTER


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashAt:
    """A crash at a given time."""

    place: FaultPlace
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathAt:
    """Workers that die and do not return: at a time, or in place of beginning their own step of this number."""

    place: FaultPlace
    at_s: float | None = None
    step: int | None = None
    detection_s: float = 0.0
    """how long nobody notices"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashModel:
    """When workers crash, and the costs of crashes.

    Args:
        at: crashes at fixed times.
        mtbf_s: mean time between failures of one worker, exponential; None: no such failures.
        node_mtbf_s: the same of one node, whose workers all crash.
        recovery_s: how long a worker does nothing after a crash; another crash meanwhile starts this time anew.
        checkpoint_every_s: useful seconds between checkpoints; None: there are none, a crash loses all work so far.
        checkpoint_cost_s: the time to write one; a crash meanwhile loses the work that it would have saved.
    """

    at: tuple[CrashAt, ...] = ()
    mtbf_s: float | None = None
    node_mtbf_s: float | None = None
    recovery_s: float = 0.0
    checkpoint_every_s: float | None = None
    checkpoint_cost_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """All faults of a cluster, except the common jitter.

    >>> Faults() == NO_FAULTS, NO_FAULTS.shows
    (True, False)
    """

    step_times: tuple[OwnStepTimeModel, ...] = ()
    stragglers: tuple[StragglerModel, ...] = ()
    slowdowns: tuple[SlowdownModel, ...] = ()
    crashes: CrashModel | None = None
    deaths: tuple[DeathAt, ...] = ()

    @property
    def shows(self) -> bool:
        """Whether there are faults that a run's figures report."""
        return bool(self.slowdowns) or self.crashes is not None


NO_FAULTS = Faults()


def poisson(mean_s: float, seed: int, stream: int, place: int) -> Iterator[float]:
    """Yields the times of a Poisson process: gaps are independent and exponential with this mean.

    Args:
        mean_s: the mean gap in seconds.
        seed: the seed of the run.
        stream: separates kinds of events.
        place: the number of the node or worker.

    >>> times = poisson(10.0, seed=1, stream=FAILURES, place=0)
    >>> first, second = next(times), next(times)
    >>> 0 < first < second
    True
    """
    generator = np.random.default_rng(np.random.SeedSequence((seed, stream, place)))
    now_s = 0.0
    while True:
        for gap_s in generator.exponential(mean_s, BLOCK).tolist():
            now_s += gap_s
            yield now_s


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
