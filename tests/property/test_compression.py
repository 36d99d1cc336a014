"""Compression with error feedback: nothing is lost, messages are smaller, and the methods still learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS
from paceline.algorithms.core.compression import (
    Cast,
    Compression,
    PowerSgd,
    TopK,
    decompressed,
)
from paceline.algorithms.core.dct_top_k import DctTopK, Sparse
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import RecordUpdate, Send
from paceline.algorithms.core.values import Layer, Null, Rank, Samples, join, nbytes, norm
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.layerwise import (
    Agd,
    LayerwiseAgd,
    LayerwiseSgd,
    LayerwiseSgdLazy,
    LayerwiseSgdNextForward,
)
from paceline.algorithms.methods.parameter_server import AsyncSgd, Push
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Shuffled
from paceline.records.tables import assemble
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.simulator.runs.run import simulate
from paceline.workloads import build
from paceline.workloads.models.threads import torch_threads
from tests.exact import ExactBowl, fractions
from tests.support import Bowl, FixedTiming, job_of

SEEDS = st.integers(0, 9999)
ORDERS = st.integers(0, 2**16).map(Shuffled)
LAYERS = [Layer("first", 0, 132), Layer("second", 132, 162)]  # 12 by 11, and 6 by 5
EVERY: list[Compression] = [TopK(ratio=0.1), PowerSgd(rank=2), DctTopK(chunk=8, k=8), Cast()]
EITHER = pytest.mark.parametrize("compression", EVERY, ids=lambda compression: compression.kind)


def begun(compression: Compression, vector: Any, layers: Sequence[Layer]) -> Any:
    """Returns the memory at the start, whose type depends on the kind of compression."""
    return compression.begin(vector, layers)


def numbers(seed: int, count: int = 162) -> Any:
    return np.random.default_rng(seed).standard_normal(count)


def sent_bytes(job: Job) -> int:
    """By all ranks in a simulated run."""
    with torch_threads(1):
        trace = simulate_job(job, FixedTiming(), NoCost(), Schedule(every=1000))
    return int(assemble(trace, num_samples=64).spans["bytes"].sum())


# --- error feedback --------------------------------------------------------------------------------------------------


@given(
    share=st.floats(0.01, 1),
    gradients=st.lists(st.lists(st.fractions(-9, 9, max_denominator=9), min_size=7, max_size=7), max_size=6),
)
def test_what_was_sent_and_what_is_kept_are_what_came_in(share: float, gradients: list[list[Fraction]]) -> None:
    """Exactly, in fractions."""
    compression, came, sent = TopK(ratio=share), fractions([0] * 7), fractions([0] * 7)
    kept = begun(compression, came, [])
    for gradient in map(fractions, gradients):
        message, kept = compression.compress(gradient, kept)
        came, sent = came + gradient, sent + decompressed(message)
    assert (sent + kept == came).all()


@given(seed=SEEDS, steps=st.integers(1, 6), rank=st.integers(1, 4))
def test_power_sgd_loses_nothing_either(seed: int, steps: int, rank: int) -> None:
    """In float64, to the roundings of a few sums."""
    compression, came, sent = PowerSgd(rank=rank), np.zeros(162), np.zeros(162)
    memory = begun(compression, came, LAYERS)
    for step in range(steps):
        message, memory = compression.compress(numbers(seed + step), memory)
        came, sent = came + numbers(seed + step), sent + decompressed(message)
    np.testing.assert_allclose(sent + memory.kept, came, rtol=0, atol=1e-12)


@dataclass(frozen=True)
class Told(ExactBowl):
    """Gradients that depend only on the samples, so that a test can add them."""

    size: int = 6

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return data, 0.0


@given(order=ORDERS, workers=st.integers(1, 4), steps=st.integers(0, 5), share=st.sampled_from([0.2, 0.4, 1.0]))
def test_an_average_loses_nothing(order: Shuffled, workers: int, steps: int, share: float) -> None:
    """The moves of all replicas and the residuals of the members add up to the mean gradients."""
    method: Any = SyncSgd
    learner = Told()
    job = job_of(
        method(learning_rate=Fraction(1), compression=TopK(ratio=share)), workers, steps=steps, learner=learner
    )
    states = list(AnyOrder(job).run(order).states.values())
    came = fractions([0] * 6)
    for step in range(steps):
        for me in job.team:
            came = came + learner.load(job.samples(me, step))
    for state in states:
        assert (state.weights.vector == states[0].weights.vector).all()
    moved = learner.initial() - states[0].weights.vector
    assert (workers * moved + sum(state.residual for state in states) == came).all()


@dataclass(frozen=True)
class ToldInFloats(Told):
    """The same in float64, for matrices that are to be factored."""

    def initial(self) -> Any:
        return np.zeros(self.size)

    def load(self, samples: Samples) -> Any:
        return super().load(samples).astype(float)


@pytest.mark.parametrize(
    "compression", [PowerSgd(rank=1), PowerSgd(rank=2), DctTopK(chunk=2, k=2)], ids=["factor", "factors", "cosines"]
)
@given(order=ORDERS, workers=st.integers(1, 4), steps=st.integers(1, 5))
def test_an_average_in_floats_loses_nothing(compression: Any, order: Shuffled, workers: int, steps: int) -> None:
    """To rounding. With as many columns as the matrix has rows, here 2, no member has a residual, however different the
    members are: their own matrices are projected, not the mean.
    """
    learner = ToldInFloats(size=5)
    job = job_of(SyncSgd(learning_rate=1.0, compression=compression), workers, steps=steps, learner=learner)
    states = list(AnyOrder(job).run(order).states.values())
    came = sum(learner.load(job.samples(me, step)) for step in range(steps) for me in job.team)
    residuals = [state.residual for state in states]
    kept = [residual.kept if isinstance(compression, PowerSgd) else residual.vector for residual in residuals]
    np.testing.assert_allclose(sum(kept) - workers * states[0].weights.vector, came, rtol=0, atol=1e-11)
    if compression == PowerSgd(rank=2):
        np.testing.assert_allclose(kept, np.zeros((workers, 5)), rtol=0, atol=1e-11)


# --- how near a message comes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compression", [TopK(ratio=1.0), PowerSgd(rank=11), DctTopK(chunk=8, k=64)], ids=lambda one: one.kind
)
@given(seed=SEEDS)
def test_everything_is_the_identity(compression: Any, seed: int) -> None:
    """A share of 1, the full rank of both layers, and all coefficients; the latter two to rounding."""
    memory = begun(compression, np.zeros(162), LAYERS)
    for step in range(3):
        message, memory = compression.compress(numbers(seed + step), memory)
        np.testing.assert_allclose(decompressed(message), numbers(seed + step), rtol=0, atol=1e-12)


@given(seed=SEEDS, rank=st.integers(1, 4))
def test_a_matrix_of_rank_r_is_exact_with_rank_r(seed: int, rank: int) -> None:
    """With a rank less it is not."""
    matrix = numbers(seed, 12 * rank).reshape(12, rank) @ numbers(seed + 1, 11 * rank).reshape(rank, 11)
    vector = matrix.reshape(-1)
    for given_rank, exact in ((rank, True), (rank - 1, False)):
        if given_rank:
            compression = PowerSgd(rank=given_rank)
            message, _ = compression.compress(vector, begun(compression, vector, LAYERS[:1]))
            assert (norm(decompressed(message) - vector) < 1e-9 * norm(vector)) == exact


@given(seed=SEEDS)
def test_a_warm_start_comes_nearer(seed: int) -> None:
    """The same matrix again and again: power iteration converges to the best factors of that rank."""
    vector, compression = numbers(seed, 132), PowerSgd(rank=2)
    memory, away = begun(compression, vector, LAYERS[:1]), []
    for _ in range(200):
        message, memory = compression.compress(vector, replace(memory, kept=0 * vector))
        away.append(norm(decompressed(message) - vector))
    singular = np.linalg.svd(vector.reshape(12, 11), compute_uv=False)
    assert away[-1] <= away[0]
    assert away[-1] == pytest.approx(norm(singular[2:]), rel=0.02)


@given(vector=st.lists(st.integers(-9, 9), min_size=1, max_size=30), share=st.floats(0.01, 1))
def test_the_largest_are_sent(vector: list[int], share: float) -> None:
    message, kept = TopK(ratio=share).compress(np.array(vector, dtype=float), np.zeros(len(vector)))
    assert len(message.values) == max(1, round(share * len(vector)))
    assert min(abs(message.values)) >= max(abs(kept))
    assert list(message.positions) == sorted(set(message.positions))


# --- shorter numbers -------------------------------------------------------------------------------------------------

DTYPES: dict[Any, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Cubic(Bowl):
    """Its gradients, which differ between workers, are no numbers of a short type."""

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        gradient, loss = super().gradient(vector, data)
        return gradient**3 / 7, loss


@pytest.mark.parametrize(
    "method", [SyncSgd, LayerwiseSgd, LayerwiseSgdLazy, LayerwiseSgdNextForward, LayerwiseAgd, Agd]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cast_is_that_of_torchs_hooks(method: Any, dtype: Any) -> None:
    """`buffer.to(dtype).div_(world_size)`, a sum in the short type, and `copy_` into the long one."""
    learner, steps, short = Cubic(), 3, DTYPES[dtype]
    given: dict[str, Any] = {"delay": 0} if issubclass(method, Agd) else {}
    job = job_of(method(compression=Cast(dtype=dtype), **given), 3, steps=steps, learner=learner)
    expected = torch.from_numpy(learner.initial())
    for step in range(steps):
        parts = [
            learner.gradient(expected.numpy(), learner.load(Samples(r, 3, step, job.batches[0])))[0] for r in range(3)
        ]
        total = torch.zeros(len(expected), dtype=short)
        for part in parts:
            total += torch.from_numpy(part).to(short).div_(3)
        expected = expected - 0.1 * total.double()
    for state in AnyOrder(job).run().states.values():
        np.testing.assert_allclose(state.weights.vector, expected.numpy(), rtol=1e-14)


@pytest.mark.parametrize("name", ["agd", "acco", "layerwise-agd"])
def test_a_method_that_casts_sends_half_the_bytes(name: str) -> None:
    """Its weights are those without the cast, to the rounding of some steps."""
    method: Any = METHODS[name]
    long, short = (
        AnyOrder(job_of(method(compression=one), 4, steps=12, learner=Cubic())).run().weights for one in (None, Cast())
    )
    assert 0 < np.abs(long - short).max() < 12 * 2**-8 * np.abs(long - Cubic().initial()).max()
    bytes_of = [sent_bytes(job_of(method(compression=one), 4, steps=12, learner=Cubic())) for one in (None, Cast())]
    assert bytes_of[1] / bytes_of[0] == 2 / 8, "of numbers in float64"


@pytest.mark.parametrize("name", ["sync-sgd", "layerwise-sgd", "layerwise-agd", "agd"])
def test_half_the_bytes_take_half_the_time_on_a_slow_link(name: str) -> None:
    """A ring of four over links of 1 MB/s, whose time exceeds that of the gradient and of all arithmetic."""
    plain = {
        "name": "slow",
        "cluster": {
            "nodes": [{"device": {"name": "gpu", "overhead": "0 s", "per_sample": "1 us"}, "count": 4}],
            "network": {"link": {"latency": "0 s", "bandwidth": "8 Mbit/s"}},
        },
        "workload": {"model": "digits-mlp", "dataset": "digits", "learning": "none", "batch_per_worker": 1},
        "stop": {"updates": 20},
        "algorithms": [name, {"name": name, "label": "short", "compression": {"kind": "cast"}}],
    }
    long, short = (run.summary["step_s"]["mean"] for run in simulate(load(plain)))
    assert long is not None and short is not None
    seconds = 2 * 3 / 4 * 4 * 4810 / 1e6
    assert long == pytest.approx(seconds, rel=0.02)
    assert short == pytest.approx(seconds / 2, rel=0.02)


# --- every kind of vector --------------------------------------------------------------------------------------------


@EITHER
def test_torch_and_numpy_agree(compression: Any) -> None:
    """In float64, to rounding: two libraries multiply the matrices."""
    in_numpy, in_torch = (
        begun(compression, np.zeros(162), LAYERS),
        begun(compression, torch.zeros(162).double(), LAYERS),
    )
    for step in range(4):
        compressed, in_numpy = compression.compress(numbers(step), in_numpy)
        other, in_torch = compression.compress(torch.from_numpy(numbers(step)), in_torch)
        np.testing.assert_allclose(decompressed(compressed), decompressed(other).numpy(), rtol=1e-9, atol=1e-12)
        assert nbytes(compressed) == nbytes(other)


@EITHER
def test_a_vector_without_numbers_has_the_same_size(compression: Compression) -> None:
    real = np.zeros(162, dtype=np.float32)
    message, _ = compression.compress(real, begun(compression, real, LAYERS))
    empty, _ = compression.compress(Null(162), begun(compression, Null(162), LAYERS))
    sizes = {"top-k": 2 * 16, "power-sgd": 2 * (12 + 11 + 6 + 5), "dct-top-k": 2 * (3 + 1) * 8, "cast": 162 / 2}
    assert nbytes(empty) == nbytes(message) == 4 * sizes[compression.kind]
    assert decompressed(empty) == Null(162)


@pytest.mark.parametrize("type_of", [np.float32, np.float64, torch.float32, torch.float64])
@given(positions=st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=9))
def test_positions_travel_bit_by_bit(type_of: Any, positions: set[int]) -> None:
    """As a vector of floats, some of which are NaN; cut, joined and copied on their way."""
    ordered = sorted(positions)
    if isinstance(type_of, torch.dtype):
        whole = {4: torch.int32, 8: torch.int64}[type_of.itemsize]
        message = Sparse(torch.tensor(ordered, dtype=whole), torch.ones(len(ordered), dtype=type_of), 2**31)
    else:
        kind = f"i{np.dtype(type_of).itemsize}"
        message = Sparse(np.array(ordered, dtype=kind), np.ones(len(ordered), dtype=type_of), 2**31)
    travelled = join([message.packed()[:1], message.packed()[1:]])
    assert travelled.dtype == message.values.dtype
    assert [int(position) for position in Sparse.unpacked(travelled, 2**31).positions] == ordered


@EITHER
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_run_that_diverges_goes_on(compression: Compression) -> None:
    """NaN and infinity are compressed like other values: the summary says that the run diverged, and no error is
    raised.
    """
    vector = np.array([np.nan, np.inf] * 81)
    message, _ = compression.compress(vector, begun(compression, np.zeros(162), LAYERS))
    assert not np.isfinite(decompressed(message)).all()


# --- runs ------------------------------------------------------------------------------------------------------------


@EITHER
def test_fewer_bytes_are_sent(compression: Compression) -> None:
    """Of n numbers: P · share with top-k, of numbers or coefficients; the factors' numbers with PowerSGD, over which
    two all-reduces go.
    """
    for learner in (build("digits-mlp", seed=1), build("digits-mlp", learning="none", seed=1)):
        plain, smaller = (
            sent_bytes(job_of(SyncSgd(compression=choice), 4, steps=5, learner=learner))
            for choice in (None, compression)
        )
        factors = 2 * (65 + 64 + 26 + 25)  # 4160 and 650 numbers
        assert smaller / plain == pytest.approx(
            {
                "top-k": 4 * 0.1,
                "power-sgd": factors / 4810,
                "dct-top-k": 4 * (65 + 11) * 8 / 4810,
                "cast": 0.5,
            }[compression.kind],
            rel=1e-3,
        )


@EITHER
@given(seed=SEEDS, stops=st.sets(st.integers(0, 6), max_size=2))
def test_what_is_kept_back_outlives_a_stop(compression: Compression, seed: int, stops: set[int]) -> None:
    job = job_of(SyncSgd(compression=compression), 3, steps=6)
    whole = AnyOrder(job).run()
    parts = run_in_parts(job, sorted(stops), lambda: Shuffled(seed))
    np.testing.assert_array_equal(parts[-1].weights, whole.weights)


@EITHER
def test_a_push_can_be_compressed(compression: Compression) -> None:
    """Only the replies are uncompressed; half of the bytes are pushes, and those shrink to the given ratio."""
    job = job_of(AsyncSgd(), 3, steps=30, learner=build("digits-mlp", seed=1))
    plain, smaller = (sent_bytes(replace(job, method=AsyncSgd(compression=choice))) for choice in (None, compression))
    message = nbytes(compression.compress(Null(4810), begun(compression, Null(4810), job.learner.layout.layers))[0])
    assert plain - smaller == 33 * (4810 * 4 - message)  # three pushes are in flight at the end


@given(order=ORDERS, workers=st.integers(1, 3), steps=st.integers(0, 6))
def test_compressed_pushes_are_applied_as_they_were_sent(order: Shuffled, workers: int, steps: int) -> None:
    """In every order: the server has moved by the pushes that arrived, each of two numbers out of six."""
    method: Any = AsyncSgd
    learner = Told()
    job = job_of(method(learning_rate=Fraction(1), compression=TopK(ratio=0.4)), workers, steps=steps, learner=learner)
    run = AnyOrder(job)
    states = run.run(order).states
    moved = learner.initial() - states[Rank(workers)].weights.vector
    pushed = [entry.op.value for entry in run.log if isinstance(entry.op, Send) and isinstance(entry.op.value, Push)]
    landed = [entry.op.inputs[0] for entry in run.log if isinstance(entry.op, RecordUpdate)]
    assert len(landed) == steps
    assert (moved == sum((push.vector.dense() for push in pushed if push.origin in landed), fractions([0] * 6))).all()
    for push in pushed:
        assert len(push.vector.values) == 2
