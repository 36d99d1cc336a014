"""Methods that go on while they communicate, against their rules, in every order of moves.

Delayed gradients (numbers 39 and 40 of docs/invariants.md), ACCO, CO2, NoLoCo and asynchronous DiLoCo; settings at
which they are other methods are in test_limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.method import Method, build_team
from paceline.algorithms.core.operations import NextStep, Receive, Send
from paceline.algorithms.core.values import Layout, Null, Rank, Samples
from paceline.algorithms.methods.accumulating import Acco
from paceline.algorithms.methods.async_diloco import (
    AsyncDiLoCo,
    OuterOptimizer,
    PseudoGradient,
    RoundStart,
    RoundState,
    local_steps,
)
from paceline.algorithms.methods.layerwise import Agd, LayerwiseAgd
from paceline.algorithms.methods.noloco import NoLoCo, RoundChange
from paceline.algorithms.methods.outer import Co2
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Chooser, Shuffled
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from tests.clusters import fixed_costs
from tests.exact import Apart, ExactBowl, UnlikeBowl, applied, assert_everyone_applies, ends, exact_run, fractions
from tests.support import FixedTiming, job_of

ORDERS = st.integers(0, 2**16).map(Shuffled)
TENTH: Any = Fraction(1, 10)


DELAYED = pytest.mark.parametrize("delayed", [Agd, LayerwiseAgd])


@DELAYED
@given(order=ORDERS, workers=st.integers(1, 3), delay=st.integers(0, 3), steps=st.integers(0, 6))
def test_the_delay_is_exact_and_replicas_are_equal(
    delayed: type[Agd], order: Shuffled, workers: int, delay: int, steps: int
) -> None:
    """Number 40, exactly: x_{t+1} = x_t − η mean g(x_{t−d}); the first d steps change nothing; replicas are equal."""
    method: Any = delayed(delay=delay, learning_rate=Fraction(1, 10))  # type: ignore[arg-type]
    learner = ExactBowl()
    run = exact_run(method, workers, steps, order, learner)
    assert {row.staleness for row in run.trace.updates} <= {delay}
    x = [learner.initial()]
    for t in range(steps):
        change: Any = 0
        if t >= delay:
            batches = [Samples(worker=r, workers=workers, index=t - delay, count=8) for r in range(workers)]
            gradients = [learner.gradient(x[t - delay], learner.load(batch))[0] for batch in batches]
            change = Fraction(1, 10) * sum(gradients) / workers
        x.append(x[t] - change)
    assert_everyone_applies(run, x[1:])


# --- ACCO -------------------------------------------------------------------------------------------------------------


@given(order=ORDERS, workers=st.integers(1, 3), accumulate=st.integers(1, 3), steps=st.integers(0, 13))
def test_both_halves_are_those_of_the_paper(order: Shuffled, workers: int, accumulate: int, steps: int) -> None:
    """Exactly: y_{t+1} = θ_t − η h_t and θ_{t+1} = θ_t − η (h_t + g_t) / 2, with h_t at y_t and g_t at θ_t."""
    learner = UnlikeBowl()
    run = exact_run(Acco(learning_rate=TENTH, accumulate=accumulate), workers, steps, order)

    def half(number: int, at: Any) -> Any:
        indices = range(number * accumulate, (number + 1) * accumulate)
        batches = [Samples(worker=r, workers=workers, index=i, count=8) for r in range(workers) for i in indices]
        return sum(learner.gradient(at, learner.load(batch))[0] for batch in batches) / len(batches)

    theta = estimate = learner.initial()
    expected = []
    for t in range(steps // accumulate // 2):
        h, g = half(2 * t, estimate), half(2 * t + 1, theta)
        estimate, theta = theta - TENTH * h, theta - TENTH * (h + g) / 2
        expected.append(theta)
    landed = (steps // accumulate - 1) // 2 if steps >= accumulate else 0  # after the first half of the next round
    assert_everyone_applies(run, expected[:landed])
    for row in run.trace.updates:
        assert row.staleness == (row.step // accumulate % 2 == 0 and row.step >= accumulate)


def test_an_estimate_leaves_no_momentum() -> None:
    """Velocity and the number of steps are those of the updates alone: two updates after five halves."""
    job = job_of(Acco(momentum=0.5), 2, steps=5)
    state = AnyOrder(job).run().states[Rank(0)]
    assert state.optimizer_state.number == 2 == state.weights.version


# --- CO2 --------------------------------------------------------------------------------------------------------------


@given(
    order=ORDERS,
    workers=st.integers(1, 3),
    period=st.integers(1, 3),
    rounds=st.integers(0, 4),
    momentum=st.sampled_from([0, Fraction(1, 2)]),
    penalty=st.sampled_from([1, 3]),
    clip=st.sampled_from([None, Fraction(1, 5)]),
)
def test_an_outer_step_applies_the_change_of_the_round_before(
    order: Shuffled, workers: int, period: int, rounds: int, momentum: Any, penalty: int, clip: Any
) -> None:
    """Exactly: V ← clip(M V + D_{t−1} / G) and y ← y − R V, with D the mean change of a round; the first one is 0."""
    learner, rate = UnlikeBowl(), Fraction(3, 4)
    options: dict[str, Any] = {"gap_penalty": penalty, "clip": clip, "outer_learning_rate": rate}
    method = Co2(learning_rate=TENTH, period=period, outer_momentum=momentum, **options)
    run = exact_run(method, workers, period * rounds, order)
    y, velocity, late, expected = learner.initial(), 0 * learner.initial(), None, []
    for number in range(rounds):
        change = 0 * y
        for worker in range(workers):
            x = y
            for index in range(number * period, (number + 1) * period):
                batch = Samples(worker=worker, workers=workers, index=index, count=8)
                x = x - TENTH * learner.gradient(x, learner.load(batch))[0]
            change = change + (y - x) / workers
        if late is not None:
            velocity = momentum * velocity + late / penalty
            if clip is not None:
                velocity = np.array([max(-clip, min(clip, one)) for one in velocity], dtype=object)
            y = y - rate * velocity
        late = change
        expected.append(y)
    assert_everyone_applies(run, expected)


@pytest.mark.parametrize(
    ("method", "steps", "round_s"), [(Acco(), 9, 1.0), (Co2(period=2), 8, 2.0)], ids=["acco", "co2"]
)
def test_communication_hides_behind_a_round(method: Method, steps: int, round_s: float) -> None:
    """An all-reduce that is 0.1 s shorter than a round is free, and of a longer one the difference is left."""

    def wall(seconds: float) -> float:
        job = job_of(method, 2, steps=steps)
        return simulate_job(job, FixedTiming(), fixed_costs(collective_s=seconds), Schedule(every=1)).wall_s

    assert wall(round_s - 0.1) == pytest.approx(steps + round_s - 0.1)  # the last one is completed
    assert wall(round_s + 0.5) == pytest.approx(steps + (steps / round_s - 1) * 0.5 + round_s + 0.5)


# --- NoLoCo -----------------------------------------------------------------------------------------------------------


HALF: Any = Fraction(1, 2)
ONE: Any = Fraction(1)
NOTHING: Any = Fraction(0)
SEEDS, PERIODS, STEPS = st.integers(0, 999), st.integers(1, 4), st.integers(1, 9)
SHARES = st.fractions(0, 1, max_denominator=8)


@dataclass(frozen=True, kw_only=True)
class NoLoCoApart(Apart, NoLoCo):
    """NoLoCo from different places."""


@given(workers=st.integers(2, 17), number=st.integers(0, 99), seed=st.integers(0, 99))
def test_peers_are_pairs_and_one_is_left_over_of_an_odd_number(workers: int, number: int, seed: int) -> None:
    method = NoLoCo(seed=seed)
    team = build_team(method, [[Rank(rank)] for rank in range(workers)], Layout(()))
    peers = {me.rank: method.peer(me, number) for me in team}
    alone = [rank for rank, peer in peers.items() if peer is None]
    assert len(alone) == workers % 2
    assert all(peers[peer] == rank != peer for rank, peer in peers.items() if peer is not None)


def test_all_pairs_meet() -> None:
    method = NoLoCo()
    team = build_team(method, [[Rank(rank)] for rank in range(5)], Layout(()))
    met = {frozenset((me.rank, method.peer(me, number))) for me in team for number in range(60)}
    assert {frozenset(pair) for pair in combinations(range(5), 2)} <= met


@given(seed=SEEDS, workers=st.integers(2, 5), period=PERIODS, steps=STEPS)
def test_a_round_has_one_message_to_the_peer_and_one_back(seed: int, workers: int, period: int, steps: int) -> None:
    run = exact_run(NoLoCo(period=period), workers, steps, Shuffled(seed), ExactBowl())
    sent = [(e.move.rank, e.op.to) for e in run.log if isinstance(e.op, Send)]
    asked = [(e.op.source, e.move.rank) for e in run.log if isinstance(e.op, Receive)]
    assert len(sent) == steps // period * (workers - workers % 2)
    assert sorted(sent) == sorted(asked)


@given(
    seed=SEEDS, workers=st.integers(2, 5), period=PERIODS, steps=STEPS, momentum=SHARES, rate=SHARES,
    pull=st.fractions(0, 2, max_denominator=8),
)  # fmt: skip
def test_without_gradients_the_mean_is_kept(
    seed: int, workers: int, period: int, steps: int, momentum: Any, rate: Any, pull: Any
) -> None:
    """Exactly, from different places, for any numbers, also of an odd number of workers."""
    method = NoLoCoApart(
        inner="sgd", learning_rate=NOTHING, period=period, outer_learning_rate=rate, outer_momentum=momentum, pull=pull
    )
    run = exact_run(method, workers, steps, Shuffled(seed), ExactBowl())
    start = [method.begin(me, run.job.learner.initial()).weights.vector for me in run.job.team]
    assert (ends(run).sum(axis=0) == np.sum(start, axis=0)).all()


def test_the_outer_step_is_the_stated_rule() -> None:
    """Two rounds of four workers, from the messages that they sent, exactly."""
    rate, momentum, pull = Fraction(7, 10), Fraction(1, 2), Fraction(9, 10)
    options: dict[str, Any] = {"outer_learning_rate": rate, "outer_momentum": momentum, "pull": pull}
    method = NoLoCoApart(inner="sgd", learning_rate=TENTH, period=2, **options)
    run = exact_run(method, 4, 4, Shuffled(5))
    rounds: dict[int, list[Any]] = {rank: [] for rank in range(4)}
    for entry in run.log:
        if isinstance(entry.op, Send):
            rounds[int(entry.move.rank)].append(entry.op.value)
    velocity: dict[int, Any] = dict.fromkeys(range(4), 0 * run.job.learner.initial())
    for number in range(2):
        for me in run.job.team:
            rank, peer = int(me.rank), int(method.peer(me, number))  # type: ignore[arg-type]
            own, other = rounds[rank][number], rounds[peer][number]
            change, middle = (own.change + other.change) * HALF, (own.start + other.start) * HALF
            velocity[rank] = momentum * velocity[rank] - rate * change - pull * (own.start - middle)
            after = own.start + velocity[rank]
            found = rounds[rank][1].start if number == 0 else ends(run)[rank]
            assert (found == after).all()


def test_runs_without_learning_carry_only_sizes() -> None:
    method, x = NoLoCo(), Null(8)
    team = build_team(method, [[Rank(0)], [Rank(1)]], Layout(()))
    state = method.begin(team[0], x)
    assert method.after_pair(state, RoundChange(x, x)) == (x, x)


# --- asynchronous DiLoCo ----------------------------------------------------------------------------------------------


BOTH = st.booleans()
CREW, LOCAL_STEPS, ROUNDS, COUNTS = st.integers(1, 3), st.integers(1, 4), st.integers(0, 6), st.integers(1, 4)
KINDS = st.sampled_from(["delayed-nesterov", "nesterov", "heavy-ball", "sgd"])
R, M = Fraction(7, 10), Fraction(9, 10)
EXACTLY: dict[str, Any] = {"inner": "sgd", "learning_rate": TENTH, "outer_learning_rate": R, "outer_momentum": M}
EXACTLY |= {"c": Fraction(0), "dylu": False}


def ran(choose: Chooser, workers: int, steps: int, **options: Any) -> AnyOrder:
    return exact_run(AsyncDiLoCo(**EXACTLY | options), workers, steps, choose)


def timed(method: Any, times: Sequence[float], steps: int, learner: Any = None) -> Trace:
    """A run in virtual time in which each worker has a fixed time for a step and messages take 0.1 s."""
    timing = FixedTiming(compute=lambda rank, _: times[rank])
    job = job_of(method, len(times), steps=steps, **({} if learner is None else {"learner": learner}))
    return simulate_job(job, timing, fixed_costs(message_s=0.1), Schedule(1))


def pushes_of(run: AnyOrder) -> list[tuple[Rank, PseudoGradient]]:
    sent = [(entry.move.rank, entry.op.value) for entry in run.log if isinstance(entry.op, Send)]
    return [(rank, value) for rank, value in sent if isinstance(value, PseudoGradient)]


def reference(kind: str, changes: Sequence[Any], count: int, c: Fraction) -> list[Any]:
    """The weights after each arrival, from the formulas of the paper and all pseudo-gradients so far."""
    x, velocity, found = UnlikeBowl().initial(), fractions([0, 0]), []
    for number, change in enumerate(changes, 1):
        if kind == "sgd":
            x = x - R * change
        elif kind == "heavy-ball":
            velocity = M * velocity + change
            x = x - R * velocity
        elif kind == "nesterov":
            velocity = M * velocity + change
            x = x - R * (change + M * velocity)
        elif number % count == 0:
            velocity = M * velocity + sum(changes[number - count : number]) / Fraction(count)
            x = x - R * ((1 - c * count + c) * M * velocity + change / Fraction(count))
        else:
            x = x - R * (c * M * velocity + change / Fraction(count))
        found.append(x)
    return found


@given(order=ORDERS, workers=CREW, steps=ROUNDS, period=LOCAL_STEPS, kind=KINDS, count=COUNTS, part=st.integers(0, 3))
def test_the_server_follows_the_formula(
    order: Shuffled, workers: int, steps: int, period: int, kind: str, count: int, part: int
) -> None:
    """Exactly, in every order: each update is that of one round, whose pseudo-gradient is x' − x_i."""
    c = Fraction(part, 3 * count)
    options = {"buffer_size": count, "c": c} if kind == "delayed-nesterov" else {}
    run = ran(order, workers, steps, period=period, outer=kind, **options)
    sent = {(push.origins[0].rank, push.origins[0].step): push.vector for _, push in pushes_of(run)}
    updates = applied(run, Rank(workers))
    changes = [sent[update.inputs[0].rank, update.inputs[0].step] for update in updates]
    for update, expected in zip(updates, reference(kind, changes, count, c), strict=True):
        assert (update.weights.vector == expected).all()
        assert len(update.inputs) == period and len({one.rank for one in update.inputs}) == 1


@given(order=ORDERS, workers=CREW, steps=ROUNDS, period=LOCAL_STEPS)
def test_a_pseudo_gradient_is_what_a_round_has_changed(order: Shuffled, workers: int, steps: int, period: int) -> None:
    """The start of a round is the server's last answer, and its end is reached by the inner optimizer's steps."""
    run = ran(order, workers, steps, period=period)
    for rank in range(workers):
        start: Any = UnlikeBowl().initial()
        for entry in run.log:
            if isinstance(entry.op, Send) and isinstance(entry.op.value, RoundStart) and entry.op.to == rank:
                start = entry.op.value.weights.vector
            if entry.move.rank != rank or not isinstance(entry.op, Send):
                continue
            held, push = start, entry.op.value
            assert isinstance(push, PseudoGradient)
            for origin in push.origins:
                samples = run.job.samples(run.job.team[rank], origin.step)
                gradient, _ = UnlikeBowl().gradient(held, UnlikeBowl().load(samples))
                held = held - TENTH * gradient
            assert (push.vector == start - held).all()


@given(seed=st.integers(0, 999), c=st.floats(0, 1), arrivals=st.integers(1, 8))
def test_a_delayed_momentum_without_delay_is_nesterovs_bit_for_bit(seed: int, c: float, arrivals: int) -> None:
    """N = 1, with any c, in float64."""
    draw = np.random.default_rng(seed)
    delayed, plain = (OuterOptimizer(kind, 0.7, 0.9, 1, c) for kind in ("delayed-nesterov", "nesterov"))
    x = y = draw.normal(size=3)
    memory, other = delayed.init(x), plain.init(y)
    for _ in range(arrivals):
        change = draw.normal(size=3)
        (x, memory), (y, other) = delayed.update(x, change, memory), plain.update(y, change, other)
        np.testing.assert_array_equal(x, y)


@given(seed=st.integers(0, 999), count=COUNTS, rounds=st.integers(1, 3))
def test_n_arrivals_are_one_nesterov_step_of_their_mean(seed: int, count: int, rounds: int) -> None:
    """With c = 0, exactly."""
    draw = np.random.default_rng(seed)
    delayed = OuterOptimizer("delayed-nesterov", R, M, count, Fraction(0))  # type: ignore[arg-type]
    plain = OuterOptimizer("nesterov", R, M)  # type: ignore[arg-type]
    x = y = fractions([1, 2])
    memory, other = delayed.init(x), plain.init(y)
    for _ in range(rounds):
        changes = [fractions(draw.integers(-9, 9, size=2).tolist()) for _ in range(count)]
        for change in changes:
            x, memory = delayed.update(x, change, memory)
        y, other = plain.update(y, sum(changes) / Fraction(count), other)
        assert (x == y).all() and (memory.velocity == other.velocity).all()


def test_vectors_without_numbers() -> None:
    for kind in ("delayed-nesterov", "nesterov", "heavy-ball", "sgd"):
        outer: Any = OuterOptimizer(kind, 0.7, 0.9, 2, 0.5)
        x, memory = Null(count=10), outer.init(Null(count=10))
        for _ in range(3):
            x, memory = outer.update(x, Null(count=10), memory)
        assert x == Null(count=10)


UNIT: Any = Fraction(1)


@given(period=st.integers(1, 50), speeds=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_slow_workers_take_proportionally_fewer_steps(period: int, speeds: list[int]) -> None:
    """H_i = ⌊v_i H / v_max⌋ from the first round on, and at least 1."""
    method = AsyncDiLoCo(period=period, speeds=tuple(map(float, speeds)))
    run = AnyOrder(job_of(method, len(speeds), steps=4))
    run.run(Shuffled(period))
    for rank, push in pushes_of(run):
        assert len(push.origins) == max(1, floor(Fraction(speeds[rank] * period, max(speeds))))
        assert push.seconds == 0


def test_measured_speeds_make_rounds_take_the_same_time() -> None:
    """Workers of 1, 2 and 3 s a step: after their first rounds of 12 steps they take 12, 6 and 4."""
    trace = timed(AsyncDiLoCo(period=12), (1.0, 2.0, 3.0), 40)
    sizes: dict[int, list[int]] = {rank: [] for rank in range(3)}
    for version in sorted({row.version_applied for row in trace.updates}):
        rows = [row for row in trace.updates if row.version_applied == version]
        sizes[rows[0].rank].append(len(rows))
    assert sizes[0] == [12] * len(sizes[0])
    assert sizes[1] == [12] + [6] * (len(sizes[1]) - 1)
    assert sizes[2] == [12] + [4] * (len(sizes[2]) - 1)
    lengths = [len(one) for one in sizes.values()]
    assert min(lengths) >= 11 and max(lengths) - min(lengths) <= 3  # the first rounds are 1, 2 and 3 rounds long


@given(seed=st.integers(0, 99), workers=CREW, period=LOCAL_STEPS)
def test_no_round_is_longer_than_h(seed: int, workers: int, period: int) -> None:
    run = AnyOrder(job_of(AsyncDiLoCo(period=period), workers, steps=8))
    run.run(Shuffled(seed))
    assert all(1 <= len(push.origins) <= period for _, push in pushes_of(run))
    asked: list[Any] = [entry.op.state for entry in run.log if isinstance(entry.op, NextStep)]
    rounds = [state for state in asked if isinstance(state, RoundState)]
    assert rounds and all(len(state.origins) < state.steps and not state.waits for state in rounds)


def test_the_fastest_is_the_fastest_of_the_living() -> None:
    living = [Rank(1), Rank(2)]
    given_, measured = AsyncDiLoCo(period=8, speeds=(8.0, 4.0, 2.0)), AsyncDiLoCo(period=8)
    assert [given_.round_steps(Rank(rank), (), [Rank(0), *living]) for rank in range(3)] == [8, 4, 2]
    assert [given_.round_steps(rank, (), living) for rank in living] == [8, 4]
    assert [measured.round_steps(rank, (0.1, 0.2, 0.4), living) for rank in living] == [8, 4]
    assert measured.round_steps(Rank(2), (None, 0.5, None), living) == 8  # not measured yet
    assert AsyncDiLoCo(period=8, dylu=False).round_steps(Rank(2), (0.1, 0.2, 0.4), living) == 8


@given(period=st.integers(1, 1000), whole=st.floats(1e-9, 1e9), parts=st.lists(st.floats(0, 1), min_size=2, max_size=4))
def test_steps_grow_with_the_speed(period: int, whole: float, parts: list[float]) -> None:
    found = [local_steps(period, part * whole, whole) for part in sorted(parts)]
    assert all(one <= other for one, other in pairwise(found)) and found[0] >= 1 and found[-1] <= period
    assert local_steps(period, whole, whole) == period


def test_a_mean_of_measurements() -> None:
    method, push = AsyncDiLoCo(smoothing=0.25), PseudoGradient(None, (None,) * 4, asks=True, seconds=8.0)  # type: ignore[arg-type]
    assert method.measured((None, 1.0), Rank(0), push) == (2.0, 1.0)
    assert method.measured((None, 1.0), Rank(1), push) == (None, 1.25)
    timeless = PseudoGradient(None, (None,) * 4, asks=True)  # type: ignore[arg-type]
    assert method.measured((None, 1.0), Rank(0), timeless) == (None, 1.0)


def test_no_bound_of_staleness_exists() -> None:
    """While a worker takes 50 times as long, the others apply any number of rounds; DyLU does not help in round 1."""
    most = [max(row.staleness for row in timed(AsyncDiLoCo(period=1), (1.0, slow), 200).updates) for slow in (9, 90)]
    assert most[0] >= 7 and most[1] >= 70
