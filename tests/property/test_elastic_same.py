"""Elastic methods with equal results (numbers 14 and 15), and the computation of `eamsgd`, repeated by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.lars import Lars
from paceline.algorithms.core.operations import Gradient, Receive
from paceline.algorithms.core.values import Rank, Samples, Weights
from paceline.algorithms.methods.async_elastic import AsyncEasgd, AsyncMeasgd, Delta, Eamsgd
from paceline.algorithms.methods.elastic import Easgd
from paceline.algorithms.methods.sync_elastic import SyncEasgd1, SyncEasgd2, SyncEasgd3
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, drawn
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.workloads import build
from tests.backend.jobs import job_with, plain, run_for_real
from tests.elastic import ALPHAS, exact_job
from tests.exact import apart, applied
from tests.support import Bowl, FixedTiming, job_of
from tests.thorough import examples, extra

RATES = st.fractions(0, 1, max_denominator=10)
SYNCHRONOUS: list[Any] = [SyncEasgd1, SyncEasgd2, SyncEasgd3]


def gradient_of(job: Job, rank: int, index: int, x: Any) -> Any:
    """Worker `rank`'s gradient of its step `index`, at `x`."""
    batch = Samples(worker=rank, workers=job.workers, index=index, count=job.batches[0])
    return job.learner.gradient(x, job.learner.load(batch))[0]


# --- number 14 --------------------------------------------------------------------------------------------------------


def all_reduce_ea(job: Job, steps: int, rate: Any, alpha: Any) -> tuple[list[Any], Any]:
    """torch-distlearn's AllReduceEA, every step: each node has a centre of its own, and the deltas are all-reduced.

    The gradient is taken before the exchange (torch-distlearn moves x first).
    """
    x, c = [job.learner.initial()] * job.workers, job.learner.initial()
    for step in range(steps):
        gradients = [gradient_of(job, rank, step, x[rank]) for rank in range(job.workers)]
        deltas = [alpha * (own - c) for own in x]
        x = [own - delta - rate * g for own, delta, g in zip(x, deltas, gradients, strict=True)]
        c = c + sum(deltas)
    return x, c


@pytest.mark.parametrize("method", SYNCHRONOUS)
@given(
    data=st.data(), workers=st.integers(1, 4), steps=st.integers(0, 5), alpha=ALPHAS, rate=RATES, packed=st.booleans()
)
@examples(10, 200)
def test_synchronous_easgd_is_all_reduce_ea(
    method: Any, data: st.DataObject, workers: int, steps: int, alpha: Fraction, rate: Fraction, packed: bool
) -> None:
    """Number 14, exactly, for all three, with one message or one for each layer: so all three are the same method."""
    job = exact_job(method, workers, steps, learning_rate=rate, elastic=alpha, packed=packed)
    trace = AnyOrder(job).run(drawn(data))
    x, c = all_reduce_ea(job, steps, rate, alpha)
    assert (trace.weights == c).all()
    for rank in range(workers):
        assert (trace.states[Rank(rank)].weights.vector == x[rank]).all()


@given(speeds=st.permutations([1.0, 1.5, 2.25]), packed=st.booleans())
def test_the_three_are_one_in_virtual_time(speeds: list[float], packed: bool) -> None:
    """Number 14, bit for bit: sums are taken in rank order, and the host adds zeros at the end."""
    timing = FixedTiming(compute=lambda rank, _step: speeds[rank])
    first, *others = [
        simulate_job(job_of(method(momentum=0.5, packed=packed), 3, steps=5), timing, NoCost(), Schedule(every=1))
        for method in SYNCHRONOUS
    ]
    for other in others:
        for one, shot in zip(first.snapshots, other.snapshots, strict=True):
            assert (one.version, one.samples) == (shot.version, shot.samples)
            np.testing.assert_array_equal(one.vector, shot.vector)


@pytest.mark.backend
@pytest.mark.parametrize("packed", [True, extra(False)])
def test_the_three_are_one_for_real(packed: bool) -> None:
    """Number 14, to 1e-12 of the scale: gloo adds in an order of its own, which with a host has one summand more."""
    learner = build("digits-mlp", dataset="digits", learning="train", seed=3, dtype="float64")
    expected = plain(AnyOrder(job_with(SyncEasgd2(), learner, steps=8)).run().weights)
    assert np.abs(expected - plain(learner.initial())).max() > 1e-3
    for method in SYNCHRONOUS:
        real = plain(run_for_real(job_with(method(packed=packed), learner, steps=8)).weights)
        np.testing.assert_allclose(real, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@given(data=st.data(), workers=st.integers(1, 4), steps=st.integers(0, 9), alpha=ALPHAS, rate=RATES)
@pytest.mark.parametrize(("packed", "overlap"), [(False, False), (True, True), (False, True)])
@examples(10, 200)
def test_overlap_and_packing_change_no_number_of_original_easgd(
    packed: bool, overlap: bool, data: st.DataObject, workers: int, steps: int, alpha: Fraction, rate: Fraction
) -> None:
    """Exactly, in every order of messages: turns are in rank order, and both sides use the weights from before."""
    same = {"learning_rate": rate, "elastic": alpha}
    first, other = (
        AnyOrder(exact_job(Easgd, workers, steps, **same, **options)).run(drawn(data))
        for options in ({}, {"packed": packed, "overlap": overlap})
    )
    assert (first.weights == other.weights).all()
    for rank in range(workers):
        assert (first.states[Rank(rank)].weights.vector == other.states[Rank(rank)].weights.vector).all()


@pytest.mark.parametrize("method", [Easgd, AsyncEasgd, *SYNCHRONOUS, Eamsgd])
def test_rho_is_another_way_to_give_alpha(method: Any) -> None:
    """α = ηρ (SC'17): a quarter with η = 1/2 and ρ = 1/2."""
    by_rho, by_alpha = (
        AnyOrder(job_of(method(learning_rate=0.5, **options), 3, steps=6)).run(Shuffled(1)).weights
        for options in ({"rho": 0.5}, {"elastic": 0.25})
    )
    np.testing.assert_array_equal(by_rho, by_alpha)
    assert method(rho=0.5, elastic=0.25).problems([[Rank(0)]]) == [
        "rho: found beside elastic, expected one of them: elastic is α itself, rho gives α = ηρ"
    ]


# --- number 15 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sends", ["weights", "delta"])
@given(seed=st.integers(0, 999), workers=st.integers(1, 4), rounds=st.integers(3, 5))
def test_measgd_without_momentum_is_easgd(sends: Any, seed: int, workers: int, rounds: int) -> None:
    """Number 15, in the same order of moves, bit for bit; and with momentum it is another method."""
    easgd, measgd, moving = (
        AnyOrder(job_of(method, workers, steps=rounds * workers)).run(Shuffled(seed)).weights
        for method in (AsyncEasgd(sends=sends), AsyncMeasgd(sends=sends, momentum=0.0), AsyncMeasgd(sends=sends))
    )
    np.testing.assert_array_equal(measgd, easgd)
    assert (moving != easgd).any()


def heard(run: AnyOrder, rank: int) -> list[Any]:
    """Returns the messages that a rank has received, in order."""
    return [entry.answer for entry in run.log if isinstance(entry.op, Receive) and entry.move.rank == rank]


def centres_sent(run: AnyOrder, rank: int) -> list[Weights]:
    """The centres that a worker was sent; its last request is answered by a goodbye."""
    return [message.value for message in heard(run, rank) if isinstance(message.value, Weights)]


@given(data=st.data(), workers=st.integers(1, 3), steps=st.integers(0, 8), mu=st.sampled_from([0, Fraction(1, 2)]))
def test_measgd_is_equations_5_and_6(data: st.DataObject, workers: int, steps: int, mu: Any) -> None:
    """Each worker, recomputed from the centres it received: the elastic term has no momentum."""
    alpha, rate = Fraction(1, 3), Fraction(1, 5)
    job = exact_job(apart(AsyncMeasgd), workers, steps, learning_rate=rate, elastic=alpha, momentum=Fraction(mu))
    run = AnyOrder(job)
    states = run.run(drawn(data)).states
    for rank in range(workers):
        x = job.method.begin(job.team[rank], job.learner.initial()).weights.vector
        v = 0 * x
        for index, centre in enumerate(centres_sent(run, rank)):
            v = mu * v - rate * gradient_of(job, rank, index, x)
            x = x + v - alpha * (x - centre.vector)
        assert (states[Rank(rank)].weights.vector == x).all()


@dataclass(frozen=True)
class ByHand:
    """One worker of Algorithm 2 of Zhang, Choromanska, LeCun (with δ = 0: of Algorithm 1), without any messages."""

    job: Job
    rank: int
    x: Any
    v: Any
    t: int = 0

    def period(self, pull: Any = 0) -> ByHand:
        """The local steps up to the next exchange; the first one also moves by `pull`, which was computed before it."""
        method: Any = self.job.method
        one = self
        for _ in range(method.period):
            v = method.momentum * one.v
            v = v - method.learning_rate * gradient_of(self.job, self.rank, one.t, one.x + v)
            one, pull = replace(one, x=one.x - pull + v, v=v, t=one.t + 1), 0
        return one


@given(
    data=st.data(),
    workers=st.integers(1, 3),
    steps=st.integers(0, 6),
    period=st.integers(1, 3),
    delta=st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(9, 10)]),
)
def test_eamsgd_is_algorithm_2(data: st.DataObject, workers: int, steps: int, period: int, delta: Fraction) -> None:
    """Number 15 at δ = 0: EASGD with a period. Replayed from the order in which the server heard asks and deltas."""
    alpha = Fraction(1, 3)
    job = exact_job(
        apart(Eamsgd), workers, steps, learning_rate=Fraction(1, 5), elastic=alpha, period=period, momentum=delta
    )
    run = AnyOrder(job)
    states = run.run(drawn(data)).states
    *starts, centre = [job.method.begin(me, job.learner.initial()).weights.vector for me in job.team]
    build_team = [ByHand(job, rank, x, 0 * x).period() for rank, x in enumerate(starts)]
    answered = [len(centres_sent(run, rank)) for rank in range(workers)]
    pulls, centres = [0 * x for x in starts], []
    for message in heard(run, workers):
        rank = int(message.source)
        if isinstance(message.value, Delta):
            centre = centre + pulls[rank]
            centres.append(centre.tolist())
        elif answered[rank]:
            answered[rank] -= 1
            pulls[rank] = alpha * (build_team[rank].x - centre)
            build_team[rank] = build_team[rank].period(pulls[rank])
    assert [op.weights.vector.tolist() for op in applied(run, Rank(workers))] == centres
    for rank in range(workers):
        assert (states[Rank(rank)].weights.vector == build_team[rank].x).all()


def nesterov_by_hand(job: Job, steps: int, decay: float, trust: Any) -> tuple[list[Any], Any]:
    """Where the one worker of Algorithm 2 takes its gradients, and where it ends, while nothing pulls it to the centre.

    v ← δ v − η λ (g(x + δ v) + β x);  x ← x + v, with λ = trust ‖x‖ / (‖g‖ + β ‖x‖) for each layer, 1 without LARS.
    """
    method: Any = job.method
    x, points = job.learner.initial(), []
    v = 0 * x
    for index in range(steps):
        points.append(x + method.momentum * v)
        gradient = gradient_of(job, 0, index, points[-1])
        change = gradient + decay * x
        if trust is not None:
            for layer in job.learner.layout.layers:
                size = np.linalg.norm(x[layer.part])
                change[layer.part] *= trust * size / (np.linalg.norm(gradient[layer.part]) + decay * size)
        v = method.momentum * v - method.learning_rate * change
        x = x + v
    return points, x


@dataclass(frozen=True)
class AwayFromNought(Bowl):
    """Weights of 0 have no layer-wise rate, so learning starts elsewhere."""

    def initial(self) -> Any:
        return np.arange(1.0, 1.0 + self.size)[::-1].copy()


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("trust", [None, 0.05])
def test_eamsgd_looks_ahead_by_its_momentum_alone(decay: float, trust: float | None) -> None:
    """The gradient is taken at x + δ v in float64, whatever decay and layer-wise rates make of the gradient."""
    lars = None if trust is None else Lars(trust_coefficient=trust)
    method = Eamsgd(learning_rate=0.2, momentum=0.9, elastic=0.0, period=2, weight_decay=decay, lars=lars)
    run = AnyOrder(job_of(method, 1, steps=3, learner=AwayFromNought()))
    state = run.run().states[Rank(0)]
    taken = [entry.op.weights.vector for entry in run.log if isinstance(entry.op, Gradient)]
    points, end = nesterov_by_hand(run.job, state.step, decay, trust)
    assert state.step >= 6
    np.testing.assert_allclose(taken, points, rtol=1e-13)
    np.testing.assert_allclose(state.weights.vector, end, rtol=1e-13)
