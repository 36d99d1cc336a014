"""Claims on DBS-SGD: loss and accuracy, speed-up, staleness of the nodes, iteration times, and the synchronous curve.

Rules of this file:

* Every method has its own best learning rate and momentum: those of one grid with the least mean loss, on seeds that
  are not tested. The grid counts η / (1 − μ) for a single gradient, so it is the same for all methods. Where an input
  is changed, the rate is chosen again, from its neighbours on, at the momentum that is best with the usual inputs.
* Losses and accuracies are compared after equal samples of all nodes, which are equal epochs, with equal seeds.
* A result on a stand-in says something about the stand-in only, and `explain` names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError
from paceline.papers.claim import TUNING_SEED, Claim, Curve, Given, claims_like, first_word, inputs_of
from paceline.papers.runs import best_rate, evaluations, recorded, simulated
from paceline.workloads.datasets import DATA, LoadedDataset, place_of, read

PAPER = "dbs"

# --- what is trained --------------------------------------------------------------------------------------------------

SEED = 20
"""of colours and noise; the same pictures for every run"""
NOISE = 0.1
"""standard deviation of the noise of a picture whose values lie between 0 and 1; provenance: ours"""
SAMPLES = 1000
"""images of an epoch"""


def _coloured(shades: NDArray[np.float64], labels: NDArray[np.integer[Any]]) -> tuple[Any, Any]:
    """Returns a network and data that stand in for CIFAR-10: shapes in random colours on random backgrounds.

    picture = background · (1 − s) + colour · s + noise, for each of three channels, with the shades s of the image.
    Every channel of a background lies between 0 and 1/2, of a colour between 1/2 and 1: the contrast of a channel
    varies from nothing to all.

    Args:
        shades: Images × height × width, from 0 to 1; four fifths are for training.
        labels: Their classes, of ten.
    """
    from torch import nn

    drawn = np.random.default_rng(SEED)
    count, side = shades.shape[:2]
    back, front = drawn.random((2, count, 3, 1, 1)) / 2 + np.reshape([0.0, 0.5], (2, 1, 1, 1, 1))
    shade = shades[:, None]
    pictures = back * (1 - shade) + front * shade + drawn.normal(0.0, NOISE, (count, 3, side, side))
    pictures, labels = ((pictures - 0.5) / 0.3).astype(np.float32), labels.astype(np.int64)
    order = drawn.permutation(count)
    train, test = order[: count * 4 // 5], order[count * 4 // 5 :]
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 4) ** 2, 10),
    )
    return module, ((pictures[train], labels[train]), (pictures[test], labels[test]))


@cache
def coloured_digits() -> tuple[Any, Any]:
    """Returns a network and the digits of scikit-learn in random colours, 3 × 8 × 8; see `_coloured`.

    >>> module, ((pictures, labels), (held_out, _)) = coloured_digits()
    >>> pictures.shape, held_out.shape, sorted(set(labels.tolist())) == list(range(10))
    ((1437, 3, 8, 8), (360, 3, 8, 8), True)
    """
    from paceline.workloads.batches.examples import pixels_and_labels

    pixels, labels = pixels_and_labels()
    return _coloured(pixels.reshape(-1, 8, 8) / 16.0, labels)


@cache
def coloured_fashion() -> tuple[Any, Any]:
    """Returns a network and 2,000 images of Fashion-MNIST in random colours, halved to 3 × 14 × 14; see `_coloured`."""
    data = read("fashion-mnist", None, ())
    assert isinstance(data, LoadedDataset), "only records are not loaded"
    images = data.train.pictures[:2000, 0].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255.0
    return _coloured(images, data.train.labels[:2000])


@dataclass(frozen=True, slots=True)
class Problem:
    """A network and its data.

    Args:
        model: As in a scenario.
        words: What is trained.
        dataset: The data set that must be there; "": it is bundled.
        instead: The name of the problem that is trained where it is not.
        own: Whether the model brings its data.
        length: A factor on the epochs: a small network costs less, and learns less in an epoch.
    """

    model: str
    words: str
    dataset: str = ""
    instead: str = ""
    own: bool = False
    length: int = 1

    @property
    def there(self) -> bool:
        """Whether its images are on this machine."""
        try:
            return not self.dataset or place_of(self.dataset, None).is_dir()
        except InputError:
            return False

    @property
    def changes(self) -> list[str]:
        """The changes of a scenario that train it."""
        dataset = "null" if self.own else self.dataset or "digits"
        return [
            f"workload.model={self.model}",
            f"workload.dataset={dataset}",
            f"workload.samples={SAMPLES}",
            "workload.stand_in=null",
        ]


OWN = "paceline.papers.dbs"
PROBLEMS = {
    "digits-cnn": Problem("digits-cnn", "a small network of two convolutions on digits of scikit-learn", length=2),
    "fashion-lenet": Problem("lenet", "LeNet on Fashion-MNIST", "fashion-mnist", "digits-cnn"),
    "mnist-lenet": Problem("lenet", "LeNet on MNIST", "mnist", "fashion-lenet"),
    "coloured-digits": Problem(
        f"{OWN}:coloured_digits", "a small network on digits of scikit-learn in random colours", own=True, length=2
    ),
    "coloured-fashion": Problem(
        f"{OWN}:coloured_fashion", "a small network on Fashion-MNIST in random colours", "fashion-mnist",
        "coloured-digits", own=True, length=2,
    ),
    "cifar10": Problem("small-cnn", "small-cnn on CIFAR-10", "cifar10", "coloured-fashion", length=2),
}  # fmt: skip
"""what an input may name"""
Data = Literal["mnist-data", "cifar10-data"]
"""the input with the name of the problem"""
TITLES: dict[Data, str] = {"mnist-data": "MNIST", "cifar10-data": "CIFAR-10"}
LOSSES: dict[Data, float] = {"mnist-data": -60.0, "cifar10-data": -10.0}
"""published changes of the loss in per cent: FOUND in the abstract"""


def problem_of(given: Given, data: Data) -> Problem:
    """Returns the problem that an input names, or the one in its place where its images are missing, or with `--quick`.

    Args:
        given: The inputs.
        data: The input.
    """
    if (name := given.word(data)) not in PROBLEMS:
        raise InputError(f"input {data}: found {name!r}, expected one of {', '.join(PROBLEMS)}")
    problem = PROBLEMS[name]
    while problem.instead and (given.quick or not problem.there):
        problem = PROBLEMS[problem.instead]
    return problem


def trained_words(given: Given, data: Data) -> str:
    """Says what was trained, and what is to be installed for what was asked."""
    problem, asked = problem_of(given, data), PROBLEMS[given.word(data)]
    said = f"Trained in place of {TITLES[data]}: {problem.words}, {SAMPLES:,} images."
    if problem is asked:
        return said
    if asked.there:
        return f"{said} Without --quick it is {asked.words}."
    return f"{said} {asked.words} was asked for; its images are not on this machine ({DATA[asked.dataset].source})."


# --- learning ---------------------------------------------------------------------------------------------------------

Method = Literal["dbs-sgd", "async-sgd", "softsync", "sync-sgd"]
METHODS: tuple[Method, ...] = ("dbs-sgd", "async-sgd", "softsync", "sync-sgd")
RATES = tuple(0.0125 * 2**power for power in range(8))
"""η / (1 − μ) for a single gradient"""
FIRST_RATE = 0.05
MOMENTA = (0.0, 0.9)
CHANCE = math.log(10)
"""the loss of a guess among ten classes"""
OF_METHOD: dict[Method, tuple[str, ...]] = {
    "dbs-sgd": ("weighting",),
    "async-sgd": (),
    "softsync": ("softsync-n", "softsync-damping"),
    "sync-sgd": (),
}
"""inputs that only this method has"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run learned."""

    samples: tuple[float, ...]
    times_s: tuple[float, ...]
    losses: tuple[float, ...]
    """held-out loss at each evaluation, at most `CHANCE`"""
    accuracies: tuple[float, ...]
    """in per cent"""
    staleness: float
    """mean over updates"""

    @property
    def loss(self) -> float:
        """The mean loss over the last epoch."""
        return float(np.interp(self._last_epoch, self.samples, self.losses).mean())

    @property
    def accuracy(self) -> float:
        """The mean accuracy over the last epoch, in per cent."""
        return float(np.interp(self._last_epoch, self.samples, self.accuracies).mean())

    @property
    def _last_epoch(self) -> NDArray[np.float64]:
        return np.linspace(self.samples[-1] - SAMPLES, self.samples[-1], 9)

    def losses_at(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the loss after each of these numbers of samples."""
        return np.interp(samples, self.samples, self.losses)

    def loss_at(self, time_s: float) -> float:
        """Returns the mean loss over the epoch before a time."""
        samples = float(np.interp(time_s, self.times_s, self.samples))
        return float(self.losses_at(np.linspace(samples - SAMPLES, samples, 9)).mean())


@dataclass(frozen=True, slots=True)
class Tuned:
    """The rate on the grid, and the momentum."""

    rate: float
    momentum: float

    def options(self, scale: float) -> str:
        """Returns the hyper-parameters of a method, one of whose updates is the mean of `scale` gradients."""
        return f"learning_rate: {self.rate * (1 - self.momentum) * scale!r}, momentum: {self.momentum}"


def nodes_of(given: Given) -> list[int]:
    """Returns the speeds of the nodes."""
    return [int(speed) for speed in given.word("speeds").split("-")]


def _cluster(given: Given, slowest: float = 250.0) -> str:
    devices = (
        f"{{device: {{name: speed-{speed}, overhead: 0 s, per_sample: {1 / slowest / speed!r} s}}}}"
        for speed in nodes_of(given)
    )
    return f"cluster.nodes=[{', '.join(devices)}]"


def _algorithm(given: Given, method: Method, tuned: Tuned) -> str:
    """Returns a method as YAML; the mean of several gradients has as many times the rate of a single one."""
    nodes = len(nodes_of(given))
    match method:
        case "dbs-sgd":
            return f"{{name: dbs-sgd, weighting: {given.word('weighting')}, {tuned.options(1.0)}}}"
        case "softsync":
            n = int(given.number("softsync-n"))
            damping = given.word("softsync-damping")
            return f"{{name: softsync, n: {n}, damping: {damping}, {tuned.options(nodes // n)}}}"
        case "sync-sgd":
            return f"{{name: sync-sgd, {tuned.options(nodes)}}}"
    return f"{{name: {method}, {tuned.options(1.0)}}}"


@cache
def _outcome(changes: tuple[str, ...], seed: int, *, end_only: bool) -> Outcome:
    job, trace = recorded("dbs-mnist", changes, seed=seed)
    shots = trace.snapshots
    if end_only:
        first = max(place for place, shot in enumerate(shots) if shot.samples <= max(0, shots[-1].samples - SAMPLES))
        shots = shots[first:]
    scores = evaluations(job, shots)
    losses = np.minimum(np.nan_to_num([score.loss for score in scores], nan=CHANCE, posinf=CHANCE), CHANCE)
    return Outcome(
        samples=tuple(float(shot.samples) for shot in shots),
        times_s=tuple(shot.time_s for shot in shots),
        losses=tuple(losses.tolist()),
        accuracies=tuple(math.nan if score.accuracy is None else 100 * score.accuracy for score in scores),
        staleness=float(np.mean([update.staleness for update in trace.updates])),
    )


def run_of(given: Given, data: Data, method: Method, tuned: Tuned, *, end_only: bool = False) -> Outcome:
    """Runs a method once.

    Args:
        given: The inputs.
        data: The input with the problem.
        method: The method.
        tuned: Its learning rate and momentum.
        end_only: Whether only the last epoch is evaluated, which suffices for the final loss.
    """
    problem = problem_of(given, data)
    epochs = problem.length * given.number("epochs") / given.choose(1, 2)
    changes = [
        *problem.changes,
        _cluster(given),
        f"workload.batch_per_worker={int(given.number('batch'))}",
        f"algorithms=[{_algorithm(given, method, tuned)}]",
        f"evaluate.every={SAMPLES // 4} samples",
        f"stop={{samples: {round(epochs * SAMPLES)}, divergence: false}}",
    ]
    if given.word("shards") == "own":
        changes.append("workload.reading={strategy: sharded}")
    return _outcome(tuple(changes), given.seed, end_only=end_only)


@cache
def _tuned(given: Given, data: Data, method: Method) -> Tuned:
    """Returns the best on two seeds of the best rates on one seed and their halves.

    So a rate at the edge of stability, at which the second seed diverges, is not chosen. With the usual inputs every
    momentum is tried; with others, that of the usual inputs, from whose rate on the search begins.
    """

    @cache
    def loss(tuned: Tuned, seed: int) -> float:
        return run_of(replace(given, seed=seed), data, method, tuned, end_only=True).loss

    best, start = list[Tuned](), FIRST_RATE
    momenta: tuple[float, ...] = MOMENTA
    if (usual := _with_usual_values(given, method)) != given:
        before = _tuned(usual, data, method)
        start, momenta = before.rate, (before.momentum,)
    for momentum in momenta:

        def cost(rate: float, momentum: float = momentum) -> float:
            return loss(Tuned(rate, momentum), TUNING_SEED)

        start = best_rate(cost, RATES, start)
        best += [Tuned(rate, momentum) for rate in (start, start / 2)]
    seeds = range(TUNING_SEED, TUNING_SEED + given.choose(2, 1))
    return min(best, key=lambda tuned: sum(loss(tuned, seed) for seed in seeds))


def _with_usual_values(given: Given, method: Method) -> Given:
    """Returns the inputs of a tuning with their most plausible values, except for those that `tuned` fixes."""
    inputs, fixed = inputs_of(PAPER), ("shards", "speeds") if method == "sync-sgd" else ("shards",)
    for name, value in given.values:
        if name not in fixed and first_word(value) != first_word(inputs[name].value):
            given = given.with_value(name, inputs[name].value)
    return given


def tuned(given: Given, data: Data, method: Method) -> Tuned:
    """Returns a method's learning rate and momentum.

    Args:
        given: The inputs.
        data: The input with the problem.
        method: The method.
    """
    if method == "sync-sgd":  # after equal samples, speeds change nothing
        given = given.with_value("speeds", "-".join("1" * len(nodes_of(given))))
    plain = given.with_value("shards", "all")  # tuning for shards too would cost a fifth more
    return _tuned(plain.only("batch", "speeds", "epochs", "shards", *OF_METHOD[method], data), data, method)


def outcome(given: Given, data: Data, method: Method) -> Outcome:
    """Runs a method once with its best learning rate and momentum.

    Args:
        given: The inputs.
        data: The input with the problem.
        method: The method.
    """
    return run_of(given, data, method, tuned(given, data, method))


def loss_factor(data: Data, rival: Method, given: Given) -> float:
    """Returns the rival's loss over ours after equal samples."""
    return outcome(given, data, rival).loss / outcome(given, data, "dbs-sgd").loss


def loss_change(data: Data, rival: Method, given: Given) -> float:
    """Returns by how much our loss differs from the rival's after equal samples, in per cent."""
    return 100 * (1 / loss_factor(data, rival, given) - 1)


def accuracy_difference(data: Data, rival: Method, given: Given) -> float:
    """Returns our accuracy minus the rival's after equal samples, in points."""
    return outcome(given, data, "dbs-sgd").accuracy - outcome(given, data, rival).accuracy


def accuracy_change(data: Data, rival: Method, given: Given) -> float:
    """Returns the same in points, or in per cent of the rival's accuracy."""
    difference = accuracy_difference(data, rival, given)
    points = given.word("ten-per-cent") == "points"
    return difference if points else 100 * difference / outcome(given, data, rival).accuracy


def closer(data: Data, given: Given) -> float:
    """Returns the mean distance of ASGD's losses from the synchronous ones over that of ours, along the run."""
    runs = [outcome(given, data, method) for method in ("dbs-sgd", "async-sgd", "sync-sgd")]
    grid = np.linspace(0.0, min(run.samples[-1] for run in runs), 65)
    ours, asgd, sync = (run.losses_at(grid) for run in runs)
    return float(np.abs(asgd - sync).mean() / np.abs(ours - sync).mean())


def _explained(data: Data, rivals: tuple[Method, ...], given: Given) -> Iterator[str]:
    """Yields what was trained, the tuned hyper-parameters, and the difference after equal time."""
    yield trained_words(given, data)
    methods: tuple[Method, ...] = ("dbs-sgd", *rivals)
    chosen = {method: tuned(given, data, method) for method in methods}
    listed = "; ".join(f"{method} {best.rate:g} with momentum {best.momentum:g}" for method, best in chosen.items())
    yield f"Best learning rates of a gradient, η / (1 − μ): {listed}."
    seeds = range(1, given.choose(10, 3) + 1)
    runs = {
        method: [run_of(replace(given, seed=seed), data, method, chosen[method]) for seed in seeds]
        for method in methods
    }
    means = ", ".join(
        f"{method} {np.mean([run.loss for run in of]):.3f}, {np.mean([run.accuracy for run in of]):.1f} %, "
        f"staleness {np.mean([run.staleness for run in of]):.1f}"
        for method, of in runs.items()
    )
    yield f"Means of loss, accuracy and staleness of an update: {means}."
    for rival in rivals:
        ratios = []
        for ours, theirs in zip(runs["dbs-sgd"], runs[rival], strict=True):
            end_s = min(ours.times_s[-1], theirs.times_s[-1])
            ratios.append(math.log(ours.loss_at(end_s) / theirs.loss_at(end_s)))
        yield f"After equal time the loss differs from that of {rival} by {100 * math.expm1(np.mean(ratios)):+.0f} %."


def _curve(data: Data, methods: tuple[Method, ...], given: Given) -> Curve:
    """Returns the mean loss over epochs of every method."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for method in methods:
        runs = [outcome(replace(given, seed=seed), data, method) for seed in range(1, 4)]
        grid = np.linspace(0.0, min(run.samples[-1] for run in runs), 33)
        losses = np.mean([run.losses_at(grid) for run in runs], axis=0)
        lines[method] = [(float(x) / SAMPLES, float(y)) for x, y in zip(grid, losses, strict=True)]
    return Curve(x="epochs", y="loss on held-out data", lines=lines, log_y=True)


# --- times ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """What a run without learning took."""

    samples_per_s: float
    node_staleness: float
    """mean over the nodes of their mean staleness"""
    iteration_spread: float
    """largest mean time of a node's gradients over the smallest, in the second half of the run"""


@cache
def times(given: Given, method: Method) -> Times:
    """Runs a method without learning, with the messages of LeNet.

    Args:
        given: The inputs.
        method: The method.
    """
    sigma = given.number("jitter")
    changes = [
        _cluster(given, given.number("slowest-node")),
        f"workload.batch_per_worker={int(given.number('batch'))}",
        f"cluster.step_time={{profile: shared-cluster, sigma: {sigma}}}" if sigma else "cluster.step_time=null",
        f"cluster.network.link={given.word('link')}",
        "workload.learning=none",
        "workload.stand_in=null",
        f"stop={{updates: {given.choose(4000, 1000)}}}",
    ]
    (run,) = simulated("dbs-mnist", changes, algorithms=[method], seed=given.seed)
    spans = run.tables.spans
    late = spans[(spans["activity"] == "compute") & (spans["start_s"] > spans["end_s"].max() / 2)]
    means = (late["end_s"] - late["start_s"]).groupby(late["rank"]).mean()
    return Times(
        samples_per_s=float(run.summary["samples_per_s"] or 0.0),
        node_staleness=float(run.summary["staleness"]["mean_of_ranks"] or 0.0),
        iteration_spread=float(means.max() / means.min()),
    )


def speed_ratio(given: Given) -> float:
    """Returns our samples per second over those of ASGD."""
    return times(given, "dbs-sgd").samples_per_s / times(given, "async-sgd").samples_per_s


def staleness_ratio(given: Given) -> float:
    """Returns ASGD's mean over the nodes of the mean staleness, over ours."""
    return times(given, "async-sgd").node_staleness / times(given, "dbs-sgd").node_staleness


def iteration_spread(given: Given) -> float:
    """Returns the largest mean iteration time of a node over the smallest, in the second half of 4,000 updates."""
    return times(given, "dbs-sgd").iteration_spread


# --- the claims -------------------------------------------------------------------------------------------------------

LEARNING = ("speeds", "batch", "epochs", "shards", "weighting")
WORDS: dict[Method, str] = {"async-sgd": "ASGD", "softsync": "n-softsync"}
_made = claims_like(
    PAPER,
    section="abstract",
    hardware="nodes of different speeds; eight, of speeds 8, 4, 4, 2, 2, 1, 1, 1, assumed",
    batch="16 for each node at the beginning, assumed",
)


def _learned(
    data: Data, name: str, sentence: str, figure: Callable[[Given], float], *rivals: Method, **more: Any
) -> Claim:
    """Returns a claim on losses or accuracies, of dbs-sgd against a rival or two."""
    of_softsync = ("softsync-n", "softsync-damping") if "softsync" in rivals else ()
    title = data.removesuffix("-data")
    scenario = f"dbs-{title}"
    return _made(
        f"{title}-{name}",
        sentence,
        figure,
        model="not found; see the inputs",
        scenario=scenario,
        command=f"paceline simulate {scenario}",
        inputs=(*LEARNING, *of_softsync, *more.pop("inputs", ()), data),
        explain=partial(_explained, data, rivals),
        shares=f"dbs {data}",
        **more,
    )


def _against(rival: Method) -> Iterator[Claim]:
    short = "asgd" if rival == "async-sgd" else "softsync"
    words = f"with {WORDS[rival]}"
    within: dict[str, Any] = {"unit": "%", "holds_if": "within 25 %"}
    for data, change in LOSSES.items():
        learned, title = partial(_learned, data), TITLES[data]
        lower = partial(loss_factor, data, rival)
        yield learned(
            f"loss-lower-{short}", f"the loss on {title} is lower than {words}", lower, rival, holds_if="order"
        )
        yield learned(
            f"loss-{short}",
            f"the loss on {title} is {-change:.0f} % lower than {words}",
            partial(loss_change, data, rival),
            rival,
            published=change,
            bounds=(-100.0, math.inf),
            curve=partial(_curve, data, METHODS) if rival == "softsync" else None,
            **within,
        )
    learned = partial(_learned, "cifar10-data")
    yield learned(
        f"accuracy-higher-{short}",
        f"the accuracy on CIFAR-10 is higher than {words}",
        partial(accuracy_difference, "cifar10-data", rival),
        rival,
        unit="points",
        holds_if="positive",
        bounds=(-100.0, 100.0),
    )
    yield learned(
        f"accuracy-{short}",
        f"the accuracy on CIFAR-10 is about 10 % higher than {words}",
        partial(accuracy_change, "cifar10-data", rival),
        rival,
        published=10.0,
        inputs=("ten-per-cent",),
        bounds=(-100.0, math.inf),
        **within,
    )


def _curves() -> Iterator[Claim]:
    for data, title in TITLES.items():
        words = f"the curve on {title} is close to the synchronous one: ASGD's distance from it over DBS-SGD's"
        rivals: tuple[Method, ...] = ("async-sgd", "sync-sgd")
        yield _learned(
            data, "curve", words, partial(closer, data), *rivals, holds_if="order", kind="supporting", seeds=3
        )


_timed = partial(
    _made,
    model="LeNet, assumed",
    scenario="dbs-mnist",
    command="paceline simulate dbs-mnist --set workload.learning=none --set stop.updates=4000",
    inputs=("speeds", "slowest-node", "link", "jitter", "batch"),
    shares="dbs times",
)
CLAIMS: tuple[Claim, ...] = (
    *_against("async-sgd"),
    *_against("softsync"),
    *_curves(),
    _timed(
        "speed-up",
        "the speed-up is not lost: samples per second over those of ASGD",
        speed_ratio,
        published=1.0,
        holds_if="within 25 %",
    ),
    _timed(
        "node-staleness",
        "the average staleness of the nodes falls: ASGD's mean over the nodes, over that of DBS-SGD",
        staleness_ratio,
        holds_if="order",
        kind="identity",
    ),
    _timed(
        "iteration-times",
        "batches by speed make the iteration times of heterogeneous nodes equal: the longest over the shortest",
        iteration_spread,
        published=1.0,
        holds_if="within 25 %",
    ),
)
