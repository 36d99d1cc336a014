"""Claims on DBS-SGD: loss and accuracy, speed-up, staleness of the nodes, iteration times, and the synchronous curve.

Rules of this file:

* Losses and accuracies are compared after equal samples of all nodes, which are equal epochs; after equal time they are
  in the details. Differences are paired by seed.
* One input at a time is changed from the central values. The interval of a figure contains the intervals of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np

from paceline.papers.claim import Assertion, Claim, Curve, Effort, Predicted, over_seeds, spanning
from paceline.papers.dbs_runs import DataName, MethodName, Outcome, Setting, common_rate, outcomes
from paceline.papers.coloured_digits import real_data

PAPER = "dbs"
TITLES: dict[DataName, str] = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
RIVALS: dict[MethodName, str] = {"async-sgd": "ASGD", "softsync": "n-softsync"}
INPUTS = ("speeds", "slowest_node", "network", "jitter", "batch", "epochs", "learning_rate", "weighting")
Figure = Callable[[Outcome, Outcome, Setting], float]
"""the figure of a claim for one seed, from the run of dbs-sgd and that of its rival"""


def loss_change(ours: Outcome, theirs: Outcome, setting: Setting) -> float:
    """Returns how much lower or higher our loss is after equal samples, in per cent of theirs."""
    return 100 * (ours.loss_after(setting.samples) / theirs.loss_after(setting.samples) - 1)


def loss_change_in_time(ours: Outcome, theirs: Outcome, setting: Setting) -> float:
    """Returns the same at the time at which the rival has processed these samples."""
    now_s = theirs.time_of(setting.samples)
    return 100 * (ours.loss_at(now_s) / theirs.loss_at(now_s) - 1)


def accuracy_change(ours: Outcome, theirs: Outcome, setting: Setting) -> float:
    """Returns how much higher our accuracy is after equal samples, in per cent of theirs."""
    return 100 * (ours.accuracy_after(setting.samples) / theirs.accuracy_after(setting.samples) - 1)


def speed(ours: Outcome, theirs: Outcome, _: Setting) -> float:
    """Returns our samples per second over theirs."""
    return ours.samples_per_s / theirs.samples_per_s


def staleness_change(ours: Outcome, theirs: Outcome, _: Setting) -> float:
    """Returns their mean staleness of the nodes over ours."""
    return theirs.node_staleness / ours.node_staleness


def iteration_spread(ours: Outcome, _: Outcome, __: Setting) -> float:
    """Returns the largest mean iteration time of a node over the smallest, once batches have settled."""
    return ours.iteration_spread


@cache
def _others(data: DataName, effort: Effort) -> tuple[tuple[str, Setting], ...]:
    """Returns the settings with one input changed, with a description."""
    plain = Setting(data)
    found = [
        ("a quarter of the learning rate", replace(plain, rate_factor=0.25)),
        ("speeds of at most 2", replace(plain, speeds=(2, 2, 2, 2, 1, 1, 1, 1))),
        ("half the epochs", replace(plain, epochs=plain.epochs / 2)),
    ]
    if not effort.quick:
        found += [
            ("speeds of up to 16", replace(plain, speeds=(16, 8, 4, 4, 2, 1, 1, 1))),
            ("batches of 16", replace(plain, batch=16)),
            ("batches of 64", replace(plain, batch=64)),
            ("no jitter", replace(plain, sigma=0.0)),
            ("jitter of sigma 0.3", replace(plain, sigma=0.3)),
            ("a network of 1 Gbit/s", replace(plain, link="eth-1g")),
        ]
    return tuple(found)


def _paired(figure: Figure, setting: Setting, rival: MethodName, seeds: int) -> Predicted:
    """Returns the mean of a figure over the seeds, with Student's 95 % interval."""
    pairs = zip(outcomes(setting, "dbs-sgd", seeds), outcomes(setting, rival, seeds), strict=True)
    return over_seeds([figure(ours, theirs, setting) for ours, theirs in pairs])


def _compared(figure: Figure, data: DataName, rival: MethodName, effort: Effort) -> Predicted:
    """Returns a figure with the central inputs, with an interval over seeds and changed inputs.

    Args:
        figure: The figure.
        data: The data set.
        rival: The method that dbs-sgd is compared with.
        effort: Decides on seeds and changed inputs.
    """
    plain, seeds, fewer = Setting(data), max(3, effort.seeds), effort.choose(3, 2)
    central = _paired(figure, plain, rival, effort.choose(seeds, 3))
    found = {words: _paired(figure, setting, rival, fewer) for words, setting in _others(data, effort)}
    if rival == "softsync":
        found["full weight for stale gradients in softsync"] = _paired(figure, plain, "softsync-undamped", fewer)
    # the range of an input is that of the means; the noise of few seeds is that of the central inputs
    half = (central.high - central.low) / 2
    ends = {words: one.value for words, one in found.items()}
    least, most = (end(ends, key=lambda words: ends[words]) for end in (min, max))
    listed = f"{central.value:.3g} with the central inputs, {central.low:.3g} to {central.high:.3g} over seeds; "
    listed += f"{ends[least]:.3g} with {least}, {ends[most]:.3g} with {most}"
    around = [Predicted(value=value, low=value - half, high=value + half) for value in ends.values()]
    return spanning(
        central,
        *around,
        reason=f"{_cause(data, rival, effort)} {listed}.",
        details=(_data_words(data), f"Learning rate for a gradient {common_rate(plain):g}."),
        curve=_curve(data, effort) if figure is loss_change else None,
    )


def _cause(data: DataName, rival: MethodName, effort: Effort) -> str:
    """Describes what differs between the two methods as measured: staleness, and the loss after equal time."""
    plain, seeds = Setting(data), effort.choose(max(3, effort.seeds), 3)
    ours, theirs = (outcomes(plain, method, seeds) for method in ("dbs-sgd", rival))
    means = [np.mean([one.staleness for one in some]) for some in (ours, theirs)]
    timed = _paired(loss_change_in_time, plain, rival, seeds)
    return (
        f"The mean staleness of updates is {means[0]:.1f} and {means[1]:.1f}: batches by speed change how it is "
        f"distributed over the nodes. After equal time the loss differs by {timed.value:+.0f} %."
    )


def _data_words(data: DataName) -> str:
    if real_data(data) is not None:
        return f"Trained on {TITLES[data]}."
    return f"Trained on a stand-in for {TITLES[data]}, made from the digits of scikit-learn."


def _curve(data: DataName, effort: Effort) -> Curve:
    """Returns the mean loss over epochs of every method."""
    setting, lines = Setting(data), {}
    grid = np.linspace(0.0, setting.epochs, 33)
    for method in ("dbs-sgd", "async-sgd", "softsync", "softsync-undamped", "sync-sgd"):
        runs = outcomes(setting, method, effort.choose(3, 2))  # type: ignore[arg-type]
        losses = [np.interp(grid, np.divide(one.samples, setting.samples / setting.epochs), one.losses) for one in runs]
        lines[method] = [(float(x), float(y)) for x, y in zip(grid, np.mean(losses, axis=0), strict=True)]
    return Curve(x="epochs", y="loss on held-out data", lines=lines, log_y=True)


def _distance(one: Outcome, other: Outcome, setting: Setting) -> float:
    """Returns the mean distance of two curves of losses over samples."""
    grid = np.linspace(0.0, setting.samples, 65)
    return float(np.mean(np.abs([one.loss_after(at) - other.loss_after(at) for at in grid])))


def _closer(data: DataName, effort: Effort) -> Predicted:
    """Returns the distance of ASGD's curve from the synchronous one over that of dbs-sgd's.

    Args:
        data: The data set.
        effort: Decides on seeds and changed inputs.
    """

    def ratios(setting: Setting, seeds: int) -> Predicted:
        runs = (outcomes(setting, method, seeds) for method in ("dbs-sgd", "async-sgd", "sync-sgd"))
        return over_seeds(
            [_distance(plain, sync, setting) / _distance(ours, sync, setting) for ours, plain, sync in zip(*runs, strict=True)]
        )

    plain, slower = Setting(data), replace(Setting(data), rate_factor=0.25)
    central, other = ratios(plain, effort.choose(max(3, effort.seeds), 3)), ratios(slower, effort.choose(3, 2))
    return spanning(
        central,
        Predicted(value=other.value, low=other.value, high=other.value),
        reason=f"The learning rate decides: {central.value:.2f} at {common_rate(plain):g}, {other.value:.2f} at a "
        "quarter of it. A mean staleness of P − 1 updates is the same in both methods.",
        details=(_data_words(data), "The synchronous rate is eight times that of a single gradient."),
    )


def _claims() -> Iterator[Claim]:
    for rival, words in RIVALS.items():
        short = "asgd" if rival == "async-sgd" else "softsync"
        for data, change in (("mnist", -60.0), ("cifar10", -10.0)):
            sentence = f"the loss on {TITLES[data]} is {-change:.0f} % lower than with {words}"
            yield _claim(f"{data}-loss-{short}", data, sentence, change, "%", "within 25 %", loss_change, rival)
        sentence = f"the accuracy on CIFAR-10 is about 10 % higher than with {words}"
        yield _claim(f"cifar10-accuracy-{short}", "cifar10", sentence, 10.0, "%", "within 25 %", accuracy_change, rival)
    sentence = "the speed-up is not lost: samples per second over those of ASGD"
    yield _claim("speed-up", "mnist", sentence, 1.0, "×", "within 25 %", speed, "async-sgd")
    sentence = "the average staleness of the nodes falls: ASGD's mean over the nodes, over that of DBS-SGD"
    yield _claim("node-staleness", "mnist", sentence, None, "×", "order", staleness_change, "async-sgd")
    sentence = "batches by speed make the iteration times of heterogeneous nodes equal: the longest over the shortest"
    yield _claim("iteration-times", "mnist", sentence, 1.0, "×", "within 25 %", iteration_spread, "async-sgd")
    for data in TITLES:
        sentence = f"the curve on {TITLES[data]} is close to the synchronous one: ASGD's distance from it over DBS-SGD's"
        yield _claim(f"{data}-curve", data, sentence, None, "×", "order", None, "async-sgd")


def _claim(
    name: str,
    data: DataName,
    sentence: str,
    published: float | None,
    unit: str,
    holds_if: Assertion,
    figure: Figure | None,
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
        predict=partial(_closer, data) if figure is None else partial(_compared, figure, data, rival),
        shares=f"dbs-{data}",
    )


CLAIMS = tuple(_claims())
