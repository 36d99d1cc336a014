"""Elastic averaging (numbers as in docs/invariants.md): every method against its equations, in every order of moves.

Runs are in fractions, from different places, and repeated by hand from the order in which the centre was changed. The
conserved sum (10), the contraction (11), workers without elasticity (12) and equal methods (14, 15) follow from that;
methods with one worker (13) are in test_limits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline.algorithms import find
from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import Gradient, NextStep, Receive, RecordUpdate, Send
from paceline.algorithms.core.program import Lane
from paceline.algorithms.core.rules import Lars
from paceline.algorithms.core.values import Layer, Layout, Message, Rank, Samples, Step, Weights
from paceline.algorithms.methods.async_elastic import Ask, AsyncEasgd, AsyncMeasgd, Delta, Eamsgd, takes_deltas
from paceline.algorithms.methods.elastic import Easgd, Exchange, SyncEasgd1, SyncEasgd2, SyncEasgd3
from paceline.algorithms.methods.parameter_server import ServerStopped
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import RoundRobin, Shuffled
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.workloads import build
from tests.backend.jobs import job_with, plain, run_for_real
from tests.exact import UnlikeBowl, apart, applied
from tests.support import Bowl, FixedTiming, job_of
from tests.thorough import examples, extra

ALPHAS = st.fractions(Fraction(1, 20), Fraction(19, 20), max_denominator=20)
RATES = st.fractions(0, 1, max_denominator=10)
ORDERS = st.integers(0, 2**16).map(Shuffled)
HALF: Any = Fraction(1, 2)
SYNCHRONOUS: list[Any] = [SyncEasgd1, SyncEasgd2, SyncEasgd3]


def gradient_of(job: Job, rank: int, index: int, x: Any) -> Any:
    """Worker `rank`'s gradient of its step `index`, at `x`."""
    batch = Samples(worker=rank, workers=job.workers, index=index, count=job.batches[0])
    return job.learner.gradient(x, job.learner.load(batch))[0]


def exact(method: Any, workers: int, steps: int, **parameters: Any) -> tuple[AnyOrder, list[Any], Any]:
    """A run from different places, and where its workers and its centre begin."""
    job = job_of(apart(method)(**parameters), workers, steps=steps, learner=UnlikeBowl())
    states = [job.method.begin(me, job.learner.initial()) for me in job.team]
    x = [state.weights.vector for state in states]
    return AnyOrder(job), x[:workers], states[0].centre.vector if hasattr(states[0], "centre") else x[-1]


def ends_are(run: AnyOrder, x: list[Any], centres: list[Any]) -> None:
    """Workers end at `x`, and the centre was at `centres` after its updates."""
    recorded = [op.weights.vector.tolist() for op in applied(run, run.job.weights_owner)]
    assert recorded == [centre.tolist() for centre in centres]
    for rank, expected in enumerate(x):
        assert (run.trace.states[Rank(rank)].weights.vector == expected).all()


# --- equations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", SYNCHRONOUS)
@given(order=ORDERS, workers=st.integers(1, 4), steps=st.integers(0, 5), alpha=ALPHAS, rate=RATES, packed=st.booleans())
@examples(10, 200)
def test_synchronous_easgd_is_all_reduce_ea(
    method: Any, order: Any, workers: int, steps: int, alpha: Any, rate: Any, packed: bool
) -> None:
    """Number 14: torch-distlearn's AllReduceEA, every step, with the gradient taken before the exchange."""
    run, x, c = exact(method, workers, steps, learning_rate=rate, elastic=alpha, packed=packed)
    run.run(order)
    centres = []
    for step in range(steps):
        deltas = [alpha * (own - c) for own in x]
        moves = [rate * gradient_of(run.job, rank, step, own) for rank, own in enumerate(x)]
        x = [own - delta - move for own, delta, move in zip(x, deltas, moves, strict=True)]
        c = c + sum(deltas)
        centres.append(c)
    ends_are(run, x, centres)


@given(order=ORDERS, workers=st.integers(1, 4), steps=st.integers(0, 9), alpha=ALPHAS, rate=RATES)
def test_original_easgd_exchanges_in_rank_order(order: Any, workers: int, steps: int, alpha: Any, rate: Any) -> None:
    """Number 16, whatever the order of moves: each worker has ⌊T/P⌋ or ⌈T/P⌉ exchanges, in turn."""
    run, x, c = exact(Easgd, workers, steps, learning_rate=rate, elastic=alpha)
    run.run(order)
    centres = []
    for step in range(steps):
        rank = step % workers
        pull = alpha * (x[rank] - c)
        x[rank], c = x[rank] - rate * gradient_of(run.job, rank, step // workers, x[rank]) - pull, c + pull
        centres.append(c)
    ends_are(run, x, centres)
    assert [(row.rank, row.step) for row in run.trace.updates] == [(t % workers, t // workers) for t in range(steps)]


@dataclass(frozen=True)
class ByHand:
    """One worker of Algorithm 2 of Zhang, Choromanska, LeCun (with δ = 0: of Algorithm 1), without any messages.

    `measgd` is equations 5 and 6 of You, Buluç, Demmel: a period of 1, the gradient at x itself, and the elastic term
    from where the worker was before it.
    """

    job: Job
    rank: int
    x: Any
    v: Any
    ahead: bool
    t: int = 0

    def period(self, pull: Any = 0) -> ByHand:
        """The local steps up to the next exchange; the first also moves by `pull`, which was computed before it."""
        method: Any = self.job.method
        worker, mu = self, method.momentum or 0
        for _ in range(getattr(method, "period", 1)):
            at = worker.x + mu * worker.v if self.ahead else worker.x
            v = mu * worker.v - method.learning_rate * gradient_of(self.job, self.rank, worker.t, at)
            worker, pull = replace(worker, x=worker.x - pull + v, v=v, t=worker.t + 1), 0
        return worker


CASES: list[tuple[Any, dict[str, Any]]] = [
    (AsyncEasgd, {}),
    (AsyncEasgd, {"sends": "delta"}),
    (AsyncMeasgd, {"momentum": HALF}),
    (AsyncMeasgd, {"momentum": HALF, "sends": "delta"}),
    (Eamsgd, {"momentum": Fraction(0), "period": 2}),
    (Eamsgd, {"momentum": Fraction(9, 10), "period": 1}),
    (Eamsgd, {"momentum": HALF, "period": 3}),
]


@pytest.mark.parametrize(("method", "parameters"), CASES)
@given(order=ORDERS, workers=st.integers(1, 3), steps=st.integers(0, 8), alpha=ALPHAS)
@examples(15, 200)
def test_asynchronous_easgd_is_its_equations(
    method: Any, parameters: dict[str, Any], order: Any, workers: int, steps: int, alpha: Any
) -> None:
    """Number 15. The centre moves by what its workers give up, in the order in which the server heard them."""
    run, x, c = exact(method, workers, steps, learning_rate=Fraction(1, 5), elastic=alpha, **parameters)
    run.run(order)
    build_team = [ByHand(run.job, rank, own, 0 * own, ahead=method is Eamsgd) for rank, own in enumerate(x)]
    if method is Eamsgd:  # begins with a period of its own
        build_team = [worker.period() for worker in build_team]
    heard: dict[int, list[Any]] = {rank: [] for rank in range(workers + 1)}
    for entry in run.log:
        if isinstance(entry.op, Receive):
            heard[entry.move.rank].append(entry.answer)
    answered = [sum(isinstance(message.value, Weights) for message in heard[rank]) for rank in range(workers)]
    pulls, centres = [0 * own for own in x], []
    for message in heard[workers]:
        rank = int(message.source)
        if isinstance(message.value, Ask | Exchange) and answered[rank]:
            answered[rank] -= 1
            pulls[rank] = alpha * (build_team[rank].x - c)
            build_team[rank] = build_team[rank].period(pulls[rank])
        elif not isinstance(message.value, Delta):
            continue
        if not isinstance(message.value, Ask):
            c = c + pulls[rank]
            centres.append(c)
    ends_are(run, [worker.x for worker in build_team], centres)
    lags = Counter(row.rank for row in run.trace.updates)
    period = parameters.get("period", 1)
    assert sum(lags.values()) == steps * period and all(count % period == 0 for count in lags.values())


@dataclass(frozen=True)
class AwayFromNought(Bowl):
    """Weights of 0 have no layer-wise rate, so learning starts elsewhere."""

    def initial(self) -> Any:
        return np.arange(1.0, 1.0 + self.size)[::-1].copy()


@pytest.mark.parametrize(("decay", "trust"), [(0.0, None), (0.1, None), (0.1, 0.05)])
def test_eamsgd_looks_ahead_by_its_momentum_alone(decay: float, trust: float | None) -> None:
    """The gradient is taken at x + δ v in float64, whatever decay and layer-wise rates make of the gradient.

    v ← δ v − η λ (g(x + δ v) + β x) and x ← x + v, with λ = trust ‖x‖ / (‖g‖ + β ‖x‖) for each layer, 1 without LARS.
    """
    lars = None if trust is None else Lars(trust_coefficient=trust)
    method = Eamsgd(learning_rate=0.2, momentum=0.9, elastic=0.0, period=2, weight_decay=decay, lars=lars)
    run = AnyOrder(job_of(method, 1, steps=3, learner=AwayFromNought()))
    state = run.run().states[Rank(0)]
    x, points = run.job.learner.initial(), []
    v = 0 * x
    for index in range(state.step):
        points.append(x + 0.9 * v)
        gradient = gradient_of(run.job, 0, index, points[-1])
        change = gradient + decay * x
        for layer in run.job.learner.layout.layers if trust is not None else ():
            size = np.linalg.norm(x[layer.part])
            change[layer.part] *= (trust or 0.0) * size / (np.linalg.norm(gradient[layer.part]) + decay * size)
        v = 0.9 * v - 0.2 * change
        x = x + v
    taken = [entry.op.weights.vector for entry in run.log if isinstance(entry.op, Gradient)]
    assert state.step >= 6
    np.testing.assert_allclose(taken, points, rtol=1e-13)
    np.testing.assert_allclose(state.weights.vector, x, rtol=1e-13)


def test_a_delta_is_as_old_as_the_centre_that_it_was_computed_from() -> None:
    """In turns, each of the other workers moves the centre at most once in between, in runs of any length."""
    trace = AnyOrder(job_of(AsyncEasgd(sends="delta"), 3, steps=30)).run(RoundRobin())
    assert len(trace.updates) == 30
    assert {0} < {row.staleness for row in trace.updates} <= {0, 1, 2}


# --- times and real runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["easgd", "sync-easgd1", "sync-easgd2", "sync-easgd3"])
@examples(8, 200)
@given(order=ORDERS, speeds=st.permutations([1.0, 1.5, 2.25, 4.0]))
def test_deterministic_easgd_does_not_see_speeds(name: str, order: Any, speeds: list[float]) -> None:
    """Numbers 14 and 17, bit for bit, for any speeds and order of moves: sums are taken in rank order."""
    same = "sync-easgd2" if name.startswith("sync") else name
    job = job_of(find(name)(), 4, steps=6)
    timing = FixedTiming(compute=lambda rank, _step: speeds[rank])
    in_time = simulate_job(job, timing, NoCost(), Schedule(every=1))
    expected = AnyOrder(job_of(find(same)(), 4, steps=6)).run().weights
    np.testing.assert_array_equal(AnyOrder(job).run(order).weights, expected)
    np.testing.assert_array_equal(in_time.weights, expected)


@pytest.mark.backend
@pytest.mark.parametrize("packed", [True, extra(False)])
def test_the_three_are_equal_for_real(packed: bool) -> None:
    """Number 14, to 1e-12 of the scale: gloo adds in an order of its own, which with a host has one summand more."""
    learner = build("digits-mlp", dataset="digits", learning="train", seed=3, dtype="float64")
    expected = plain(AnyOrder(job_with(SyncEasgd2(), learner, steps=8)).run().weights)
    assert np.abs(expected - plain(learner.initial())).max() > 1e-3
    for method in SYNCHRONOUS:
        real = plain(run_for_real(job_with(method(packed=packed), learner, steps=8)).weights)
        np.testing.assert_allclose(real, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


# --- stability --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line(Bowl):
    """f = h x² / 2 for every worker."""

    curvature: float = 1.0

    @property
    def layout(self) -> Layout:
        return Layout((Layer("first", 0, 1), Layer("second", 1, self.size)))

    def load(self, samples: Any) -> Any:
        return np.zeros(self.size)

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return self.curvature * vector, 0.0


class FromTheAxes:
    """Rank i starts at the i-th unit vector, and the centre at the last: where all end is a matrix, row by row."""

    def begin(self, me: RankContext, vector: Any) -> Any:
        axes = np.eye(len(vector))
        state = super().begin(me, vector)  # type: ignore[misc]
        state = replace(state, weights=Weights(axes[me.rank], 0))
        return replace(state, centre=Weights(axes[-1], 0)) if hasattr(state, "centre") else state


def radius(method: Any, workers: int, steps: int, *, curvature: float = 1.0) -> float:
    """The largest modulus of an eigenvalue of so many steps, as a linear map of (x_1, …, x_P, c) on f = h x² / 2.

    Errors die out if and only if it is below 1. The matrix is of runs from the unit vectors, hence of the program
    itself and not of a copy of its rule.
    """
    axed: Any = dataclass(frozen=True)(type("Axed", (FromTheAxes, type(method)), {}))
    learner = Line(size=workers + 1, curvature=curvature)
    trace = AnyOrder(job_of(axed(**vars(method)), workers, steps=steps, learner=learner)).run()
    rows = [trace.states[Rank(rank)].weights.vector for rank in range(workers)]
    return float(np.abs(np.linalg.eigvals(np.array([*rows, trace.weights]))).max())


@given(workers=st.integers(1, 6), rate=st.floats(0.01, 2.5), alpha=st.floats(0.01, 1.5), curvature=st.floats(0.1, 2.0))
def test_synchronous_easgd_is_stable_iff_the_polynomial_says_so(
    workers: int, rate: float, alpha: float, curvature: float
) -> None:
    """Q17, with g = ηh and b = Pα: 4 − 2 (g + α + b) + g b > 0, |(1 − g − α)(1 − b) − α b| < 1, |1 − g − α| < 1."""
    g, b = rate * curvature, workers * alpha
    size = radius(SyncEasgd3(learning_rate=rate, elastic=alpha), workers, 1, curvature=curvature)
    assume(abs(size - 1) > 1e-3)
    together = 4 - 2 * (g + alpha + b) + g * b > 0 and abs((1 - g - alpha) * (1 - b) - alpha * b) < 1
    assert (size < 1) == (together and (workers == 1 or abs(1 - g - alpha) < 1))


@given(workers=st.integers(1, 8), rate=st.floats(0.01, 1.99), share=st.floats(0.01, 0.99), excess=st.floats(1.01, 2.0))
def test_round_robin_is_stable_inside_its_region(workers: int, rate: float, share: float, excess: float) -> None:
    """Number 16 and Q18: with 0 ≤ η ≤ 2 every α below (4 − 2η) / (4 − η) is stable; for one worker no other is."""
    edge = (4 - 2 * rate) / (4 - rate)
    assert radius(Easgd(learning_rate=rate, elastic=share * edge), workers, workers) < 1
    assert radius(Easgd(learning_rate=rate, elastic=excess * edge), 1, 1) > 1


def test_with_more_workers_the_region_is_only_sufficient() -> None:
    """Q18: a stable case outside."""
    assert radius(Easgd(learning_rate=1.0, elastic=1.02 * 2 / 3), 2, 2) < 1


# --- the server at the end --------------------------------------------------------------------------------------------


class Workers:
    """Workers that send deltas, as their server sees them: each asks, and after the reply sends a delta and asks again.

    Messages of a sender arrive in their order. A worker may die after any message; its death is reported after that
    one.
    """

    def __init__(self, data: st.DataObject, count: int) -> None:
        self.data = data
        self.under_way: dict[Rank, list[Any]] = {Rank(rank): [Ask()] for rank in range(count)}
        self.dead, self.stopped = set[Rank](), set[Rank]()
        self.deltas = 0
        """sent so far"""

    def hear(self, rank: Rank, value: Any) -> None:
        """A message from the server."""
        if isinstance(value, ServerStopped):
            self.stopped.add(rank)
            return
        living = len(self.under_way.keys() - self.dead)
        if rank in self.dead or (living > 1 and self.data.draw(st.booleans(), label=f"{rank} dies before its delta")):
            self.dead.add(rank)
            return
        self.under_way[rank].append(Delta(np.zeros(4), ()))
        self.deltas += 1
        if living > 1 and self.data.draw(st.booleans(), label=f"{rank} dies after its delta"):
            self.dead.add(rank)
        else:
            self.under_way[rank].append(Ask())

    def speak(self) -> Message | PeerFailed:
        """Returns the next message to the server."""
        heard = [rank for rank, values in self.under_way.items() if values or rank in self.dead]
        assert heard, "the server waits for a message that no worker will send"
        rank = self.data.draw(st.sampled_from(heard), label="heard")
        if self.under_way[rank]:
            return Message(rank, self.under_way[rank].pop(0))
        del self.under_way[rank]
        self.dead.remove(rank)
        return PeerFailed(f"rank {rank} died", rank)


@given(data=st.data(), count=st.integers(1, 4), steps=st.integers(0, 6))
def test_the_server_waits_for_every_delta_of_the_living_and_for_none_of_the_dead(
    data: st.DataObject, count: int, steps: int
) -> None:
    """It would hang if it waited for dead workers, and leave a delta behind if it ended too early."""
    job = job_of(AsyncEasgd(sends="delta"), count)
    (me,) = (me for me in job.team if me.role == "server")
    workers, begun, landed = Workers(data, count), 0, 0
    lane = Lane(takes_deltas(me, job.method.begin(me, job.learner.initial())))
    op = lane.advance()
    while op is not None:
        answer: Any = None
        match op:
            case NextStep():
                answer = Step(begun, job.samples(me, begun)) if begun < steps else None
                begun += 1
            case Receive():
                answer = workers.speak()
            case Send(to, value):
                workers.hear(to, value)
            case RecordUpdate():
                answer = landed = landed + 1
        op = lane.advance(None, answer) if isinstance(answer, PeerFailed) else lane.advance(answer)
    living = workers.under_way.keys() - workers.dead
    assert living == workers.stopped
    assert not any(workers.under_way[rank] for rank in living)
    waiting = sum(isinstance(value, Delta) for rank in workers.dead for value in workers.under_way[rank])
    assert landed == workers.deltas - waiting
