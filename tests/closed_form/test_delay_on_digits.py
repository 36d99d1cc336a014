"""The cost of a delay on the digits has the shape of O6, which another program measured.

`agd` trains the 64-64-10 network with one worker, batches of 32, learning rate 0.1 and gradients that are exactly d
steps old; `sequential-sgd` other batches with learning rates that grow with the batch. The 360 held-out digits are
evaluated every 640 samples. A target counts as reached at the first evaluation that reaches it. The first d steps of
`agd` change nothing and are counted. The values of O6 (docs/invariants.md) were measured with a NumPy network of the
same size with another start and another split, so only the shape is expected to agree. docs/results/simulator.md has
the medians of three seeds and 40 epochs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.scenarios import load
from paceline.simulator.runs.run import simulate


def trained(algorithm: dict[str, Any], *, batch: int = 32, epochs: float = 8) -> tuple[float, list[float]]:
    """Trains with two seeds, and returns the median of the steps to 95 % and the final accuracies.

    Args:
        algorithm: The method with its hyper-parameters.
        batch: Samples of a step.
        epochs: The length of each run.
    """
    scenario = {
        "name": "delay",
        "algorithms": [algorithm],
        "workload": {"model": "digits-mlp", "batch_per_worker": batch},
        "cluster": {"nodes": [{"device": {"name": "one", "overhead": "1 s", "per_sample": "0 s"}}]},
        "evaluate": {"every": f"{max(640, batch)} samples"},
        "stop": {"epochs": epochs, "divergence": False},  # a loss that has grown tenfold may decrease again
        "seeds": 2,
    }
    tables = [run.tables.evaluations for run in simulate(load(scenario))]
    steps = [table["time_s"][table["accuracy"] >= 0.95].min() for table in tables]  # a step takes a second
    return float(np.median(np.nan_to_num(steps, nan=np.inf))), [float(table["accuracy"].iloc[-1]) for table in tables]


def delayed(delay: int, *, epochs: float = 8) -> tuple[float, list[float]]:
    return trained({"name": "agd", "delay": delay, "learning_rate": 0.1}, epochs=epochs)


def test_a_delay_costs_nothing_and_then_steps() -> None:
    """The network computes in float32, so its rounding depends on the processor. With a delay of 32 it is close to
    instability: whether it reaches 95 % depends on that rounding, that it learns does not. Small delays are compared
    with room for two evaluations, which are 20 steps apart.
    """
    (plain, _), (slight, _), (some, _) = (delayed(steps) for steps in (0, 8, 16))
    assert plain < 250
    assert slight < 1.5 * plain
    assert 1.2 * plain < some < 2.2 * plain


@pytest.mark.thorough
def test_a_longer_delay_costs_everything() -> None:
    plain, _ = delayed(0)
    (much, final), (_, failed) = (delayed(steps, epochs=40) for steps in (32, 64))
    assert much > 4 * plain
    assert min(final) > 0.8
    assert max(failed) < 0.5


@pytest.mark.thorough
def test_with_the_rate_in_step_twice_the_batch_needs_half_the_steps() -> None:
    """Epochs to 95 % stay the same up to batches of 64 or so."""
    few, more = (
        trained({"name": "sequential-sgd", "learning_rate": rate}, batch=batch)[0]
        for batch, rate in ((16, 0.05), (64, 0.2))
    )
    assert few / more == pytest.approx(4, rel=0.3)
    assert np.isfinite(more)
