"""Rounds of local steps: slow momentum, DiLoCo and its variants against their rules, and averages of weights.

Exact, in fractions, except for rules that store floating point numbers; limits of these methods are in test_limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
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
from paceline.algorithms.core.rules import AdamW, Chain, Lars, ScaleByLearningRate
from paceline.algorithms.core.schedules import Polynomial
from paceline.algorithms.core.values import Layer, Null, Rank, Samples
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.algorithms.methods.local_sgd import DiLoCo, PostLocalSgd, SlowMo
from paceline.algorithms.methods.outer import EagerDiLoCo, outer_step
from paceline.algorithms.methods.periodic import DesLoc, HbsSgd, KAvg, Sasgd
from paceline.algorithms.methods.streaming_diloco import StreamingDiLoCo, fragments_of
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from tests.clusters import fixed_costs
from tests.exact import ExactBowl, UnlikeBowl, applied, averages, ends, exact_run
from tests.support import FixedTiming, Uneven, job_of, placed

TENTH: Any = Fraction(1, 10)
HALF: Any = Fraction(1, 2)
WORKERS, PERIODS, STEPS, SEEDS = st.integers(1, 4), st.integers(1, 4), st.integers(1, 12), st.integers(0, 999)
PARTS, PATTERNS = st.integers(1, 2), st.sampled_from(["strided", "sequential"])
INNER = st.sampled_from(["sgd", "adamw"])
EXACT: dict[str, Any] = {"inner": "sgd", "learning_rate": TENTH}


def finished(method: Method, workers: int, steps: int, seed: int = 0, learner: Any = None) -> AnyOrder:
    return exact_run(method, workers, steps, Shuffled(seed), learner or UnlikeBowl())


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


@given(
    seed=SEEDS,
    workers=WORKERS,
    shape=st.tuples(st.integers(2, 5), st.integers(0, 4)).filter(lambda pair: pair[1] < pair[0]),
    fragments=st.integers(1, 2),
    alpha=st.sampled_from([0.0, 0.5]),
    inner=INNER,
)
def test_layers_that_are_exchanged_one_by_one_give_the_same_weights(
    seed: int, workers: int, shape: tuple[int, int], fragments: int, alpha: float, inner: Any
) -> None:
    period, overlap = shape
    whole = StreamingDiLoCo(
        inner=inner, learning_rate=0.05, period=period, overlap=overlap, fragments=fragments, alpha=alpha
    )
    found, expected = (finished(one, workers, 14, seed, Uneven()) for one in (replace(whole, layerwise=True), whole))
    assert (ends(found) == ends(expected)).all()
    for rank in found.job.team[0].workers:
        for name in ("start", "velocity"):
            assert (getattr(found.trace.states[rank], name) == getattr(expected.trace.states[rank], name)).all()


def test_an_exchange_of_layers_is_hidden_behind_the_passes() -> None:
    """Forward passes of 1 s and backward passes of 2 s for each of two layers; an exchange takes 2.5 s, at no overlap.

    The last layer's starts after 4 s of a step, and its next forward pass begins 3 s later: it is hidden. The first
    layer's starts at the end of a step, and its next forward pass waits for it.
    """
    method = StreamingDiLoCo(inner="sgd", period=2, overlap=0)
    timing, rounds = FixedTiming(compute=6.0), (2, 4)

    def seconds(streaming: StreamingDiLoCo, steps: int) -> float:
        job = job_of(streaming, 2, steps=steps)
        return simulate_job(job, timing, fixed_costs(collective_s=2.5), Schedule(1)).wall_s

    def of_a_round(streaming: StreamingDiLoCo) -> float:
        short, long = (seconds(streaming, 2 * number) for number in rounds)
        return (long - short) / 2

    assert of_a_round(method) == pytest.approx(2 * 6.0 + 2 * 2.5)
    assert of_a_round(replace(method, layerwise=True)) == pytest.approx(2 * 6.0 + 2.5)


# --- post-local SGD, and the optimizers of DiLoCo ---------------------------------------------------------------------


@given(seed=SEEDS, switch=st.integers(0, 5), period=PERIODS, steps=STEPS)
def test_averages_are_counted_from_the_switch(seed: int, switch: int, period: int, steps: int) -> None:
    run = AnyOrder(job_of(PostLocalSgd(switch=switch, period=period), 2, steps=steps))
    run.run(Shuffled(seed))
    keys = [entry.op.key for entry in run.log if isinstance(entry.op, AllReduce) and entry.move.rank == 0]
    synchronous = [f"gradient {step}" for step in range(min(switch, steps))]
    assert keys == synchronous + [f"everyone {step}" for step in range(switch + period, steps + 1, period)]


@pytest.mark.parametrize("inner", ["sgd", "adamw"])
def test_the_outer_optimiser_is_torchs_nesterov(inner: Any) -> None:
    """torch.optim.SGD, given what every round did on average as its gradient, to 1e-12 in float64."""
    torch = pytest.importorskip("torch")
    run = AnyOrder(job_of(DiLoCo(inner=inner, learning_rate=0.05, period=2), 3, steps=8))
    run.run()
    x = torch.nn.Parameter(torch.tensor(run.job.learner.initial()))
    outer = torch.optim.SGD([x], lr=0.7, momentum=0.9, nesterov=True)
    changes = [e.answer for e in run.log if isinstance(e.op, AllReduce) and e.move.rank == 0]
    rounds = [op.weights.vector for op in applied(run, run.job.team[0].rank) if op.advance]
    assert len(rounds) == 4
    for change, found in zip(changes, rounds, strict=True):
        x.grad = torch.tensor(change)
        outer.step()
        np.testing.assert_allclose(found, x.detach().numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "adamw", "sgd"), [({}, 0.01, 0.0), ({"weight_decay": 0.0}, 0.0, 0.0), ({"weight_decay": 0.2}, 0.2, 0.2)]
)
def test_the_default_decay_is_the_inner_optimisers(options: dict[str, Any], adamw: float, sgd: float) -> None:
    """A step at x = 1 with no gradient: AdamW and torch.optim.SGD differ in the decay that they have by themselves."""
    inners: list[tuple[Any, float]] = [("adamw", adamw), ("sgd", sgd)]
    for inner, decay in inners:
        method: Any = DiLoCo(inner=inner, learning_rate=0.5, **options)
        x, rule = np.ones(2), method.rule(())
        stepped, _ = rule.update(x, 0 * x, rule.init(x))
        np.testing.assert_allclose(stepped, 1 - 0.5 * decay, rtol=1e-15)


def test_layer_wise_rates_take_the_inner_decay() -> None:
    """Without decay, LARS around the inner SGD has a ratio of ‖x‖ / ‖g‖; with the one given, it has that too."""
    x, gradient = np.array([3.0, 4.0]), np.array([0.6, 0.8])
    cases: list[tuple[dict[str, Any], Any]] = [
        ({}, x - 5 * gradient),
        ({"weight_decay": 0.2}, x - 2.5 * (gradient + 0.2 * x)),
    ]
    for options, expected in cases:
        method: Any = DiLoCo(inner="sgd", learning_rate=1.0, lars=Lars(trust_coefficient=1.0), **options)
        rule = method.rule(())
        np.testing.assert_allclose(rule.update(x, gradient, rule.init(x))[0], expected, rtol=1e-14)


# --- AdamW -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(("beta1", "beta2", "decay"), [(0.9, 0.999, 0.0), (0.5, 0.9, 0.1), (0.0, 0.0, 0.01)])
def test_adamw_is_torchs(kind: str, beta1: float, beta2: float, decay: float) -> None:
    """The two divide in another order, so not bit for bit: one rounding of numbers below 4 in each step."""
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(3)
    start = generator.standard_normal(6).astype(np.float32)
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimiser = torch.optim.AdamW([parameter], lr=0.01, betas=(beta1, beta2), eps=1e-8, weight_decay=decay)
    rule = Chain((AdamW(beta1, beta2, 1e-8, decay), ScaleByLearningRate(0.01)))
    ours: Any = torch.tensor(start) if kind == "torch" else start
    memory = rule.init(ours)
    for _ in range(20):
        gradient = generator.standard_normal(6).astype(np.float32)
        parameter.grad = torch.tensor(gradient)
        optimiser.step()
        ours, memory = rule.update(ours, torch.tensor(gradient) if kind == "torch" else gradient, memory)
    assert ours.dtype == (torch.float32 if kind == "torch" else np.float32)
    assert np.abs(start - np.asarray(ours)).max() > 0.01
    np.testing.assert_allclose(np.asarray(ours), parameter.detach().numpy(), rtol=0, atol=20 * 2.0**-22)


def test_adamw_of_nothing_is_nothing() -> None:
    """Runs without learning carry only sizes."""
    rule = Chain((AdamW(decay=0.1), ScaleByLearningRate(0.01)))
    vector, memory = rule.update(Null(8), Null(8), rule.init(Null(8)))
    assert vector == memory.links[0].first == memory.links[0].second == Null(8)


def test_one_worker_with_rounds_of_one_is_the_inner_optimiser() -> None:
    """Outer rate 1 without momentum then undoes the segmentation into rounds: AdamW as it would run alone."""

    class Adam(SequentialSgd):
        def rule(self, layers: Sequence[Layer]) -> Chain:
            return DiLoCo().rule(layers)

    found, expected = (
        AnyOrder(job_of(method, 1, steps=5)).run().weights
        for method in (DiLoCo(period=1, outer_learning_rate=1.0, outer_momentum=0.0), Adam())
    )
    assert np.abs(expected).min() > 0.01
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


NODES = st.lists(st.integers(1, 2), min_size=1, max_size=3)
SEEDS = st.integers(0, 999)


# --- averages of weights (numbers 5 and 6) ----------------------------------------------------------------------------


@given(seed=SEEDS, counts=NODES, k1=st.integers(1, 3), times=st.integers(1, 3), steps=st.integers(1, 9))
def test_averages_keep_the_mean_and_close_the_spread(
    seed: int, counts: list[int], k1: int, times: int, steps: int
) -> None:
    """Numbers 5 and 6: an average keeps the mean of its members and makes them equal; and the number of averages is
    right.
    """
    run = AnyOrder(
        job_of(
            HbsSgd(k1=k1, k2=k1 * times, learning_rate=TENTH), nodes=placed(counts), steps=steps, learner=ExactBowl()
        )
    )
    run.run(Shuffled(seed))
    for (group, _), met in averages(run).items():
        assert len(met) == len(group)
        before, after = np.array([value for value, _ in met]), np.array([answer for _, answer in met])
        assert (before.sum(axis=0) == after.sum(axis=0)).all()
        assert (after == after[0]).all()
    for me in run.job.team:
        times_met = Counter(key.split()[0] for group, key in averages(run) if me.rank in group)
        assert times_met["everyone"] == steps // (k1 * times)
        # a worker alone on its node has no peer to average with
        assert times_met["group"] == (steps // k1 - steps // (k1 * times)) * (len(me.node) > 1)


@given(seed=SEEDS, workers=st.integers(2, 4), k=st.integers(1, 3))
def test_momentum_is_averaged_if_asked(seed: int, workers: int, k: int) -> None:
    """After an average all workers have the same velocity; by default each keeps its own."""
    for average in (True, False):
        job = job_of(KAvg(k=k, momentum=0.5, average_momentum=average), workers, steps=k, learner=UnlikeBowl())
        states = AnyOrder(job).run(Shuffled(seed)).states
        velocities = np.array([states[Rank(rank)].optimizer_state.links[-1] for rank in range(workers)]).astype(float)
        assert (np.ptp(velocities, axis=0) == 0).all() == average


@given(seed=SEEDS, workers=WORKERS, periods=st.tuples(*[st.integers(1, 5)] * 3), steps=STEPS)
def test_weights_and_moments_are_averaged_at_their_own_periods(
    seed: int, workers: int, periods: tuple[int, int, int], steps: int
) -> None:
    """Adam on each worker, written out, with a mean of x, m or v after each step that its period divides, to 1e-12."""
    period, first, second = periods
    method = DesLoc(learning_rate=0.1, period=period, first_moment_period=first, second_moment_period=second)
    run = finished(method, workers, steps, seed, Uneven())
    x = np.array([Uneven().initial()] * workers)
    m, v = 0 * x, 0 * x
    for step in range(steps):
        samples = [Samples(worker=rank, workers=workers, index=step, count=16) for rank in range(workers)]
        g = np.array([Uneven().gradient(x[rank], Uneven().load(samples[rank]))[0] for rank in range(workers)])
        t = step + 1
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x = x - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        x, m, v = (
            np.broadcast_to(numbers.mean(axis=0), numbers.shape) if t % every == 0 else numbers
            for numbers, every in ((x, period), (m, first), (v, second))
        )
    for rank in range(workers):
        state = run.trace.states[Rank(rank)]
        moments = state.optimizer_state.links[0]
        for found, expected in ((state.weights.vector, x), (moments.first, m), (moments.second, v)):
            np.testing.assert_allclose(found, expected[rank], rtol=0, atol=1e-12 * max(1, np.abs(expected).max()))


def test_the_moments_are_rarer_than_the_weights_by_default() -> None:
    assert dict(DesLoc(period=4).moment_periods) == {"first": 12, "second": 24}
    assert dict(DesLoc(period=4, second_moment_period=5).moment_periods) == {"first": 12, "second": 5}


# --- when ------------------------------------------------------------------------------------------------------------


PERIODIC: list[Any] = [
    HbsSgd(k1=1, k2=3),
    KAvg(k=3),
    KAvg(k=3, phase=1),
    DesLoc(period=3, first_moment_period=2, second_moment_period=4),
    Sasgd(period=3),
    PostLocalSgd(switch=2, period=3),
    DiLoCo(period=3, inner="sgd", learning_rate=0.1),
]


@pytest.mark.parametrize("method", PERIODIC, ids=repr)
@given(seed=SEEDS, counts=NODES)
def test_replicas_meet_and_local_steps_are_numbered(method: Any, seed: int, counts: list[int]) -> None:
    """The age of a local step is the number of those since the last average, at most what `bounds` says.

    A single worker's weights are always the average of everyone: their age is 0.
    """
    run = AnyOrder(job_of(method, nodes=placed(counts), steps=8))
    trace = run.run(Shuffled(seed))
    bound = method.bounds(len(counts))[Guarantee.BOUNDED_STALENESS]
    assert bound == 2
    assert max(row.staleness for row in trace.updates) == (bound if sum(counts) > 1 else 0)
    histories = [[op.weights for op in applied(run, me.rank) if op.advance] for me in run.job.team]
    assert len(histories[0]) >= 2
    for history in histories:
        assert [weights.version for weights in history] == list(range(len(history)))
        for weights, other in zip(history, histories[0], strict=True):
            np.testing.assert_array_equal(weights.vector, other.vector)


@pytest.mark.parametrize("period", [2, 5])
def test_phase_1_averages_when_torch_does(period: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's averager tests its counter before it counts, so it averages after the very first step."""
    averagers = pytest.importorskip("torch.distributed.algorithms.model_averaging.averagers")
    torchs: list[int] = []
    monkeypatch.setattr(
        averagers.utils, "average_parameters_or_parameter_groups", lambda *_: torchs.append(averager.step + 1)
    )
    averager: Any = averagers.PeriodicModelAverager(period=period, process_group=object())
    for _ in range(12):
        averager.average_parameters([])
    run = AnyOrder(job_of(KAvg(k=period, phase=1), steps=12))
    run.run()
    assert [int(key.split()[1]) for _, key in averages(run)] == torchs
    assert torchs[0] == 1
