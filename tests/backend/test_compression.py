"""Compressed averages in real runs: the same values and the same saving in bytes as in other interpreters."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from paceline.algorithms.core.compression import Cast, Compression, PowerSgd, TopK
from paceline.algorithms.core.dct_top_k import DctTopK
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.quantization import Quantization
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.decoupled_momentum import SparseLoCo
from paceline.algorithms.methods.layerwise import LayerwiseSgd
from paceline.algorithms.methods.parameter_server import SyncSgdPs
from paceline.algorithms.methods.streaming_diloco import StreamingDiLoCo
from paceline.checking.anyorder import AnyOrder
from paceline.records.tables import assemble
from paceline.records.trace import Trace
from paceline.workloads import build
from paceline.workloads.choices import Precision
from paceline.workloads.models.threads import torch_threads
from tests.backend.jobs import job_with, plain, run_for_real
from tests.thorough import sampled

pytestmark = pytest.mark.backend

STEPS = 8


def sent_bytes(trace: Trace) -> int:
    return int(assemble(trace, num_samples=1437).spans["bytes"].sum())


@pytest.mark.parametrize("precision", sampled(["float32", "float64"], ["float32"]))
@pytest.mark.parametrize(
    ("compression", "left"),
    [
        pytest.param(TopK(ratio=0.05), 4 * 0.05, id="top-k"),  # P · share
        pytest.param(DctTopK(chunk=8, k=8), 4 * (65 + 11) * 8 / 4810, id="dct-top-k"),  # P · share of the tiles
        pytest.param(PowerSgd(rank=2), 2 * (65 + 64 + 26 + 25) / 4810, id="power-sgd"),  # of 4160 and 650 numbers
    ],
)
def test_the_same_weights_for_fewer_bytes(compression: Compression, left: float, precision: Precision) -> None:
    """Positions travel as floats through gloo, bit by bit.

    Top-k, of numbers or coefficients, adds in rank order, so its weights are equal bit for bit. The two sums of
    PowerSGD are gloo's, which adds in another order: one rounding of each is allowed, 16 in total (1.8 were seen;
    without compression 0.7).
    """
    learner = build("digits-mlp", seed=3, dtype=precision)
    job = job_with(SyncSgd(compression=compression), learner, steps=STEPS)
    with torch_threads(1):
        expected = plain(AnyOrder(job).run().weights)
    real = run_for_real(job)
    rounding = 0.0 if isinstance(compression, TopK | DctTopK) else 2 * STEPS * float(np.finfo(precision).eps)
    np.testing.assert_allclose(plain(real.weights), expected, rtol=0, atol=rounding * np.abs(expected).max())
    for state in real.states.values():
        np.testing.assert_array_equal(plain(state.weights.vector), plain(real.weights))
    whole = STEPS * 2 * 3 * 4810 * np.dtype(precision).itemsize
    assert sent_bytes(real) / whole == pytest.approx(left, rel=5e-3)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("kind", sampled([SyncSgd, LayerwiseSgd, SyncSgdPs], [LayerwiseSgd]))
def test_short_numbers_are_the_same_bits(kind: Any, dtype: Any) -> None:
    """Of two workers, whose sum does not depend on the order of gloo; half of the bytes of gradients are sent."""
    jobs = [
        Job.of(
            kind(compression=choice),
            [[Rank(0)], [Rank(1)]],
            build("digits-mlp", seed=3),
            batch=16,
            budget=Budget(samples=STEPS * 32),
        )
        for choice in (Cast(dtype=dtype), None)
    ]
    with torch_threads(1):
        expected = plain(AnyOrder(jobs[0]).run().weights)
    short, long = (run_for_real(job) for job in jobs)
    np.testing.assert_array_equal(plain(short.weights), expected)
    assert np.abs(plain(long.weights) - expected).max() > 0, "nothing was rounded"
    whole = {SyncSgdPs: 3 / 4}.get(kind, 1 / 2)  # the weights that a server sends are whole
    assert sent_bytes(short) / sent_bytes(long) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("name", sampled(["e3m0", "e4m3"], ["e3m0"]))
def test_quantised_fragments_are_the_same_bits(name: Literal["e3m0", "e4m3"]) -> None:
    """Bytes travel through gloo as they are, and are summed in rank order, so all weights are equal bit for bit."""
    kind = Quantization(format=name)
    method = StreamingDiLoCo(inner="sgd", learning_rate=0.1, period=2, quantization=kind)
    job = job_with(method, build("digits-mlp", seed=3), steps=STEPS)
    with torch_threads(1):
        expected = AnyOrder(job).run()
    real = run_for_real(job)
    for rank, state in real.states.items():
        np.testing.assert_array_equal(plain(state.weights.vector), plain(expected.states[rank].weights.vector))
        np.testing.assert_array_equal(plain(state.start), plain(expected.states[rank].start))
    layers = [layer.stop - layer.start for layer in job.learner.layout.layers]
    assert len(layers) == 2, "each is a fragment"
    workers = job.workers
    assert sent_bytes(real) == STEPS // 2 * workers * (workers - 1) * sum(map(kind.message_bytes, layers))


@pytest.mark.parametrize("bits", sampled([2, 4, None], [2]))
def test_sparse_chunks_are_the_same_bits(bits: Literal[2, 4] | None) -> None:
    """Positions of 12 bits and classes of 2 travel as bytes, and are summed in rank order; so is what was kept."""
    method = SparseLoCo(inner="sgd", learning_rate=0.1, period=2, chunk=1000, k=50, bits=bits)
    job = job_with(method, build("digits-mlp", seed=3), steps=STEPS)
    with torch_threads(1):
        expected = AnyOrder(job).run()
    real = run_for_real(job)
    for rank, state in real.states.items():
        np.testing.assert_array_equal(plain(state.weights.vector), plain(expected.states[rank].weights.vector))
        np.testing.assert_array_equal(plain(state.residual.vector), plain(expected.states[rank].residual.vector))
    sent = [4 * 50 + 8, 32]  # of 4160 and of 650 numbers: 50 of each whole chunk, 5 % of the rest
    size = sum(sent) * 8 if bits is None else sum(sent) * (12 + bits) // 8 + 2 * 2**bits * 4
    workers = job.workers
    assert sent_bytes(real) == STEPS // 2 * workers * (workers - 1) * size
