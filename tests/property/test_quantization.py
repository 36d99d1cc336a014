"""Vectors of small floats: their size, their error, and the same bits from NumPy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paceline.algorithms.core.quantization import FORMATS, Quantization
from paceline.algorithms.core.values import Null

FORMAT = pytest.mark.parametrize("name", list(FORMATS))
BLOCKS = st.integers(1, 9)


def vectors(dtype: Any) -> st.SearchStrategy[Any]:
    small = st.floats(-1e6, 1e6, width=32, allow_subnormal=False).map(lambda one: 0.0 if abs(one) < 1e-20 else one)
    return arrays(dtype, st.integers(1, 40), elements=small)


def opened(kind: Quantization, vector: Any) -> Any:
    return kind.dequantized(kind.quantized(vector), vector)


@FORMAT
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data(), block=BLOCKS)
def test_the_error_is_half_a_step_at_most(name: Any, dtype: Any, data: Any, block: int) -> None:
    """Half the distance of the neighbouring magnitudes, in units of the block's scale; and the float32 of the scale."""
    kind, vector = Quantization(format=name, block=block), data.draw(vectors(dtype))
    found = opened(kind, vector)
    assert found.dtype == vector.dtype
    levels = np.array(FORMATS[name].magnitudes())
    for at in range(0, len(vector), block):
        x, y = vector[at : at + block].astype(float), found[at : at + block].astype(float)
        scale = abs(x).max() / levels[-1]
        if scale == 0:
            assert (y == 0).all()
            continue
        above = np.searchsorted(levels, abs(x) / scale, side="left").clip(1, len(levels) - 1)
        half = (levels[above] - levels[above - 1]) / 2 * scale
        assert (abs(x - y) <= half + 4 * 2.0**-24 * abs(x).max()).all()
        assert (np.sign(y) * np.sign(x) >= 0).all()


@FORMAT
def test_every_magnitude_is_kept(name: Any) -> None:
    """A vector of the format's own numbers comes back bit for bit, with both signs."""
    levels = np.array(FORMATS[name].magnitudes(), dtype=np.float32)
    vector = np.concatenate([levels, -levels])
    assert (opened(Quantization(format=name), vector) == vector).all()


@given(data=st.data(), block=BLOCKS)
def test_e3m0_is_within_a_third_or_a_hundred_and_twenty_eighth(data: Any, block: int) -> None:
    """Powers of two from the largest magnitude M down to M / 64, and 0."""
    vector = data.draw(vectors(np.float64))
    found = opened(Quantization(block=block), vector)
    for at in range(0, len(vector), block):
        x, y = vector[at : at + block], found[at : at + block]
        largest = abs(x).max()
        assert (abs(x - y) <= np.maximum(abs(x) / 3, largest / 128) * (1 + 1e-6)).all()


@FORMAT
@given(data=st.data(), block=BLOCKS)
def test_torch_has_numpys_bits(name: Any, data: Any, block: int) -> None:
    kind, vector = Quantization(format=name, block=block), data.draw(vectors(np.float32))
    message, tensor = kind.quantized(vector), kind.quantized(torch.tensor(vector))
    assert tensor.dtype == torch.uint8
    assert (message == tensor.numpy()).all()
    back = kind.dequantized(tensor, torch.tensor(vector))
    assert (kind.dequantized(message, vector) == back.numpy()).all()


@FORMAT
@given(count=st.integers(1, 2000), block=st.integers(1, 300))
def test_bytes_are_those_of_the_message(name: Any, count: int, block: int) -> None:
    """A run that only simulates time counts the bytes of one with numbers."""
    kind = Quantization(format=name, block=block)
    message = kind.quantized(np.ones(count, dtype=np.float32))
    expected = 4 * -(-count // block) + (count if name == "e4m3" else -(-count // 2))
    assert message.nbytes == kind.quantized(Null(count)).nbytes == kind.message_bytes(count) == expected
    assert kind.dequantized(kind.quantized(Null(count)), Null(count)) == Null(count)


@FORMAT
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_divergence_is_not_hidden(name: Any, bad: float) -> None:
    """A block with a number that is not finite has none that is."""
    vector = np.array([1.0, bad, 2.0, 3.0], dtype=np.float32)
    with np.errstate(invalid="ignore"):
        found = opened(Quantization(format=name, block=3), vector)
    assert not np.isfinite(found[1])
    assert found[3] == 3
