"""ACCO: the two halves of a round, exactly, and the losses on which it is synchronous SGD with twice the batch."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.operations import AllReduce
from paceline.algorithms.core.values import Rank, Samples
from paceline.algorithms.methods.accumulating import Acco
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import drawn
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork
from tests.exact import ExactBowl, UnlikeBowl, applied
from tests.support import FixedTiming, job_of

ETA = Fraction(1, 10)


@dataclass(frozen=True)
class Linear(ExactBowl):
    """Gradients that do not depend on the weights."""

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return data, 0.0


def acco(**given: Any) -> Acco:
    return Acco(**{"learning_rate": ETA, **given})


@given(data=st.data(), workers=st.integers(1, 3), accumulate=st.integers(1, 3), steps=st.integers(0, 13))
def test_both_halves_are_those_of_the_paper(data: st.DataObject, workers: int, accumulate: int, steps: int) -> None:
    """Exactly: y_{t+1} = θ_t − η h_t and θ_{t+1} = θ_t − η (h_t + g_t) / 2, with h_t at y_t and g_t at θ_t."""
    learner = UnlikeBowl()
    run = AnyOrder(job_of(acco(accumulate=accumulate), workers, steps=steps, learner=learner))
    trace = run.run(drawn(data))

    def half(number: int, at: Any) -> Any:
        indices = range(number * accumulate, (number + 1) * accumulate)
        batches = [Samples(worker=r, workers=workers, index=i, count=8) for r in range(workers) for i in indices]
        return sum(learner.gradient(at, learner.load(batch))[0] for batch in batches) / len(batches)

    theta = estimate = learner.initial()
    expected = []
    for t in range(steps // accumulate // 2):
        h, g = half(2 * t, estimate), half(2 * t + 1, theta)
        estimate, theta = theta - ETA * h, theta - ETA * (h + g) / 2
        expected.append(theta)
    landed = (steps // accumulate - 1) // 2 if steps >= accumulate else 0  # after the first half of the next round
    for rank in range(workers):
        history = [op.weights.vector for op in applied(run, Rank(rank))]
        assert len(history) == landed
        assert all((mine == one).all() for mine, one in zip(history, expected, strict=False))
    assert all(
        row.staleness == (1 if row.step // accumulate % 2 == 0 and row.step >= accumulate else 0)
        for row in trace.updates
    )


@given(data=st.data(), workers=st.integers(1, 3), accumulate=st.integers(1, 2), rounds=st.integers(1, 3))
def test_on_a_linear_loss_it_is_synchronous_sgd(
    data: st.DataObject, workers: int, accumulate: int, rounds: int
) -> None:
    """Exactly: an estimate changes no gradient there, so a round is 2 A steps with a rate of η / 2 A."""
    each = 2 * accumulate
    steps = each * rounds + accumulate
    found = AnyOrder(job_of(acco(accumulate=accumulate), workers, steps=steps, learner=Linear())).run(drawn(data))
    sync: Any = SyncSgd
    plain = job_of(sync(learning_rate=ETA / each), workers, steps=each * rounds, learner=Linear())
    assert (found.weights == AnyOrder(plain).run().weights).all()


@given(data=st.data(), workers=st.integers(1, 3), accumulate=st.integers(1, 2))
def test_the_first_update_is_that_of_synchronous_sgd(data: st.DataObject, workers: int, accumulate: int) -> None:
    """Exactly, on any loss: both halves of the first round are at the initial weights."""
    learner = UnlikeBowl()
    job = job_of(acco(accumulate=accumulate), workers, steps=3 * accumulate, learner=learner)
    x = learner.initial()
    gradients = [
        learner.gradient(x, learner.load(Samples(worker=r, workers=workers, index=i, count=8)))[0]
        for i in range(2 * accumulate)
        for r in range(workers)
    ]
    assert (AnyOrder(job).run(drawn(data)).weights == x - ETA * sum(gradients) / len(gradients)).all()


def test_an_estimate_leaves_no_momentum() -> None:
    """Velocity and the number of steps are those of the updates alone: two updates after five halves."""
    job = job_of(Acco(momentum=0.5), 2, steps=5)
    state = AnyOrder(job).run().states[Rank(0)]
    assert state.optimizer_state.number == 2 == state.weights.version


def test_communication_hides_behind_the_gradients() -> None:
    """An all-reduce of 0.9 s is free behind gradients of 1 s, and one of 1.5 s costs the difference."""

    def wall(seconds: float) -> float:
        network = MeasuredNetwork(lambda _kind, _members, _size: seconds, lambda _: 0.0)
        return simulate_job(job_of(Acco(), 2, steps=9), FixedTiming(), network, Schedule(every=1)).wall_s

    assert wall(0.9) == pytest.approx(9 + 0.9)  # the last one is completed
    assert wall(1.5) == pytest.approx(9 + 8 * 0.5 + 1.5)


def test_every_half_has_one_all_reduce() -> None:
    run = AnyOrder(job_of(Acco(accumulate=2), 2, steps=8))
    run.run()
    keys = [entry.op.key for entry in run.log if isinstance(entry.op, AllReduce) and entry.move.rank == 0]
    assert keys == [f"gradients {step}" for step in (2, 4, 6, 8)]


def test_a_wrong_count_is_reported() -> None:
    assert Acco(accumulate=0).problems([[Rank(0)]]) == ["accumulate: found 0, expected a whole number of 1 or more"]
    np.testing.assert_equal(Acco(accumulate=3).longest_period(2), 9)
