"""`sync-sgd` of N workers is one worker with an N-fold batch, through scenarios as users write them.

Float64. The mean over N batches of b and the mean over one of N b are the same sum in another order: a step is off by a
few times 1e-16, and 20 steps of a problem whose gradients are Lipschitz in the weights keep that below 1e-12 of the
largest weight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from paceline.scenarios import load
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.simulator.runs.run import simulate
from paceline.workloads.batches.examples import LabelledBatch
from paceline.workloads.learners.torch_learner import Joint
from tests.thorough import extra, sampled

LAYERWISE = ["ddp", "layerwise-sgd-lazy", "layerwise-sgd-next-forward"]
PLAIN: dict[str, dict[str, Any]] = defaultdict(dict, hsgd={"momentum": 0.0, "lars": None})
DIGITS = {"model": "digits-mlp", "dtype": "float64"}
QUADRATIC = {"model": "quadratic", "learning": "quadratic"}


def weights(workload: dict[str, Any], workers: int, batch: int, method: Any = "sync-sgd", **more: str) -> np.ndarray:
    scenario = load(
        {
            "name": "union",
            "algorithms": [method],
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


ACCUMULATING = ["sync-sgd", *LAYERWISE, "layerwise-agd", "agd", "hsgd", "sync-sgd-ps", "async-sgd", "sequential-sgd"]


@pytest.mark.parametrize("workload", [DIGITS, QUADRATIC], ids=["digits", "quadratic"])
@pytest.mark.parametrize("name", sampled(ACCUMULATING, ["sync-sgd", "ddp", "agd", "async-sgd"]))
def test_accumulated_gradients_are_those_of_a_batch_as_large_as_all_of_them(
    workload: dict[str, Any], name: str
) -> None:
    """Also where an epoch ends; one worker, because arrivals at a server depend on the time of a gradient."""
    workers, batch = (1, 32) if name in {"async-sgd", "sequential-sgd"} else (3, 16)
    parts, whole = (
        weights(
            workload, workers, batch // count, {"name": name, "accumulate": count, "optimizer": "adam"} | PLAIN[name]
        )
        for count in (4, 1)
    )
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-12 * np.abs(whole).max())


@pytest.mark.parametrize("accumulate", [5, extra(2)])
@pytest.mark.parametrize("name", [name for name in ACCUMULATING if name != "async-sgd"])
def test_a_step_of_micro_batches_takes_their_gradients_and_one_exchange(name: str, accumulate: int) -> None:
    """On a slow link k − 1 gradients are added to a step, and no byte: layers overlap with the last backward pass."""
    times, sent = [], []
    for count in (1, accumulate):
        scenario = {
            "name": "accumulate",
            "algorithms": [{"name": name, "accumulate": count} | PLAIN[name]],
            "workload": {**DIGITS, "learning": "none", "batch_per_worker": 8},
            "cluster": {
                "nodes": [{"device": {"name": "d", "overhead": "40 ms", "per_sample": "0.5 ms"}, "count": 4}],
                "network": {"link": {"latency": "1 ms", "bandwidth": "8 Mbit/s"}},
            },
            "stop": {"updates": 12},
        }
        (run,) = simulate(load(scenario))
        times.append(run.summary["wall_s"])
        sent.append(run.summary["bytes_sent"])
    assert sent[0] == sent[1]
    gradients = 13 if name == "sync-sgd-ps" else 12  # its workers compute one more before the server stops them
    added, most = times[1] - times[0], gradients * (accumulate - 1) * 0.044
    if name in {"agd", "layerwise-agd"}:  # whose exchange of the step before is in flight during the gradients
        assert 0 < added <= most * (1 + 1e-9)
    else:
        assert added == pytest.approx(most, rel=1e-9)


def test_micro_batches_that_do_not_fit_into_the_samples_are_told() -> None:
    with pytest.raises(ScenarioError, match=r"algorithms\[0\]\.accumulate: found 46, expected at most 44"):
        weights(DIGITS, 2, 16, {"name": "sync-sgd", "accumulate": 46})


def test_the_scenario_says_how_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `vmap`, all gradients use the call that computes a block; one by one, none does. The results agree."""
    blocks: list[int] = []
    compute = Joint.__call__

    def noting(self: Joint, vectors: Sequence[Any], batch: LabelledBatch) -> list[tuple[Any, float]]:
        blocks.append(len(vectors))
        return compute(self, vectors, batch)

    monkeypatch.setattr(Joint, "__call__", noting)
    single = weights(DIGITS, 12, 8, vmap="off")
    assert blocks == []
    together = weights(DIGITS, 12, 8, vmap="on")
    assert len(blocks) >= 20, "each of the 20 steps has a block of its own at least"
    np.testing.assert_allclose(together, single, rtol=0, atol=1e-12 * np.abs(single).max())
