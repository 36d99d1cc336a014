"""The runs behind the claims on hierarchical bulk-synchronous SGD: throughput at 128 GPUs, trainings of the stand-in.

Rules of this file:

* A speed-up is the time of one GPU to an accuracy, over that of 128. It is the ratio of samples per second, which are
  simulated for the CIFAR-10 network, over the ratio of samples to the accuracy, which the stand-in needs.
* Learning rates are chosen on seed 101; the figures are of the seeds 1, 2, ….
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.async_elastic import Eamsgd
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.algorithms.methods.downpour import Downpour
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.papers.core.claim import Effort
from paceline.papers.runs.simulated_runs import rate_of, simulated
from paceline.papers.runs.stand_ins import Trained, best_rate, trained

PAPER, SCENARIO = "icmla17", "icmla17-cifar10"
GPUS = 128
PUBLISHED = 56.0
TARGETS = (0.93, 0.95, 0.96, 0.97)
LEAST_UPDATES = 2000
RATES = tuple(float(f"{0.001 * 10 ** (power / 4):.3g}") for power in range(15))
TUNING_SEED = 101
TUNED_FOR = 0.96
"""the target for which learning rates are chosen"""
EPOCH = 1437
"""training samples of the digits"""
MARGIN = 1.05
"""part of the samples of the best rate so far after which another rate is given up; means of evaluations lag by less"""
COMPARED = (4, 1, 16)
"""k2 in comparisons with asynchronous methods: the first is the central one, fixed before any was run"""
STARTS = {"sequential-sgd": 0.0178, "hbs-sgd": 0.562, "eamsgd": 0.0316, "downpour": 0.01, "async-sgd": 0.01}
"""where the search for the best learning rate starts; saves time only"""
OTHERS: Mapping[str, SgdMethod] = {
    "downpour": Downpour(n_push=4, n_fetch=4),
    "eamsgd": Eamsgd(period=4),
    "async-sgd": AsyncSgd(),
}
TIMINGS: Mapping[str, tuple[str, ...]] = {
    "minsky, cifar10-full, 64": (),
    "16 DGX-1": ("cluster.system=dgx1-p100", "cluster.nodes=16"),
    "cifar-alexnet": ("workload.model=cifar-alexnet",),
    "batch 16": ("workload.batch_per_worker=16",),
    "batch 128": ("workload.batch_per_worker=128",),
    "sigma 0.05": ("cluster.step_time.sigma=0.05",),
}
"""changes for each plausible input that only time depends on; the first is the central one"""


def hbs(k2: int) -> HbsSgd:
    """Returns the method with four averages of a node for each average of all workers."""
    return HbsSgd(k1=max(1, k2 // 4), k2=k2)


@cache
def samples_per_s(method: SgdMethod, timing: str) -> float:
    """Returns the samples per second of the CIFAR-10 network on 128 GPUs, or on one for a sequential method.

    Args:
        method: The method; its learning rate does not matter.
        timing: A key of `TIMINGS`.
    """
    steps = max(32, 2 * getattr(method, "k2", 1))
    changes = [*TIMINGS[timing], "extrapolate=null", "stop.samples=null", f"stop.updates={_updates(method, steps)}"]
    (run,) = simulated(SCENARIO, changes, algorithms=[method])
    return rate_of(run)


def _updates(method: SgdMethod, steps: int) -> int:
    """Returns the updates of the weights' owner in this number of steps of each worker; a server counts pushes."""
    return steps if isinstance(method, (HbsSgd, SequentialSgd)) else steps * GPUS // 4


@dataclass(frozen=True, slots=True)
class Tuned:
    """The trainings of the stand-in at a method's best learning rate."""

    rate: float
    seeds: tuple[Trained, ...]

    def samples(self, target: float) -> list[float]:
        """Returns the samples to a target, one for each seed."""
        return [one.samples[target] for one in self.seeds]


def train(method: SgdMethod, rate: float, seed: int, epochs: float, *, stop: bool = True) -> Trained:
    rated: Any = replace(method, learning_rate=rate)
    alone = isinstance(method, SequentialSgd)
    return trained(SCENARIO, rated, TARGETS, seed=seed, epochs=epochs, one_worker=alone, stop=stop)


@cache
def tuned(method: SgdMethod, effort: Effort) -> Tuned:
    """Chooses the learning rate for the target 0.96, and trains the stand-in at it."""
    most = fewest = limit(effort)

    def samples(rate: float) -> float:
        """Returns the samples to the target; infinity if a rate that was tried before needs fewer."""
        nonlocal fewest
        needed = train(method, rate, TUNING_SEED, fewest).samples[TUNED_FOR]
        fewest = min(fewest, MARGIN * needed / EPOCH)
        return needed

    rate = best_rate(samples, RATES, STARTS[method.name])
    return Tuned(rate, tuple(train(method, rate, seed, most) for seed in range(1, effort.choose(3, 2) + 1)))


def limit(effort: Effort) -> float:
    """Returns the epochs after which a training ends that has not reached all targets."""
    return float(effort.choose(20, 6))


@cache
def central_target(effort: Effort) -> float:
    """Returns the smallest target for which one worker needs `LEAST_UPDATES`; its batch is one sample."""
    reference = tuned(SequentialSgd(), effort)
    return next(target for target in TARGETS if np.mean(reference.samples(target)) >= LEAST_UPDATES)
