"""DeMo and SparseLoCo: the cosine transform, the messages of chunks, and the momentum that is sent and kept.

The settings at which they are other methods are in test_limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.chunk_top_k import ChunkTopK, classified
from paceline.algorithms.core.dct_top_k import DctTopK, Tiling, coefficients, cosines, numbers
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Layer, Layout, Null, Rank, Samples
from paceline.algorithms.methods.decoupled_momentum import DeMo, SparseLoCo
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled
from paceline.records.trace import Schedule
from paceline.simulator.network.network import NoCost
from paceline.simulator.runs.engine import run_job
from paceline.workloads import build
from tests.support import FixedTiming, Noise, job_of

ORDERS = st.integers(0, 2**16).map(Shuffled)

SEEDS = st.integers(0, 9999)
NODES = [[Rank(rank)] for rank in range(4)]


def noise(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).standard_normal(count)


# --- the transform ---------------------------------------------------------------------------------------------------


@given(side=st.integers(1, 80))
def test_the_cosines_are_orthonormal(side: int) -> None:
    """In float64: sums of up to 80 products, and arguments of the cosine up to 80 π."""
    matrix = cosines(side)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(side), rtol=0, atol=1e-13)


def test_it_is_the_transform_of_scipy() -> None:
    dct = pytest.importorskip("scipy.fft").dctn
    x = noise(1, 64)
    expected = dct(x.reshape(8, 8), norm="ortho").reshape(-1)
    np.testing.assert_allclose(coefficients(x, [Tiling(64, 8)]), expected, rtol=0, atol=1e-13)


@given(seed=SEEDS, side=st.integers(1, 9), counts=st.lists(st.integers(1, 120), min_size=1, max_size=3))
def test_the_reverse_transform_returns_the_numbers(seed: int, side: int, counts: list[int]) -> None:
    """With padding, which is removed again; and the transform keeps the norm, so large coefficients matter most."""
    x, tilings = noise(seed, sum(counts)), [Tiling.of(Layer("a", 0, count), side) for count in counts]
    spectrum = coefficients(x, tilings)
    assert len(spectrum) == sum(tiling.size for tiling in tilings)
    np.testing.assert_allclose(numbers(spectrum, tilings), x, rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.linalg.norm(spectrum), np.linalg.norm(x), rtol=1e-13)
    assert coefficients(Null(len(x)), tilings) == Null(len(spectrum))


@given(seed=SEEDS, k=st.integers(1, 9))
def test_the_largest_coefficients_of_each_tile_are_sent(seed: int, k: int) -> None:
    x = noise(seed, 27)
    message, _ = DctTopK(chunk=3, k=k).compress(x, DctTopK(chunk=3).begin(x, [Layer("a", 0, 27)]))
    positions = message.coefficients.positions.reshape(3, k)
    sizes = abs(coefficients(x, message.tilings)).reshape(3, 9)
    for tile in range(3):
        sent = positions[tile] - 9 * tile
        assert set(sent) <= set(range(9)) and len(set(sent)) == k
        assert min(sizes[tile][sent]) >= max(np.delete(sizes[tile], sent), default=0.0)


# --- what is kept ----------------------------------------------------------------------------------------------------


@given(
    seed=SEEDS,
    steps=st.integers(1, 6),
    chunk=st.integers(1, 12),
    k=st.integers(1, 9),
    decay=st.sampled_from([0.0, 0.5, 0.999, 1.0]),
)
def test_the_message_and_the_momentum_left_are_the_momentum_before(
    seed: int, steps: int, chunk: int, k: int, decay: float
) -> None:
    """In float64, to the roundings of two transforms."""
    compression = DctTopK(chunk=chunk, k=k, decay=decay)
    layers = [Layer("first", 0, 60), Layer("second", 60, 72)]
    memory = compression.begin(np.zeros(72), layers)
    for step in range(steps):
        before = decay * memory.vector + noise(seed + step, 72)
        message, memory = compression.compress(noise(seed + step, 72), memory)
        np.testing.assert_allclose(message.dense() + memory.vector, before, rtol=0, atol=1e-13)


# --- limits ----------------------------------------------------------------------------------------------------------


@given(seed=SEEDS, steps=st.integers(1, 4), decay=st.sampled_from([0.0, 0.1]))
def test_a_step_by_the_sign_moves_each_number_by_the_rate(seed: int, steps: int, decay: float) -> None:
    """x ← x − η (± 1 + λ x), where a coefficient is not 0; with tiles of one number and one worker it is signSGD."""
    learner = Noise()
    job = job_of(DeMo(learning_rate=0.1, chunk=1, k=1, weight_decay=decay), 1, steps=steps, learner=learner)
    x = learner.initial()
    for step in range(steps):
        x = x - 0.1 * (np.sign(learner.load(job.samples(job.team[0], step))) + decay * x)
    np.testing.assert_allclose(AnyOrder(job).run().weights, x, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("same", "ratio"), [(False, 2.0), (True, 1.0)])
def test_a_mean_over_senders_divides_by_their_number(same: bool, ratio: float) -> None:
    """Two workers with one coefficient each: a different one is divided by 1 and not by 2, the same one by 2."""

    @dataclass(frozen=True)
    class OneCoefficient(Noise):
        size: int = 4

        @property
        def layout(self) -> Layout:
            return Layout((Layer("only", 0, 4),))

        def load(self, samples: Samples) -> Any:
            return numbers(np.eye(4)[0 if same else 3 * samples.worker] * 8.0, [Tiling(4, 2)])

    def moved(average_over: Any) -> Any:
        demo = DeMo(learning_rate=1.0, chunk=2, k=1, update="plain", average_over=average_over)
        learner = OneCoefficient()
        return learner.initial() - AnyOrder(job_of(demo, 2, steps=1, learner=learner)).run().weights

    assert abs(moved("workers")).max() > 1
    np.testing.assert_allclose(moved("senders"), ratio * moved("workers"), rtol=0, atol=1e-13)


def test_the_local_gradient_is_clipped() -> None:
    """As in the authors' training, before it enters the momentum."""
    learner = Noise()
    job = job_of(DeMo(learning_rate=1.0, chunk=1, update="plain", max_grad_norm=0.5), 1, steps=1, learner=learner)
    moved = learner.initial() - AnyOrder(job).run().weights
    assert np.linalg.norm(moved) == pytest.approx(0.5)


# --- runs ------------------------------------------------------------------------------------------------------------


def test_the_transforms_are_charged() -> None:
    """Three of them, each 4 s operations for a number: of the momentum, of what was sent, and of the mean."""
    run = AnyOrder(job_of(DeMo(chunk=2, k=1), 2, steps=1, learner=Noise()))
    run.run()
    charges = [entry.op for entry in run.log if isinstance(entry.op, Charge) and entry.op.kind == "compress"]
    assert [charge.flops for charge in charges] == [3 * 4 * 2 * 30] * 2


def test_a_run_without_numbers_is_vectorised() -> None:
    job = job_of(DeMo(), nodes=[[0, 1], [2, 3]], steps=3, learner=build("digits-mlp", learning="none", seed=1))
    found = run_job(job, FixedTiming(), NoCost(), Schedule(every=1), engine="cohort")
    assert found.notes["engine"]["name"] == "cohort"


# --- SparseLoCo ------------------------------------------------------------------------------------------------------

BITS = st.sampled_from([None, 1, 2, 4])
SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=3)


def in_layers(counts: list[int]) -> list[Layer]:
    ends = np.cumsum(counts).tolist()
    return [Layer(str(end), end - count, end) for end, count in zip(ends, counts, strict=True)]


@given(seed=SEEDS, counts=SIZES, chunk=st.integers(1, 12), k=st.integers(1, 12))
def test_the_largest_numbers_of_each_chunk_are_sent(seed: int, counts: list[int], chunk: int, k: int) -> None:
    """A smaller chunk at the end of a layer sends as large a share, rounded, and at least one number."""
    x, layers = noise(seed, sum(counts)), in_layers(counts)
    compression = ChunkTopK(chunk=chunk, k=k, bits=None)
    message, memory = compression.compress(x, compression.begin(x, layers))
    sent = set(compression.opened(message, x, memory.layers).positions.tolist())
    for layer in layers:
        for start in range(layer.start, layer.stop, chunk):
            places = range(start, min(start + chunk, layer.stop))
            share = min(k, chunk) if len(places) == chunk else min(len(places), max(1, round(len(places) * k / chunk)))
            assert sent & set(places) == set(sorted(places, key=lambda place: -abs(x[place]))[:share])


@given(seed=SEEDS, count=st.integers(1, 60), bits=st.sampled_from([1, 2, 4]))
def test_numbers_are_rounded_to_the_mean_of_their_class(seed: int, count: int, bits: int) -> None:
    """The classes of the authors' code, written out: 2^b of them, 6 / 2^b standard deviations wide, around the mean."""
    x, classes = noise(seed, count), 2**bits
    width = 6 * x.std(ddof=1) / classes if count > 1 else 1.0
    expected = np.floor((x - x.mean()) / width + classes // 2 + 0.5).clip(0, classes - 1)
    codes, means = classified(x, classes)
    assert codes.tolist() == expected.tolist()
    for code in set(codes.tolist()):
        assert means[code] == pytest.approx(x[codes == code].mean(), rel=1e-12, abs=1e-12)


@given(seed=SEEDS, counts=SIZES, chunk=st.integers(1, 20), bits=BITS, precision=st.sampled_from(["float32", "float64"]))
def test_what_is_sent_and_kept_is_the_total(
    seed: int, counts: list[int], chunk: int, bits: Any, precision: str
) -> None:
    """In two messages, with what was kept decayed in between; and a message has the size of one without numbers."""
    compression, layers = ChunkTopK(chunk=chunk, k=2, decay=0.5, bits=bits), in_layers(counts)
    x, y = (noise(number, sum(counts)).astype(precision) for number in (seed, seed + 1))
    memory = compression.begin(x, layers)
    unsent = 0 * x
    for vector in (x, y):
        message, memory = compression.compress(vector, memory)
        sent = compression.opened(message, vector, memory.layers)
        tolerance = 1e-6 if precision == "float32" else 1e-14
        np.testing.assert_allclose(sent.dense() + memory.vector, vector + 0.5 * unsent, rtol=0, atol=4 * tolerance)
        unsent = memory.vector
        if bits is None:
            assert (unsent[sent.positions] == 0).all()
        size = Null(len(x), item_bytes=x.itemsize)
        assert compression.compress(size, compression.begin(size, layers))[0].nbytes == message.nbytes


def test_a_message_has_twelve_bits_for_a_position_and_two_for_a_number() -> None:
    """Of 64 numbers in each 4096, with four means for each layer; those of the small layer are 4 of 256."""
    x = np.zeros(2 * 4096 + 256, dtype=np.float32)
    compression = ChunkTopK()
    message, _ = compression.compress(x, compression.begin(x, in_layers([2 * 4096, 256])))
    assert message.nbytes == (2 * 64 + 4) * 14 / 8 + 2 * 4 * 4


@pytest.mark.parametrize("bits", [None, 1, 2, 4])
def test_tensors_make_the_messages_of_arrays(bits: Any) -> None:
    torch = pytest.importorskip("torch")
    x, compression, layers = noise(3, 700), ChunkTopK(chunk=300, k=20, bits=bits), in_layers([600, 100])
    messages = []
    for vector in (x, torch.from_numpy(x)):
        message, memory = compression.compress(vector, compression.begin(vector, layers))
        messages.append(np.asarray(compression.opened(message, vector, memory.layers).dense()))
    np.testing.assert_allclose(messages[1], messages[0], rtol=1e-14)


@pytest.mark.parametrize("bits", [None, 2])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_has_diverged_is_sent_like_other_numbers(bits: Any) -> None:
    compression, x = ChunkTopK(chunk=8, k=4, bits=bits), np.array([np.nan, np.inf] * 8)
    message, memory = compression.compress(x, compression.begin(0 * noise(1, 16), in_layers([16])))
    assert not np.isfinite(compression.opened(message, x, memory.layers).dense()).all()


@given(
    seed=SEEDS,
    workers=st.integers(1, 3),
    period=st.integers(1, 3),
    decay=st.sampled_from([0.0, 0.5, 1.0]),
    over=st.sampled_from(["workers", "senders"]),
)
def test_rounds_are_those_of_the_rule(seed: int, workers: int, period: int, decay: float, over: Any) -> None:
    """Error feedback and the mean of what was sent, written out, with gradients that depend only on the samples."""
    method = SparseLoCo(
        inner="sgd",
        learning_rate=0.1,
        period=period,
        chunk=7,
        k=2,
        bits=None,
        error_decay=decay,
        average_over=over,
        outer_learning_rate=0.5,
    )
    learner = Noise()
    run = AnyOrder(job_of(method, workers, steps=4 * period, learner=learner))
    run.run(Shuffled(seed))
    x = learner.initial()
    kept, chunks = (
        np.zeros((workers, len(x))),
        [
            range(start, min(start + 7, layer.stop))
            for layer in learner.layout.layers
            for start in range(layer.start, layer.stop, 7)
        ],
    )
    for first in range(0, 4 * period, period):
        sent, counts = np.zeros((workers, len(x))), np.zeros(len(x))
        for worker in range(workers):
            change = 0.1 * sum(
                learner.load(Samples(worker=worker, workers=workers, index=step, count=16))
                for step in range(first, first + period)
            )
            kept[worker] = decay * kept[worker] + change
            for places in chunks:
                share = max(1, round(len(places) * 2 / 7))
                largest = sorted(places, key=lambda place: -abs(kept[worker][place]))[:share]
                sent[worker][largest] = kept[worker][largest]
                counts[largest] += 1
        kept = kept - sent
        x = x - 0.5 * sent.sum(axis=0) / (workers if over == "workers" else np.maximum(counts, 1))
    for rank in range(workers):
        np.testing.assert_allclose(run.trace.states[Rank(rank)].weights.vector, x, rtol=0, atol=1e-12)
    if decay:
        assert abs(kept).max() > 0
