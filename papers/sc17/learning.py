"""Claims of SC'17 on what the methods learn: iterations to an accuracy, speed-ups, elastic averaging against SGD.

Rules of this file:

* MNIST is not at hand, so other pictures stand in for it (`PROBLEMS`), with the messages and times of LeNet. The target
  is an error as many times the final one of a single worker as 1.2 %, the paper's target on MNIST, is LeNet's 0.9 %.
* Every method has its own best learning rate, and its own best moving rate if it is elastic: those with which it
  reaches the target in the shortest mean time on separate seeds. Where an input is changed, the learning rate is chosen
  again and the moving rate is kept.
* A run that does not reach the target counts with its limit of samples, which is too early and so favours it.
* Turns and steps are counted in trainings; the times of both are those of `papers.sc17.gpu`. The numbers of Original
  EASGD do not depend on when its turns are, so trainings let them overlap, which computes faster.
* Determinism and the equality of the three Sync EASGD are measured by real runs, as in `paceline train quickstart`,
  whose final weights are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean
from typing import Any

import numpy as np

from paceline.algorithms import METHODS
from paceline.algorithms.core.job import Budget, Learner
from paceline.algorithms.core.method import Method
from paceline.algorithms.methods.elastic import Easgd, Elastic
from paceline.algorithms.methods.hogwild import SharedMemorySgd
from paceline.backend.training import train
from paceline.papers.claim import TUNING_SEED, Claim, Curve, Given, claims_like, inputs_of
from paceline.papers.runs import best_rate
from paceline.papers.sc17 import gpu
from paceline.records.metrics import smoothed
from paceline.records.targets import SMOOTHING, crossing
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.scenarios.sections.workload import folder_is_missing
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.runs.run import perform
from paceline.workloads import build
from paceline.workloads.learners.stand_in import StandIn
from paceline.workloads.models.threads import torch_threads

PAPER = "sc17"
SCENARIO = "sc17-lenet-gpu"
MNIST = 60_000
"""training images"""
BATCH = 64
"""the batch of LeNet in trainings, as in the scenario: that of Caffe's LeNet"""
LEAST_RATIO = 4 / 3
"""the smallest ratio of a target's error to the final one with which a training ends"""
RATES = tuple(0.1 * 2**power for power in range(-7, 5))
"""learning rates that are tried, 0.0008 to 1.6"""
MOVING_RATES = (0.9, 0.3)
"""β = P α that are tried: that of Zhang, Choromanska and LeCun, NIPS'15 (MEMORY high), and a third of it; ours"""
START = {"async-sgd": 0.0125, "hogwild-sgd": 0.0125, "async-msgd": 0.0016, "async-measgd": 0.05}
"""learning rates from which the search starts; 0.1 for others; ours"""
PAIRS = {
    "async-easgd": ("async-sgd", "Async EASGD is faster than Async SGD"),
    "async-measgd": ("async-msgd", "Async MEASGD is faster than Async MSGD"),
    "hogwild-easgd": ("hogwild-sgd", "Hogwild EASGD is faster than Hogwild SGD"),
}
LEARNING = ("learning-data", "learning-error", "learning-momentum")
"""inputs of what is learned"""
FASTEST = ("sync-easgd3", "hogwild-easgd")
OTHERS = ("async-easgd", "async-measgd", "async-sgd", "async-msgd", "hogwild-sgd")
WITH_MOMENTUM = ("async-measgd", "async-msgd")
GIVEN_UP = 1.25
"""epochs of the best rate so far, relative, after which another rate is given up; means of evaluations lag by less"""
ROUNDING = 1e-12
"""largest difference of equal sums in float64 in another order, relative to the largest weight; ours"""
TRIO = ("sync-easgd1", "sync-easgd2", "sync-easgd3")


# --- what stands in for MNIST -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Pictures and a network that stand in for MNIST and LeNet."""

    words: str
    model: str
    dataset: str
    images: int
    """training images"""
    batch: int = 32
    """images in place of a batch of LeNet, whatever that is"""
    every: int
    """images from one evaluation to the next"""
    final_error: float
    """`final_error` at the best of `RATES`, measured by us"""
    epochs: float
    """limit of a training"""

    @property
    def bundled(self) -> bool:
        """Whether the pictures are in the package."""
        return self.dataset == "digits"

    def learner(self, seed: int) -> Learner:
        """Returns the learning problem.

        Args:
            seed: Of initial weights and samples.
        """
        part = None if self.bundled else self.images
        return build(self.model, dataset=self.dataset, samples=part, seed=seed)


def perceptron() -> Any:
    """Returns a perceptron for pictures of 28 × 28, small enough that many are trained at once."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def small_lenet() -> Any:
    """Returns LeNet with a fifth of the filters of its convolutions, and of the units of its dense layer a tenth."""
    from torch import nn

    first = [nn.Conv2d(1, 4, 5), nn.MaxPool2d(2), nn.Conv2d(4, 10, 5), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*first, nn.Linear(160, 50), nn.ReLU(), nn.Linear(50, 10))


PROBLEMS = {
    "fashion-perceptron": Problem(
        words="a 784-32-10 perceptron on 3000 images of Fashion-MNIST",
        model="paceline.papers.sc17.learning:perceptron",
        dataset="fashion-mnist",
        images=3000,
        every=150,
        final_error=0.194,
        epochs=20.0,
    ),
    "fashion-small-lenet": Problem(
        words="LeNet with a fifth of its filters on 3000 images of Fashion-MNIST",
        model="paceline.papers.sc17.learning:small_lenet",
        dataset="fashion-mnist",
        images=3000,
        every=300,
        final_error=0.209,
        epochs=20.0,
    ),
    "digits": Problem(
        words="a 64-64-10 perceptron on scikit-learn's digits",
        model="digits-mlp",
        dataset="digits",
        images=1437,
        every=120,
        final_error=0.026,
        epochs=20.0,
    ),
}
"""values of the inputs `learning-data` and `iterations-data`"""


def pictures(given: Given, which: str) -> str:
    """Returns the key of `PROBLEMS` that an input names, or what replaces it.

    Pictures that are not installed are replaced by the digits, which are in the package. Quick runs train the
    perceptron in place of the network with convolutions, whose gradients take several times as long.

    Args:
        given: The inputs.
        which: The name of one.
    """
    name = given.word(which)
    missing = not PROBLEMS[name].bundled and folder_is_missing("lenet", PROBLEMS[name].dataset)
    if given.quick and name == "fashion-small-lenet":
        name = "fashion-perceptron"
    return "digits" if missing else name


# --- trainings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A method with its rates."""

    method: str
    rate: float
    moving_rate: float = MOVING_RATES[0]
    momentum: float = 0.0

    def built(self) -> Method:
        """Returns the method with its hyper-parameters."""
        kind = METHODS[self.method]
        given: dict[str, Any] = {"learning_rate": self.rate, "momentum": self.momentum}
        if issubclass(kind, Elastic):
            given["moving_rate"] = self.moving_rate
        if issubclass(kind, Easgd):
            given["overlap"] = True
        return kind(**given)


@dataclass(frozen=True, slots=True)
class Needed:
    """What a training needed to reach the target; its limit if it did not."""

    epochs: float
    time_s: float
    """virtual seconds"""
    reached: bool


NEVER = Needed(math.inf, math.inf, reached=False)


@dataclass(frozen=True, slots=True)
class Training:
    """The accuracy over a training."""

    epochs: tuple[float, ...]
    times_s: tuple[float, ...]
    accuracies: tuple[float, ...]
    limit: float
    """epochs to which it would have run"""

    def until(self, accuracy: float) -> Needed:
        """Returns what it needed to reach an accuracy."""
        crossed = crossing(accuracy, smoothed(self.accuracies, SMOOTHING).tolist())
        if crossed is None:
            return Needed(self.limit, self.times_s[-1] * self.limit / self.epochs[-1], reached=False)
        epochs, time_s = (crossed.at(smoothed(axis, SMOOTHING).tolist()) for axis in (self.epochs, self.times_s))
        return Needed(epochs, time_s, reached=True)


def training(
    problem: Problem, entry: Entry, cluster: Sequence[str], *, seed: int, epochs: float, accuracy: float
) -> Training:
    """Trains until an accuracy or a number of epochs is reached.

    Args:
        problem: What is learned.
        entry: The method.
        cluster: Changes of the scenario's cluster.
        seed: Of initial weights, samples and jitter.
        epochs: The limit.
        accuracy: The target.
    """
    changes = [*cluster, f"workload.batch_per_worker={BATCH}", "workload.learning=none", f"seed={seed}", "seeds=1"]
    (plan,) = load(SCENARIO, changes, algorithms=[entry.built()]).plans()
    learner = StandIn(problem.learner(seed), plan.job.learner.layout, BATCH, problem.batch)
    epoch = learner.num_samples
    budget = Budget(samples=round(epochs * epoch), accuracy=accuracy, divergence=True)
    run = replace(plan, job=replace(plan.job, learner=learner, budget=budget))
    every = Schedule(every=epoch * problem.every / problem.images, unit="samples")
    with collected_seldom(), torch_threads(1):
        shots = perform(run, every).snapshots
    return Training(
        epochs=tuple(shot.samples / epoch for shot in shots),
        times_s=tuple(shot.time_s for shot in shots),
        accuracies=tuple(0.0 if shot.score is None else shot.score.accuracy or 0.0 for shot in shots),
        limit=epochs,
    )


def final_error(problem: Problem, rate: float, seed: int) -> float:
    """Returns the error of one worker after ten epochs with batches of `problem.batch`: the mean of three evaluations.

    Args:
        problem: What is learned.
        rate: The learning rate.
        seed: Of initial weights and samples.
    """
    alone = Entry("sequential-sgd", rate)
    run = training(problem, alone, ["cluster.nodes=[{device: m40}]"], seed=seed, epochs=10, accuracy=1.0)
    return 1 - fmean(run.accuracies[-3:])


_trainings: dict[tuple[str, str, Entry, int, float], Training] = {}
"""the longest training so far, by data, machine, method, seed and accuracy"""


def _training(
    data: str, machine: str, entry: Entry, seed: int, epochs: float, accuracy: float, target: float
) -> Training:
    """Returns a training to an accuracy that reaches a lower target, or has at least so many epochs."""
    key = (data, machine, entry, seed, accuracy)
    known = _trainings.get(key)
    if known is None or (known.limit < epochs and not known.until(target).reached):
        changes = gpu.MACHINES[machine].changes()
        known = training(PROBLEMS[data], entry, changes, seed=seed, epochs=epochs, accuracy=accuracy)
        _trainings[key] = known
    return known


@dataclass(frozen=True, slots=True)
class Contest:
    """What methods are compared on: pictures, a machine, and a target."""

    data: str
    """a key of `PROBLEMS`"""
    machine: str
    """a key of `gpu.MACHINES`"""
    ratio: float
    """error of the target over the final one"""
    momentum: float = 0.0
    """of the methods of `WITH_MOMENTUM`"""
    quick: bool = False

    def run(self, entry: Entry, seed: int, most_epochs: float = math.inf) -> Training:
        """Returns the training of a method, which ends at the target or at that of `LEAST_RATIO`.

        Args:
            entry: The method.
            seed: Of initial weights, samples and jitter.
            most_epochs: Where it may end, too, if that is before its limit.
        """
        problem = PROBLEMS[self.data]
        epochs = problem.epochs / (2 if self.quick else 1)
        if entry.method == "easgd":  # the centre moves towards one worker at a time, and so takes longer
            epochs *= 2
        error = min(LEAST_RATIO, self.ratio) * problem.final_error
        return _training(self.data, self.machine, entry, seed, min(epochs, most_epochs), 1 - error, self.target)

    @property
    def target(self) -> float:
        """The accuracy to reach."""
        return 1 - self.ratio * PROBLEMS[self.data].final_error

    def needed(self, entry: Entry, seed: int, most_epochs: float = math.inf) -> Needed:
        """Returns what a method needs to reach the target; arguments as for `run`."""
        return self.run(entry, seed, most_epochs).until(self.target)


def contest(given: Given) -> Contest:
    """Returns on what the inputs compare methods; claims on Hogwild have the machine of one node."""
    ratio, momentum = given.number("learning-error"), given.number("learning-momentum")
    machine = "shared-memory-machine" if "shared-memory-machine" in dict(given.values) else "gpu-machine"
    return Contest(pictures(given, "learning-data"), given.word(machine), ratio, momentum, given.quick)


def counting(given: Given) -> Contest:
    """Returns on what the inputs count iterations: of all machines with as many workers, the first."""
    workers = gpu.machine_of(given).workers
    machine = next(name for name, machine in gpu.MACHINES.items() if machine.workers == workers)
    return Contest(pictures(given, "iterations-data"), machine, given.number("learning-error"), quick=given.quick)


# --- tuning -----------------------------------------------------------------------------------------------------------


@cache
def _usual(quick: bool) -> Contest:
    """Returns on what methods are compared with the most plausible inputs."""
    inputs = inputs_of(PAPER)
    names = ("gpu-machine", *LEARNING)
    return contest(Given(tuple((name, inputs[name].value) for name in names), quick=quick))


@cache
def tuned(on: Contest, method: str) -> Entry:
    """Returns a method at its own best rates, whatever the seed of a figure.

    On a contest with a changed input, the learning rate is searched for from that of the usual one on, whose moving
    rate is kept.
    """
    rates = RATES[::2] if on.quick else RATES
    if on != (usual := _usual(on.quick)):
        momentum = on.momentum if method in WITH_MOMENTUM else 0.0
        return _at_best_rate(on, replace(tuned(usual, method), momentum=momentum), rates)
    start = min(rates, key=lambda rate: abs(math.log(rate / START.get(method, 0.1))))
    first = Entry(method, start, momentum=on.momentum if method in WITH_MOMENTUM else 0.0)
    best = _at_best_rate(on, first, rates)
    if not issubclass(METHODS[method], Elastic) or on.quick:
        return best
    moved = min((replace(best, moving_rate=one) for one in MOVING_RATES), key=lambda one: _mean(on, one).time_s)
    return best if moved == best else _at_best_rate(on, moved, rates)


def _at_best_rate(on: Contest, entry: Entry, rates: Sequence[float]) -> Entry:
    least = NEVER

    def time_s(rate: float) -> float:
        """Returns the mean time to the target; infinity if a rate that was tried before needs less."""
        nonlocal least
        mean = _mean(on, replace(entry, rate=rate), least.epochs)
        least = min(least, mean, key=lambda needed: needed.time_s)
        return mean.time_s

    return replace(entry, rate=best_rate(time_s, rates, entry.rate))


def _mean(on: Contest, entry: Entry, most_epochs: float = math.inf) -> Needed:
    """Returns the means of what is needed on the seeds for tuning; `NEVER` if one of them does not reach the target.

    Args:
        on: The contest.
        entry: The method.
        most_epochs: Mean epochs above which it may be given up.
    """
    count, done = 1 if on.quick else 2, list[Needed]()
    for seed in range(TUNING_SEED, TUNING_SEED + count):
        left = GIVEN_UP * (count * most_epochs - sum(needed.epochs for needed in done))
        done.append(on.needed(entry, seed, max(1.0, left)))
        if not done[-1].reached:
            return NEVER
    return Needed(fmean(needed.epochs for needed in done), fmean(needed.time_s for needed in done), reached=True)


def at_best(on: Contest, method: str, seed: int) -> Needed:
    """Returns what a method needs at its own best rates."""
    return on.needed(tuned(on, method), seed)


# --- figures ----------------------------------------------------------------------------------------------------------


def iterations(method: str, given: Given) -> float:
    """Returns the iterations to the target, by as many epochs of MNIST or by as many updates as the stand-in needs.

    Args:
        method: Original EASGD, "easgd", whose iteration is a gradient, or "sync-easgd3", whose iteration is one of each
            worker.
        given: The inputs.
    """
    on = counting(given)
    gradients = 1 if method == "easgd" else gpu.machine_of(given).workers
    epochs, problem = at_best(on, method, given.seed).epochs, PROBLEMS[on.data]
    if given.word("iterations-counted") == "epochs":
        return epochs * MNIST / (given.number("gpu-batch") * gradients)
    return epochs * problem.images / (problem.batch * gradients)


def ratio_of_iterations(given: Given) -> float:
    """Returns how many times the iterations of Sync EASGD Original EASGD needs."""
    turns, steps = (at_best(counting(given), method, given.seed).epochs for method in ("easgd", "sync-easgd3"))
    return gpu.machine_of(given).workers * turns / steps


def speed_up(variant: str, given: Given) -> float:
    """Returns the time of Original EASGD to the target over that of Sync EASGD.

    Args:
        variant: A key of `gpu.SYNC`.
        given: The inputs.
    """
    return ratio_of_iterations(given) * gpu.step_ratio("original", variant, given)


def _times_s(methods: Sequence[str], given: Given) -> list[float]:
    return [at_best(contest(given), method, given.seed).time_s for method in methods]


def against_sgd(ours: str, theirs: str, given: Given) -> float:
    """Returns how many times as fast an elastic method is as its SGD."""
    own_s, other_s = _times_s((ours, theirs), given)
    return other_s / own_s


def fastest(given: Given) -> float:
    """Returns the time of the fastest other method over that of the slower one of Sync and Hogwild EASGD."""
    return min(_times_s(OTHERS, given)) / max(_times_s(FASTEST, given))


def tie(given: Given) -> float:
    """Returns the time of Hogwild EASGD over that of Sync EASGD3."""
    sync_s, hogwild_s = _times_s(FASTEST, given)
    return hogwild_s / sync_s


# --- what is said and drawn about them --------------------------------------------------------------------------------


def _trained(on: Contest, given: Given, which: str) -> str:
    """Returns a sentence on the pictures, and why they are not those that the input names."""
    problem, named = PROBLEMS[on.data], PROBLEMS[given.word(which)]
    why = "" if named.dataset == problem.dataset else f" (because {named.dataset} is not installed)"
    target = 100 * (1 - on.ratio * problem.final_error)
    return f"Trained: {problem.words}{why}, to an accuracy of {target:.1f} %."


def _rates(on: Contest, method: str) -> str:
    entry = tuned(on, method)
    moving = f" and β {entry.moving_rate:g}" if issubclass(METHODS[method], Elastic) else ""
    edge = " (end of the grid)" if entry.rate in (RATES[0], RATES[-1]) else ""
    return f"rate {entry.rate:g}{edge}{moving}"


def _each(methods: Sequence[str], given: Given) -> Iterator[str]:
    """Yields what was trained, and the time of each method to the target at its best rates."""
    on, said = contest(given), []
    yield _trained(on, given, "learning-data")
    for method in methods:
        found = at_best(on, method, given.seed)
        short = "" if found.reached else " (not reached)"
        said.append(f"{method} {found.time_s * 1e3:.0f} ms{short} at {_rates(on, method)}")
    yield f"Times to it, one seed: {'; '.join(said)}."


def _counted(given: Given) -> Iterator[str]:
    """Yields what was trained, and the epochs of both methods."""
    on = counting(given)
    yield _trained(on, given, "iterations-data")
    for method in ("easgd", "sync-easgd3"):
        found = at_best(on, method, given.seed)
        short = "" if found.reached else ", its limit: the target is not reached"
        yield f"{method} at {_rates(on, method)}: {found.epochs:.3g} epochs{short}."


def _by_the_papers_counts(given: Given) -> Iterator[str]:
    """Yields the same, and the factors by the iterations of the paper's table."""
    yield from _counted(given)
    (turns, _), (steps, _) = gpu.TABLE["original"], gpu.TABLE["sync3"]
    factors = [turns / steps * gpu.step_ratio("original", variant, given) for variant in gpu.SYNC]
    listed = ", ".join(f"{factor:.3g}" for factor in factors)
    yield f"By the paper's {turns} turns and {steps} steps, Sync EASGD1, 2 and 3 are {listed} times as fast."


def _accuracy_over_time(given: Given) -> Curve:
    """Redraws the paper's figures of accuracy over time."""
    on, lines = contest(given), {}
    for method in (*FASTEST, *OTHERS):
        run = on.run(tuned(on, method), given.seed)
        lines[method] = [
            (1e3 * time_s, 100 * accuracy) for time_s, accuracy in zip(run.times_s, run.accuracies, strict=True)
        ]
    return Curve(x="virtual time, ms", y="held-out accuracy, %", lines=lines)


# --- real runs --------------------------------------------------------------------------------------------------------


def trained(algorithm: str, given: Given, *, dtype: str = "float32") -> np.ndarray:
    """Trains for real with four processes, and returns the final weights.

    Args:
        algorithm: The method.
        given: How long, and the seed of initial weights and samples.
        dtype: Type of the weights.
    """
    changes = [
        "train.pace=none",
        f"workload.dtype={dtype}",
        f"stop={{samples: {given.choose(128 * 60, 128 * 20)}}}",
        "target.accuracy=null",
        f"seed={given.seed}",
    ]
    (run,) = train(load("quickstart", changes, algorithms=[algorithm]))
    weights: Any = run.weights
    return np.asarray(weights, dtype=np.float64).ravel()


def repeated(algorithm: str, given: Given) -> float:
    """Returns the largest difference between the weights of two runs with the same seed."""
    first, second = (trained(algorithm, given) for _ in range(2))
    return float(np.abs(first - second).max())


def _asynchronous(given: Given) -> Iterator[str]:
    yield f"async-easgd, repeated in the same way: the largest difference is {repeated('async-easgd', given):.2g}."


def three_are_one(given: Given) -> float:
    """Returns the number of weights in which the three variants differ by more than rounding."""
    return float((_apart(given) > ROUNDING).sum())


def _apart(given: Given) -> np.ndarray:
    """Returns the largest difference of each weight, relative to the largest weight."""
    first, *others = (trained(name, given, dtype="float64") for name in TRIO)
    apart: np.ndarray = np.max([np.abs(other - first) for other in others], axis=0) / np.abs(first).max()
    return apart


def _rounding(given: Given) -> Iterator[str]:
    yield (
        f"The largest difference is {float(_apart(given).max()):.2g} of the largest weight: gloo adds in an order of "
        "its own, and with the host as a member there is one summand more."
    )


# --- the claims -------------------------------------------------------------------------------------------------------

_learned = claims_like(
    PAPER,
    section="abstract; figures of accuracy over time",
    hardware=gpu.HARDWARE,
    model="LeNet, MNIST (here: see the inputs learning-data and iterations-data)",
    batch="not found",
    scenario=SCENARIO,
    command=f"paceline simulate {SCENARIO}",
    inputs=("gpu-machine", *LEARNING),
    shares="sc17 learning",
)
_real = claims_like(
    PAPER,
    kind="identity",
    published=0.0,
    hardware="this machine, four processes",
    model="64-64-10 perceptron, scikit-learn's digits",
    batch="32 per worker",
    scenario="quickstart",
    command="paceline train quickstart --algorithms sync-easgd3 --set train.pace=none",
    inputs=("real-workload",),
    holds_if="equal",
    seeds=3,
    measured=True,
)


def _iterations() -> Iterator[Claim]:
    """Yields the claims on numbers of iterations, and the speed-ups of which they are a part."""
    common = ("gpu-machine", "iterations-data", "learning-error")
    counted: dict[str, Any] = {"section": "table of times", "explain": _counted, "holds_if": "within 25 %"}
    for name, method, words, published in (
        ("original", "easgd", "Original EASGD reaches an accuracy of 0.988", gpu.TABLE["original"][0]),
        ("sync", "sync-easgd3", "Sync EASGD reaches an accuracy of 0.988", gpu.TABLE["sync3"][0]),
    ):
        yield _learned(
            f"iterations-{name}",
            f"{words} after {published} iterations",
            partial(iterations, method),
            published=float(published),
            unit="",
            **counted | {"inputs": (*common, "gpu-batch", "iterations-counted")},
        )
    yield _learned(
        "iterations-ratio",
        "Original EASGD needs five times the iterations of Sync EASGD",
        ratio_of_iterations,
        kind="supporting",
        published=5.0,
        **counted | {"inputs": common},
    )
    both = tuple(dict.fromkeys((*gpu.ORIGINAL, *common)))
    yield _learned(
        "factor-1",
        "Sync EASGD1 is 3.7 times as fast as Original EASGD: iterations and step times predicted",
        partial(speed_up, "sync1"),
        published=3.7,
        **counted | {"section": "§6.1.1, breakdown", "inputs": both, "explain": _by_the_papers_counts},
    )
    yield _learned(
        "factors",
        "Sync EASGD3 is 5.3 times as fast as Original EASGD: iterations and step times predicted",
        partial(speed_up, "sync3"),
        published=5.3,
        **counted | {"section": "abstract; §6.1", "inputs": both, "explain": _by_the_papers_counts},
    )


def _comparisons() -> Iterator[Claim]:
    """Yields the comparisons of methods, each at its own best rates."""
    on_one_node = ("shared-memory-machine", *LEARNING)
    for ours, (theirs, sentence) in PAIRS.items():
        more: dict[str, Any] = {"explain": partial(_each, (ours, theirs)), "holds_if": "order"}
        if issubclass(METHODS[ours], SharedMemorySgd):
            more["inputs"] = on_one_node
        yield _learned(ours, sentence, partial(against_sgd, ours, theirs), **more)
    explain = partial(_each, (*FASTEST, *OTHERS))
    words, how = "Sync and Hogwild EASGD are the fastest methods", {"inputs": on_one_node, "explain": explain}
    yield _learned("fastest", words, fastest, holds_if="order", curve=_accuracy_over_time, **how)
    words, how = "Sync and Hogwild EASGD are tied", {"inputs": on_one_node, "explain": partial(_each, FASTEST)}
    yield _learned("tie", words, tie, published=1.0, holds_if="within 25 %", **how)


LEARNED: tuple[Claim, ...] = (*_iterations(), *_comparisons())
REAL: tuple[Claim, ...] = (
    _real(
        "deterministic",
        "Sync EASGD is deterministic: repeated runs have the same weights",
        partial(repeated, "sync-easgd3"),
        section="abstract",
        unit="largest difference of a weight",
        explain=_asynchronous,
    ),
    _real(
        "three-are-one",
        "Sync EASGD1, 2 and 3 are the same method with different times",
        three_are_one,
        section="§6.1",
        unit="weights that differ",
        explain=_rounding,
    ),
)
