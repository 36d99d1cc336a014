"""Dynamic batch sizes in a real run: workers measure their own times by the clock, and a replay uses the same times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.dynamic_batch import DbsSgd
from paceline.checking.replay import Recording, replay
from paceline.workloads import build
from tests.backend.jobs import Steps, job_with, run_for_real

pytestmark = pytest.mark.backend


@dataclass(frozen=True)
class PerSample(Steps):
    """The first worker takes half a millisecond for a sample, the others a tenth."""

    seconds: Sequence[float] = (0.0005, 0.0001, 0.0001, 0.0001)

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return samples * self.seconds[rank]


def test_a_replay_shares_out_the_batches_as_the_real_run_did() -> None:
    """Bit for bit, from the recorded readings of the clock; the batches themselves depend on the machine."""
    learner: Any = build("quadratic", dataset=None, learning="quadratic", seed=3)
    job = job_with(DbsSgd(interval=4), learner, steps=80)
    run = run_for_real(job, pace=PerSample())
    again = replay(job, Recording.of(run.heard, run.now_s))
    np.testing.assert_array_equal(again.weights, run.weights)
    assert [row.samples for row in again.updates] == [row.samples for row in run.updates]
    assert sum(run.states[Rank(4)].batches) == 4 * 16
    assert len({row.samples for row in run.updates}) > 1, "no worker was ever measured to be slower"
