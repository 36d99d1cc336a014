"""Claims on n-softsync: staleness, divergence at a fixed rate, convergence at the rate over the staleness, speed-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from statistics import fmean
from typing import Any, Literal

import numpy as np

from paceline.algorithms.methods.parameter_server import Damping, Softsync
from paceline.papers.claim import (
    Claim,
    Effort,
    Predicted,
    claims_like,
    input_named,
    number_named,
    over_range,
    over_seeds,
    ranging,
    spanning,
)
from paceline.papers.runs import accuracy_of, rate_of, simulated
from paceline.workloads.models.layer_tables import find_model

PAPER = "softsync"
number = partial(number_named, PAPER)
SCENARIO = "softsync-p775"
HARDWARE = "Power 775, 30 learners"
MODEL = "CNN of 90 thousand parameters, CIFAR-10"
RATES = tuple(0.0125 * 2**power for power in range(-5, 6))
"""learning rates of the grid; those of momentum 0.9 lie lower than those without"""
TUNING_SEED = 101
HARDSYNC = 0
"""stands for hardsync where speed-ups are listed by n"""
ALONE = ("cluster.nodes[0].count=1", "cluster.nodes[0].workers_per_node=1")
"""changes for one learner"""


def _staleness(n: int, sigma: float, seed: int, updates: int) -> np.ndarray:
    """Returns the staleness of every applied gradient, without those of the first round of all learners."""
    changes = [
        f"cluster.step_time.sigma={sigma}",
        f"stop.updates={updates}",
        "stop.epochs=null",
        "workload.learning=none",
    ]
    (run,) = simulated(SCENARIO, changes, algorithms=[Softsync(n=n)], seed=seed)
    staleness: np.ndarray = run.tables.updates["staleness"].to_numpy()
    return staleness[int(number("learners")) :]


@cache
def _ages(n: int, effort: Effort) -> dict[float, tuple[np.ndarray, ...]]:
    """Returns the staleness of every gradient, by jitter and seed."""
    gradients = effort.choose(30_000, 6_000)
    updates = gradients * n // int(number("learners"))
    return {
        sigma: tuple(_staleness(n, sigma, seed, updates) for seed in range(1, effort.choose(3, 2) + 1))
        for sigma in input_named(PAPER, "jitter").numbers
    }


def mean_staleness(n: int, effort: Effort) -> Predicted:
    """Returns the mean staleness of n-softsync."""
    means = [over_seeds([float(ages.mean()) for ages in seeds]) for seeds in _ages(n, effort).values()]
    learners = int(number("learners"))
    law = (learners - 1) / (learners // n)
    return spanning(*means, details=(f"The law for immediate pulls is (λ − 1)/c = {law:.3g}.",))


def largest_staleness(n: int, effort: Effort) -> Predicted:
    """Returns the largest staleness of all gradients."""
    largest = {sigma: over_range([float(ages.max()) for ages in seeds]) for sigma, seeds in _ages(n, effort).items()}
    return spanning(*largest.values(), reason=_by_jitter({sigma: span.high for sigma, span in largest.items()}))


def share_beyond(n: int, effort: Effort) -> Predicted:
    """Returns the share of gradients that are staler than 2 n."""
    shares = {sigma: float(np.mean(np.concatenate(ages) > 2 * n)) for sigma, ages in _ages(n, effort).items()}
    return ranging(*_first(shares), reason=_by_jitter(shares))


def _first(figures: Mapping[Any, float]) -> tuple[float, list[float]]:
    """Returns the first figure, which is the central one, and the others."""
    central, *others = figures.values()
    return central, others


def _by_jitter(figures: dict[float, float]) -> str:
    listed = ", ".join(f"{figure:.3g} with sigma {sigma:g}" for sigma, figure in figures.items())
    return f"The variation of step times, which is not known, decides: {listed}."


@cache
def _one_learner(model: str, effort: Effort) -> tuple[float, tuple[float, ...]]:
    """Returns the best learning rate of one learner at its batch, and its accuracies at it, one for each seed."""

    def accuracy(rate: float, seed: int) -> float:
        batch = f"workload.batch_per_worker={int(number('batch-of-one'))}"
        changes = [*_learning(rate, model, effort), *ALONE, batch]
        (run,) = simulated(SCENARIO, changes, algorithms=["sequential-sgd"], seed=seed)
        return accuracy_of(run)

    best = max(RATES, key=lambda rate: accuracy(rate, TUNING_SEED))
    return best, tuple(accuracy(best, seed) for seed in _seeds(effort))


def _learning(rate: float, model: str, effort: Effort) -> list[str]:
    epochs = effort.choose(int(number("epochs")), 20)
    rates = [f"hyperparameters.learning_rate={rate}", f"hyperparameters.momentum={number('momentum')}"]
    return [*rates, f"workload.model={model}", f"stop.epochs={epochs}"]


def _seeds(effort: Effort) -> range:
    return range(1, effort.choose(3, 2) + 1)


@cache
def _accuracies(n: int, damping: Damping, model: str, effort: Effort) -> tuple[float, ...]:
    """Returns the final accuracies of 30 learners at the rate of one, in per cent, one for each seed."""
    rate, _ = _one_learner(model, effort)
    method = Softsync(n=n, damping=damping, learning_rate=rate, momentum=number("momentum"))
    changes = _learning(rate, model, effort)
    return tuple(
        accuracy_of(simulated(SCENARIO, changes, algorithms=[method], seed=seed)[0]) for seed in _seeds(effort)
    )


def _models(effort: Effort) -> tuple[str, ...]:
    """Returns the stand-ins, the central one first."""
    given = input_named(PAPER, "stand-in")
    assert given.low is not None and given.high is not None
    return (given.low,) if effort.quick else (given.low, given.high)


def error_at_fixed_rate(n: int, effort: Effort) -> Predicted:
    """Returns the final error of n-softsync at the fixed rate of one learner, in per cent; 90 is that of a guess."""
    errors = {
        model: [100.0 - accuracy for accuracy in _accuracies(n, "none", model, effort)] for model in _models(effort)
    }
    listed = ", ".join(f"{model} {fmean(of_model):.1f} %" for model, of_model in errors.items())
    rates = ", ".join(f"{model} {_one_learner(model, effort)[0]:g}" for model in errors)
    return spanning(
        *map(over_range, errors.values()),
        reason=f"The stand-in decides, as the largest stable rate depends on the curvature of the problem: {listed}.",
        details=(f"Learning rate, the best of one learner at batch 128 with momentum 0.9: {rates}.",),
    )


def accuracy_less_one(n: int, effort: Effort) -> Predicted:
    """Returns the accuracy of n-softsync at the rate over the staleness, minus that of one learner, in points."""
    less = {
        model: [ours - single for ours, single in zip(_accuracies(n, "inverse", model, effort), alone, strict=True)]
        for model in _models(effort)
        for alone in [_one_learner(model, effort)[1]]
    }
    listed = ", ".join(f"{model} {fmean(of_model):+.1f}" for model, of_model in less.items())
    epochs = effort.choose(int(number("epochs")), 20)
    return spanning(
        *map(over_range, less.values()),
        reason=f"Dividing the rate by the staleness makes {epochs} epochs of the stand-in too few: {listed} points."
        if n > 1
        else f"By stand-in: {listed} points.",
    )


def _speed_ups(changes: Sequence[str], batch: int, effort: Effort) -> dict[int, float]:
    """Returns the samples per second of 30 learners over those of one, by n."""
    rounds = effort.choose(100, 30)
    common = [*changes, "workload.learning=none", "workload.model=cifar10-full", f"workload.batch_per_worker={batch}"]
    common += ["workload.dataset=cifar10", "stop.epochs=null"]

    def rate(algorithm: Any, updates: int) -> float:
        (run,) = simulated(SCENARIO, [*common, f"stop.updates={updates}"], algorithms=[algorithm])
        return rate_of(run)

    single = rate("sequential-sgd", rounds)
    ratios = {n: rate(Softsync(n=n), rounds * n) / single for n in (1, 15, 30)}
    return ratios | {HARDSYNC: rate("sync-sgd-ps", rounds) / single}


def _settings() -> dict[str, tuple[list[str], int]]:
    """Returns changes and batch of each plausible input of the speed-up, the central ones first."""
    overhead, *overheads = input_named(PAPER, "overhead").numbers
    efficiency, *efficiencies = input_named(PAPER, "efficiency").numbers
    batch, *batches = map(int, input_named(PAPER, "batch-of-speed-up").numbers)
    _, *latencies = input_named(PAPER, "latency").numbers
    made = {"central": (_device(overhead, efficiency), batch)}
    made |= {f"overhead {ms:g} ms": (_device(ms, efficiency), batch) for ms in overheads}
    made |= {f"efficiency {share:g}": (_device(overhead, share), batch) for share in efficiencies}
    made |= {f"batch {size}": (_device(overhead, efficiency), size) for size in batches}
    slower = [f"cluster.network.link.latency={us} us" for us in latencies]
    return made | {text.partition("=")[2]: ([*_device(overhead, efficiency), text], batch) for text in slower}


def _device(overhead_ms: float, efficiency: float) -> list[str]:
    """Returns the changes for a learner's speed: the operations of a gradient at a share of the peak."""
    operations = find_model("cifar10-full").training_flops
    per_sample_s = operations / (efficiency * number("node-peak") * 1e9 / number("learners-per-node"))
    device = "cluster.nodes[0].device"
    return [f"{device}.overhead={overhead_ms} ms", f"{device}.per_sample={per_sample_s} s"]


@cache
def _every_speed_up(effort: Effort) -> dict[str, dict[int, float]]:
    return {name: _speed_ups(changes, batch, effort) for name, (changes, batch) in _settings().items()}


def speed_up(which: Literal["least", "most"], effort: Effort) -> Predicted:
    """Returns the least or largest speed-up of 30 learners among n = 1, 15 and 30."""
    choose = min if which == "least" else max
    every = _every_speed_up(effort)
    by_input = {name: choose(ratio for n, ratio in by_n.items() if n != HARDSYNC) for name, by_n in every.items()}
    central = next(iter(every.values()))
    listed = ", ".join(f"{name} {ratio:.3g}" for name, ratio in by_input.items())
    by_n = ", ".join(f"{n or 'hardsync'}: {ratio:.1f}" for n, ratio in central.items())
    return ranging(
        *_first(by_input),
        reason=f"No plausible input makes an asynchronous learner wait. By input: {listed}. Updates of the server, "
        "and the memory that learners of a node share, cost no time in the scenario, as their costs were not found.",
        details=(f"By n: {by_n}. The paper does not say, in what we have of it, which protocol has which speed-up.",),
    )


TIME = ("learners", "learners-per-node", "node-peak", "efficiency", "overhead", "link", "latency", "model")
COMMAND = "paceline simulate softsync-p775"


COMMON = {"hardware": HARDWARE, "model": MODEL, "scenario": SCENARIO}
_stale = claims_like(
    PAPER,
    section="staleness, 30 learners",
    batch="4 per learner",
    command=f"{COMMAND} --set workload.learning=none",
    inputs=(*TIME, "batch", "jitter"),
    shares="softsync staleness",
    **COMMON,
)
_accurate = claims_like(
    PAPER,
    section="accuracy, CIFAR-10",
    batch="4 per learner",
    command=COMMAND,
    inputs=("learners", "batch", "batch-of-one", "momentum", "stand-in", "learning-rate", "epochs", "jitter"),
    shares="softsync accuracy",
    **COMMON,
)
_fast = claims_like(
    PAPER,
    section="speed-up, 30 learners",
    batch="128 per learner",
    command=f"{COMMAND} --set workload.learning=none",
    inputs=(*TIME, "batch-of-speed-up"),
    holds_if="within 25 %",
    shares="softsync speed-up",
    **COMMON,
)


def _staleness_claims() -> Iterator[Claim]:
    words = "1-softsync of 30 learners has a staleness of 0, 1 or 2 (the largest)"
    predict = partial(largest_staleness, 1)
    yield _stale("staleness-1", words, predict, published=2.0, unit="updates", holds_if="at most")
    for n in (15, 30):
        words = f"{n}-softsync of 30 learners has a mean staleness of about {n}"
        predict = partial(mean_staleness, n)
        yield _stale(f"staleness-{n}", words, predict, published=float(n), unit="updates", holds_if="within 25 %")
        words = f"{n}-softsync: a gradient is staler than {2 * n} with a probability below 0.0001"
        predict = partial(share_beyond, n)
        yield _stale(f"staleness-beyond-{n}", words, predict, published=1e-4, unit="", holds_if="at most")


def _accuracy_claims() -> Iterator[Claim]:
    for n in (15, 30):
        words = f"{n}-softsync diverges at a fixed rate: its error is 90 %"
        predict = partial(error_at_fixed_rate, n)
        yield _accurate(f"divergence-{n}", words, predict, published=90.0, unit="%", holds_if="within 25 %")
    for n in (1, 15, 30):
        words = (
            f"{n}-softsync at the rate over the staleness ends at the accuracy of one learner (at most a point less)"
        )
        predict = partial(accuracy_less_one, n)
        yield _accurate(f"convergence-{n}", words, predict, published=-1.0, unit="points", holds_if="at least")


def _speed_claims() -> Iterator[Claim]:
    words = "30 learners are 22 to 28 times as fast as one: the {} of n = 1, 15 and 30"
    yield _fast("speed-up-least", words.format("slowest"), partial(speed_up, "least"), published=22.0)
    yield _fast("speed-up-most", words.format("fastest"), partial(speed_up, "most"), published=28.0)


CLAIMS: tuple[Claim, ...] = (*_staleness_claims(), *_accuracy_claims(), *_speed_claims())
