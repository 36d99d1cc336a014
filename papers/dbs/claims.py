"""Claims on DBS-SGD: loss and accuracy, speed-up, staleness of the nodes, iteration times, and the synchronous curve.

Rules of this file:

* Figures are ratios, paired by seed, and their means are geometric: a loss cannot be lower by more than 100 %.
* Losses and accuracies are compared after equal samples of all nodes, which are equal epochs; after equal time they are
  in the reasons.
* One input at a time is changed from the central values. The interval of a figure contains the intervals of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np

from paceline.papers.core.claim import Assertion, Claim, Curve, Effort, Predicted, over_seeds
from paceline.papers.dbs.coloured_digits import real_data
from paceline.papers.dbs.training_runs import DataName, MethodName, Outcome, Setting, common_rate, outcomes

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
    end_s = max(one.time_of(setting.samples) for one in (ours, theirs))
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
    found = [("a quarter of the learning rate", replace(plain, rate_factor=0.25))]
    if not effort.quick:
        found += [
            ("half the epochs", replace(plain, epochs=plain.epochs / 2)),
            ("speeds of at most 2", replace(plain, speeds=(2, 2, 2, 2, 1, 1, 1, 1))),
            ("speeds of up to 16", replace(plain, speeds=(16, 8, 4, 4, 2, 1, 1, 1))),
            ("batches of 16", replace(plain, batch=16)),
            ("batches of 64", replace(plain, batch=64)),
            ("no jitter", replace(plain, sigma=0.0)),
            ("jitter of sigma 0.3", replace(plain, sigma=0.3)),
            ("a network of 1 Gbit/s", replace(plain, link="eth-1g")),
        ]
    return tuple(found)


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
    central = _paired(ratio, plain, rival, effort.choose(max(3, effort.seeds), 3))
    found = {words: _paired(ratio, setting, rival, fewer) for words, setting in _others(data, effort)}
    if rival == "softsync":
        found["full weight for stale gradients"] = _paired(ratio, plain, "softsync-undamped", fewer)
    every = (central, *found.values())
    shown = partial(_shown, ratio)
    listed = ", ".join(f"{shown(one.value):.3g} with {words}" for words, one in found.items())
    return Predicted(
        value=shown(central.value),
        low=shown(min(one.low for one in every)),
        high=shown(max(one.high for one in every)),
        reason=_cause(ratio, data, rival, effort),
        details=(
            _data_words(data),
            f"Learning rate for a gradient: {common_rate(plain):g}.",
            f"Over seeds with the central inputs: {shown(central.low):.3g} to {shown(central.high):.3g}.",
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
    plain, seeds = _central(data, effort), effort.choose(max(3, effort.seeds), 3)
    ours, theirs = (outcomes(plain, method, seeds) for method in ("dbs-sgd", rival))
    means = [float(np.mean([one.staleness for one in some])) for some in (ours, theirs)]
    nodes = [float(np.mean([one.node_staleness for one in some])) for some in (ours, theirs)]
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
        losses = [np.interp(grid, np.divide(one.samples, setting.samples / setting.epochs), one.losses) for one in runs]
        lines[method] = [(float(x), float(y)) for x, y in zip(grid, np.mean(losses, axis=0), strict=True)]
    return Curve(x="epochs", y="loss on held-out data", lines=lines, log_y=True)


def _distance(one: Outcome, other: Outcome, setting: Setting) -> float:
    """Returns the mean distance of two curves of losses over samples."""
    grid = np.linspace(0.0, setting.samples, 65).tolist()
    return float(np.mean(np.abs(one.curve(grid) - other.curve(grid))))


def _closer(data: DataName, effort: Effort) -> Predicted:
    """Returns the distance of ASGD's curve from the synchronous one over that of dbs-sgd's.

    Args:
        data: The data set.
        effort: Decides on seeds and changed inputs.
    """

    def logarithm(setting: Setting, seeds: int) -> Predicted:
        ours, plain, steady = (outcomes(setting, name, seeds) for name in ("dbs-sgd", "async-sgd", "sync-sgd"))
        triples = zip(ours, plain, steady, strict=True)
        return over_seeds(
            [math.log(_distance(two, sync, setting) / _distance(one, sync, setting)) for one, two, sync in triples]
        )

    plain, slower = _central(data, effort), replace(_central(data, effort), rate_factor=0.25)
    central = logarithm(plain, effort.choose(max(3, effort.seeds), 3))
    other = logarithm(slower, 3)
    words = f"{math.exp(central.value):.2f} at {common_rate(plain):g}, {math.exp(other.value):.2f} at a quarter of it"
    return Predicted(
        value=math.exp(central.value),
        low=math.exp(min(central.low, other.low)),
        high=math.exp(max(central.high, other.high)),
        reason=f"The learning rate and the noise of the curves decide: {words}. The mean staleness of an update is "
        "P − 1 in both methods.",
        details=(_data_words(data), "The synchronous rate is eight times that of a single gradient."),
    )


def _claims() -> Iterator[Claim]:
    for rival, words in RIVALS.items():
        short = "asgd" if rival == "async-sgd" else "softsync"
        for data, title in TITLES.items():
            change = LOSSES[data]
            sentence = f"the loss on {title} is {-change:.0f} % lower than with {words}"
            yield _claim(f"{data}-loss-{short}", data, sentence, change, "%", "within 25 %", loss_ratio, rival)
        sentence = f"the accuracy on CIFAR-10 is about 10 % higher than with {words}"
        yield _claim(f"cifar10-accuracy-{short}", "cifar10", sentence, 10.0, "%", "within 25 %", accuracy_ratio, rival)
    sentence = "the speed-up is not lost: samples per second over those of ASGD"
    yield _claim("speed-up", "mnist", sentence, 1.0, "×", "within 25 %", speed_ratio, "async-sgd")
    sentence = "the average staleness of the nodes falls: ASGD's mean over the nodes, over that of DBS-SGD"
    yield _claim("node-staleness", "mnist", sentence, None, "×", "order", staleness_ratio, "async-sgd")
    sentence = "batches by speed make the iteration times of heterogeneous nodes equal: the longest over the shortest"
    yield _claim("iteration-times", "mnist", sentence, 1.0, "×", "within 25 %", iteration_spread, "async-sgd")
    for data, title in TITLES.items():
        sentence = f"the curve on {title} is close to the synchronous one: ASGD's distance from it over DBS-SGD's"
        yield _claim(f"{data}-curve", data, sentence, None, "×", "order", None, "async-sgd")


def _claim(
    name: str,
    data: DataName,
    sentence: str,
    published: float | None,
    unit: str,
    holds_if: Assertion,
    ratio: Ratio | None,
    rival: MethodName,
) -> Claim:
    return Claim(
        name=f"dbs-{name}",
        paper=PAPER,
        section="abstract",
        sentence=sentence,
        published=published,
        unit=unit,
        hardware="nodes of different speeds; eight, of speeds 8, 4, 4, 2, 2, 1, 1, 1, assumed",
        model="two convolutions, assumed",
        batch="32 for each node at the beginning, assumed",
        scenario=f"dbs-{data}",
        command=f"paceline simulate dbs-{data}",
        inputs=(*INPUTS, data, *(("softsync",) if rival == "softsync" else ())),
        holds_if=holds_if,
        predict=partial(_closer, data) if ratio is None else partial(_compared, ratio, data, rival),
        shares=f"dbs-{data}",
    )


CLAIMS = tuple(_claims())
