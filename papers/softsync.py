"""Claims on n-softsync: staleness, divergence at a fixed rate, convergence at the rate over the staleness, speed-up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Literal

import numpy as np

from paceline.algorithms.methods.parameter_server import Damping, Softsync
from paceline.papers.claim import (
    Claim,
    Effort,
    Predicted,
    input_named,
    number_named,
    over_range,
    over_seeds,
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
    found: np.ndarray = run.tables.updates["staleness"].to_numpy()
    return found[int(number("learners")) :]


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
    found = [over_seeds([float(ages.mean()) for ages in seeds]) for seeds in _ages(n, effort).values()]
    learners = int(number("learners"))
    law = (learners - 1) / (learners // n)
    return spanning(*found, details=(f"The law for immediate pulls is (λ − 1)/c = {law:.3g}.",))


def largest_staleness(n: int, effort: Effort) -> Predicted:
    """Returns the largest staleness of all gradients."""
    found = [over_range([float(ages.max()) for ages in seeds]) for seeds in _ages(n, effort).values()]
    return spanning(*found, reason=_by_jitter({s: max(a.max() for a in ages) for s, ages in _ages(n, effort).items()}))


def share_beyond(n: int, effort: Effort) -> Predicted:
    """Returns the share of gradients that are staler than 2 n."""
    shares = {sigma: float(np.mean(np.concatenate(ages) > 2 * n)) for sigma, ages in _ages(n, effort).items()}
    return spanning(*(over_seeds([share]) for share in shares.values()), reason=_by_jitter(shares))


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
    errors = {model: [100.0 - one for one in _accuracies(n, "none", model, effort)] for model in _models(effort)}
    listed = ", ".join(f"{model} {sum(found) / len(found):.1f} %" for model, found in errors.items())
    rates = ", ".join(f"{model} {_one_learner(model, effort)[0]:g}" for model in errors)
    return spanning(
        *map(over_range, errors.values()),
        reason=f"The stand-in decides, as the largest stable rate depends on the curvature of the problem: {listed}.",
        details=(f"Learning rate, the best of one learner at batch 128 with momentum 0.9: {rates}.",),
    )


def accuracy_less_one(n: int, effort: Effort) -> Predicted:
    """Returns the accuracy of n-softsync at the rate over the staleness, minus that of one learner, in points."""
    less = {
        model: [ours - one for ours, one in zip(_accuracies(n, "inverse", model, effort), alone, strict=True)]
        for model in _models(effort)
        for alone in [_one_learner(model, effort)[1]]
    }
    listed = ", ".join(f"{model} {sum(found) / len(found):+.1f}" for model, found in less.items())
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
    (one,) = simulated(SCENARIO, [*common, f"stop.updates={rounds}"], algorithms=["sequential-sgd"])
    found = {}
    for n in (1, 15, 30):
        (run,) = simulated(SCENARIO, [*common, f"stop.updates={rounds * n}"], algorithms=[Softsync(n=n)])
        found[n] = rate_of(run) / rate_of(one)
    (run,) = simulated(SCENARIO, [*common, f"stop.updates={rounds}"], algorithms=["sync-sgd-ps"])
    found[HARDSYNC] = rate_of(run) / rate_of(one)
    return found


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
    found = {name: choose(ratio for n, ratio in by_n.items() if n != HARDSYNC) for name, by_n in every.items()}
    central = next(iter(every.values()))
    listed = ", ".join(f"{name} {ratio:.3g}" for name, ratio in found.items())
    by_n = ", ".join(f"{n or 'hardsync'}: {ratio:.1f}" for n, ratio in central.items())
    return spanning(
        *(over_seeds([ratio]) for ratio in found.values()),
        reason=f"No plausible input makes an asynchronous learner wait. By input: {listed}. Updates of the server, "
        "and the memory that learners of a node share, cost no time in the scenario, as their costs were not found.",
        details=(f"By n: {by_n}. The paper does not say, in what we have of it, which protocol has which speed-up.",),
    )


TIME = ("learners", "learners-per-node", "node-peak", "efficiency", "overhead", "link", "latency", "model")
COMMAND = "paceline simulate softsync-p775"


_made = partial(Claim, paper=PAPER, hardware=HARDWARE, model=MODEL, batch="4 per learner", scenario=SCENARIO)


def _staleness_claims() -> Iterator[Claim]:
    made = partial(
        _made,
        section="staleness, 30 learners",
        command=f"{COMMAND} --set workload.learning=none",
        inputs=(*TIME, "batch", "jitter"),
        shares="softsync staleness",
    )
    yield made(
        name="softsync-staleness-1",
        sentence="1-softsync of 30 learners has a staleness of 0, 1 or 2 (the largest)",
        published=2.0,
        unit="updates",
        holds_if="at most",
        predict=partial(largest_staleness, 1),
    )
    for n in (15, 30):
        yield made(
            name=f"softsync-staleness-{n}",
            sentence=f"{n}-softsync of 30 learners has a mean staleness of about {n}",
            published=float(n),
            unit="updates",
            holds_if="within 25 %",
            predict=partial(mean_staleness, n),
        )
        yield made(
            name=f"softsync-staleness-beyond-{n}",
            sentence=f"{n}-softsync: a gradient is staler than {2 * n} with a probability below 0.0001",
            published=1e-4,
            unit="",
            holds_if="at most",
            predict=partial(share_beyond, n),
        )


def _accuracy_claims() -> Iterator[Claim]:
    made = partial(
        _made,
        section="accuracy, CIFAR-10",
        command=COMMAND,
        inputs=("learners", "batch", "batch-of-one", "momentum", "stand-in", "learning-rate", "epochs", "jitter"),
        shares="softsync accuracy",
    )
    for n in (15, 30):
        yield made(
            name=f"softsync-divergence-{n}",
            sentence=f"{n}-softsync diverges at a fixed rate: its error is 90 %",
            published=90.0,
            unit="%",
            holds_if="within 25 %",
            predict=partial(error_at_fixed_rate, n),
        )
    for n in (1, 15, 30):
        words = "at the rate over the staleness ends at the accuracy of one learner (at most a point less)"
        yield made(
            name=f"softsync-convergence-{n}",
            sentence=f"{n}-softsync {words}",
            published=-1.0,
            unit="points",
            holds_if="at least",
            predict=partial(accuracy_less_one, n),
        )


def _speed_claims() -> Iterator[Claim]:
    ends: tuple[tuple[Literal["least", "most"], str, float], ...] = (
        ("least", "slowest", 22.0),
        ("most", "fastest", 28.0),
    )
    for which, word, published in ends:
        yield _made(
            name=f"softsync-speed-up-{which}",
            section="speed-up, 30 learners",
            sentence=f"30 learners are 22 to 28 times as fast as one: the {word} of n = 1, 15 and 30",
            published=published,
            batch="128 per learner",
            command=f"{COMMAND} --set workload.learning=none",
            inputs=(*TIME, "batch-of-speed-up"),
            holds_if="within 25 %",
            predict=partial(speed_up, which),
            shares="softsync speed-up",
        )


CLAIMS: tuple[Claim, ...] = (*_staleness_claims(), *_accuracy_claims(), *_speed_claims())
