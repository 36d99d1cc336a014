"""Trains for real, layer by layer without delay and synchronously, and compares the final weights."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from paceline.backend.local.launch import Launch, run_job
from paceline.papers.core.claim import Effort, Predicted, over_range
from paceline.records.trace import Schedule
from paceline.scenarios import load

WITHOUT_DELAY = (
    "layerwise-sgd",
    "layerwise-sgd-lazy",
    "layerwise-sgd-next-forward",
    "{name: agd, delay: 0}",
    "{name: layerwise-agd, delay: 0}",
)
"""the methods of the paper's solution space whose gradients are not delayed"""
WORKERS, BATCH = 2, 16


def trained(algorithm: str, *, steps: int, seed: int, workers: int = WORKERS) -> NDArray[np.float64]:
    """Returns the final weights of a real run in float64.

    Args:
        algorithm: An algorithm as YAML.
        steps: The number of steps.
        seed: Of initial weights and samples.
        workers: The number of processes; together they compute gradients of `WORKERS` · `BATCH` samples in each step.
    """
    scenario = {
        "name": "layerwise-equality",
        "algorithms": [],
        "hyperparameters": {"bucket": None} if "layerwise" in algorithm else {},  # one message a layer, as in the paper
        "workload": {
            "model": "digits-cnn",
            "dataset": "digits",
            "batch_per_worker": WORKERS * BATCH // workers,
            "dtype": "float64",
        },
        "cluster": {"nodes": [{"device": {"name": "core", "overhead": "1 ms", "per_sample": "0 s"}, "count": workers}]},
        "train": {"pace": "none"},
        "stop": {"samples": steps * WORKERS * BATCH},
        "seed": seed,
    }
    (plan,) = load(scenario, [f"algorithms=[{algorithm}]"]).plans()
    trace = run_job(Launch(job=plan.job, schedule=lambda: Schedule(every=math.inf)))
    return np.asarray(trace.weights, dtype=np.float64)


def distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Returns ‖x − y‖ / ‖y‖."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def largest_difference(effort: Effort) -> Predicted:
    """Returns the largest difference between the weights of a method without delay and those of `sync-sgd`.

    Args:
        effort: Decides on the numbers of steps and seeds.
    """
    steps = effort.choose(40, 10)
    found, alone, moved = [], 0.0, 0.0
    for seed in range(1, effort.choose(3, 1) + 1):
        synchronous = trained("sync-sgd", steps=steps, seed=seed)
        found.append(max(distance(trained(name, steps=steps, seed=seed), synchronous) for name in WITHOUT_DELAY))
        single = trained("sequential-sgd", steps=steps, seed=seed, workers=1)
        delayed = trained("{name: layerwise-agd, delay: 1}", steps=steps, seed=seed)
        alone, moved = max(alone, distance(synchronous, single)), max(moved, distance(delayed, synchronous))
    details = (
        f"Weights after {steps} steps of {len(WITHOUT_DELAY)} methods, relative to their norm, in float64.",
        f"Two processes with batch {BATCH} and one with {WORKERS * BATCH} differ by {alone:.1g}, by rounding.",
        f"With a delay of one step the difference is {moved:.2g}.",
    )
    one = over_range(found)
    return Predicted(
        value=one.value, low=one.low, high=one.high, reason="Sums were rounded differently.", details=details
    )
