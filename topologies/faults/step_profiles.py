"""Profiles: how steps vary on three kinds of clusters, for scenarios whose own cluster was not measured.

Clusters differ more than kinds of clusters do, so each profile has three levels: *typical* is the middle of what was
measured, *low* and *high* are quartiles. If an answer differs between the levels, measure your own cluster and fit it:
``paceline calibrate --steps steps.csv``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paceline.topologies.faults.jitter import Jitter
from paceline.topologies.faults.step_times import StepTimes

Level = Literal["low", "typical", "high"]
LEVELS: tuple[Level, ...] = ("low", "typical", "high")


@dataclass(frozen=True, slots=True)
class StepProfile:
    """A profile.

    Args:
        about: the clusters that it describes.
        sigma: of the lognormal distribution of all steps, at each level.
        persistent: the share of the variance that lasts for the run.
        correlated: the share of a worker's own part that changes slowly.
        node: the share that the workers of a node have in common.
        correlation_time_s: how long a slow phase lasts on average.
        provenance: where each figure comes from.
    """

    about: str
    sigma: tuple[float, float, float]
    persistent: float
    correlated: float
    node: float
    correlation_time_s: float
    provenance: Mapping[str, str]

    def step_times(self, name: str, level: Level) -> StepTimes:
        """Returns the variation of steps at a level."""
        return StepTimes(
            law=Jitter.of("lognorm", sigma=self.sigma[LEVELS.index(level)]),
            node=self.node,
            persistent=self.persistent,
            correlated=self.correlated,
            correlation_time_s=self.correlation_time_s,
            node_correlation_time_s=self.correlation_time_s,
            profile=(("profile", name), *((("level", level),) if level != "typical" else ())),
        )


PROFILES: Mapping[str, StepProfile] = {
    "dedicated": StepProfile(
        "one job on nodes of its own, all of one kind",
        sigma=(0.003, 0.011, 0.05),
        persistent=0.3,
        correlated=0.2,
        node=0.1,
        correlation_time_s=60.0,
        provenance={
            "sigma": "FOUND, low and typical: lower quartile and median over 2,921 runs of MLPerf v0.6 to v1.1 of the "
            "coefficient of variation of a run's blocks; a block is many steps of the slowest worker, so a step of "
            "one worker "
            "may vary more. INFERENCE, high: the upper quartile, 0.11, contains blocks of unequal length",
            "persistent, correlated, node, correlation_time": "INFERENCE: no per-worker steps of dedicated nodes are "
            "public",
        },
    ),
    "shared-cluster": StepProfile(
        "jobs that share nodes and GPUs with other jobs",
        sigma=(0.053, 0.087, 0.44),
        persistent=0.4,
        correlated=0.3,
        node=0.1,
        correlation_time_s=300.0,
        provenance={
            "sigma": "FOUND: quartiles over 100 jobs of the median coefficient of variation over 10 workers, 0.053, "
            "0.087 "
            "and 0.466 (alibaba/clusterdata, cluster-trace-gpu-v2020, mini-batch times); DERIVED: σ = √ln(1 + c²)",
            "persistent, correlated, node": "DERIVED: fits to the two jobs whose steps are public give 0.26 and 0.53 "
            "persistent; of the rest 0.53 and 0.89 correlated, and 0.17 and 0.08 in common",
            "correlation_time": "INFERENCE: the fits give 11 and 176 recorded steps, of which one in 10 was recorded; "
            "the "
            "unit of time is not published",
        },
    ),
    "large-pretraining": StepProfile(
        "one job for weeks on hundreds of GPUs or more, with pipeline stages",
        sigma=(0.02, 0.1, 0.29),
        persistent=0.9,
        correlated=0.05,
        node=0.02,
        correlation_time_s=600.0,
        provenance={
            "sigma": "FOUND: 0.30 over the ranks of the published trace AR, and 0.019 without its slow first rank "
            "(ByteDance-Seed/StragglerAnalysis); typical: INFERENCE, between them",
            "persistent": "FOUND: in the same trace more than 0.99 of the variance is between ranks",
            "correlated, node": "DERIVED: of the little that is left, 0.8 is common to all ranks",
            "correlation_time": "INFERENCE: 4 steps are not enough to tell",
        },
    ),
}


def profile_named(name: str, level: Level = "typical") -> StepTimes:
    """Returns a profile as a variation of steps.

    Args:
        name: its name.
        level: low, typical or high.

    >>> profile_named("shared-cluster").correlation_time_s
    300.0
    """
    return PROFILES[name].step_times(name, level)
