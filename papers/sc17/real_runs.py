"""Claims of SC'17 that are measured by real execution: determinism, and the equality of the three Sync EASGD.

Rules of this file: the runs are real processes with `torch.distributed`, as in `paceline train`, on the data of
`quickstart`; the weights at their ends are compared, not their times.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline.backend.training import train
from paceline.papers.core.claim import Assertion, Claim, Effort, Predicted, over_range, spanning
from paceline.scenarios import load

PAPER = "sc17"
SCENARIO = "quickstart"
ROUNDING = 1e-12
"""largest difference of equal sums in float64 in another order, relative to the largest weight; ours"""
TRIO = ("sync-easgd1", "sync-easgd2", "sync-easgd3")


def trained(algorithm: str, effort: Effort, *, seed: int, dtype: str = "float32") -> np.ndarray:
    """Trains for real with four processes, and returns the final weights.

    Args:
        algorithm: The method.
        effort: How long.
        seed: Of initial weights and samples.
        dtype: Type of the weights.
    """
    changes = [
        "train.pace=none",
        f"workload.dtype={dtype}",
        f"stop={{samples: {effort.choose(128 * 60, 128 * 20)}}}",
        "target.accuracy=null",
        f"seed={seed}",
    ]
    (run,) = train(load(SCENARIO, changes, algorithms=[algorithm]))
    weights: Any = run.weights
    return np.asarray(weights, dtype=np.float64).ravel()


def repeated(effort: Effort) -> Predicted:
    """Returns the largest difference between the weights of runs that are repeated with the same seed."""
    apart = []
    for seed in range(1, effort.choose(3, 1) + 1):
        first, second = (trained("sync-easgd3", effort, seed=seed) for _ in range(2))
        apart.append(float(np.abs(first - second).max()))
    other = [trained("async-easgd", effort, seed=1) for _ in range(2)]
    difference = float(np.abs(other[0] - other[1]).max())
    details = (f"async-easgd, repeated in the same way: the largest difference is {difference:.2g}.",)
    reason = f"The weights of repeated runs differ by up to {max(apart):.2g}."
    return spanning(over_range(apart), reason=reason, details=details)


def three_are_one(effort: Effort) -> Predicted:
    """Returns the number of weights in which the three variants differ by more than rounding."""
    counts, largest = [], 0.0
    for seed in range(1, effort.choose(3, 1) + 1):
        first, *others = (trained(name, effort, seed=seed, dtype="float64") for name in TRIO)
        scale = float(np.abs(first).max())
        apart = np.max([np.abs(other - first) for other in others], axis=0) / scale
        counts.append(float((apart > ROUNDING).sum()))
        largest = max(largest, float(apart.max()))
    said = (
        f"The largest difference is {largest:.2g} of the largest weight: gloo adds in an order of its own, and with "
        "the host as a member there is one summand more."
    )
    return spanning(over_range(counts), reason=said, details=(said,))


def _claim(name: str, section: str, sentence: str, unit: str, predict: Any) -> Claim:
    holds_if: Assertion = "equal"
    return Claim(
        name=f"sc17-{name}",
        paper=PAPER,
        section=section,
        sentence=sentence,
        published=0.0,
        unit=unit,
        hardware="this machine, four processes",
        model="64-64-10 perceptron, scikit-learn's digits",
        batch="32 per worker",
        scenario=SCENARIO,
        command="paceline train quickstart --algorithms sync-easgd3 --set train.pace=none",
        inputs=("real-workload",),
        holds_if=holds_if,
        predict=predict,
        measured=True,
    )


CLAIMS = (
    _claim(
        "deterministic",
        "abstract",
        "Sync EASGD is deterministic: repeated runs have the same weights",
        "largest difference of a weight",
        repeated,
    ),
    _claim(
        "three-are-one",
        "§6.1",
        "Sync EASGD1, 2 and 3 are the same method with different times",
        "weights that differ",
        three_are_one,
    ),
)
