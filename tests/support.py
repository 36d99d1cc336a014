"""Small stand-ins for many tests: a learner with an exact optimum, and times that a test can state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.algorithms import METHODS
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Rank, Samples
from paceline.algorithms.methods.async_diloco import AsyncDiLoCo
from paceline.algorithms.methods.decoupled_diloco import DecoupledDiLoCo
from paceline.algorithms.methods.decoupled_momentum import SparseLoCo
from paceline.algorithms.methods.layerwise import (
    Agd,
    LayerwiseAgd,
    LayerwiseSgd,
    LayerwiseSgdLazy,
    LayerwiseSgdNextForward,
)
from paceline.algorithms.methods.local_sgd import DiLoCo, PostLocalSgd, SlowMo
from paceline.algorithms.methods.noloco import NoLoCo
from paceline.algorithms.methods.outer import Co2, EagerDiLoCo
from paceline.algorithms.methods.periodic import DesLoc, HbsSgd, KAvg, Sasgd
from paceline.algorithms.methods.regional_servers import HALoS
from paceline.algorithms.methods.streaming_diloco import StreamingDiLoCo
from paceline.records.trace import Trace
from paceline.simulator.kernel.crash_timeline import CrashTimeline
from paceline.simulator.kernel.timing import GradientsOnly
from paceline.testing.contract.programs import Bowl, Vector, job_of

__all__ = [
    "BRIEF",
    "ONE_NODE",
    "TWO_BY_TWO",
    "UNLIKE",
    "Bowl",
    "FixedTiming",
    "Noise",
    "Uneven",
    "Vector",
    "built",
    "job_of",
    "nodes_for",
    "placed",
    "staleness_table",
]


@dataclass(frozen=True)
class Uneven(Bowl):
    """Each worker's loss has its own curvature; if all are equal, averages of local steps are sync-sgd."""

    def gradient(self, vector: Vector, data: Vector) -> tuple[Vector, float]:
        away = vector - data
        return away * data[0] / 4, float(away @ away) * data[0] / 8


@dataclass(frozen=True)
class Noise(Bowl):
    """Gradients that depend only on the samples, so that a test can add them, and are no round numbers."""

    size: int = 30

    def load(self, samples: Samples) -> Vector:
        return np.random.default_rng(samples.index * samples.workers + samples.worker).standard_normal(self.size)

    def gradient(self, vector: Vector, data: Vector) -> tuple[Vector, float]:
        return data, 0.0


@dataclass(frozen=True)
class FixedTiming(GradientsOnly):
    """Times defined by a test: a number for every step, or a function of rank and step."""

    compute: float | Callable[[int, int], float] = 1.0
    work: float = 0.0
    load: float = 0.0
    rest: float = 0.0
    forward: Sequence[float] = (1 / 6, 1 / 6)
    backward: Sequence[float] = (1 / 3, 1 / 3)
    faults: Callable[[int], CrashTimeline | None] = lambda _: None
    access: Callable[[int, int], float] = lambda _rank, _nbytes: 0.0
    """seconds that a rank needs to move so many bytes of a shared cell"""

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return self.compute(rank, step) if callable(self.compute) else self.compute

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return self.forward, self.backward

    def timeline(self, rank: Rank) -> CrashTimeline | None:
        return self.faults(rank)

    def work_s(self, rank: Rank, op: Charge) -> float:
        return self.access(rank, op.bytes) if op.kind == "access" else self.work

    def load_s(self, rank: Rank, samples: int) -> float:
        return self.load

    def rest_s(self, rank: Rank) -> float:
        return self.rest


def staleness_table(trace: Trace) -> list[tuple[int, ...]]:
    """Returns all of the updates except for their time."""
    return sorted((u.rank, u.step, u.version_read, u.version_applied, u.staleness, u.samples) for u in trace.updates)


UNLIKE = [[0, 1], [2], [3, 4]]
TWO_BY_TWO = [[0, 1], [2, 3]]
ONE_NODE = [[0, 1, 2, 3]]


def placed(counts: Sequence[int]) -> list[list[int]]:
    """Consecutive ranks on nodes of these sizes."""
    ranks = iter(range(sum(counts)))
    return [[next(ranks) for _ in range(count)] for count in counts]


def nodes_for(method: Method, *wanted: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """Returns the first of these placements, then of two nodes and of one, that the method supports."""
    for nodes in (*wanted, TWO_BY_TWO, ONE_NODE):
        if not method.problems([[Rank(rank) for rank in node] for node in nodes]):
            return nodes
    raise AssertionError(f"{method.name} suits no placement of {wanted}")


BRIEF: dict[str, Method] = {
    method.name: method
    for method in (
        HbsSgd(k1=1, k2=2),
        KAvg(k=2),
        DesLoc(period=2, first_moment_period=3, second_moment_period=4),
        Sasgd(period=2),
        PostLocalSgd(switch=2, period=2),
        SlowMo(period=2),
        DiLoCo(period=2),
        StreamingDiLoCo(period=2),
        EagerDiLoCo(period=2),
        AsyncDiLoCo(period=3, buffer_size=2, c=0.25),
        Agd(delay=2),
        NoLoCo(period=2),
        SparseLoCo(period=2, chunk=4, k=2),
        HALoS(period=2, region_rounds=2),
        DecoupledDiLoCo(period=2),
        Co2(period=2),
        LayerwiseSgd(bucket=None),
        LayerwiseSgdLazy(bucket=None),
        LayerwiseSgdNextForward(bucket=None),
        LayerwiseAgd(bucket=None),
    )
}
"""methods whose rule would not show in a few steps, or in small models, with the defaults"""


def built(name: str) -> Method:
    """Returns the method with its defaults, or with shorter periods where it has long ones."""
    return BRIEF.get(name) or METHODS[name]()
