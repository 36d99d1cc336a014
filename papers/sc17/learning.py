"""Claims of SC'17 on what the methods learn: elastic averaging against SGD, the fastest methods, and equal weights.

Rules of this file:

* The figure is the virtual time to an accuracy, on the node of `sc17-lenet-gpu`. A run that does not reach it counts
  with the end of its run, which is too early and so favours it.
* Two comparisons. At a common rate: all methods have the learning rate that is best for synchronous SGD with the same
  momentum, which is chosen first. At own rates: each method has its own best rate of the same grid; those with an
  elastic rate may have it as P α = β or as α = η ρ. Rates are chosen on one seed, and compared on others.
* The data are those of the scenario: MNIST if its folder is there, otherwise the stand-in.
* Determinism and the equality of the three Sync EASGD are measured by real runs, as in `paceline train quickstart`,
  whose final weights are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from paceline.algorithms import METHODS
from paceline.algorithms.core.method import Method
from paceline.backend.training import train
from paceline.papers.claim import Claim, Effort, Predicted, claims_like, input_named, over_range, over_seeds, spanning
from paceline.records.metrics import smoothed
from paceline.records.targets import crossing
from paceline.scenarios import load
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.runs.run import perform
from paceline.workloads.models.threads import torch_threads

PAPER = "sc17"
SCENARIO = "sc17-lenet-gpu"
HORIZON_S = 0.2
"""virtual seconds of a run; ours: about three times what the fastest method needs"""
POINTS, WINDOW = 400, 20
"""points of the time grid, and of the trailing mean of accuracies"""
TUNING_SEED = 101
FULL_GRID = tuple(0.003125 * 2**power for power in range(10))
QUICK_GRID = FULL_GRID[::2]
PAIRS = {
    "async-easgd": ("async-sgd", "Async EASGD is faster than Async SGD"),
    "async-measgd": ("async-msgd", "Async MEASGD is faster than Async MSGD"),
    "hogwild-easgd": ("hogwild-sgd", "Hogwild EASGD is faster than Hogwild SGD"),
}
FASTEST = ("sync-easgd3", "hogwild-easgd")
OTHERS = ("easgd", "async-easgd", "async-measgd", "async-sgd", "async-msgd", "hogwild-sgd")
ELASTIC = ("easgd", "async-easgd", "async-measgd", "hogwild-easgd", "sync-easgd3")
BETA = 0.9
"""β = P α, of which the input `learning-rho` is the other form"""
LOW_BETA = 0.3
"""the lower end of that input"""
INPUTS = (
    "learning-data",
    "learning-workers",
    "learning-eta",
    "learning-rho",
    "learning-momentum",
    "gpu-batch",
    "gpu-device",
    "gpu-jitter",
)
ROUNDING = 1e-12
"""largest difference of equal sums in float64 in another order, relative to the largest weight; ours"""
TRIO = ("sync-easgd1", "sync-easgd2", "sync-easgd3")


@dataclass(frozen=True, slots=True)
class Entry:
    """A method with its rates, on a number of workers."""

    method: str
    rate: float
    beta: float = BETA
    """P α at the learning rate"""
    workers: int = 8
    momentum: float = 0.0
    """of synchronous SGD; the others have their defaults"""

    @property
    def algorithm(self) -> Method:
        """The method with its hyper-parameters: α as η ρ."""
        given: dict[str, Any] = {"learning_rate": self.rate}
        if self.method in ELASTIC:
            given["rho"] = self.beta / self.workers / self.rate
        if self.method == "easgd":
            given["packed"] = False
        if self.momentum:
            given["momentum"] = self.momentum
        return METHODS[self.method](**given)


@cache
def time_s(entry: Entry, seed: int) -> float:
    """Returns the virtual seconds in which a method reaches the target accuracy; the horizon if it does not.

    Args:
        entry: The method.
        seed: Of initial weights, samples and jitter.
    """
    switches = entry.workers // 2
    settings = f"{{roots: 1, switches: {switches}, gpus_per_switch: 2, gpu: k80}}"
    changes = [
        f"cluster.nodes=[{{node: pcie-tree, settings: {settings}}}]",
        f"stop={{seconds: {HORIZON_S} s}}",
        "evaluate.every=1024 samples",
        f"seed={seed}",
    ]
    scenario = load(SCENARIO, changes, algorithms=[entry.algorithm])
    (plan,) = scenario.plans()
    assert plan.target is not None, "the scenario has a target"
    with collected_seldom(), torch_threads(scenario.train.torch_threads):
        shots = perform(plan, plan.schedule()).snapshots
    times = [shot.time_s for shot in shots]
    accuracies = [0.0 if shot.score is None or shot.score.accuracy is None else shot.score.accuracy for shot in shots]
    grid = np.linspace(0.0, HORIZON_S, POINTS + 1)
    reached = crossing(plan.target, smoothed(np.interp(grid, times, accuracies).tolist(), WINDOW).tolist())
    return HORIZON_S if reached is None else max(reached.at(grid.tolist()), HORIZON_S / POINTS)


def grid(effort: Effort) -> tuple[float, ...]:
    """Returns the learning rates that are tried."""
    return QUICK_GRID if effort.quick else FULL_GRID


@cache
def common_rate(momentum: float, effort: Effort) -> float:
    """Returns the best learning rate of synchronous SGD with this momentum."""
    return min(grid(effort), key=lambda rate: time_s(Entry("sync-sgd", rate, momentum=momentum), TUNING_SEED))


@cache
def own_best(method: str, effort: Effort) -> Entry:
    """Returns a method at its best rate; the elastic rate is constant, or in proportion to the learning rate."""
    tried = [Entry(method, rate) for rate in grid(effort)]
    if method in ELASTIC and not effort.quick:
        rho = BETA / common_rate(momentum_of(method), effort)
        tried += [replace(entry, beta=rho * entry.rate) for entry in tried if rho * entry.rate <= 8 * 0.9]
    return min(tried, key=lambda entry: time_s(entry, TUNING_SEED))


def at_common_rate(method: str, effort: Effort) -> Entry:
    """Returns a method at the best rate of synchronous SGD."""
    return Entry(method, common_rate(momentum_of(method), effort))


def momentum_of(method: str) -> float:
    """Returns the default momentum of a method."""
    return float(getattr(METHODS[method], "momentum", 0.0))


Chosen = Callable[[str, Effort], Entry]
"""a way to choose the rates of a method"""


def seeds(effort: Effort) -> range:
    """Returns the seeds on which methods are compared."""
    return range(1, effort.seeds + 1)


def ratio(slower: Sequence[float], faster: Sequence[float]) -> Predicted:
    """Returns the geometric mean of the ratio of two times, with its interval over the seeds.

    If neither method reaches the target with any seed, the ratio may be anything that the time grid resolves.

    Args:
        slower: The times of the method that should be slower, one for each seed.
        faster: Those of the other.
    """
    if min(*slower, *faster) >= HORIZON_S:
        return Predicted(value=1.0, low=1 / POINTS, high=float(POINTS))
    return over_seeds([math.log(longer / shorter) for longer, shorter in zip(slower, faster, strict=True)]).mapped(
        math.exp
    )


def _times(entry: Entry, effort: Effort) -> list[float]:
    return [time_s(entry, seed) for seed in seeds(effort)]


def _listed(methods: Sequence[str], chosen: Chosen, effort: Effort) -> str:
    said = []
    for method in methods:
        entry = chosen(method, effort)
        times_s = _times(entry, effort)
        mean_s = float(np.mean(times_s))
        reached = sum(seconds < HORIZON_S for seconds in times_s)
        short = "" if reached == len(times_s) else f", reached by {reached} of {len(times_s)} seeds"
        edge = " (end of the grid)" if entry.rate in (grid(effort)[0], grid(effort)[-1]) else ""
        said.append(f"{method} {mean_s * 1e3:.0f} ms at {entry.rate:g}{edge}{short}")
    return "; ".join(said)


def _alternatives(chosen: Chosen, effort: Effort) -> list[Callable[[Entry], Entry]]:
    """Returns the plausible changes of an entry: β, and the number of workers, at the common rate."""
    if effort.quick or chosen is not at_common_rate:
        return []
    return [lambda entry: replace(entry, beta=LOW_BETA), lambda entry: replace(entry, workers=4)]


def against_sgd(ours: str, theirs: str, chosen: Chosen, effort: Effort) -> Predicted:
    """Returns how many times as fast an elastic method is as its SGD.

    Args:
        ours: The elastic method.
        theirs: The corresponding SGD.
        chosen: How the rates are chosen.
        effort: How much is computed.
    """
    own, other = chosen(ours, effort), chosen(theirs, effort)
    central = ratio(_times(other, effort), _times(own, effort))
    more = [
        ratio(_times(change(other), effort), _times(change(own), effort)) for change in _alternatives(chosen, effort)
    ]
    reason = f"Times to the target accuracy: {_listed((ours, theirs), chosen, effort)}."
    return spanning(central, *more, reason=reason, details=(reason,))


def fastest(chosen: Chosen, effort: Effort) -> Predicted:
    """Returns the time of the fastest other method over that of the slower one of Sync and Hogwild EASGD."""
    ours = [max(times) for times in zip(*(_times(chosen(name, effort), effort) for name in FASTEST), strict=True)]
    others = [min(times) for times in zip(*(_times(chosen(name, effort), effort) for name in OTHERS), strict=True)]
    reason = f"Times to the target accuracy: {_listed((*FASTEST, *OTHERS), chosen, effort)}."
    return spanning(ratio(others, ours), reason=reason, details=(reason,))


def tie(chosen: Chosen, effort: Effort) -> Predicted:
    """Returns the time of Hogwild EASGD over that of Sync EASGD3."""
    sync, hogwild = (_times(chosen(name, effort), effort) for name in FASTEST)
    return spanning(ratio(hogwild, sync), reason=f"Times: {_listed(FASTEST, chosen, effort)}.")


# --- real runs --------------------------------------------------------------------------------------------------------


def trained(algorithm: str, effort: Effort, *, seed: int, dtype: str = "float32") -> np.ndarray:
    """Trains for real with four processes, and returns the final weights.

    Args:
        algorithm: The method.
        effort: How long.
        seed: Of initial weights and samples.
        dtype: Type of the weights.
    """
    changes = [
        "train.pace=none",
        f"workload.dtype={dtype}",
        f"stop={{samples: {effort.choose(128 * 60, 128 * 20)}}}",
        "target.accuracy=null",
        f"seed={seed}",
    ]
    (run,) = train(load("quickstart", changes, algorithms=[algorithm]))
    weights: Any = run.weights
    return np.asarray(weights, dtype=np.float64).ravel()


def repeated(effort: Effort) -> Predicted:
    """Returns the largest difference between the weights of runs that are repeated with the same seed."""
    apart = []
    for seed in range(1, effort.choose(3, 1) + 1):
        first, second = (trained("sync-easgd3", effort, seed=seed) for _ in range(2))
        apart.append(float(np.abs(first - second).max()))
    other = [trained("async-easgd", effort, seed=1) for _ in range(2)]
    difference = float(np.abs(other[0] - other[1]).max())
    details = (f"async-easgd, repeated in the same way: the largest difference is {difference:.2g}.",)
    reason = f"The weights of repeated runs differ by up to {max(apart):.2g}."
    return spanning(over_range(apart), reason=reason, details=details)


def three_are_one(effort: Effort) -> Predicted:
    """Returns the number of weights in which the three variants differ by more than rounding."""
    counts, largest = [], 0.0
    for seed in range(1, effort.choose(3, 1) + 1):
        first, *others = (trained(name, effort, seed=seed, dtype="float64") for name in TRIO)
        scale = float(np.abs(first).max())
        apart = np.max([np.abs(other - first) for other in others], axis=0) / scale
        counts.append(float((apart > ROUNDING).sum()))
        largest = max(largest, float(apart.max()))
    said = (
        f"The largest difference is {largest:.2g} of the largest weight: gloo adds in an order of its own, and with "
        "the host as a member there is one summand more."
    )
    return spanning(over_range(counts), reason=said, details=(said,))


# --- the claims -------------------------------------------------------------------------------------------------------

_learned = claims_like(
    PAPER,
    section="abstract; figures of accuracy over time",
    hardware="one node with 8 GPUs",
    model=f"LeNet, MNIST (here: {input_named(PAPER, 'learning-data').value})",
    batch="not found",
    scenario=SCENARIO,
    command=f"paceline simulate {SCENARIO}",
    inputs=INPUTS,
    shares="sc17 learning",
)
_real = claims_like(
    PAPER,
    published=0.0,
    hardware="this machine, four processes",
    model="64-64-10 perceptron, scikit-learn's digits",
    batch="32 per worker",
    scenario="quickstart",
    command="paceline train quickstart --algorithms sync-easgd3 --set train.pace=none",
    inputs=("real-workload",),
    holds_if="equal",
    measured=True,
)
WAYS: tuple[tuple[str, str, Chosen], ...] = (
    ("", "at the best rate of synchronous SGD", at_common_rate),
    ("-own-rate", "each at its own best rate", own_best),
)


def _comparisons() -> Iterator[Claim]:
    for suffix, words, chosen in WAYS:
        for ours, (theirs, sentence) in PAIRS.items():
            predict = partial(against_sgd, ours, theirs, chosen)
            yield _learned(f"{ours}{suffix}", f"{sentence}: {words}", predict, holds_if="order")
        sentence = f"Sync and Hogwild EASGD are the fastest methods: {words}"
        yield _learned(f"fastest{suffix}", sentence, partial(fastest, chosen), holds_if="order")
        sentence = f"Sync and Hogwild EASGD are tied: {words}"
        yield _learned(f"tie{suffix}", sentence, partial(tie, chosen), published=1.0, holds_if="within 25 %")


LEARNED = tuple(_comparisons())
REAL = (
    _real(
        "deterministic",
        "Sync EASGD is deterministic: repeated runs have the same weights",
        repeated,
        section="abstract",
        unit="largest difference of a weight",
    ),
    _real(
        "three-are-one",
        "Sync EASGD1, 2 and 3 are the same method with different times",
        three_are_one,
        section="§6.1",
        unit="weights that differ",
    ),
)
