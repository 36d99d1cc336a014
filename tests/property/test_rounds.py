"""Streaming and eager DiLoCo and slow momentum: their limits, and their rules recomputed from the record of a run."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import AllReduce, Charge, NextStep, RecordUpdate, Start
from paceline.algorithms.core.quantization import Quantization
from paceline.algorithms.core.schedules import Polynomial
from paceline.algorithms.core.values import Layer, Rank
from paceline.algorithms.methods.eager_diloco import EagerDiLoCo
from paceline.algorithms.methods.local_sgd import DiLoCo, SlowMo
from paceline.algorithms.methods.outer import outer_step
from paceline.algorithms.methods.periodic import KAvg
from paceline.algorithms.methods.streaming_diloco import StreamingDiLoCo, fragments_of
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, first
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork, NetworkModel
from tests.clusters import star
from tests.exact import UnlikeBowl, applied, averages, ends
from tests.support import FixedTiming, Uneven, job_of, placed
from tests.thorough import examples

TENTH: Any = Fraction(1, 10)
HALF: Any = Fraction(1, 2)
WORKERS, PERIODS, STEPS, SEEDS = st.integers(1, 4), st.integers(1, 4), st.integers(1, 12), st.integers(0, 999)
PARTS, PATTERNS = st.integers(1, 2), st.sampled_from(["strided", "sequential"])
INNER = st.sampled_from(["sgd", "adamw"])
EXACT: dict[str, Any] = {"inner": "sgd", "learning_rate": TENTH}


def finished(method: Method, workers: int, steps: int, seed: int | None = None, learner: Any = None) -> AnyOrder:
    """A run in some order of moves; exact if no learner is given."""
    run = AnyOrder(job_of(method, workers, steps=steps, learner=learner or UnlikeBowl()))
    run.run(first if seed is None else Shuffled(seed))
    return run


def outers(run: AnyOrder, rank: int) -> list[Any]:
    """The outer weights that a rank has recorded, in order, and the initial ones before them."""
    return [run.job.learner.initial(), *(op.weights.vector for op in applied(run, Rank(rank)) if op.advance)]


def exchanged(run: AnyOrder) -> list[list[Any]]:
    """The inputs of each all-reduce, in the order of the ranks, in the order in which they were started."""
    found: dict[str, list[Any]] = {}
    for entry in run.log:
        op = entry.op.what if isinstance(entry.op, Start) else entry.op
        if isinstance(op, AllReduce):
            found.setdefault(op.key, [None] * len(op.group))[op.group.ranks.index(entry.move.rank)] = op.value
    return list(found.values())


# --- limits ----------------------------------------------------------------------------------------------------------


@given(seed=SEEDS, workers=WORKERS, period=PERIODS, steps=STEPS, inner=INNER, pattern=PATTERNS)
def test_streaming_whole_weights_without_overlap_is_diloco(
    seed: int, workers: int, period: int, steps: int, inner: Any, pattern: Any
) -> None:
    """Bit for bit, in every worker's weights."""
    plain = DiLoCo(inner=inner, learning_rate=0.05, period=period)
    same = streamed(plain, fragments=1, overlap=0, alpha=0.0, pattern=pattern)
    found, expected = (finished(one, workers, steps, seed, Uneven()) for one in (same, plain))
    assert (ends(found) == ends(expected)).all()
    assert [one.tolist() for one in outers(found, 0)] == [one.tolist() for one in outers(expected, 0)]


def streamed(plain: DiLoCo, **options: Any) -> StreamingDiLoCo:
    given = {field.name: getattr(plain, field.name) for field in fields(plain)}
    return StreamingDiLoCo(**given | options)


def made(network: str, counts: list[int]) -> NetworkModel:
    if network == "modelled":
        return ClusterNetwork(star(*counts, latency_s=0.015625))
    return MeasuredNetwork(lambda _, members, size: 0.1 + 1e-3 * (size + members), lambda _: 0.25)


@pytest.mark.parametrize("inner", ["sgd", "adamw"])
@pytest.mark.parametrize("network", ["measured", "modelled"])
@examples(5, 100)
@given(counts=st.lists(st.integers(1, 3), min_size=1, max_size=3), period=PERIODS, seed=SEEDS)
def test_that_limit_takes_the_time_of_diloco(
    network: str, inner: Any, counts: list[int], period: int, seed: int
) -> None:
    """All rows of a simulation are equal, times included, with workers of different speed and charged updates."""
    plain = DiLoCo(inner=inner, learning_rate=0.05, period=period)
    same = streamed(plain, fragments=1, overlap=0, alpha=0.0)
    draw = np.random.default_rng(seed)
    times = draw.uniform(0.5, 2.0, (sum(counts), 12))
    timing = FixedTiming(lambda rank, step: float(times[rank, step]), work=0.125)
    found, expected = (
        simulate_job(
            job_of(one, nodes=placed(counts), steps=8, learner=Uneven()),
            timing,
            made(network, counts),
            Schedule(every=1),
        )
        for one in (same, plain)
    )
    assert found.updates == expected.updates
    assert [(shot.time_s, shot.vector.tolist()) for shot in found.snapshots] == [
        (shot.time_s, shot.vector.tolist()) for shot in expected.snapshots
    ]


@given(seed=SEEDS, period=PERIODS, steps=STEPS, inner=INNER)
def test_one_eager_worker_is_one_of_diloco(seed: int, period: int, steps: int, inner: Any) -> None:
    """Its own share is the whole mean, so nothing is late: bit for bit."""
    options: dict[str, Any] = {"inner": inner, "learning_rate": 0.05, "period": period}
    found, expected = (finished(one(**options), 1, steps, seed, Uneven()) for one in (EagerDiLoCo, DiLoCo))
    assert (ends(found) == ends(expected)).all()


@given(seed=SEEDS, workers=WORKERS, period=PERIODS, steps=STEPS)
def test_slowmo_without_momentum_is_k_avg(seed: int, workers: int, period: int, steps: int) -> None:
    """Exactly, and in float64 to the rounding of x' − γ (x' − x̄) / γ."""
    one: Any = Fraction(1)
    plain = SlowMo(learning_rate=TENTH, period=period, slow_learning_rate=one, slow_momentum=0 * one)
    average = KAvg(learning_rate=TENTH, k=period)
    assert (ends(finished(plain, workers, steps, seed)) == ends(finished(average, workers, steps))).all()
    floats = SlowMo(learning_rate=0.1, period=period, slow_momentum=0.0), KAvg(learning_rate=0.1, k=period)
    found, expected = (ends(finished(one, workers, steps, seed, Uneven())) for one in floats)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@given(seed=SEEDS, workers=WORKERS, period=PERIODS, steps=STEPS, rate=st.integers(1, 9))
def test_slowmo_without_momentum_is_diloco_without_it(
    seed: int, workers: int, period: int, steps: int, rate: int
) -> None:
    """With outer rate α, exactly: the learning rate by which the change is divided is multiplied again."""
    alpha: Any = Fraction(rate, 6)
    slow = SlowMo(learning_rate=TENTH, period=period, slow_learning_rate=alpha, slow_momentum=0 * alpha)
    outer = DiLoCo(**EXACT, period=period, outer_learning_rate=alpha, outer_momentum=0 * alpha)
    assert (ends(finished(slow, workers, steps, seed)) == ends(finished(outer, workers, steps))).all()


def test_other_settings_have_other_weights() -> None:
    """Guards the limits above: with other settings the methods end at different weights."""
    common: dict[str, Any] = {**EXACT, "period": 1}
    nesterov: dict[str, Any] = {"outer_learning_rate": HALF, "outer_momentum": HALF}
    methods = [
        DiLoCo(**common, **nesterov),
        SlowMo(**common, slow_learning_rate=HALF, slow_momentum=HALF),
        EagerDiLoCo(**common, **nesterov),
        EagerDiLoCo(**common, **nesterov, updates="delayed"),
        StreamingDiLoCo(**common | {"period": 2}, **nesterov, fragments=1, overlap=1, alpha=0 * HALF),
        StreamingDiLoCo(**common | {"period": 2}, **nesterov, fragments=1, overlap=1, alpha=HALF),
        StreamingDiLoCo(**common | {"period": 2}, **nesterov, fragments=2, overlap=0, alpha=0 * HALF),
    ]
    found = [str(ends(finished(one, 3, 6)).tolist()) for one in methods]
    assert len(set(found)) == len(methods)


# --- slow momentum ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [None, Polynomial(total_steps=12, power=1.0)])
@given(seed=SEEDS, workers=WORKERS, period=st.integers(1, 3))
def test_the_slow_step_is_algorithm_1(schedule: Any, seed: int, workers: int, period: int) -> None:
    """u ← β u + (x' − x̄) / γ_t and x' ← x' − α γ_t u, with γ_t of the round's first step, to 1e-12."""
    method = SlowMo(learning_rate=0.2, period=period, schedule=schedule, slow_learning_rate=0.8, slow_momentum=0.6)
    run = finished(method, workers, 12, seed, Uneven())
    x, *rounds = outers(run, 0)
    u = 0 * x
    means = [np.mean(inputs, axis=0) for inputs in exchanged(run)]
    assert len(means) == len(rounds) == 12 // period
    for number, (mean, found) in enumerate(zip(means, rounds, strict=True)):
        gamma = 0.2 if schedule is None else 0.2 * (1 - number * period / 12)
        u = 0.6 * u + (x - mean) / gamma
        x = x - 0.8 * gamma * u
        np.testing.assert_allclose(found, x, rtol=0, atol=1e-12)


def test_a_learning_rate_of_0_moves_nothing() -> None:
    method = SlowMo(learning_rate=0.1, period=2, schedule=Polynomial(total_steps=4, power=1.0))
    run = finished(method, 2, 10, learner=Uneven())
    *_, last, end = outers(run, 0)
    assert (last == end).all() and (ends(run) == end).all()
    assert np.isfinite(end).all()


@pytest.mark.parametrize("inner", ["sgd", "adamw"])
@pytest.mark.parametrize("buffers", ["maintain", "reset", "average"])
def test_buffers_are_kept_reset_or_averaged(buffers: Any, inner: Any) -> None:
    momentum = 0.5 if inner == "sgd" else 0.0
    method = SlowMo(learning_rate=0.1, period=3, inner=inner, momentum=momentum, buffers=buffers)
    run = finished(method, 3, 6, learner=Uneven())
    memories = [run.trace.states[rank].optimizer_state for rank in run.job.team[0].workers]
    kept = [link if inner == "sgd" else link.first for memory in memories for link in memory.links if link is not None]
    assert len(kept) == 3
    zero = all((vector == 0).all() for vector in kept)
    alike = all((vector == kept[0]).all() for vector in kept)
    assert (zero, alike) == {"maintain": (False, False), "reset": (True, True), "average": (False, True)}[buffers]
    steps = {memory.number for memory in memories}
    assert steps == ({0} if (buffers, inner) == ("reset", "adamw") else {6})


# --- eager and delayed updates ---------------------------------------------------------------------------------------


@given(seed=SEEDS, workers=WORKERS, period=PERIODS, steps=STEPS)
def test_an_eager_step_has_ones_own_new_share(seed: int, workers: int, period: int, steps: int) -> None:
    """The rule of the paper from the changes that were exchanged, exactly, for every worker."""
    method = EagerDiLoCo(**EXACT, period=period, outer_learning_rate=HALF, outer_momentum=HALF)
    run = finished(method, workers, steps, seed)
    changes = exchanged(run)
    for rank in range(workers):
        x, *rounds = outers(run, rank)
        v, before = 0 * x, [0 * x] * workers
        assert len(rounds) == len(changes) == steps // period
        for now, found in zip(changes, rounds, strict=True):
            others = sum(change for other, change in enumerate(before) if other != rank)
            x, v = outer_step(x, v, (now[rank] + others) / Fraction(workers), HALF, HALF)
            assert (found == x).all()
            before = now


@given(seed=SEEDS, workers=WORKERS, period=PERIODS, steps=STEPS)
def test_eager_replicas_differ_by_one_change(seed: int, workers: int, period: int, steps: int) -> None:
    """Without momentum, exactly: what a worker has in advance of the common mean is R / P times its last change."""
    method = EagerDiLoCo(**EXACT, period=period, outer_learning_rate=HALF, outer_momentum=0 * HALF)
    run = finished(method, workers, steps, seed)
    changes = exchanged(run)
    if not changes:
        return
    common = run.job.learner.initial()
    for now in changes[:-1]:
        common = common - HALF * sum(now) / Fraction(workers)
    for rank in range(workers):
        assert (outers(run, rank)[-1] == common - HALF * changes[-1][rank] / Fraction(workers)).all()


@given(seed=SEEDS, workers=WORKERS, period=PERIODS, steps=STEPS)
def test_delayed_updates_apply_the_mean_one_round_later(seed: int, workers: int, period: int, steps: int) -> None:
    """Exactly; the replicas are equal, and the first round changes nothing."""
    method = EagerDiLoCo(**EXACT, period=period, outer_learning_rate=HALF, outer_momentum=HALF, updates="delayed")
    run = finished(method, workers, steps, seed)
    changes = exchanged(run)
    x, *rounds = outers(run, 0)
    v, before = 0 * x, [0 * x] * workers
    for now, found in zip(changes, rounds, strict=True):
        x, v = outer_step(x, v, sum(before) / Fraction(workers), HALF, HALF)
        assert (found == x).all()
        before = now
    for rank in range(workers):
        assert [one.tolist() for one in outers(run, rank)] == [one.tolist() for one in outers(run, 0)]


# --- fragments -------------------------------------------------------------------------------------------------------

LAYERS = st.lists(st.integers(1, 5), min_size=1, max_size=9)


@given(
    sizes=LAYERS, count=st.integers(1, 9), extra=st.integers(0, 9), pattern=st.sampled_from(["strided", "sequential"])
)
def test_fragments_divide_the_layers_and_the_round(sizes: list[int], count: int, extra: int, pattern: Any) -> None:
    """Each number is in one fragment, whole layers stay together, and no two exchanges start after the same step."""
    period = count + extra
    stops = np.cumsum(sizes).tolist()
    layers = [Layer(str(n), stop - size, stop) for n, (size, stop) in enumerate(zip(sizes, stops, strict=True))]
    found = fragments_of(layers, count, period, pattern)
    assert len(found) == min(count, len(layers))
    whole = np.arange(stops[-1])
    assert sorted(np.concatenate([one.of(whole) for one in found]).tolist()) == whole.tolist()
    owner = {int(number): n for n, one in enumerate(found) for number in one.of(whole)}
    assert all(len({owner[number] for number in range(layer.start, layer.stop)}) == 1 for layer in layers)
    owners = [owner[layer.start] for layer in layers]
    assert owners == (sorted(owners) if pattern == "sequential" else [n % len(found) for n in range(len(layers))])
    offsets = [one.offset for one in found]
    assert offsets[-1] == period and offsets[0] >= 1
    gaps = [later - earlier for earlier, later in pairwise([0, *offsets])]
    assert min(gaps) >= 1 and max(gaps) - min(gaps) <= 1
    for one in found:
        other = one.put(whole, -1 - one.of(whole), whole=len(found) == 1)
        assert (one.of(other) == -1 - one.of(whole)).all()
        assert sum(other < 0) == len(one.of(whole))


@given(
    seed=SEEDS,
    workers=WORKERS,
    shape=st.tuples(st.integers(2, 5), st.integers(0, 4)).filter(lambda pair: pair[1] < pair[0]),
    fragments=st.integers(1, 2),
    alpha=st.sampled_from([Fraction(0), Fraction(1, 3), Fraction(1, 2)]),
    pattern=PATTERNS,
)
def test_a_fragment_is_applied_a_fixed_number_of_steps_later(
    seed: int, workers: int, shape: tuple[int, int], fragments: int, alpha: Any, pattern: Any
) -> None:
    """The whole rule from the changes that were exchanged, exactly: times, outer step and mixing, for every worker."""
    period, overlap = shape
    method = StreamingDiLoCo(
        **EXACT,
        period=period,
        overlap=overlap,
        fragments=fragments,
        alpha=alpha,
        pattern=pattern,
        outer_learning_rate=HALF,
        outer_momentum=HALF,
    )
    run = finished(method, workers, 14, seed)
    parts = fragments_of(run.job.learner.layout.layers, fragments, period, pattern)
    starts = [(step, part) for step in range(1, 15) for part in parts if (step - part.offset) % period == 0]
    changes = exchanged(run)
    assert len(changes) == len(starts)
    outer, velocity = run.job.learner.initial(), 0 * run.job.learner.initial()
    due = [
        (step + overlap, part, sum(change) / Fraction(workers))
        for (step, part), change in zip(starts, changes, strict=True)
    ]
    recorded = outers(run, 0)[1:]
    assert len(recorded) == len([one for one in due if one[0] <= 14])
    for found, (_, part, change) in zip(recorded, due, strict=False):
        new, kept = outer_step(part.of(outer), part.of(velocity), change, HALF, HALF)
        outer = part.put(outer, new, whole=len(parts) == 1)
        velocity = part.put(velocity, kept, whole=len(parts) == 1)
        assert (found == outer).all()
    for rank in run.job.team[0].workers:
        assert (run.trace.states[rank].start == outer).all()
        assert (run.trace.states[rank].velocity == velocity).all()
        the_weights_are_mixed(run, rank, parts, due, alpha)


def the_weights_are_mixed(run: AnyOrder, rank: Rank, parts: Any, due: Any, alpha: Any) -> None:
    """At every step, a worker goes on with its own weights and the outer ones in the shares α and 1 − α."""
    local: Any = None
    left = [one for one in due if one[0] <= 14]
    for entry in run.log:
        if entry.move.rank != rank:
            continue
        if isinstance(entry.op, RecordUpdate) and not entry.op.advance:
            local = entry.op.weights.vector
        elif isinstance(entry.op, RecordUpdate):
            _, part, _ = left.pop(0)
            mixed = alpha * part.of(local) + (1 - alpha) * part.of(entry.op.weights.vector)
            local = part.put(local, mixed, whole=len(parts) == 1)
        elif isinstance(entry.op, NextStep) and local is not None:
            state: Any = entry.op.state
            assert (state.weights.vector == local).all()
    assert left == []


@given(
    seed=SEEDS, workers=st.integers(2, 4), period=st.integers(1, 6), overlap=st.integers(0, 5), count=st.integers(1, 2)
)
def test_no_step_is_older_than_promised(seed: int, workers: int, period: int, overlap: int, count: int) -> None:
    method = StreamingDiLoCo(period=period, overlap=min(overlap, period - 1), fragments=min(count, period))
    run = finished(method, workers, 14, seed, Uneven())
    bound = method.bounds(workers)[Guarantee.BOUNDED_STALENESS]
    oldest = max(row.staleness for row in run.trace.updates)
    assert oldest <= bound
    if method.fragments == 1 and bound < 14:
        assert oldest == bound


@pytest.mark.parametrize("block", [1, 7])
@given(seed=SEEDS, workers=WORKERS, inner=INNER)
def test_quantised_exchanges_keep_the_outer_weights_equal(block: int, seed: int, workers: int, inner: Any) -> None:
    """With a scale for each number only the rounding of a float32 is left: at most 2⁻²³ of a change, in 6 rounds."""
    plain = StreamingDiLoCo(inner=inner, learning_rate=0.05, period=2, overlap=1)
    quantised = replace(plain, quantization=Quantization(block=block))
    found, expected = (finished(one, workers, 12, seed, Uneven()) for one in (quantised, plain))
    vectors = [found.trace.states[rank].start for rank in found.job.team[0].workers]
    assert all((vector == vectors[0]).all() for vector in vectors)
    if block == 1:
        np.testing.assert_allclose(ends(found), ends(expected), rtol=0, atol=1e-4)
        assert not (ends(found) == ends(expected)).all()


@given(seed=SEEDS)
def test_quantised_exchanges_are_charged(seed: int) -> None:
    run = finished(StreamingDiLoCo(period=2, quantization=Quantization()), 2, 4, seed, Uneven())
    kinds = {entry.op.kind for entry in run.log if isinstance(entry.op, Charge)}
    assert kinds == {"update", "quantise", "dequantise"}


def test_the_inputs_of_the_log_belong_to_its_means() -> None:
    """Guards `exchanged`: the mean of its inputs is the answer of the all-reduce."""
    run = finished(SlowMo(learning_rate=TENTH, period=2), 2, 4)
    for inputs, pairs in zip(exchanged(run), averages(run).values(), strict=True):
        assert (sum(inputs) / Fraction(2) == pairs[0][1]).all()


@pytest.mark.parametrize(
    ("method", "complaint"),
    [
        (StreamingDiLoCo(overlap=8), "overlap: found 8 with a period of 8, expected fewer steps than that"),
        (StreamingDiLoCo(overlap=-1), "overlap: found -1"),
        (StreamingDiLoCo(fragments=9), "fragments: found 9 with a period of 8, expected at most one for each step"),
        (StreamingDiLoCo(fragments=0), "fragments: found 0"),
        (StreamingDiLoCo(alpha=1.0), "alpha: found 1.0, expected a number from 0 to below 1"),
        (StreamingDiLoCo(quantization=Quantization(block=0)), "quantization.block: found 0"),
        (StreamingDiLoCo(momentum=0.5), "momentum: found 0.5"),
        (EagerDiLoCo(outer_momentum=1.0), "outer_momentum: found 1.0"),
        (SlowMo(slow_momentum=1.0), "slow_momentum: found 1.0"),
        (SlowMo(slow_learning_rate=0.0), "slow_learning_rate: found 0.0"),
        (
            SlowMo(inner="adamw", buffers="reset", schedule=Polynomial(total_steps=9)),
            "buffers: found reset with inner = adamw and a schedule",
        ),
    ],
    ids=repr,
)
def test_wrong_combinations_are_refused(method: Method, complaint: str) -> None:
    assert any(found.startswith(complaint) for found in method.problems([[Rank(0), Rank(1)]]))
