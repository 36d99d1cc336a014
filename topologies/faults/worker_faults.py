"""What goes wrong on a cluster, as frozen values: slow places, slowdowns for a while, crashes.

Rules of this file:

* A value says what happens and where. Which nodes a share means, and when a random thing happens, follows from the seed
  alone, so that simulated and paced real runs meet the same.
* Only gradients are slowed and lost. Messages, loading, updates and servers have no faults here.
* Several slow places or slowdowns that hold for one worker at one time multiply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from paceline.topologies.faults.jitter import NO_JITTER, Jitter

CHOICE, GAPS, LASTING, FAILURES, NODE_FAILURES = 11, 12, 13, 14, 15
"""keep draws of one seed apart from each other, and from those of `jitter`"""
BLOCK = 64
"""random times drawn together"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node with all its workers, one worker, a share of the nodes drawn by the seed, or, with none given, everybody.

    >>> Place(node=2).holds(rank=5, node=2, nodes=4, seed=1), Place(worker=3).holds(rank=5, node=2, nodes=4, seed=1)
    (True, False)
    >>> half = Place(share=0.5)
    >>> sum(half.holds(rank=node, node=node, nodes=10, seed=1) for node in range(10))
    5
    """

    node: int | None = None
    worker: int | None = None
    share: float | None = None

    def holds(self, *, rank: int, node: int, nodes: int, seed: int, entry: int = 0) -> bool:
        """Whether a worker is here; `entry` tells apart places of one list, which draw their nodes independently."""
        if self.worker is not None:
            return rank == self.worker
        if self.node is not None:
            return node == self.node
        return self.share is None or node in drawn_nodes(self.share, nodes, seed, entry)


def count_of(share: float, nodes: int) -> int:
    """So many nodes are a share of them, rounded to the nearest whole number.

    >>> count_of(0.05, 64), count_of(0.05, 4)
    (3, 0)
    """
    return math.floor(share * nodes + 0.5)


@lru_cache(maxsize=64)
def drawn_nodes(share: float, nodes: int, seed: int, entry: int) -> frozenset[int]:
    """The nodes that a share means: `count_of` them, each set as likely as any other."""
    generator = np.random.default_rng(np.random.SeedSequence((seed, CHOICE, entry)))
    return frozenset(generator.permutation(nodes)[: count_of(share, nodes)].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStepTime:
    """Workers whose steps differ by a distribution of their own."""

    place: Place
    step_time: Jitter


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """Workers whose every step takes `factor` times as long."""

    place: Place
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Workers that are slower for a while, once or again and again.

    Args:
        place: where; every worker of a node is slow at the same times, and nodes at times of their own.
        factor: work takes so many times as long meanwhile.
        lasts_s: how long one lasts, in the mean.
        at_s: when it begins, if there is one.
        every_s: if they recur: mean time from the end of one to the beginning of the next, exponential.
        spread: how much the durations of recurring ones differ, by a distribution of mean 1.
    """

    place: Place
    factor: float
    lasts_s: float
    at_s: float | None = None
    every_s: float | None = None
    duration: Jitter = NO_JITTER


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashAt:
    """A crash at a given time."""

    place: Place
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashes:
    """When workers crash, and what that costs.

    Args:
        at: given crashes.
        mtbf_s: mean time between failures of one worker, exponential; None: it has none of its own.
        node_mtbf_s: of one node, which takes all its workers down.
        recovery_s: for so long a worker does nothing after a crash; a crash meanwhile begins it again.
        checkpoint_every_s: useful seconds between checkpoints; None: there are none, a crash loses all work so far.
        checkpoint_cost_s: what writing one takes; a crash meanwhile loses what it was to keep.
    """

    at: tuple[CrashAt, ...] = ()
    mtbf_s: float | None = None
    node_mtbf_s: float | None = None
    recovery_s: float = 0.0
    checkpoint_every_s: float | None = None
    checkpoint_cost_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Everything that goes wrong on a cluster beside the common spread.

    >>> Faults() == NO_FAULTS, NO_FAULTS.shows
    (True, False)
    """

    step_times: tuple[OwnStepTime, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    crashes: Crashes | None = None

    @property
    def shows(self) -> bool:
        """Whether there is anything that a run's figures of faults could tell of."""
        return bool(self.slowdowns) or self.crashes is not None


NO_FAULTS = Faults()


def poisson(mean_s: float, seed: int, stream: int, place: int) -> Iterator[float]:
    """The times of a Poisson process: gaps are independent and exponential with this mean.

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
