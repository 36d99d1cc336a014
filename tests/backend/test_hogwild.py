"""Learning in real shared memory: it ends, no update is invented, and the reported losses are those of the weights."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.hogwild import HogwildEasgd, HogwildSgd, SharedMemorySgd
from tests.backend.jobs import Steps, run_for_real
from tests.support import Bowl, job_of
from tests.thorough import extra, sampled

pytestmark = pytest.mark.backend

ONE_NODE = [[0, 1, 2, 3]]
BOTH = pytest.mark.parametrize("method", [HogwildSgd, HogwildEasgd])
LOCKED = pytest.mark.parametrize("lock", [False, True])


class Level(Bowl):
    """Every gradient is 1, at all weights and ranks, so the weights count the steps that they contain."""

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return np.ones(self.size), 0.0


@LOCKED
@pytest.mark.parametrize("pace", sampled([Steps(), None], [None], several=False))
def test_the_weights_are_the_start_less_the_steps_up_to_what_is_lost(lock: bool, pace: Any) -> None:
    """Twenty steps of four processes. Bowl(14) is two lines of seven numbers, each with a probe.

    A line's numbers may be torn among each other; what the record says is missing is missing to one add in each line.
    """
    job = job_of(HogwildSgd(learning_rate=1.0, lock=lock), nodes=ONE_NODE, steps=20, learner=Level(size=14))
    trace = run_for_real(job, pace=pace)
    lost = trace.lost_updates
    assert lost is not None and lost["adds"] == len(trace.updates) == 20
    assert 0 <= lost["lost_share"] <= 1
    assert (-trace.weights <= 20).all()
    assert abs(-trace.weights.mean() - 20 * (1 - lost["lost_share"])) <= 1
    if lock:
        assert lost["lost_share"] == 0
        assert trace.weights.tolist() == [-20.0] * 14
        assert sorted(row.version_applied for row in trace.updates) == list(range(20))


@pytest.mark.parametrize(
    ("method", "lock"),
    [(HogwildSgd, False), (HogwildEasgd, True), extra((HogwildSgd, True)), extra((HogwildEasgd, False))],
)
def test_everybody_ends_with_what_the_memory_holds(method: type[SharedMemorySgd], lock: bool) -> None:
    job = job_of(method(lock=lock), nodes=ONE_NODE, steps=20)
    trace = run_for_real(job)
    assert sum(state.step for state in trace.states.values()) == len(trace.updates) == 20
    assert all(row.staleness >= 0 for row in trace.updates)
    for state in trace.states.values():
        shared = state.centre if method is HogwildEasgd else state.weights
        assert shared.version == 20
        np.testing.assert_array_equal(shared.vector, trace.weights)
    assert trace.snapshots[-1].samples == 20 * job.batches[0]


@BOTH
def test_with_unlike_speeds_the_steps_are_the_budgets_all_together(method: type[SharedMemorySgd]) -> None:
    """Rank 3 needs ten times as long as rank 0."""
    job = job_of(method(), nodes=ONE_NODE, steps=60)
    trace = run_for_real(job, pace=Steps((0.002, 0.003, 0.005, 0.02)))
    steps = [trace.states[Rank(rank)].step for rank in range(4)]
    assert sum(steps) == len(trace.updates) == 60
    assert steps[0] > steps[3]


def test_seconds_end_everybody_at_once() -> None:
    """Each ends at its first `NextStep` after the time, wherever the others are."""
    job = job_of(HogwildSgd(), nodes=ONE_NODE, steps=None, seconds=0.3)
    trace = run_for_real(job, pace=Steps((0.002, 0.003, 0.005, 0.02)))
    assert set(trace.states) == set(range(4))
    assert sum(state.step for state in trace.states.values()) == len(trace.updates)
    starts = [span.start_s for span in trace.spans if span.activity == "compute"]
    assert max(starts) > 0.2 and min(trace.states[Rank(rank)].step for rank in range(4)) > 1
    late = Counter(span.rank for span in trace.spans if span.activity == "compute" and span.start_s > 0.3)
    assert all(count <= 1 for count in late.values()), "each may have begun a step just before the time"
