"""`sync-sgd` of N workers is one worker with an N-fold batch, through scenarios as users write them.

Float64. The mean over N batches of b and the mean over one of N b are the same sum in another order: a step is off by a
few times 1e-16, and 20 steps of a problem whose gradients are Lipschitz in the weights keep that below 1e-12 of the
largest weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from paceline.scenarios import load
from paceline.simulator.runs.run import simulate
from paceline.workloads.batches.examples import Batch
from paceline.workloads.learners.vmap import Joint
from tests.thorough import sampled

DIGITS = {"model": "digits-mlp", "dtype": "float64"}
QUADRATIC = {"model": "quadratic", "learning": "quadratic"}


def weights(workload: dict[str, Any], workers: int, batch: int, **more: str) -> np.ndarray:
    scenario = load(
        {
            "name": "union",
            "algorithms": ["sync-sgd"],
            "workload": {**workload, "batch_per_worker": batch, **more},
            "cluster": {
                "nodes": [{"device": {"name": "d", "overhead": "4 ms", "per_sample": "0.5 ms"}, "count": workers}],
                "network": {"topology": "star", "link": "eth-10g"},
            },
            "evaluate": {"every": "1000 s"},
            "stop": {"updates": 20},
        }
    )
    (run,) = simulate(scenario)
    return np.asarray(run.weights)


@pytest.mark.parametrize("workload", [DIGITS, QUADRATIC], ids=["digits", "quadratic"])
@pytest.mark.parametrize("workers", sampled([2, 12], [2]))
def test_workers_are_one_with_a_batch_as_large_as_all_of_theirs(workload: dict[str, Any], workers: int) -> None:
    many, one = weights(workload, workers, 8), weights(workload, 1, 8 * workers)
    np.testing.assert_allclose(many, one, rtol=0, atol=1e-12 * np.abs(one).max())
    assert not np.allclose(many, weights(workload, workers, 4), rtol=0, atol=1e-6)


def test_the_scenario_says_how_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `vmap`, all gradients use the call that computes a block; one by one, none does. The results agree."""
    blocks: list[int] = []
    compute = Joint.__call__

    def noting(self: Joint, vectors: Sequence[Any], batch: Batch) -> list[tuple[Any, float]]:
        blocks.append(len(vectors))
        return compute(self, vectors, batch)

    monkeypatch.setattr(Joint, "__call__", noting)
    single = weights(DIGITS, 12, 8, vmap="off")
    assert blocks == []
    together = weights(DIGITS, 12, 8, vmap="on")
    assert len(blocks) >= 20, "each of the 20 steps has a block of its own at least"
    np.testing.assert_allclose(together, single, rtol=0, atol=1e-12 * np.abs(single).max())
