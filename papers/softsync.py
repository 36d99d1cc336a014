"""Claims on n-softsync: staleness, divergence at a fixed rate, convergence at the rate over the staleness, speed-up."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from paceline.algorithms.methods.parameter_server import Softsync
from paceline.papers.claim import Assertion, Claim, Effort, Predicted, over_range, over_seeds, spanning
from paceline.papers.inputs import input_named
from paceline.papers.runs import simulated

PAPER = "softsync"
SCENARIO = "softsync-p775"
HARDWARE = "Power 775, 30 learners"
MODEL = "CNN of 90 thousand parameters, CIFAR-10"
RATES = tuple(0.0125 * 2**power for power in range(-5, 6))
"""learning rates of the grid; those of momentum 0.9 lie lower than those without"""
TUNING_SEED = 101


def value(name: str) -> float:
    """Returns the number of an input."""
    return input_named(PAPER, name).number


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
    return found[int(value("learners")) :]


@cache
def _ages(n: int, effort: Effort) -> dict[float, tuple[np.ndarray, ...]]:
    """Returns the staleness of every gradient, by jitter and seed."""
    gradients = effort.choose(60_000, 12_000)
    updates = gradients * n // int(value("learners"))
    return {
        sigma: tuple(_staleness(n, sigma, seed, updates) for seed in range(1, effort.choose(3, 2) + 1))
        for sigma in input_named(PAPER, "jitter").numbers
    }


def mean_staleness(n: int, effort: Effort) -> Predicted:
    """Returns the mean staleness of n-softsync."""
    found = [over_seeds([float(ages.mean()) for ages in seeds]) for seeds in _ages(n, effort).values()]
    learners = int(value("learners"))
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


def _claim(
    name: str, sentence: str, published: float, unit: str, holds_if: Assertion, predict: partial[Predicted], **more: str
) -> Claim:
    return Claim(
        name=f"softsync-{name}",
        paper=PAPER,
        section=more.get("section", "staleness figure"),
        sentence=sentence,
        published=published,
        unit=unit,
        hardware=HARDWARE,
        model=MODEL,
        batch=more.get("batch", "4 per learner"),
        scenario=SCENARIO,
        command=more["command"],
        inputs=(
            "learners",
            "learners-per-node",
            "batch",
            "node-peak",
            "efficiency",
            "overhead",
            "link",
            "latency",
            "jitter",
        ),
        holds_if=holds_if,
        predict=predict,
        shares="softsync staleness",
    )


def _staleness_claims() -> list[Claim]:
    claims = []
    command = "paceline simulate softsync-p775 --set workload.learning=none"
    for n in (1, 15, 30):
        predict = partial(mean_staleness, n) if n > 1 else partial(largest_staleness, n)
        words = (
            f"{n}-softsync of 30 learners has a mean staleness of about {n}"
            if n > 1
            else ("1-softsync of 30 learners has a staleness of 0, 1 or 2")
        )
        holds_if: Assertion = "within 25 %" if n > 1 else "at most"
        claims.append(
            _claim(f"staleness-{n}", words, n if n > 1 else 2.0, "updates", holds_if, predict, command=command)
        )
    return claims


CLAIMS = (*_staleness_claims(),)
