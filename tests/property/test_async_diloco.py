"""Asynchronous DiLoCo: its outer optimizers, its limits and its rounds, in every order of moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.job import OneByOne
from paceline.algorithms.core.operations import NextStep, Send
from paceline.algorithms.core.values import Null, Rank
from paceline.algorithms.methods.async_diloco import AsyncDiLoCo, PseudoGradient, RoundStart, RoundState, local_steps
from paceline.algorithms.methods.delayed_nesterov import OuterOptimizer
from paceline.algorithms.methods.local_sgd import DiLoCo
from paceline.algorithms.methods.parameter_server import AsyncSgd, ServerStopped
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Chooser, Shuffled, drawn
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from tests.clusters import fixed_costs
from tests.exact import UnlikeBowl, applied, fractions
from tests.support import FixedTiming, job_of

BOTH = st.booleans()
WORKERS, PERIODS, STEPS, COUNTS = st.integers(1, 3), st.integers(1, 4), st.integers(0, 6), st.integers(1, 4)
KINDS = st.sampled_from(["delayed-nesterov", "nesterov", "heavy-ball", "sgd"])
TENTH, R, M = Fraction(1, 10), Fraction(7, 10), Fraction(9, 10)
EXACT: dict[str, Any] = {"inner": "sgd", "learning_rate": TENTH, "outer_learning_rate": R, "outer_momentum": M}
EXACT |= {"c": Fraction(0), "dylu": False}


class Timed(OneByOne, UnlikeBowl):
    """The exact learner, in virtual time."""


def exact_run(choose: Chooser, workers: int, steps: int, **given_: Any) -> AnyOrder:
    run = AnyOrder(job_of(AsyncDiLoCo(**EXACT | given_), workers, steps=steps, learner=UnlikeBowl()))
    run.run(choose)
    return run


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


# --- the outer optimizer ----------------------------------------------------------------------------------------------


@given(data=st.data(), workers=WORKERS, steps=STEPS, period=PERIODS, kind=KINDS, count=COUNTS, part=st.integers(0, 3))
def test_the_server_follows_the_formula(
    data: st.DataObject, workers: int, steps: int, period: int, kind: str, count: int, part: int
) -> None:
    """Exactly, in every order: each update is that of one round, whose pseudo-gradient is x' − x_i."""
    c = Fraction(part, 3 * count)
    options = {"buffer_size": count, "c": c} if kind == "delayed-nesterov" else {}
    run = exact_run(drawn(data), workers, steps, period=period, outer=kind, **options)
    sent = {(push.origins[0].rank, push.origins[0].step): push.vector for _, push in pushes_of(run)}
    updates = applied(run, Rank(workers))
    changes = [sent[update.inputs[0].rank, update.inputs[0].step] for update in updates]
    for update, expected in zip(updates, reference(kind, changes, count, c), strict=True):
        assert (update.weights.vector == expected).all()
        assert len(update.inputs) == period and len({one.rank for one in update.inputs}) == 1


@given(data=st.data(), workers=WORKERS, steps=STEPS, period=PERIODS)
def test_a_pseudo_gradient_is_what_a_round_has_changed(
    data: st.DataObject, workers: int, steps: int, period: int
) -> None:
    """The start of a round is the server's last answer, and its end is reached by the inner optimizer's steps."""
    run = exact_run(drawn(data), workers, steps, period=period)
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


# --- its limits -------------------------------------------------------------------------------------------------------

ONE: Any = Fraction(1)
LIKE_ASYNC_SGD: dict[str, Any] = {"period": 1, "inner": "sgd", "dylu": False, "outer": "sgd"}
TIMES = (1.0, 1.3, 0.7, 2.1)


def test_single_steps_without_an_outer_optimizer_are_async_sgd() -> None:
    """The same updates at the same times; the same weights exactly, and in float64 to the rounding of x' − x."""
    exact = [
        timed(method, TIMES, 40, Timed())
        for method in (
            AsyncDiLoCo(**LIKE_ASYNC_SGD, learning_rate=TENTH, outer_learning_rate=ONE),  # type: ignore[arg-type]
            AsyncSgd(learning_rate=TENTH),  # type: ignore[arg-type]
        )
    ]
    assert exact[0].updates == exact[1].updates and (exact[0].weights == exact[1].weights).all()
    local = AsyncDiLoCo(**LIKE_ASYNC_SGD, learning_rate=0.1, outer_learning_rate=1.0)
    found, expected = (timed(method, TIMES, 40) for method in (local, AsyncSgd(learning_rate=0.1)))
    # each of 40 updates rounds x' − x_i, and its own step: at most a unit in the last place of numbers below 8
    assert np.abs([shot.vector for shot in expected.snapshots]).max() < 8
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=40 * 8 * np.finfo(float).eps)


@pytest.mark.parametrize("options", [{"momentum": 0.0}, {"outer": "delayed-nesterov", "buffer_size": 1}])
def test_other_ways_of_writing_no_outer_optimizer(options: dict[str, Any]) -> None:
    """Momentum 0 with N = 1 is plain SGD, bit for bit."""
    plain = AsyncDiLoCo(**LIKE_ASYNC_SGD)
    given_: dict[str, Any] = LIKE_ASYNC_SGD | {"outer_momentum": 0.0} | options
    other = AsyncDiLoCo(**given_)
    np.testing.assert_array_equal(timed(other, TIMES, 40).weights, timed(plain, TIMES, 40).weights)


@given(seed=st.integers(0, 99), period=PERIODS, rounds=STEPS, inner=st.sampled_from(["adamw", "sgd"]), dylu=BOTH)
def test_one_worker_alone_is_diloco_bit_for_bit(seed: int, period: int, rounds: int, inner: Any, dylu: bool) -> None:
    alone = AnyOrder(job_of(AsyncDiLoCo(period=period, inner=inner, dylu=dylu), 1, steps=rounds))
    together = AnyOrder(job_of(DiLoCo(period=period, inner=inner), 1, steps=rounds * period))
    alone.run(Shuffled(seed))
    together.run(Shuffled(seed))
    np.testing.assert_array_equal(alone.trace.weights, together.trace.weights)


@given(workers=st.integers(1, 4), period=PERIODS)
def test_the_first_rounds_of_all_together_are_a_round_of_diloco(workers: int, period: int) -> None:
    """With N = P and c = 0, exactly: P pseudo-gradients from the initial weights are applied in any order."""
    method, fast = AsyncDiLoCo(**EXACT, period=period), [1.0 + rank / 100 for rank in range(workers)]
    diloco = DiLoCo(period=period, inner="sgd", learning_rate=TENTH, outer_learning_rate=R, outer_momentum=M)  # type: ignore[arg-type]
    run = AnyOrder(job_of(diloco, workers, steps=period, learner=UnlikeBowl()))
    run.run()
    assert (timed(method, fast, workers, Timed()).weights == run.trace.weights).all()


# --- messages ---------------------------------------------------------------------------------------------------------


@given(data=st.data(), workers=WORKERS, steps=STEPS, period=PERIODS)
def test_what_is_applied_is_what_was_sent(data: st.DataObject, workers: int, steps: int, period: int) -> None:
    """The sum of the applied pseudo-gradients, measured at the weights, is that of the sent minus those in flight."""
    run = exact_run(drawn(data), workers, steps, period=period, outer="sgd", outer_learning_rate=ONE)
    server = run.trace.states[Rank(workers)]
    zero = fractions([0, 0])
    sent = sum((push.vector for _, push in pushes_of(run)), zero)
    kept = sum((push.vector for _, push in server.pending), zero)
    assert (UnlikeBowl().initial() - server.weights.vector == sent - kept).all()
    assert Counter(rank for rank, _ in pushes_of(run)) == Counter(
        [update.inputs[0].rank for update in applied(run, Rank(workers))] + [rank for rank, _ in server.pending]
    )
    goodbyes = [
        entry.op.to for entry in run.log if isinstance(entry.op, Send) and isinstance(entry.op.value, ServerStopped)
    ]
    assert sorted(goodbyes) == list(range(workers))


@given(data=st.data(), workers=WORKERS, steps=STEPS, kind=KINDS)
def test_without_a_learning_rate_nothing_moves(data: st.DataObject, workers: int, steps: int, kind: str) -> None:
    run = exact_run(drawn(data), workers, steps, period=2, outer=kind, learning_rate=0 * ONE)
    assert all((state.weights.vector == UnlikeBowl().initial()).all() for state in run.trace.states.values())


@given(data=st.data(), workers=WORKERS, steps=STEPS, stop=STEPS, period=PERIODS, dylu=BOTH)
def test_stopping_loses_no_round(
    data: st.DataObject, workers: int, steps: int, stop: int, period: int, dylu: bool
) -> None:
    """Every round is applied or stored by the server, also after a resume; versions rise by 1."""
    job = job_of(AsyncDiLoCo(period=period, dylu=dylu), workers, steps=steps)
    parts = run_in_parts(job, [min(stop, steps)], lambda: drawn(data))
    rows = [row for part in parts for row in part.updates]
    assert sorted({row.version_applied for row in rows}) == list(range(steps))
    for rank in range(workers):
        own = [row.step for row in rows if row.rank == rank]
        assert own == list(range(len(own)))


# --- dynamic local updates --------------------------------------------------------------------------------------------


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


@given(seed=st.integers(0, 99), workers=WORKERS, period=PERIODS)
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


# --- staleness and mistakes -------------------------------------------------------------------------------------------


def test_no_bound_of_staleness_exists() -> None:
    """While a worker takes 50 times as long, the others apply any number of rounds; DyLU does not help in round 1."""
    most = [max(row.staleness for row in timed(AsyncDiLoCo(period=1), (1.0, slow), 200).updates) for slow in (9, 90)]
    assert most[0] >= 7 and most[1] >= 70


def test_mistakes_are_reported() -> None:
    nodes = [[Rank(0), Rank(1)]]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"buffer_size": 4, "c": 0.3}, "c: found 0.3, expected at most 1/N = 0.25"),
        ({"c": 0.6}, "c: found 0.6, expected at most 1/N = 0.5"),
        ({"buffer_size": 0}, "buffer_size: found 0, expected a whole number of 1 or more"),
        ({"outer": "sgd", "buffer_size": 2}, "buffer_size: found 2, expected none with outer = sgd, which does not"),
        ({"outer": "nesterov", "c": 0.1}, "c: found 0.1, expected 0 with outer = nesterov"),
        ({"speeds": (1.0,)}, "speeds: found 1, expected 2, one for each worker"),
        ({"speeds": (1.0, 0.0)}, "speeds: found [1.0, 0.0], expected numbers above 0"),
        ({"speeds": (1.0, 2.0), "dylu": False}, "speeds: found them with dylu = false"),
        ({"momentum": 0.9}, "momentum: found 0.9, expected 0 with inner = adamw"),
    ]
    for options, text in cases:
        (problem,) = AsyncDiLoCo(**options).problems(nodes)
        assert problem.startswith(text)
    assert AsyncDiLoCo(c=0.5).problems(nodes) == []
