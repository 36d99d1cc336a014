"""DeMo: the cosine transform, the momentum that is sent and kept, and the settings at which it is another method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.dct_top_k import DctTopK, Tiling, coefficients, cosines, numbers
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Layer, Layout, Null, Rank, Samples
from paceline.algorithms.methods.decoupled_momentum import DeMo
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
