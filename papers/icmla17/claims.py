"""Claims on hierarchical bulk-synchronous SGD at 128 GPUs: speed-up, and comparisons with asynchronous methods.

A speed-up is the time of one GPU to an accuracy, over that of 128. It is the ratio of samples per second, which are
simulated for the CIFAR-10 network, over the ratio of samples to the accuracy, which the stand-in needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.papers.core.claim import Assertion, Claim, Curve, Effort, Predicted, over_range, spanning
from paceline.papers.icmla17.tuned_runs import (
    COMPARED,
    EPOCH,
    GPUS,
    OTHERS,
    PAPER,
    PUBLISHED,
    SCENARIO,
    TARGETS,
    TIMINGS,
    central_target,
    hbs,
    limit,
    samples_per_s,
    train,
    tuned,
)


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
    return [faster * one / many for one, many in pairs]


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
    low = min(one.low for one in of_target.values()) * min(ratios.values())
    high = max(one.high for one in of_target.values()) * max(ratios.values())
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
    found = _faster(method, SequentialSgd(), effort)
    central = next(iter(found.values()))
    return {name: ratio / central for name, ratio in found.items()}


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
    rates = {one: tuned(one, effort).rate for one in (method, reference)}
    for seed in range(1, effort.choose(3, 2) + 1):
        ours, theirs = (train(one, rate, seed, epochs, stop=False) for one, rate in rates.items())
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
    missed = sum(one == math.inf for one in theirs.samples(center))
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


def _claim(name: str, sentence: str, holds_if: Assertion, predict: partial[Predicted], **more: Any) -> Claim:
    setting = ("gpus", "machine", "model", "batch", "jitter")
    method = ("group", "k1", "k2", "stand-in", "target", "learning-rates")
    return Claim(
        name=f"icmla17-{name}",
        paper=PAPER,
        section="abstract",
        sentence=sentence,
        published=more.get("published"),
        unit=more.get("unit", "×"),
        hardware="128 GPUs",
        model="not found; a CIFAR-10 network here",
        batch="not found; 64 per GPU here",
        scenario=SCENARIO,
        command="paceline simulate icmla17-cifar10",
        inputs=(*setting, *method, *more.get("inputs", ())),
        holds_if=holds_if,
        predict=predict,
        shares="icmla17",
    )


def _comparisons() -> list[Claim]:
    claims = []
    for name in OTHERS:
        own = {"inputs": (name,) if name in ("downpour", "eamsgd") else ()}
        sentence = f"converges better than {name} (samples to the accuracy, {name} over hbs-sgd)"
        claims.append(_claim(f"convergence-{name}", sentence, "order", partial(compared, name, "samples"), **own))
        sentence = f"is faster at scale than {name} (time to the accuracy, {name} over hbs-sgd)"
        claims.append(_claim(f"time-{name}", sentence, "order", partial(compared, name, "time"), **own))
    return claims


CLAIMS: tuple[Claim, ...] = (
    _claim(
        "speed-up", "up to 56 times sequential SGD with 128 GPUs", "within 25 %", partial(speed_up), published=PUBLISHED
    ),
    _claim(
        "efficiency",
        "56 times on 128 GPUs is an efficiency of 43.75 %",
        "within 25 %",
        partial(speed_up, scale=100 / GPUS),
        published=100 * PUBLISHED / GPUS,
        unit="%",
    ),
    _claim(
        "accuracy",
        "similar test accuracy as sequential SGD (hbs-sgd minus sequential SGD; read as at most one point lower)",
        "at least",
        partial(accuracy),
        published=-1.0,
        unit="points",
        inputs=("final-epochs",),
    ),
    *_comparisons(),
)
