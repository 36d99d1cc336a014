"""The runs behind the claims on DBS-SGD: settings, the common learning rate, and the figures of each run.

Rules of this file:

* All methods of a setting have the same nodes, batches, jitter and samples, and the same learning rate for a gradient.
* Losses at a point are means over the last epoch before it, because single evaluations vary.
* A loss that is not finite or above that of a guess among ten classes, ln 10, counts as ln 10. Otherwise one run that
  diverged would decide every mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.papers.dbs.coloured_digits import real_data
from paceline.papers.runs.simulated_runs import simulated

DataName = Literal["mnist", "cifar10"]
MethodName = Literal["dbs-sgd", "async-sgd", "softsync", "softsync-undamped", "sync-sgd"]
GRID = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125)
"""learning rates, as in the inputs file"""
TUNING_SEEDS = (101, 102, 103)
METHODS: tuple[MethodName, ...] = ("dbs-sgd", "async-sgd")
"""the methods that the common rate is found for"""
CHANCE = math.log(10)
"""the loss of a guess among ten classes"""
SAMPLES = 1437
"""samples of an epoch of the stand-ins; runs on real data take as many samples"""
SLOWEST_S = 0.004
"""seconds for a sample on the slowest node, as in the scenarios"""
SOFTSYNC = 4
"""n of n-softsync, as in the inputs file"""
REAL_MODELS = {"mnist": "lenet", "cifar10": "small-cnn"}


@dataclass(frozen=True, slots=True)
class Setting:
    """A data set, nodes, batches and a length.

    Args:
        data: The data set that is trained, or that a stand-in is trained for.
        epochs: The samples after which losses are compared, in epochs of the stand-in.
        length: The length of the runs, likewise.
        speeds: The speeds of the nodes relative to the slowest one.
        batch: Samples of a gradient of each node at the beginning.
        sigma: The jitter.
        link: The name of the link of every node.
        rate_factor: A factor on the common learning rate.
    """

    data: DataName
    epochs: float = 8.0
    length: float = 8.0
    speeds: tuple[int, ...] = (8, 4, 4, 2, 2, 1, 1, 1)
    batch: int = 32
    sigma: float = 0.1
    link: str = "eth-10g"
    rate_factor: float = 1.0

    @property
    def samples(self) -> float:
        """The samples of all nodes after which losses are compared."""
        return self.epochs * SAMPLES

    def changes(self) -> list[str]:
        """Returns the changes of the scenario."""
        nodes = ", ".join(
            f"{{device: {{name: speed-{speed}, overhead: 0 s, per_sample: {SLOWEST_S / speed!r} s}}}}"
            for speed in self.speeds
        )
        # half an epoch more, so that every method has passed the compared number of samples
        samples = round((self.length + 0.5) * SAMPLES)
        return [
            f"cluster.nodes=[{nodes}]",
            f"workload.batch_per_worker={self.batch}",
            f"cluster.step_time={{distribution: lognorm, sigma: {self.sigma}}}"
            if self.sigma
            else "cluster.step_time=null",
            f"cluster.network.link={self.link}",
            f"stop={{samples: {samples}, divergence: false}}",
            f"evaluate.every={SAMPLES // 4} samples",
            *self._real(),
        ]

    def _real(self) -> list[str]:
        """Returns the changes that train on the real data, if they are there."""
        folder = real_data(self.data)
        if folder is None:
            return []
        return [
            f"workload.model={REAL_MODELS[self.data]}",
            f"workload.dataset={self.data}",
            f"workload.data_dir={folder}",
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one run."""

    samples: tuple[float, ...]
    times_s: tuple[float, ...]
    losses: tuple[float, ...]
    """held-out loss at each evaluation, at most `CHANCE`"""
    accuracies: tuple[float, ...]
    """in per cent"""
    samples_per_s: float
    staleness: float
    """mean over updates"""
    node_staleness: float
    """mean over the nodes of their means"""
    iteration_spread: float
    """largest mean time of a node's gradients over the smallest, in the second half of the run"""

    def loss_after(self, samples: float) -> float:
        """Returns the mean loss over the last epoch before this many samples of all nodes."""
        return float(np.interp(_last_epoch(samples), self.samples, self.losses).mean())

    def accuracy_after(self, samples: float) -> float:
        """Returns the mean accuracy over the last epoch before this many samples of all nodes, in per cent."""
        return float(np.interp(_last_epoch(samples), self.samples, self.accuracies).mean())

    def samples_at(self, time_s: float) -> float:
        """Returns the samples that all nodes had processed at this time."""
        return float(np.interp(time_s, self.times_s, self.samples))

    def curve(self, samples: Sequence[float]) -> NDArray[np.float64]:
        """Returns the loss after each of these numbers of samples."""
        return np.interp(samples, self.samples, self.losses)

    def time_of(self, samples: float) -> float:
        """Returns the time at which this many samples had been processed, in seconds."""
        return float(np.interp(samples, self.samples, self.times_s))

    @property
    def diverged(self) -> bool:
        """Whether the final loss is not below the first one."""
        return self.losses[-1] >= min(self.losses[0], CHANCE)


def _last_epoch(samples: float) -> NDArray[np.float64]:
    return np.linspace(samples - SAMPLES, samples, 9)


def _algorithm(method: MethodName, rate: float, nodes: int) -> str:
    """Returns a method as YAML, with the same weight for a fresh sample in all methods."""
    if method.startswith("softsync"):
        damping = ", damping: none" if method == "softsync-undamped" else ""
        return f"{{name: softsync, n: {SOFTSYNC}, learning_rate: {rate * nodes / SOFTSYNC}{damping}}}"
    return f"{{name: {method}, learning_rate: {rate * nodes if method == 'sync-sgd' else rate}}}"


@cache
def outcome(setting: Setting, method: MethodName, rate: float, seed: int) -> Outcome:
    """Runs a method once.

    Args:
        setting: The setting.
        method: The method.
        rate: The learning rate for a single gradient.
        seed: Of initial weights, samples and jitter.
    """
    chosen = f"algorithms=[{_algorithm(method, rate, len(setting.speeds))}]"
    (run,) = simulated(f"dbs-{setting.data}", [*setting.changes(), chosen], seed=seed)
    seen, staleness = run.tables.evaluations, run.summary["staleness"]
    spans = run.tables.spans
    late = spans[(spans["activity"] == "compute") & (spans["start_s"] > spans["end_s"].max() / 2)]
    means = (late["end_s"] - late["start_s"]).groupby(late["rank"]).mean()
    losses = np.minimum(np.nan_to_num(seen["loss"].to_numpy(), nan=CHANCE, posinf=CHANCE), CHANCE)
    return Outcome(
        samples=tuple(seen["samples"].astype(float)),
        times_s=tuple(seen["time_s"]),
        losses=tuple(losses.tolist()),
        accuracies=tuple((100 * seen["accuracy"]).tolist()),
        samples_per_s=float(run.summary["samples_per_s"] or 0.0),
        staleness=float(staleness["mean"] or 0.0),
        node_staleness=float(staleness["mean_of_ranks"] or 0.0),
        iteration_spread=float(means.max() / means.min()),
    )


@cache
def largest_rate(data: DataName, epochs: float) -> float:
    """Returns the largest rate of `GRID` at which neither dbs-sgd nor async-sgd diverges with the central inputs.

    It is found on seeds that are not tested, and regardless of which method is better.

    Args:
        data: The data set.
        epochs: The length of the runs.
    """
    plain = Setting(data, epochs=epochs, length=epochs)
    pairs = [(method, seed) for seed in TUNING_SEEDS for method in METHODS]
    for rate in GRID:
        if not any(outcome(plain, method, rate, seed).diverged for method, seed in pairs):
            return rate
    return GRID[-1]


def common_rate(setting: Setting) -> float:
    """Returns the learning rate of all methods for a single gradient.

    Args:
        setting: The setting. Its nodes, batches and jitter have no influence.
    """
    return largest_rate(setting.data, setting.length) * setting.rate_factor


def outcomes(setting: Setting, method: MethodName, seeds: int) -> list[Outcome]:
    """Runs a method with the setting's common rate and the seeds 1, 2, ….

    Args:
        setting: The setting.
        method: The method.
        seeds: The number of seeds.
    """
    return [outcome(setting, method, common_rate(setting), seed) for seed in range(1, seeds + 1)]
