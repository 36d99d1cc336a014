"""Builders of stragglers, slowdowns and crashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.scenarios.builders.builder import Builder, Time, Values


@dataclass(frozen=True, kw_only=True, repr=False)
class OwnStepTime(Builder):
    """The jitter of single nodes or workers."""

    step_time: Values
    """a mapping with a distribution of scipy.stats; null: none"""
    node: int | None = None
    """a node with all its workers, counted from 0"""
    worker: int | None = None
    """one worker, counted from 0 over all nodes"""
    share: str | float | None = None
    """a fraction of the nodes, drawn by the seed: '5 %'"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Straggler(Builder):
    """Nodes or workers whose steps all take longer."""

    factor: float
    """a number of 1 or more: factor on the duration of every step"""
    node: int | None = None
    """a node with all its workers, counted from 0"""
    worker: int | None = None
    """one worker, counted from 0 over all nodes"""
    share: str | float | None = None
    """a fraction of the nodes, drawn by the seed: '5 %'"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Slowdown(Builder):
    """Nodes or workers that are slower for some time, once or again and again."""

    factor: float
    """a number of 1 or more: factor on the duration of work meanwhile"""
    lasts: Time
    """mean duration of a slowdown"""
    node: int | None = None
    """a node with all its workers, counted from 0"""
    worker: int | None = None
    """one worker, counted from 0 over all nodes"""
    share: str | float | None = None
    """a fraction of the nodes, drawn by the seed: '5 %'"""
    at: Time | None = None
    """when a single slowdown begins, on the run's own clock"""
    every: Time | None = None
    """for recurring slowdowns: mean of the exponential time from the end of one to the next"""
    duration: Values | None = None
    """distribution of the durations of recurring slowdowns, scaled to mean 1"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Crash(Builder):
    """A crash at a given time."""

    at: Time
    """on the run's own clock"""
    node: int | None = None
    """a node with all its workers, counted from 0"""
    worker: int | None = None
    """one worker, counted from 0 over all nodes"""
    share: str | float | None = None
    """a fraction of the nodes, drawn by the seed: '5 %'"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Death(Builder):
    """Workers that die and do not return, in simulations and in real runs."""

    at: Time | None = None
    """when, on the run's own clock"""
    step: int | None = None
    """instead of at: the worker's own step that it dies in place of beginning, from 0"""
    node: int | None = None
    """a node with all its workers, counted from 0"""
    worker: int | None = None
    """one worker, counted from 0 over all nodes"""
    share: str | float | None = None
    """a fraction of the nodes, drawn by the seed: '5 %'"""
    detection: Time | None = None
    """how long the others do not notice; only simulations use it, a real run takes its own"""


@dataclass(frozen=True, kw_only=True, repr=False)
class CrashCheckpoints(Builder):
    """The checkpoints to which workers return after a crash."""

    every: Time
    """useful work between two checkpoints"""
    cost: Time | None = None
    """duration of writing one"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Crashes(Builder):
    """Crashes of workers and their cost."""

    at: Sequence[Crash | Values] | None = None
    """a list of crashes at given times, each with a place and a time"""
    mtbf: Time | None = None
    """mean time between failures of one worker"""
    node_mtbf: Time | None = None
    """mean time between failures of one node, with all its workers"""
    recovery: Time | None = None
    """how long a worker is down"""
    checkpoint: CrashCheckpoints | Values | None = None
    """a mapping with every and cost; without it, a crash loses all work so far"""
