"""Claims on hierarchical bulk-synchronous SGD at 128 GPUs: speed-up, and comparisons with asynchronous methods.

Rules of this file:

* A speed-up is the time of one GPU to an accuracy, over that of 128. It is the ratio of samples per second, which are
  simulated for the CIFAR-10 network, over the ratio of samples to the accuracy, which the stand-in needs.
* Learning rates are chosen on seed 101; the figures are of the seeds 1, 2, ….
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.async_elastic import Eamsgd
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.algorithms.methods.ssp import Downpour
from paceline.papers.claim import Claim, Curve, Effort, Predicted, claims_like, over_range, spanning
from paceline.papers.runs import Trained, best_rate, rate_of, simulated, trained

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
        return [trained_once.samples[target] for trained_once in self.seeds]


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


def speed_ups(k2: int, target: float, effort: Effort) -> list[float]:
    """Returns the speed-up of 128 GPUs over one to a target, one for each seed; 0 if it was not reached.

    Args:
        k2: The steps between averages of all workers.
        target: The accuracy of the stand-in.
        effort: See `Effort`.
    """
    central = next(iter(TIMINGS))
    faster = samples_per_s(hbs(k2), central) / samples_per_s(SequentialSgd(), central)
    reference, ours = tuned(SequentialSgd(), effort), tuned(hbs(k2), effort)
    pairs = zip(reference.samples(target), ours.samples(target), strict=True)
    return [faster * of_one / of_many for of_one, of_many in pairs]


def best_k2(target: float, effort: Effort) -> int:
    """Returns the steps between averages of all workers with the largest mean speed-up."""
    return max(periods(effort), key=lambda k2: float(np.mean(speed_ups(k2, target, effort))))


def periods(effort: Effort) -> tuple[int, ...]:
    """Returns the values of k2 that are swept."""
    return (1, 4) if effort.quick else (1, 2, 4, 8, 16, 32)


def speed_up(effort: Effort, scale: float = 1.0) -> Predicted:
    """Returns the largest speed-up over k2, with an interval over seeds, targets, machines, networks and batches.

    Args:
        effort: See `Effort`.
        scale: A factor: 1 for the speed-up, 100 / 128 for the efficiency in per cent.
    """
    center = central_target(effort)
    best = {target: best_k2(target, effort) for target in (center, *TARGETS)}
    of_target = {target: over_range(speed_ups(k2, target, effort)) for target, k2 in best.items()}
    mean = float(np.mean(speed_ups(best[center], center, effort)))
    ratios = _ratios(hbs(best[center]), effort)
    low = min(span.low for span in of_target.values()) * min(ratios.values())
    high = max(span.high for span in of_target.values()) * max(ratios.values())
    return Predicted(
        value=scale * mean,
        low=scale * low,
        high=scale * high,
        reason=_what_decides(best, effort),
        details=(_by_timing(ratios), _crossing(center, effort)),
        curve=_curve(effort) if scale == 1.0 else None,
    )


def _ratios(method: SgdMethod, effort: Effort) -> dict[str, float]:
    """Returns the samples per second over those of one GPU with each timing, relative to the central one."""
    faster = _faster(method, SequentialSgd(), effort)
    central = next(iter(faster.values()))
    return {name: ratio / central for name, ratio in faster.items()}


def _by_timing(ratios: Mapping[str, float]) -> str:
    others = ", ".join(f"{name} {ratio:.2f}" for name, ratio in list(ratios.items())[1:])
    return (
        f"Samples per second over those of one GPU change by these factors with other machines and workloads: {others}."
    )


def _what_decides(best: Mapping[float, int], effort: Effort) -> str:
    """Describes the best speed-up for each number of reference updates."""
    reference, parts = tuned(SequentialSgd(), effort), []
    for target, k2 in sorted(best.items()):
        updates, value = np.mean(reference.samples(target)), np.mean(speed_ups(k2, target, effort))
        parts.append(f"{updates:.0f} updates (accuracy {target}): {value:.0f} at k2 = {k2}")
    words = "The number of updates that one GPU needs was not found and decides. The best speed-up by this number: "
    return words + "; ".join(parts) + "."


def _crossing(target: float, effort: Effort) -> str:
    """Describes between which values of k2 the published speed-up is crossed."""
    means = {k2: float(np.mean(speed_ups(k2, target, effort))) for k2 in periods(effort)}
    listed = ", ".join(f"{k2}: {value:.0f}" for k2, value in means.items())
    above = [k2 for k2, value in means.items() if value >= PUBLISHED]
    where = f"is reached for k2 from {min(above)} to {max(above)}" if above else "is not reached at any k2"
    return f"At accuracy {target}, {PUBLISHED:.0f} {where}; by k2: {listed}."


def _curve(effort: Effort) -> Curve:
    lines = {
        f"stand-in to {target}": [(float(k2), float(np.mean(speed_ups(k2, target, effort)))) for k2 in periods(effort)]
        for target in TARGETS
    }
    return Curve(
        x="k2, steps between averages of all workers",
        y="speed-up of 128 GPUs",
        lines=lines,
        published=PUBLISHED,
        log_x=True,
    )


def accuracy(effort: Effort) -> Predicted:
    """Returns the final accuracy of hbs-sgd minus that of sequential SGD, in points, after the same samples."""
    epochs, differences = effort.choose(30, 10), []
    method, reference = hbs(COMPARED[0]), SequentialSgd()
    rates = {side: tuned(side, effort).rate for side in (method, reference)}
    for seed in range(1, effort.choose(3, 2) + 1):
        ours, theirs = (train(side, rate, seed, epochs, stop=False) for side, rate in rates.items())
        differences.append(ours.accuracy - theirs.accuracy)
    return spanning(
        over_range(differences),
        reason=f"After {epochs} epochs of the stand-in each worker has taken {epochs * EPOCH // GPUS} steps.",
        details=(f"Both at the rate that is best for time: {rates[method]} and {rates[reference]}.",),
    )


def compared(name: str, what: str, effort: Effort) -> Predicted:
    """Returns the samples (or time) to the target of an asynchronous method, over that of hbs-sgd.

    A target that was not reached counts as reached at the end of the run, which is too early.

    Args:
        name: A key of `OTHERS`.
        what: "samples" or "time".
        effort: See `Effort`.
    """
    other, center, k2s = OTHERS[name], central_target(effort), COMPARED[: effort.choose(len(COMPARED), 2)]
    theirs, faster = tuned(other, effort), {k2: {next(iter(TIMINGS)): 1.0} for k2 in k2s}
    if what == "time":
        faster = {k2: _faster(hbs(k2), other, effort) for k2 in k2s}
    needed = {(k2, target): _more_samples(k2, other, target, effort) for k2 in k2s for target in TARGETS}
    spans = [
        (over_range(ratios), min(faster[k2].values()), max(faster[k2].values())) for (k2, _), ratios in needed.items()
    ]
    values = {key: float(np.median(ratios)) * next(iter(faster[key[0]].values())) for key, ratios in needed.items()}
    missed = sum(samples == math.inf for samples in theirs.samples(center))
    details = [
        f"{name} missed accuracy {center} with {missed} of {len(theirs.seeds)} seeds; its rate is {theirs.rate}."
    ]
    if what == "time":
        rates = ", ".join(f"{timing} {ratio:.3g}" for timing, ratio in faster[k2s[0]].items())
        details.append(f"Samples per second over those of {name}: {rates}.")
    return Predicted(
        value=values[k2s[0], center],
        low=min(span.low * least for span, least, _ in spans),
        high=max(span.high * most for span, _, most in spans),
        reason="The period k2 and the target were not found and decide. "
        + " ".join(_by_target(k2, {target: values[k2, target] for target in TARGETS}) for k2 in sorted(k2s)),
        details=tuple(details),
    )


def _more_samples(k2: int, other: SgdMethod, target: float, effort: Effort) -> list[float]:
    """Returns the samples of another method over those of hbs-sgd, one for each seed."""
    end = limit(effort) * EPOCH
    pairs = zip(tuned(hbs(k2), effort).samples(target), tuned(other, effort).samples(target), strict=True)
    return [min(theirs, end) / min(ours, end) for ours, theirs in pairs]


def _faster(ours: SgdMethod, other: SgdMethod, effort: Effort) -> dict[str, float]:
    """Returns the samples per second of one method over those of another, by timing."""
    names = list(TIMINGS)[: effort.choose(len(TIMINGS), 2)]
    return {name: samples_per_s(ours, name) / samples_per_s(other, name) for name in names}


def _by_target(k2: int, ratios: Mapping[float, float]) -> str:
    return f"k2 = {k2}: " + ", ".join(f"{ratio:.2f} to {target}" for target, ratio in ratios.items()) + "."


INPUTS = ("gpus", "machine", "model", "batch", "jitter", "group", "k1", "k2", "stand-in", "target", "learning-rates")
_made = claims_like(
    PAPER,
    section="abstract",
    hardware="128 GPUs",
    model="not found; a CIFAR-10 network here",
    batch="not found; 64 per GPU here",
    scenario=SCENARIO,
    command="paceline simulate icmla17-cifar10",
    shares="icmla17",
)


def _comparisons() -> Iterator[Claim]:
    for name in OTHERS:
        order: dict[str, Any] = {"inputs": (*INPUTS, *((name,) * (name != "async-sgd"))), "holds_if": "order"}
        words = f"converges better than {name} (samples to the accuracy, {name} over hbs-sgd)"
        yield _made(f"convergence-{name}", words, partial(compared, name, "samples"), **order)
        words = f"is faster at scale than {name} (time to the accuracy, {name} over hbs-sgd)"
        yield _made(f"time-{name}", words, partial(compared, name, "time"), **order)


CLAIMS: tuple[Claim, ...] = (
    _made(
        "speed-up",
        "up to 56 times sequential SGD with 128 GPUs",
        speed_up,
        published=PUBLISHED,
        inputs=INPUTS,
        holds_if="within 25 %",
    ),
    _made(
        "efficiency",
        "56 times on 128 GPUs is an efficiency of 43.75 %",
        partial(speed_up, scale=100 / GPUS),
        published=100 * PUBLISHED / GPUS,
        unit="%",
        inputs=INPUTS,
        holds_if="within 25 %",
    ),
    _made(
        "accuracy",
        "similar test accuracy as sequential SGD (hbs-sgd minus sequential SGD; read as at most one point lower)",
        accuracy,
        published=-1.0,
        unit="points",
        inputs=(*INPUTS, "final-epochs"),
        holds_if="at least",
    ),
    *_comparisons(),
)
