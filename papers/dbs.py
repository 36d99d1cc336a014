"""Claims on DBS-SGD: loss and accuracy, speed-up, staleness of the nodes, iteration times, and the synchronous curve.

Rules of this file:

* Figures are ratios, paired by seed, and their means are geometric: a loss cannot be lower by more than 100 %.
* Losses and accuracies are compared after equal samples of all nodes, which are equal epochs; after equal time they are
  in the reasons.
* One input at a time is changed from the central values. The interval of a figure contains the intervals of all.
* A loss or accuracy on a stand-in says something about the stand-in only. Results that use one say so.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paceline.papers.claim import Claim, Curve, Effort, Predicted, claims_like, over_seeds, spanning
from paceline.papers.runs import simulated

SEED = 20
"""of colours and noise; the same pictures for every run"""
NOISE = 0.1
"""standard deviation of the noise of a picture whose values lie between 0 and 1; provenance: ours"""


def coloured_digits() -> tuple[Any, Any]:
    """Returns a network and data that stand in for CIFAR-10: digits in random colours on backgrounds of random colours.

    picture = background · (1 − d) + colour · d + noise, for each of three channels, with d the digit's picture. Every
    channel of a background lies between 0 and 1/2, of a colour between 1/2 and 1: the contrast of a channel varies from
    nothing to all.

    Returns:
        The module, with two convolutions, and training and held-out data: 1437 and 360 pictures of 3 × 8 × 8.

    >>> module, ((pictures, labels), (held_out, _)) = coloured_digits()
    >>> pictures.shape, held_out.shape, sorted(set(labels.tolist())) == list(range(10))
    ((1437, 3, 8, 8), (360, 3, 8, 8), True)
    """
    from torch import nn

    from paceline.workloads.batches.examples import pixels_and_labels

    pixels, targets = pixels_and_labels()
    drawn = np.random.default_rng(SEED)
    count = len(targets)
    shade = pixels.reshape(-1, 1, 8, 8) / 16.0
    back, front = drawn.random((2, count, 3, 1, 1)) / 2 + np.reshape([0.0, 0.5], (2, 1, 1, 1, 1))
    pictures = back * (1 - shade) + front * shade + drawn.normal(0.0, NOISE, (count, 3, 8, 8))
    pictures, labels = ((pictures - 0.5) / 0.3).astype(np.float32), targets.astype(np.int64)
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
        nn.Linear(128, 10),
    )
    return module, ((pictures[train], labels[train]), (pictures[test], labels[test]))


def real_data(name: str) -> Path | None:
    """Returns the folder of a data set in ``$PACELINE_DATA``; None if it is not there.

    Args:
        name: The name of the data set, which is that of its folder.

    >>> real_data("no such data set") is None
    True
    """
    home = os.environ.get("PACELINE_DATA")
    folder = None if not home else Path(home) / name
    return folder if folder is not None and folder.is_dir() else None


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
            f"cluster.step_time={{profile: shared-cluster, sigma: {self.sigma}}}"
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


PAPER = "dbs"
TITLES: dict[DataName, str] = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
LOSSES: dict[DataName, float] = {"mnist": -60.0, "cifar10": -10.0}
"""published changes of the loss in per cent: FOUND in the abstract"""
RIVALS: dict[MethodName, str] = {"async-sgd": "ASGD", "softsync": "n-softsync"}
INPUTS = ("speeds", "slowest_node", "network", "jitter", "batch", "epochs", "learning_rate", "weighting")
Ratio = Callable[[Outcome, Outcome, Setting], float]
"""a figure of dbs-sgd over that of its rival, from one run of each with the same seed"""


def loss_ratio(ours: Outcome, theirs: Outcome, setting: Setting) -> float:
    """Returns our loss over theirs after equal samples."""
    return ours.loss_after(setting.samples) / theirs.loss_after(setting.samples)


def timed_loss_ratio(ours: Outcome, theirs: Outcome, setting: Setting) -> float:
    """Returns our loss over theirs at the time at which the slower of the two has processed the samples."""
    end_s = max(ours.time_of(setting.samples), theirs.time_of(setting.samples))
    return ours.loss_after(ours.samples_at(end_s)) / theirs.loss_after(theirs.samples_at(end_s))


def accuracy_ratio(ours: Outcome, theirs: Outcome, setting: Setting) -> float:
    """Returns our accuracy over theirs after equal samples."""
    return ours.accuracy_after(setting.samples) / theirs.accuracy_after(setting.samples)


def speed_ratio(ours: Outcome, theirs: Outcome, _: Setting) -> float:
    """Returns our samples per second over theirs."""
    return ours.samples_per_s / theirs.samples_per_s


def staleness_ratio(ours: Outcome, theirs: Outcome, _: Setting) -> float:
    """Returns their mean over the nodes of the mean staleness over ours."""
    return theirs.node_staleness / ours.node_staleness


def iteration_spread(ours: Outcome, _: Outcome, __: Setting) -> float:
    """Returns the largest mean iteration time of a node over the smallest, once batches have settled."""
    return ours.iteration_spread


CHANGES = (loss_ratio, accuracy_ratio)
"""ratios that the paper gives as changes in per cent"""


def _central(data: DataName, effort: Effort) -> Setting:
    length = float(effort.choose(8, 4))
    return Setting(data, epochs=length, length=length)


@cache
def _others(data: DataName, effort: Effort) -> tuple[tuple[str, Setting], ...]:
    """Returns the settings with one input changed, with a description."""
    plain = _central(data, effort)
    settings = (
        ("a quarter of the learning rate", replace(plain, rate_factor=0.25)),
        ("half the epochs", replace(plain, epochs=plain.epochs / 2)),
        ("speeds of at most 2", replace(plain, speeds=(2, 2, 2, 2, 1, 1, 1, 1))),
        ("speeds of up to 16", replace(plain, speeds=(16, 8, 4, 4, 2, 1, 1, 1))),
        ("batches of 16", replace(plain, batch=16)),
        ("batches of 64", replace(plain, batch=64)),
        ("no jitter", replace(plain, sigma=0.0)),
        ("jitter of sigma 0.3", replace(plain, sigma=0.3)),
        ("a network of 1 Gbit/s", replace(plain, link="eth-1g")),
    )
    return settings[: effort.choose(len(settings), 1)]


def _seeds(effort: Effort) -> int:
    """Returns the number of seeds with the central inputs."""
    return effort.choose(max(3, effort.seeds), 3)


def _paired(ratio: Ratio, setting: Setting, rival: MethodName, seeds: int) -> Predicted:
    """Returns the logarithm of a ratio: its mean over the seeds, with Student's 95 % interval."""
    pairs = zip(outcomes(setting, "dbs-sgd", seeds), outcomes(setting, rival, seeds), strict=True)
    return over_seeds([math.log(ratio(ours, theirs, setting)) for ours, theirs in pairs])


def _compared(ratio: Ratio, data: DataName, rival: MethodName, effort: Effort) -> Predicted:
    """Returns the geometric mean of a ratio, with an interval over seeds and over changed inputs.

    The interval contains those over the seeds with the central inputs and with each of the changed inputs.

    Args:
        ratio: The figure.
        data: The data set.
        rival: The method that dbs-sgd is compared with.
        effort: Decides on seeds and changed inputs.
    """
    plain, fewer = _central(data, effort), 3
    shown = partial(_shown, ratio)
    central = _paired(ratio, plain, rival, _seeds(effort)).mapped(shown)
    changed = {words: _paired(ratio, setting, rival, fewer).mapped(shown) for words, setting in _others(data, effort)}
    if rival == "softsync":
        changed["full weight for stale gradients"] = _paired(ratio, plain, "softsync-undamped", fewer).mapped(shown)
    listed = ", ".join(f"{figure.value:.3g} with {words}" for words, figure in changed.items())
    return spanning(
        central,
        *changed.values(),
        reason=_cause(ratio, data, rival, effort),
        details=(
            _data_words(data),
            f"Learning rate for a gradient: {common_rate(plain):g}.",
            f"Over seeds with the central inputs: {central.low:.3g} to {central.high:.3g}.",
            f"With one input changed: {listed}.",
        ),
        curve=_curve(data, effort) if ratio is loss_ratio and rival == "async-sgd" else None,
    )


def _shown(ratio: Ratio, logarithm: float) -> float:
    """Returns the figure of the claim: the ratio, or the change in per cent."""
    value = math.exp(logarithm)
    return 100 * (value - 1) if ratio in CHANGES else value


def _cause(ratio: Ratio, data: DataName, rival: MethodName, effort: Effort) -> str:
    """Describes the measured cause of a difference."""
    if ratio is iteration_spread:
        return (
            "Batches stay as they are while none would change by more than the dead band of 10 %, and speeds are "
            "measured from steps that vary."
        )
    if ratio not in CHANGES:
        return "The inputs that were not found decide: see the changed ones."
    plain, seeds = _central(data, effort), _seeds(effort)
    sides = [outcomes(plain, method, seeds) for method in ("dbs-sgd", rival)]
    means = [float(np.mean([run.staleness for run in runs])) for runs in sides]
    nodes = [float(np.mean([run.node_staleness for run in runs])) for runs in sides]
    timed = 100 * (math.exp(_paired(timed_loss_ratio, plain, rival, seeds).value) - 1)
    return (
        f"The mean staleness of an update is {means[0]:.1f} and {means[1]:.1f}, and that of the nodes' means "
        f"{nodes[0]:.1f} and {nodes[1]:.1f}: batches by speed make all gradients equally stale, where most of the "
        f"other method's come from fast nodes and are fresher. After equal time the loss differs by {timed:+.0f} %."
    )


def _data_words(data: DataName) -> str:
    if real_data(data) is not None:
        return f"Trained on {TITLES[data]}."
    return f"Trained on a stand-in for {TITLES[data]}, made from the digits of scikit-learn."


def _curve(data: DataName, effort: Effort) -> Curve:
    """Returns the mean loss over epochs of every method."""
    setting, lines = _central(data, effort), {}
    grid = np.linspace(0.0, setting.epochs, 33)
    for method in ("dbs-sgd", "async-sgd", "softsync", "softsync-undamped", "sync-sgd"):
        runs = outcomes(setting, method, effort.choose(3, 2))
        losses = [np.interp(grid, np.divide(run.samples, setting.samples / setting.epochs), run.losses) for run in runs]
        lines[method] = [(float(x), float(y)) for x, y in zip(grid, np.mean(losses, axis=0), strict=True)]
    return Curve(x="epochs", y="loss on held-out data", lines=lines, log_y=True)


def _distance(run: Outcome, other: Outcome, setting: Setting) -> float:
    """Returns the mean distance of two curves of losses over samples."""
    grid = np.linspace(0.0, setting.samples, 65).tolist()
    return float(np.mean(np.abs(run.curve(grid) - other.curve(grid))))


def _closer(data: DataName, effort: Effort) -> Predicted:
    """Returns the distance of ASGD's curve from the synchronous one over that of dbs-sgd's.

    Args:
        data: The data set.
        effort: Decides on seeds and changed inputs.
    """

    def ratio(setting: Setting, seeds: int) -> Predicted:
        runs = [outcomes(setting, name, seeds) for name in ("dbs-sgd", "async-sgd", "sync-sgd")]
        distances = [
            (_distance(ours, sync, setting), _distance(asgd, sync, setting))
            for ours, asgd, sync in zip(*runs, strict=True)
        ]
        return over_seeds([math.log(of_asgd / of_ours) for of_ours, of_asgd in distances]).mapped(math.exp)

    plain = _central(data, effort)
    central, slower = ratio(plain, _seeds(effort)), ratio(replace(plain, rate_factor=0.25), 3)
    words = f"{central.value:.2f} at {common_rate(plain):g}, {slower.value:.2f} at a quarter of it"
    return spanning(
        central,
        slower,
        reason=f"The learning rate and the noise of the curves decide: {words}. The mean staleness of an update is "
        "P − 1 in both methods.",
        details=(_data_words(data), "The synchronous rate is eight times that of a single gradient."),
    )


_made = claims_like(
    PAPER,
    section="abstract",
    hardware="nodes of different speeds; eight, of speeds 8, 4, 4, 2, 2, 1, 1, 1, assumed",
    model="two convolutions, assumed",
    batch="32 for each node at the beginning, assumed",
)


def _claim(
    data: DataName, name: str, sentence: str, ratio: Ratio | None, rival: MethodName = "async-sgd", **more: Any
) -> Claim:
    """Returns a claim on a data set, of dbs-sgd against a rival; without a ratio, on distances from synchronous SGD."""
    return _made(
        name,
        sentence,
        partial(_closer, data) if ratio is None else partial(_compared, ratio, data, rival),
        scenario=f"dbs-{data}",
        command=f"paceline simulate dbs-{data}",
        inputs=(*INPUTS, data, *(("softsync",) if rival == "softsync" else ())),
        shares=f"dbs-{data}",
        **more,
    )


def _against(rival: MethodName, words: str) -> Iterator[Claim]:
    short = "asgd" if rival == "async-sgd" else "softsync"
    within: dict[str, Any] = {"unit": "%", "holds_if": "within 25 %"}
    for data, title in TITLES.items():
        change = LOSSES[data]
        sentence = f"the loss on {title} is {-change:.0f} % lower than with {words}"
        yield _claim(data, f"{data}-loss-{short}", sentence, loss_ratio, rival, published=change, **within)
    sentence = f"the accuracy on CIFAR-10 is about 10 % higher than with {words}"
    yield _claim("cifar10", f"cifar10-accuracy-{short}", sentence, accuracy_ratio, rival, published=10.0, **within)


ONE: dict[str, Any] = {"published": 1.0, "holds_if": "within 25 %"}
CLAIMS = (
    *(claim for rival, words in RIVALS.items() for claim in _against(rival, words)),
    _claim("mnist", "speed-up", "the speed-up is not lost: samples per second over those of ASGD", speed_ratio, **ONE),
    _claim(
        "mnist",
        "node-staleness",
        "the average staleness of the nodes falls: ASGD's mean over the nodes, over that of DBS-SGD",
        staleness_ratio,
        holds_if="order",
    ),
    _claim(
        "mnist",
        "iteration-times",
        "batches by speed make the iteration times of heterogeneous nodes equal: the longest over the shortest",
        iteration_spread,
        **ONE,
    ),
    *(
        _claim(
            data,
            f"{data}-curve",
            f"the curve on {title} is close to the synchronous one: ASGD's distance from it over DBS-SGD's",
            None,
            holds_if="order",
        )
        for data, title in TITLES.items()
    ),
)
