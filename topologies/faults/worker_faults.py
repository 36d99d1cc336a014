"""Faults of a cluster as frozen values: stragglers, slowdowns, crashes, deaths.

A value defines what happens and where. The nodes of a share, and the times of random events, follow from the seed
alone, so that simulated and paced real runs have the same faults. Only gradients are slowed and lost. Messages,
loading, updates and servers have no faults here. The factors of several stragglers or slowdowns that apply to one
worker at one time multiply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from paceline.topologies.faults.jitter import NO_JITTER, Jitter

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
    step_time: Jitter


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
