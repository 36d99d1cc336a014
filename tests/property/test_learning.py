"""Methods with unusual steps or short messages learn the digits: four workers, 20 epochs; without either, 97 %."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.algorithms.core.compression import Cast, PowerSgd, TopK
from paceline.algorithms.core.dct_top_k import DctTopK
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.rules import Lars
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.decoupled_momentum import DeMo
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.workloads import build
from paceline.workloads.models.threads import torch_threads
from tests.support import FixedTiming
from tests.thorough import sampled

LEARNS: dict[str, tuple[Any, float]] = {
    **{
        f"lars {rate:g}": (SyncSgd(learning_rate=rate, momentum=0.9, weight_decay=5e-4, lars=Lars()), 0.94)
        for rate in (1.0, 3.0, 10.0)  # the middle one is that of docs/rules.md
    },
    "two percent of the coefficients": (DeMo(), 0.93),
    **{
        compression.kind: (SyncSgd(learning_rate=0.3, compression=compression), 0.9)
        for compression in (TopK(), PowerSgd(), DctTopK(), Cast(dtype="fp16"))
    },
}


@pytest.mark.parametrize("name", sampled(LEARNS, ["lars 3", "two percent of the coefficients", "top-k"]))
def test_it_learns(name: str) -> None:
    method, least = LEARNS[name]
    learner = build("digits-mlp", seed=1)
    job = Job.of(method, [[Rank(rank)] for rank in range(4)], learner, batch=32, budget=Budget(samples=20 * 1437))
    with torch_threads(1):
        trace = simulate_job(job, FixedTiming(), NoCost(), Schedule(every=1000))
    accuracy = learner.evaluate(trace.states[Rank(0)].weights.vector).accuracy
    assert accuracy is not None and accuracy > least
