"""Invariants of dynamic batch sizes (numbers as in docs/invariants.md): apportionment, exactly, and weighted gradients.

Number 34 is in closed_form/test_balance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from paceline.algorithms.core.operations import Gradient
from paceline.algorithms.core.values import Contribution, Rank
from paceline.algorithms.methods.dynamic_batch import DbsSgd, Estimate, Timed, apportion, change, quotas, rounded
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Shuffled
from paceline.workloads.learners.quadratic import Noise
from tests.exact import applied
from tests.support import job_of

SPEED = st.fractions(Fraction(1, 20), Fraction(50), max_denominator=50)
SPEEDS = st.lists(SPEED, min_size=1, max_size=9)
TOTAL = st.integers(0, 600)
Share = Callable[[int, Sequence[Fraction]], Sequence[int]]


ORDERS = st.integers(0, 2**16).map(Shuffled)


def freely(total: int, speeds: Sequence[Fraction]) -> tuple[int, ...]:
    """Where a node may get nothing."""
    return apportion(total, speeds, least=0)


def published(total: int, speeds: Sequence[Fraction]) -> list[int]:
    """The rounding of the code published with Ye et al.'s DBS: the largest remainders, but only those of 1/2 or more.

    Its slice ``[-0:]`` takes all where nothing is left over; those of 1/2 or more among them then get one too many.
    """
    shares = [total * speed / sum(speeds) for speed in speeds]
    whole = [int(share) for share in shares]
    remainders = [share - count for share, count in zip(shares, whole, strict=True)]
    order = sorted(range(len(speeds)), key=lambda i: remainders[i])
    up = [i for i in order[-(total - sum(whole)) :] if remainders[i] >= Fraction(1, 2)]
    return [count + (i in up) for i, count in enumerate(whole)]


@given(total=TOTAL, speeds=SPEEDS)
def test_the_sum_is_the_total(total: int, speeds: list[Fraction]) -> None:
    """Number 29: the sum is the total, and every batch is less than one sample away from the exact share."""
    batches = freely(total, speeds)
    assert sum(batches) == total and min(batches) >= 0
    assert all(abs(batch - total * speed / sum(speeds)) < 1 for batch, speed in zip(batches, speeds, strict=True))


def test_the_published_rounding_misses_the_total() -> None:
    """Number 29 fails on it: of four samples for three equal workers it makes three."""
    assert published(4, [Fraction(1)] * 3) == [1, 1, 1]


@given(total=TOTAL, speeds=SPEEDS)
def test_nodes_are_within_a_sample_of_the_ideal_time(total: int, speeds: list[Fraction]) -> None:
    """Number 30, without overheads: T = B / Σv, and any two times differ by less than a sample of each."""
    times = [batch / speed for batch, speed in zip(freely(total, speeds), speeds, strict=True)]
    ideal = total / sum(speeds, Fraction(0))
    assert all(abs(time - ideal) < 1 / speed for time, speed in zip(times, speeds, strict=True))
    for i, j in combinations(range(len(times)), 2):
        assert abs(times[i] - times[j]) < 1 / speeds[i] + 1 / speeds[j]


@given(data=st.data(), speeds=SPEEDS, spare=TOTAL, least=st.integers(0, 2))
def test_overheads_are_made_up_for(data: st.DataObject, speeds: list[Fraction], spare: int, least: int) -> None:
    """Numbers 30 and 33: all end within a sample of T, except workers that have the minimum and would be late without
    it.
    """
    count = len(speeds)
    overheads = data.draw(st.lists(st.fractions(0, 9, max_denominator=9), min_size=count, max_size=count))
    total = least * count + spare
    shares, batches = quotas(total, speeds, overheads, least), apportion(total, speeds, overheads, least=least)
    assert sum(shares) == sum(batches) == total
    assert min(batches) >= least
    assume(any(share > least for share in shares))
    ends = {o + share / v for share, v, o in zip(shares, speeds, overheads, strict=True) if share > least}
    assert len(ends) == 1, "all with more than the minimum end at the same time"
    (end,) = ends
    for share, batch, v, o in zip(shares, batches, speeds, overheads, strict=True):
        if share > least:
            assert abs(o + batch / v - end) < 1 / v
        else:
            assert share == least and o + share / v >= end


@given(speeds=SPEEDS, spare=TOTAL, least=st.integers(0, 2))
def test_a_faster_node_never_gets_less(speeds: list[Fraction], spare: int, least: int) -> None:
    """Number 31: nor do equal ones differ by more than 1."""
    batches = apportion(least * len(speeds) + spare, speeds, least=least)
    for (one, speed), (other, others) in combinations(zip(batches, speeds, strict=True), 2):
        assert speed == others or (one >= other) == (speed > others) or one == other
        assert speed != others or abs(one - other) <= 1


@given(data=st.data(), total=TOTAL, speeds=SPEEDS)
def test_nodes_in_another_order_get_the_same(data: st.DataObject, total: int, speeds: list[Fraction]) -> None:
    """Number 31: except for equal remainders, which go by index."""
    shares = quotas(total, speeds)
    assume(len({share % 1 for share in shares}) == len(shares))
    order = data.draw(st.permutations(range(len(speeds))))
    batches = freely(total, speeds)
    assert freely(total, [speeds[i] for i in order]) == tuple(batches[i] for i in order)


def test_equal_remainders_go_by_index() -> None:
    assert freely(5, [Fraction(1)] * 3) == (2, 2, 1)
    assert freely(2, [Fraction(1), Fraction(3)]) == (1, 1)
    assert freely(2, [Fraction(3), Fraction(1)]) == (2, 0)


@given(total=TOTAL, speeds=SPEEDS, scale=SPEED)
def test_only_relative_speeds_matter(total: int, speeds: list[Fraction], scale: Fraction) -> None:
    """Number 32."""
    assert freely(total, [scale * speed for speed in speeds]) == freely(total, speeds)


def test_more_samples_may_mean_fewer_for_one() -> None:
    """Number 32, the Alabama paradox: a larger total can lower a worker's batch."""
    assert freely(10, [Fraction(6), Fraction(6), Fraction(2)]) == (4, 4, 2)
    assert freely(11, [Fraction(6), Fraction(6), Fraction(2)]) == (5, 5, 1)


@given(spare=TOTAL, speeds=SPEEDS)
@example(spare=0, speeds=[Fraction(1, 20), Fraction(50)])
def test_everybody_gets_a_sample_and_the_sum_stays(spare: int, speeds: list[Fraction]) -> None:
    """Number 33: with b_i ≥ 1 the sum is exact, and workers with a quota of 1 or more are within a sample of their
    time.
    """
    total = len(speeds) + spare
    shares, batches = quotas(total, speeds, least=1), apportion(total, speeds)
    assert sum(batches) == total and min(batches) >= 1
    ends = [share / speed for share, speed in zip(shares, speeds, strict=True) if share > 1]
    assert len(set(ends)) <= 1
    for share, batch, speed in zip(shares, batches, speeds, strict=True):
        if share > 1:
            assert abs(batch / speed - ends[0]) < 1 / speed


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9), TOTAL)
def test_measured_speeds_are_shared_out_as_exactly(speeds: list[float], spare: int) -> None:
    """Floats are treated as exact fractions: no total is missed by rounding."""
    assert sum(apportion(len(speeds) + spare, speeds)) == len(speeds) + spare


def test_rounding_keeps_whole_shares() -> None:
    assert rounded([Fraction(3), Fraction(0), Fraction(4)]) == (3, 0, 4)
    assert change([3, 4], [3, 4]) == 0


# --- estimates --------------------------------------------------------------------------------------------------------


@given(
    overhead=st.floats(0.0, 2.0),
    per_sample=st.floats(0.05, 1.0),
    batches=st.lists(st.integers(10, 100), min_size=2, max_size=12),
    weight=st.floats(0.1, 0.9),
)
def test_a_line_is_found_from_batches_that_differ(
    overhead: float, per_sample: float, batches: list[int], weight: float
) -> None:
    """Without noise, any two batches that differ by half give o and v, to rounding; until then o is 0."""
    assume(overhead < 0.8 * per_sample * min(batches))
    found = Estimate(batches[0], overhead + per_sample * batches[0])
    for batch in batches[1:]:
        found = found.seen(batch, overhead + per_sample * batch, weight)
        if found.overhead:
            assert found.overhead == pytest.approx(overhead, abs=1e-6)
            assert found.speed == pytest.approx(1 / per_sample, rel=1e-6)
    if all(batch == batches[0] for batch in batches):
        assert found.overhead == 0


def test_what_is_known_of_the_overhead_outlasts_equal_batches() -> None:
    """And a node that then takes twice as long has half the speed in samples, its overhead left as it was."""
    found = Estimate(10, 2.0).seen(30, 4.0, 0.5)
    assert found.overhead == pytest.approx(1.0)
    for _ in range(60):
        found = found.seen(30, 4.0, 0.5)
    assert found.overhead == pytest.approx(1.0)
    assert found.speed == pytest.approx(10.0)
    for _ in range(60):
        found = found.seen(30, 8.0, 0.5)
    assert found.overhead == pytest.approx(1.0)
    assert found.speed == pytest.approx(30 / 7)


# --- weighted gradients -----------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 999), batches=st.lists(st.integers(1, 40), min_size=2, max_size=6))
def test_the_weighted_gradients_are_the_unions(seed: int, batches: list[int]) -> None:
    """Number 35: (1/P) Σ (b_i P / B) g_i is the gradient of all samples together, to 1e-12; the plain mean is biased.

    Biased: each sample of a small batch counts more, so the mean of means is another one, unless batches are equal.
    """
    noise = Noise(seed=seed, dimensions=3)
    ends = np.cumsum(batches).tolist()
    means = [noise.mean(end - batch, batch) for batch, end in zip(batches, ends, strict=True)]
    weights = [weight_of(batch, sum(batches), len(batches)) for batch in batches]
    union = noise.mean(0, sum(batches))
    mixed = np.mean([weight * mean for weight, mean in zip(weights, means, strict=True)], axis=0)
    np.testing.assert_allclose(mixed, union, rtol=0, atol=1e-12 * len(batches))
    if len(set(batches)) > 1:
        assert np.abs(np.mean(means, axis=0) - union).max() > 1e-9


def weight_of(batch: int, total: int, workers: int) -> float:
    """Returns the server's weight of a gradient of so many samples; the base batch may be a fraction here."""
    push = Timed(None, Contribution(Rank(0), 0, 0, batch), 1.0, total / workers)
    return DbsSgd().weight(push)


# --- the method, in any order -----------------------------------------------------------------------------------------


@given(order=ORDERS, workers=st.integers(1, 4), steps=st.integers(0, 14), stop=st.integers(0, 14))
def test_the_batches_in_force_are_the_total_in_any_order(order: Shuffled, workers: int, steps: int, stop: int) -> None:
    """They sum to the total and none is zero, also after a resume; no step is lost or applied twice."""
    job = job_of(DbsSgd(interval=1, dead_band=0.0, smoothing=0.5), workers, steps=steps)
    traces = run_in_parts(job, [min(stop, steps)], lambda: order)
    for trace in traces:
        batches = trace.states[Rank(workers)].batches
        assert not batches or (sum(batches) == 8 * workers and min(batches) >= 1)
    rows = [row for trace in traces for row in trace.updates]
    assert [row.version_applied for row in rows] == list(range(steps))
    for rank in range(workers):
        own = [row.step for row in rows if row.rank == rank]
        assert own == list(range(len(own)))


@given(order=ORDERS, workers=st.integers(1, 3), steps=st.integers(0, 16))
def test_the_server_gives_each_gradient_its_weight(order: Shuffled, workers: int, steps: int) -> None:
    """Number 35 in the method: x ← x − η (b_i P / B) g, to rounding."""
    method = DbsSgd(interval=1, dead_band=0.0, smoothing=0.5)
    run = AnyOrder(job_of(method, workers, steps=steps))
    run.run(order)
    gradients = {(e.answer.rank, e.answer.step): e.answer for e in run.log if isinstance(e.op, Gradient)}
    expected = run.job.learner.initial()
    for update in applied(run, Rank(workers)):
        (origin,) = update.inputs
        gradient = gradients[origin.rank, origin.step]
        expected = expected - method.learning_rate * (origin.samples * workers / (8 * workers)) * gradient.vector
        np.testing.assert_allclose(update.weights.vector, expected, rtol=1e-12)


def test_batches_do_change_in_some_order() -> None:
    """Guards the property above: clocks that count moves differ between workers."""
    run = AnyOrder(job_of(DbsSgd(interval=1, dead_band=0.0), 3, steps=30))
    run.run(Shuffled(3))
    assert len({row.samples for row in run.trace.updates}) > 1
