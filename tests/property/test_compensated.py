"""Delay compensation (number 20 for `dc-asgd`): its arithmetic, its limits, and its effect on staleness."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import pi, sin
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.method import RankContext, Replica, build_team
from paceline.algorithms.core.operations import Send
from paceline.algorithms.core.values import Contribution, Rank, Samples, Weights
from paceline.algorithms.methods.delay_compensated import DcAsgd
from paceline.algorithms.methods.parameter_server import AsyncSgd, Push
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Chooser, Recorded, Shuffled
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.exact import ExactBowl, applied
from tests.servers import ORDERS, RATE, SERVERS, exact_run
from tests.support import Bowl, FixedTiming, Vector, job_of

WORKERS = st.integers(1, 4)


@given(order=ORDERS, workers=WORKERS, steps=st.integers(0, 5))
def test_the_servers_weights_follow_from_what_was_applied(order: Chooser, workers: int, steps: int) -> None:
    """Number 20, exactly: b_i is looked up among the server's versions, by the version that the gradient names."""
    run = exact_run(SERVERS["dc-asgd"](workers, 1), order, workers, steps)
    pushes = [e.op.value for e in run.log if isinstance(e.op, Send) and isinstance(e.op.value, Push)]
    sent = {(push.origin.rank, push.origin.step): push.vector for push in pushes}
    versions = [run.job.learner.initial()]
    for update in applied(run, Rank(workers)):
        (source,) = update.inputs
        g, moved = sent[source.rank, source.step], versions[-1] - versions[source.version]
        versions.append(versions[-1] - RATE * (g + Fraction(1, 25) * g * g * moved))
        assert (update.weights.vector == versions[-1]).all()


@pytest.mark.parametrize("adaptive", [False, True])
@given(seed=st.integers(0, 999), workers=WORKERS, steps=st.integers(0, 12))
def test_without_compensation_it_is_asynchronous_sgd(adaptive: bool, seed: int, workers: int, steps: int) -> None:
    """λ = 0 is async-sgd bit for bit, in the same moves; λ > 0 is not, once a gradient is stale."""
    plain = AnyOrder(job_of(AsyncSgd(momentum=0.5), workers, steps=steps))
    plain.run(Shuffled(seed))
    ends = []
    for compensation in (0.0, 0.5):
        method = DcAsgd(compensation=compensation, adaptive=adaptive, momentum=0.5)
        run = AnyOrder(job_of(method, workers, steps=steps))
        run.run(Recorded(entry.move for entry in plain.log))
        ends.append(run.trace.weights)
    np.testing.assert_array_equal(ends[0], plain.trace.weights)
    assert (ends[1] != plain.trace.weights).any() == any(row.staleness for row in plain.trace.updates)


@given(seed=st.integers(0, 99), stops=st.sets(st.integers(0, 8), max_size=3))
def test_what_it_remembers_survives_a_stop(seed: int, stops: set[int]) -> None:
    """One worker is a deterministic run, backups or not: stopped and entered again it ends in the same weights."""
    job = job_of(DcAsgd(adaptive=True, compensation=2.0, momentum=0.5), 1, steps=9)
    whole, *_, last = (run_in_parts(job, [], lambda: Shuffled(0))[0], *run_in_parts(job, sorted(stops)))
    np.testing.assert_array_equal(last.weights, whole.weights)
    np.testing.assert_array_equal(
        last.states[Rank(1)].optimizer_state.square, whole.states[Rank(1)].optimizer_state.square
    )


def one_step(method: Any, here: float, there: float, gradient: float) -> float:
    """Returns the decrease of the server's x for a gradient computed at `there`, applied at `here`, at a rate of 1."""
    me: RankContext = build_team(method, [[Rank(0)]], ExactBowl().layout)[1]
    before: Replica = method.begin(me, np.array([there]))
    state = Replica(1, Weights(np.array([here]), 1), before.optimizer_state)
    push = Push(np.array([gradient]), Contribution(Rank(0), 0, 0, 1))
    return here - float(method.applied(method.rule(me.layout.layers), state, [push])[0][0])


def test_where_the_square_is_the_hessian_the_error_is_of_second_order() -> None:
    """f = −log x has f' = −1/x and f'' = 1/x² = f'²: with λ = 1 the Taylor term is exact, and the remainder is O(d²).

    A quadratic cannot be used here: its Hessian is constant and the square of its gradient is not.
    """
    stale, corrected = [], []
    for d in (0.1, 0.05, 0.025):
        truth = -1 / (1 + d)
        stale.append(abs(one_step(DcAsgd(learning_rate=1.0, compensation=0.0), 1 + d, 1.0, -1.0) - truth))
        corrected.append(abs(one_step(DcAsgd(learning_rate=1.0, compensation=1.0), 1 + d, 1.0, -1.0) - truth))
    assert np.log2(np.divide(stale[:-1], stale[1:])) == pytest.approx([1, 1], abs=0.1)
    assert np.log2(np.divide(corrected[:-1], corrected[1:])) == pytest.approx([2, 2], abs=0.1)


@dataclass(frozen=True)
class Coin(Bowl):
    """Loss |w − a|² / 2 with a = 1 and −1 by turns: near the optimum, at 0, the square of the gradient is about 1."""

    def initial(self) -> Vector:
        return np.full(self.size, 0.1)

    def load(self, samples: Samples) -> Vector:
        return np.full(self.size, (-1.0) ** (samples.index * samples.workers + samples.worker))


def coins(method: Any, steps: int = 400) -> Trace:
    """Eight equal workers in turn: every gradient is seven versions old."""
    return simulate_job(job_of(method, 8, steps=steps, learner=Coin()), FixedTiming(), NoCost(), Schedule(1))


@pytest.mark.parametrize("more", [{"compensation": 1.0}, {"compensation": 1.0, "adaptive": True}])
def test_it_lessens_what_staleness_does_on_a_quadratic(more: dict[str, Any]) -> None:
    """With λ = 1 / g² = 1 the term replaces the Hessian, 1, and removes the effect of the delay where g² ≈ 1.

    At a learning rate of 0.3, between the limits 2 sin(π / (2 (2τ + 1))) of a delay of 7 and of none, asynchronous SGD
    diverges; compensated, x stays within the range η / (2 − η) that the coin alone causes in sequential SGD.
    """
    rate = 0.3
    assert 2 * sin(pi / (2 * 15)) < rate < 2
    plain, compensated = coins(AsyncSgd(learning_rate=rate)), coins(DcAsgd(learning_rate=rate, **more))
    assert {row.staleness for row in compensated.updates[8:]} == {7}
    assert np.abs(plain.weights).max() > 1000
    swing = [np.abs(shot.vector).max() for shot in compensated.snapshots[-50:]]
    assert max(swing) <= rate / (2 - rate)
