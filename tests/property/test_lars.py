"""LARS (numbers as in docs/invariants.md), its published settings, and an independent implementation of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_optimizer import LARS

from paceline.algorithms.core.rules import Lars
from paceline.algorithms.core.schedules import Polynomial
from paceline.algorithms.core.values import Layer, norm
from paceline.algorithms.methods.baseline import SyncSgd
from tests.support import Vector

SEEDS = st.integers(0, 9999)
RATES = st.floats(1e-3, 30)
TRUSTS = st.floats(1e-4, 0.1)
SCALES = st.floats(1e-6, 1e6)
NODES = st.lists(st.integers(1, 3), min_size=2, max_size=3)


def layers_of(shapes: list[tuple[int, int]]) -> list[Layer]:
    ends = np.cumsum([rows * columns for rows, columns in shapes]).tolist()
    return [Layer(str(stop), start, stop) for start, stop in zip([0, *ends], ends, strict=False)]


def numbers(seed: int, count: int, scale: float = 1.0) -> Vector:
    return scale * np.random.default_rng(seed).standard_normal(count)


def first_step(method: SyncSgd, weights: Any, gradient: Any, layers: list[Layer]) -> Any:
    """What is added to the weights."""
    rule = method.rule(layers)
    return rule.update(weights, gradient, rule.init(weights))[0] - weights


# --- against another implementation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
@given(
    seed=SEEDS,
    shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    rate=RATES,
    trust=TRUSTS,
    momentum=st.floats(0.01, 0.95),
    decay=st.sampled_from([0.0, 1e-4, 5e-4, 0.1]),
    scale=SCALES,
)
def test_pytorch_optimizers_lars_takes_the_same_steps(
    array: Callable[[Any], Any],
    nesterov: bool,
    seed: int,
    shapes: list[tuple[int, int]],
    rate: float,
    trust: float,
    momentum: float,
    decay: float,
    scale: float,
) -> None:
    """Theirs is ours with decay in the ratio, policy scale, not damped, ε = 0 and a constant rate, for matrices.

    They use plain SGD for scalars and vectors; and where only the gradient is 0 and there is decay, their ratio is the
    formula's, ours that of `zero_norm`. Neither occurs here. In float64, hence far below the requested 1e-6.
    """
    layers = layers_of(shapes)
    count = layers[-1].stop
    method = SyncSgd(
        learning_rate=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay, lars=Lars(trust_coefficient=trust)
    )
    rule, vector = method.rule(layers), array(numbers(seed, count))
    memory = rule.init(vector)
    parameters = [
        torch.nn.Parameter(torch.tensor(np.asarray(vector[layer.part])).reshape(shape))
        for layer, shape in zip(layers, shapes, strict=True)
    ]
    optimizer = LARS(
        parameters, lr=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay, trust_coefficient=trust
    )
    for step in range(1, 5):
        gradient = array(numbers(seed + step, count, scale))
        vector, memory = rule.update(vector, gradient, memory)
        for parameter, layer in zip(parameters, layers, strict=True):
            parameter.grad = torch.tensor(np.asarray(gradient[layer.part])).reshape(parameter.shape)
        optimizer.step()
        flat = np.concatenate([parameter.detach().numpy().reshape(-1) for parameter in parameters])
        np.testing.assert_allclose(np.asarray(vector), flat, rtol=1e-9, atol=1e-9 * float(np.abs(flat).max()))


# --- invariants ------------------------------------------------------------------------------------------------------


@given(seed=SEEDS, rate=RATES, trust=TRUSTS, scale=SCALES)
def test_the_size_of_the_gradient_does_not_matter(seed: int, rate: float, trust: float, scale: float) -> None:
    """Number 48: without decay, in the first step."""
    weights, gradient = numbers(seed, 6), numbers(seed + 1, 6)
    method = SyncSgd(learning_rate=rate, momentum=0.9, lars=Lars(trust_coefficient=trust))
    layers = layers_of([(1, 2), (2, 2)])
    moved = first_step(method, weights, gradient, layers)
    again = first_step(method, weights, scale * gradient, layers)
    np.testing.assert_allclose(again, moved, rtol=1e-6, atol=1e-12 * norm(weights))
    assert norm(moved) > 0


@given(seed=SEEDS, rate=RATES, trust=TRUSTS, scale=SCALES, decay=st.sampled_from([0.0, 5e-4, 0.1]))
def test_the_step_scales_with_the_weights_and_is_in_proportion_to_them(
    seed: int, rate: float, trust: float, scale: float, decay: float
) -> None:
    """Number 49, for each layer: (w, g) → (s w, s g) gives s Δw; in the first step ‖Δw‖ ≤ γ η ‖w‖."""
    weights, gradient = numbers(seed, 6), numbers(seed + 1, 6)
    method = SyncSgd(learning_rate=rate, weight_decay=decay, lars=Lars(trust_coefficient=trust))
    layers = layers_of([(1, 2), (2, 2)])
    rule = method.rule(layers)
    moved = first_step(method, weights, gradient, layers)
    scaled, _ = rule.update(scale * weights, scale * gradient, rule.init(weights))
    np.testing.assert_allclose(scaled, scale * (weights + moved), rtol=1e-9, atol=1e-9 * scale * norm(weights))
    for part in (layer.part for layer in layers):
        assert norm(moved[part]) <= rate * trust * norm(weights[part]) * (1 + 1e-6) + 1e-12


def test_the_bound_needs_the_decay_in_the_ratio() -> None:
    """Number 49 breaks without it, as it does in NVIDIA/caffe 0.17."""
    weights = gradient = np.array([3.0, 4.0])
    for inside, holds in ((True, True), (False, False)):
        method = SyncSgd(learning_rate=1.0, weight_decay=0.5, lars=Lars(trust_coefficient=0.1, decay_in_ratio=inside))
        moved = norm(first_step(method, weights, gradient, []))
        assert (moved <= 0.1 * norm(weights) + 1e-12) == holds


@given(seed=SEEDS, rate=RATES, trust=TRUSTS)
def test_with_equal_norms_it_is_sgd_with_a_smaller_rate(seed: int, rate: float, trust: float) -> None:
    """Number 50: one layer, neither momentum nor decay, ‖w‖ = ‖g‖: the rate is γ η."""
    weights = numbers(seed, 5)
    gradient = numbers(seed + 1, 5)
    gradient = gradient * (norm(weights) / norm(gradient))
    moved = first_step(
        SyncSgd(learning_rate=rate, lars=Lars(trust_coefficient=trust)), weights, gradient, layers_of([(1, 5)])
    )
    plain = first_step(SyncSgd(learning_rate=rate * trust), weights, gradient, [])
    np.testing.assert_allclose(moved, plain, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("policy", "ratio"), [("full", 1.0), ("trust", 0.001), ("skip", 0.0)])
@pytest.mark.parametrize("zero", ["weights", "gradient", "both"])
@given(seed=SEEDS, decay=st.sampled_from([0.0, 0.1]))
def test_a_norm_of_zero_gives_the_ratio_that_was_chosen(
    policy: Literal["full", "trust", "skip"], ratio: float, zero: str, seed: int, decay: float
) -> None:
    """Number 51: no NaN, and the other layer is not affected."""
    weights, gradient = numbers(seed, 4), numbers(seed + 1, 4)
    if zero in ("weights", "both"):
        weights[:2] = 0
    if zero in ("gradient", "both"):
        gradient[:2] = 0
    method = SyncSgd(learning_rate=0.5, weight_decay=decay, lars=Lars(zero_norm=policy))
    layers = layers_of([(1, 2), (1, 2)])
    moved = first_step(method, weights, gradient, layers)
    np.testing.assert_allclose(moved[:2], -0.5 * ratio * (gradient + decay * weights)[:2], rtol=1e-9, atol=1e-15)
    alone = first_step(method, weights[2:], gradient[2:], [])
    np.testing.assert_array_equal(moved[2:], alone)


# --- what is published -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "start", "ramp", "total"),
    [
        pytest.param(10.0, 1.0, 600, 15_600, id="AlexNet-BN, 8K"),
        pytest.param(24.0, 1.0, 400, 7_800, id="AlexNet-BN, 16K"),
        pytest.param(32.0, 1.0, 400, 4_000, id="AlexNet-BN, 32K"),
        pytest.param(2.0, 0.0, 0, 125_000, id="AlexNet, 1K"),
        pytest.param(10.0, 1.0, 1_250, 31_300, id="AlexNet, 4K"),
        pytest.param(10.0, 1.0, 600, 15_600, id="AlexNet, 8K"),
        pytest.param(16.0, 1.0, 400, 7_800, id="AlexNet, 16K"),
        pytest.param(0.2, 0.001, 10_000, 500_000, id="ResNet-50, 256"),
        pytest.param(4.0, 0.0, 0, 250_000, id="ResNet-50, 512"),
        pytest.param(9.0, 1.0, 10_000, 125_000, id="ResNet-50, 1K"),
    ],
)
def test_the_solver_settings_of_its_authors_can_be_written(base: float, start: float, ramp: int, total: int) -> None:
    """Rate, ramp and polynomial of power 2, which is the default, from their solver files."""
    law = Polynomial(total_steps=total, warmup_steps=ramp, warmup_start=start)
    assert law.learning_rate(base, 0) == (start if ramp else base)
    assert law.learning_rate(base, ramp) == pytest.approx(base * (1 - ramp / total) ** 2)
    assert law.learning_rate(base, total) == 0.0


def test_what_the_codes_differ_in() -> None:
    """w = 10, g = 2, β = 0.1, μ = 0.9: each by hand."""
    assert Lars().trust_coefficient == 0.001  # of NVIDIA/caffe's proto
    published = Lars().ratio(10.0, 2.0, decay=0.1, momentum=0.9)
    first = Lars(decay_in_ratio=False).ratio(10.0, 2.0, decay=0.1, momentum=0.9)
    damped = Lars(decay_in_ratio=False, damped=True).ratio(10.0, 2.0, decay=0.1, momentum=0.9)
    guarded = Lars(epsilon=1.0).ratio(10.0, 2.0, decay=0.1)
    assert [published, first, damped, guarded] == pytest.approx([0.01 / 3, 0.005, 0.0005, 0.0025])
    clip = Lars(policy="clip")
    assert [rate * clip.share(0.005, rate) for rate in (0.0, 0.001, 0.1)] == pytest.approx([0.0, 0.001, 0.005])
