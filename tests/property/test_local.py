"""Post-local SGD between its two limits, and DiLoCo against its parts, in every order of moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.adam import AdamW
from paceline.algorithms.core.lars import Lars
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import AllReduce
from paceline.algorithms.core.rules import Chain, ScaleByLearningRate
from paceline.algorithms.core.values import Layer, Null
from paceline.algorithms.methods.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.methods.local_sgd import DiLoCo, PostLocalSgd
from paceline.algorithms.methods.periodic import KAvg
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, first
from tests.exact import UnlikeBowl, applied, ends
from tests.support import job_of

TENTH: Any = Fraction(1, 10)
WORKERS, PERIODS, STEPS, SEEDS = st.integers(1, 4), st.integers(1, 4), st.integers(1, 8), st.integers(0, 999)


def ended(method: Method, workers: int, steps: int, seed: int | None = None) -> Any:
    """Every worker's weights at the end, exactly."""
    run = AnyOrder(job_of(method, workers, steps=steps, learner=UnlikeBowl()))
    run.run(first if seed is None else Shuffled(seed))
    return ends(run)


@given(seed=SEEDS, workers=WORKERS, period=PERIODS, steps=STEPS)
def test_post_local_sgd_lies_between_its_ends(seed: int, workers: int, period: int, steps: int) -> None:
    """Switched at once it is K-AVG, never switched it is synchronous SGD, exactly."""
    local = PostLocalSgd(switch=0, period=period, learning_rate=TENTH)
    assert (ended(local, workers, steps, seed) == ended(KAvg(k=period, learning_rate=TENTH), workers, steps)).all()
    synchronous = replace(local, switch=steps)
    assert (ended(synchronous, workers, steps, seed) == ended(SyncSgd(learning_rate=TENTH), workers, steps)).all()


@given(seed=SEEDS, switch=st.integers(0, 5), period=PERIODS, steps=STEPS)
def test_averages_are_counted_from_the_switch(seed: int, switch: int, period: int, steps: int) -> None:
    run = AnyOrder(job_of(PostLocalSgd(switch=switch, period=period), 2, steps=steps))
    run.run(Shuffled(seed))
    keys = [entry.op.key for entry in run.log if isinstance(entry.op, AllReduce) and entry.move.rank == 0]
    synchronous = [f"gradient {step}" for step in range(min(switch, steps))]
    assert keys == synchronous + [f"everyone {step}" for step in range(switch + period, steps + 1, period)]


@given(seed=SEEDS, workers=WORKERS, period=PERIODS, steps=STEPS)
def test_without_an_outer_optimiser_diloco_averages_weights(seed: int, workers: int, period: int, steps: int) -> None:
    """Outer rate 1 without momentum, around plain SGD, is K-AVG, exactly."""
    one: Any = Fraction(1)
    plain = DiLoCo(inner="sgd", learning_rate=TENTH, outer_learning_rate=one, outer_momentum=0 * one, period=period)
    assert (ended(plain, workers, steps, seed) == ended(KAvg(k=period, learning_rate=TENTH), workers, steps)).all()


def test_the_outer_optimiser_matters() -> None:
    """Guards the test above: with the source's values the weights are others."""
    options: dict[str, Any] = {"learning_rate": 0.1, "period": 1}
    outer = ended(DiLoCo(inner="sgd", **options), 2, 2).astype(float)
    assert np.abs(outer - ended(KAvg(k=1, learning_rate=0.1), 2, 2).astype(float)).max() > 0.01


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
    theirs = torch.nn.Parameter(torch.tensor(start))
    optimiser = torch.optim.AdamW([theirs], lr=0.01, betas=(beta1, beta2), eps=1e-8, weight_decay=decay)
    rule = Chain((AdamW(beta1, beta2, 1e-8, decay), ScaleByLearningRate(0.01)))
    ours: Any = torch.tensor(start) if kind == "torch" else start
    memory = rule.init(ours)
    for _ in range(20):
        gradient = generator.standard_normal(6).astype(np.float32)
        theirs.grad = torch.tensor(gradient)
        optimiser.step()
        ours, memory = rule.update(ours, torch.tensor(gradient) if kind == "torch" else gradient, memory)
    assert ours.dtype == (torch.float32 if kind == "torch" else np.float32)
    assert np.abs(start - np.asarray(ours)).max() > 0.01
    np.testing.assert_allclose(np.asarray(ours), theirs.detach().numpy(), rtol=0, atol=20 * 2.0**-22)


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
