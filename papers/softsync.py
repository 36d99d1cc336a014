"""Claims on n-softsync: staleness, divergence at a fixed rate, convergence at the rate over the staleness, speed-up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from paceline.algorithms.methods.parameter_server import Damping, Softsync
from paceline.papers.claim import TUNING_SEED, Claim, Given, claims_like
from paceline.papers.runs import final_accuracy, rate_of, recorded, simulated
from paceline.workloads.models.layer_tables import find_model

PAPER = "softsync"
SCENARIO = "softsync-p775"
RATES = tuple(0.0125 * 2**power for power in range(-5, 6))
"""learning rates of the grid; those of momentum 0.9 lie lower than those without"""
GRADIENTS = {False: 10_000, True: 3_000}
"""of a run in which staleness is counted, without and with `--quick`; three runs see a probability of 0.0001"""
ALONE = ("cluster.nodes[0].count=1", "cluster.nodes[0].workers_per_node=1")
"""changes for one learner"""
TIME = ("learners", "learners-per-node", "node-peak", "efficiency", "overhead", "link", "latency", "model")
LEARNING = ("batch", "batch-of-one", "momentum", "stand-in", "learning-rate", "epochs", "jitter")


def _times(given: Given) -> list[str]:
    """Returns the changes for a learner's speed, the operations of a gradient at a share of the peak, and the link."""
    operations = find_model("cifar10-full").training_flops
    peak = given.number("node-peak") * 1e9 / given.number("learners-per-node")
    per_sample_s = operations / (given.number("efficiency") * peak)
    device = "cluster.nodes[0].device"
    return [
        f"{device}.overhead={given.number('overhead')} ms",
        f"{device}.per_sample={per_sample_s} s",
        f"cluster.network.link.latency={given.number('latency')} us",
        "stop.epochs=null",
        "workload.learning=none",
    ]


# --- staleness --------------------------------------------------------------------------------------------------------


@cache
def _staleness(given: Given, n: int) -> np.ndarray:
    """Returns the staleness of every applied gradient, without those of the first round of all learners."""
    learners = int(given.number("learners"))
    updates = GRADIENTS[given.quick] * n // learners
    changes = [*_times(given), f"cluster.step_time.sigma={given.number('jitter')}", f"stop.updates={updates}"]
    _, trace = recorded(SCENARIO, changes, algorithms=[Softsync(n=n)], seed=given.seed)
    return np.array([update.staleness for update in trace.updates[learners:]])


def mean_staleness(n: int, given: Given) -> float:
    """Returns the mean staleness of n-softsync. The law for immediate pulls is (λ − 1)/c with c = ⌊λ/n⌋."""
    return float(_staleness(given, n).mean())


def largest_staleness(n: int, given: Given) -> float:
    """Returns the largest staleness of all gradients."""
    return float(_staleness(given, n).max())


def share_beyond(n: int, given: Given) -> float:
    """Returns the share of gradients that are staler than 2 n."""
    return float(np.mean(_staleness(given, n) > 2 * n))


# --- accuracy ---------------------------------------------------------------------------------------------------------


@cache
def _accuracy_of_one(given: Given, rate: float) -> float:
    """Returns the accuracy of one learner with the batch of one learner."""
    changes = [*_learning(given, rate), *ALONE, f"workload.batch_per_worker={int(given.number('batch-of-one'))}"]
    return final_accuracy(SCENARIO, changes, algorithms=["sequential-sgd"], seed=given.seed)


@cache
def _rate_of_one(given: Given) -> float:
    """Returns the best learning rate of one learner; all methods have it, as in the paper."""
    tuning = replace(given, seed=TUNING_SEED)
    return float(max(RATES, key=lambda rate: _accuracy_of_one(tuning, rate)))


def best_rate_of_one(given: Given) -> float:
    """Returns the best learning rate of one learner for these inputs, whatever the seed."""
    return _rate_of_one(given.only("batch-of-one", "momentum", "stand-in", "epochs"))


def _learning(given: Given, rate: float) -> list[str]:
    epochs = given.choose(int(given.number("epochs")), 20)
    rates = [f"hyperparameters.learning_rate={rate}", f"hyperparameters.momentum={given.number('momentum')}"]
    learned = [f"workload.model={given.word('stand-in')}", "workload.dataset=digits", "workload.stand_in=null"]
    return [*rates, *learned, f"stop.epochs={epochs}"]


@cache
def _accuracy(given: Given, n: int, damping: Damping) -> float:
    """Returns the final accuracy of 30 learners at the rate of one, in per cent."""
    rate = best_rate_of_one(given)
    method = Softsync(n=n, damping=damping, learning_rate=rate, momentum=given.number("momentum"))
    changes = [*_learning(given, rate), f"cluster.step_time.sigma={given.number('jitter')}"]
    return final_accuracy(SCENARIO, changes, algorithms=[method], seed=given.seed)


def error_at_fixed_rate(n: int, given: Given) -> float:
    """Returns the final error of n-softsync at the fixed rate of one learner, in per cent; 90 is that of a guess."""
    return 100.0 - _accuracy(given, n, "none")


def accuracy_less_one(n: int, given: Given) -> float:
    """Returns the accuracy of n-softsync at the rate over the staleness, minus that of one learner, in points."""
    return _accuracy(given, n, "inverse") - _accuracy_of_one(given, best_rate_of_one(given))


# --- speed-up ---------------------------------------------------------------------------------------------------------


@cache
def _samples_per_s(given: Given, n: int | None) -> float:
    """Returns the samples per second of 30 learners with n-softsync, or of one learner for None."""
    rounds = given.choose(100, 30)
    algorithm: Any = "sequential-sgd" if n is None else Softsync(n=n)
    changes = [
        *_times(given),
        f"workload.batch_per_worker={int(given.number('batch-of-speed-up'))}",
        f"stop.updates={rounds * (n or 1)}",
    ]
    (run,) = simulated(SCENARIO, changes, algorithms=[algorithm])
    return rate_of(run)


def speed_ups(given: Given) -> dict[int, float]:
    """Returns the samples per second of 30 learners over those of one, by n."""
    return {n: _samples_per_s(given, n) / _samples_per_s(given, None) for n in (1, 15, 30)}


def speed_up(which: Literal["least", "most"], given: Given) -> float:
    """Returns the least or largest speed-up of 30 learners among n = 1, 15 and 30."""
    return (min if which == "least" else max)(speed_ups(given).values())


def _by_n(given: Given) -> Iterator[str]:
    listed = ", ".join(f"{n}: {ratio:.1f}" for n, ratio in speed_ups(given).items())
    yield f"By n: {listed}. The paper does not say, in what we have of it, which protocol has which speed-up."
    yield (
        "Updates of the server, and the memory that learners of a node share, cost no time in the scenario, as their "
        "costs were not found."
    )


# --- the claims -------------------------------------------------------------------------------------------------------

COMMAND = "paceline simulate softsync-p775"
COMMON = {
    "hardware": "Power 775, 30 learners",
    "model": "CNN of 90 thousand parameters, CIFAR-10",
    "scenario": SCENARIO,
}
_stale = claims_like(
    PAPER,
    section="staleness, 30 learners",
    batch="4 per learner",
    command=f"{COMMAND} --set workload.learning=none",
    inputs=(*TIME, "batch", "jitter"),
    seeds=3,
    shares="softsync staleness",
    **COMMON,
)
_accurate = claims_like(
    PAPER,
    section="accuracy, CIFAR-10",
    batch="4 per learner",
    command=COMMAND,
    inputs=("learners", *LEARNING),
    shares="softsync accuracy",
    explain=lambda given: [f"Learning rate of all, the best of one learner: {best_rate_of_one(given):g}."],
    **COMMON,
)
_fast = claims_like(
    PAPER,
    section="speed-up, 30 learners",
    batch="128 per learner",
    command=f"{COMMAND} --set workload.learning=none",
    inputs=(*TIME, "batch-of-speed-up"),
    holds_if="within 25 %",
    seeds=1,
    explain=_by_n,
    shares="softsync speed-up",
    together="speed-up",
    **COMMON,
)


def _staleness_claims() -> Iterator[Claim]:
    words = "1-softsync of 30 learners has a staleness of 0, 1 or 2 (the largest)"
    figure = partial(largest_staleness, 1)
    yield _stale("staleness-1", words, figure, published=2.0, unit="updates", holds_if="at most")
    for n in (15, 30):
        words = f"{n}-softsync of 30 learners has a mean staleness of about {n}; the law is (λ − 1)/⌊λ/n⌋"
        within = {"published": float(n), "unit": "updates", "holds_if": "within 25 %", "kind": "identity"}
        yield _stale(f"staleness-{n}", words, partial(mean_staleness, n), **within)
        words = f"{n}-softsync: a gradient is staler than {2 * n} with a probability below 0.0001"
        figure = partial(share_beyond, n)
        bounds = (0.0, 1.0)
        yield _stale(f"staleness-beyond-{n}", words, figure, published=1e-4, unit="", holds_if="at most", bounds=bounds)


def _accuracy_claims() -> Iterator[Claim]:
    for n in (15, 30):
        words = f"{n}-softsync diverges at a fixed rate: its error is 90 %"
        within = {"published": 90.0, "unit": "%", "holds_if": "within 25 %", "bounds": (0.0, 100.0)}
        yield _accurate(f"divergence-{n}", words, partial(error_at_fixed_rate, n), **within)
    for n in (1, 15, 30):
        words = (
            f"{n}-softsync at the rate over the staleness ends at the accuracy of one learner (at most a point less)"
        )
        least = {"published": -1.0, "unit": "points", "holds_if": "at least", "bounds": (-100.0, 100.0)}
        yield _accurate(f"convergence-{n}", words, partial(accuracy_less_one, n), **least)


def _speed_claims() -> Iterator[Claim]:
    words = "30 learners are 22 to 28 times as fast as one: the {} of n = 1, 15 and 30"
    yield _fast("speed-up-least", words.format("slowest"), partial(speed_up, "least"), published=22.0)
    yield _fast("speed-up-most", words.format("fastest"), partial(speed_up, "most"), published=28.0)


CLAIMS: tuple[Claim, ...] = (*_staleness_claims(), *_accuracy_claims(), *_speed_claims())
