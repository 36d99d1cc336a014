"""The links of a rule, each alone and chained: against torch.optim.SGD, closed forms and exact arithmetic."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS
from paceline.algorithms.core.compression import PowerSgd, TopK
from paceline.algorithms.core.rules import (
    Chain,
    Clip,
    Lars,
    LayerRates,
    Momentum,
    ScaleByLearningRate,
    StepContext,
    WeightDecay,
)
from paceline.algorithms.core.schedules import Constant, Exponential, LearningRateSchedule, Polynomial, Steps
from paceline.algorithms.core.values import Layer, Null, Rank, norm
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.layerwise import LayerwiseSgd
from paceline.checking.anyorder import AnyOrder
from tests.exact import ExactBowl, fractions
from tests.support import Bowl, job_of

LAYERS = [Layer("first", 0, 2), Layer("second", 2, 5)]
NODES = [[Rank(0)], [Rank(1)]]


def steps_of(rule: Chain, start: Any, gradients: list[Any]) -> list[Any]:
    """The weights after each gradient."""
    vector, memory, seen = start, rule.init(start), []
    for gradient in gradients:
        vector, memory = rule.update(vector, gradient, memory)
        seen.append(vector)
    return seen


# --- against torch ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("nesterov", [False, True])
@given(
    seed=st.integers(0, 999),
    rate=st.floats(1e-3, 0.5),
    momentum=st.floats(0.01, 0.99),
    decay=st.sampled_from([0.0, 5e-4, 0.1]),
)
def test_torch_takes_the_same_steps(
    precision: torch.dtype, tolerance: float, nesterov: bool, seed: int, rate: float, momentum: float, decay: float
) -> None:
    """Relative to the weights, which may grow; torch applies the rate outside its buffer, so the last bits differ."""
    numbers = torch.Generator().manual_seed(seed)
    start = torch.randn(5, generator=numbers, dtype=precision)
    gradients = [torch.randn(5, generator=numbers, dtype=precision) for _ in range(6)]
    weights = torch.nn.Parameter(start.clone())
    torchs = torch.optim.SGD([weights], lr=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    method = SyncSgd(learning_rate=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    for ours, gradient in zip(steps_of(method.rule(LAYERS), start, gradients), gradients, strict=True):
        weights.grad = gradient.clone()
        torchs.step()
        theirs = weights.detach()
        assert float((ours - theirs).abs().max()) <= tolerance * max(1.0, float(theirs.abs().max()))


@pytest.mark.parametrize(("precision", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 3e-6)])
@pytest.mark.parametrize(("optimizer", "torchs"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
@given(
    seed=st.integers(0, 999),
    rate=st.none() | st.floats(1e-4, 0.5),
    betas=st.tuples(st.floats(0.0, 0.99), st.floats(0.0, 0.9999)),
    epsilon=st.sampled_from([1e-8, 1e-3]),
    decay=st.sampled_from([None, 0.0, 5e-4, 0.1]),
    limit=st.none() | st.floats(0.1, 10.0),
    warmup=st.integers(0, 4),
)
def test_adam_is_torchs(
    precision: torch.dtype,
    tolerance: float,
    optimizer: Any,
    torchs: Any,
    seed: int,
    rate: float | None,
    betas: tuple[float, float],
    epsilon: float,
    decay: float | None,
    limit: float | None,
    warmup: int,
) -> None:
    """With clipping, a schedule and decay, and with torch's own defaults of the learning rate and the decay."""
    numbers = torch.Generator().manual_seed(seed)
    start = torch.randn(5, generator=numbers, dtype=precision)
    gradients = [torch.randn(5, generator=numbers, dtype=precision) for _ in range(8)]
    weights = torch.nn.Parameter(start.clone())
    given: dict[str, Any] = {} if rate is None else {"lr": rate}
    chosen = torchs([weights], betas=betas, eps=epsilon, **given, **({} if decay is None else {"weight_decay": decay}))
    own: dict[str, Any] = {} if rate is None else {"learning_rate": rate}
    ramp = Constant(warmup_steps=warmup) if warmup else None
    method = SyncSgd(
        optimizer=optimizer,
        beta1=betas[0],
        beta2=betas[1],
        epsilon=epsilon,
        weight_decay=decay,
        max_grad_norm=limit,
        schedule=ramp,
        **own,
    )
    full = chosen.param_groups[0]["lr"]
    for step, (ours, gradient) in enumerate(
        zip(steps_of(method.rule(LAYERS), start, gradients), gradients, strict=True)
    ):
        length = float(gradient.norm())
        weights.grad = gradient * (limit / length) if limit is not None and length > limit else gradient.clone()
        chosen.param_groups[0]["lr"] = full if step >= warmup else full * step / warmup
        chosen.step()
        theirs = weights.detach()
        assert float((ours - theirs).abs().max()) <= tolerance * max(1.0, float(theirs.abs().max()))


def test_the_defaults_follow_the_optimizer() -> None:
    """A learning rate that is given counts, also if it is the default of SGD; copies keep theirs."""
    plain, adam, adamw = (SyncSgd(optimizer=name) for name in ("sgd", "adam", "adamw"))
    assert [(one.learning_rate, one.decay) for one in (plain, adam, adamw)] == [(0.1, 0.0), (0.001, 0.0), (0.001, 0.01)]
    assert SyncSgd(optimizer="adamw", learning_rate=0.1).learning_rate == 0.1
    assert replace(adamw, beta1=0.5).learning_rate == 0.001
    assert pickle.loads(pickle.dumps(adamw)) == adamw
    method: Any = METHODS["slowmo"]
    assert (method().learning_rate, method(inner="adamw").learning_rate) == (0.1, 0.001)
    diloco: Any = METHODS["diloco"]
    assert [diloco(optimizer=one).rule([]) for one in (None, "adamw", "sgd")] == [
        diloco(inner=one).rule([]) for one in ("adamw", "adamw", "sgd")
    ]


def test_nesterov_is_not_heavy_ball() -> None:
    start, gradients = np.zeros(2), [np.ones(2)] * 2
    heavy, nesterov = (
        steps_of(SyncSgd(momentum=0.5, nesterov=choice, learning_rate=1.0).rule([]), start, gradients)[-1][0]
        for choice in (False, True)
    )
    assert (heavy, nesterov) == (-2.5, -3.25)  # −1 − 1.5; −1.5 − (1 + 0.75)


def test_clipping_is_torchs() -> None:
    gradient = torch.tensor([3.0, 0.0, 4.0], dtype=torch.float64)
    theirs = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    theirs.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_([theirs], 0.5)
    ours, _ = Clip(0.5).update(gradient, None, StepContext(gradient, 0))
    torch.testing.assert_close(ours, theirs.grad, rtol=1e-6, atol=0)  # torch divides by the norm plus 1e-6
    assert norm(ours) == pytest.approx(0.5, rel=1e-15)


def test_what_is_short_enough_is_not_clipped() -> None:
    gradient = np.array([0.3, 0.4])
    assert Clip(0.5).update(gradient, None, StepContext(gradient, 0))[0] is gradient


# --- the chain -------------------------------------------------------------------------------------------------------


def test_the_order_is_that_of_lars_with_momentum() -> None:
    lars, ramp = Lars(), Polynomial(total_steps=10)
    method = SyncSgd(learning_rate=2.0, max_grad_norm=1.0, weight_decay=0.1, momentum=0.9, nesterov=True, schedule=ramp)
    scale = ScaleByLearningRate(2.0, ramp)
    assert method.rule(LAYERS).links == (Clip(1.0), WeightDecay(0.1), scale, Momentum(0.9, nesterov=True))
    assert replace(method, lars=lars).rule(LAYERS).links == (
        Clip(1.0),
        LayerRates(lars, scale, decay=0.1, momentum=0.9),
        scale,
        Momentum(0.9, nesterov=True),
    )
    assert SyncSgd().rule(LAYERS).links == (ScaleByLearningRate(0.1),)


def test_the_chain_by_hand() -> None:
    """v = m v + γ_t λ (clipped g + β w), w ← w − v, for both layers, two steps, with LARS's own norms."""
    weights, gradient = np.array([3.0, 4.0, 0.0, 0.0, 1.0]), np.array([6.0, 0.0, 0.0, 8.0, 0.0])
    method = SyncSgd(
        learning_rate=10.0,
        momentum=0.5,
        weight_decay=0.1,
        max_grad_norm=5.0,
        lars=Lars(trust_coefficient=0.01),
        schedule=Polynomial(total_steps=4),
    )
    seen = steps_of(method.rule(LAYERS), weights, [gradient, gradient])
    expected, velocity = weights, np.zeros(5)
    for rate in (10.0, 10 * (3 / 4) ** 2):
        clipped, moves = gradient / 2, []
        for layer in LAYERS:
            w, g = expected[layer.part], clipped[layer.part]
            ratio = 0.01 * np.linalg.norm(w) / (np.linalg.norm(g) + 0.1 * np.linalg.norm(w))
            moves.append(rate * ratio * (g + 0.1 * w))
        velocity = 0.5 * velocity + np.concatenate(moves)
        expected = expected - velocity
        np.testing.assert_allclose(seen.pop(0), expected, rtol=1e-14)


def test_decay_and_velocity_are_exact_in_fractions() -> None:
    method: Any = SyncSgd
    job = job_of(
        method(learning_rate=Fraction(1, 10), momentum=Fraction(1, 2), nesterov=True, weight_decay=Fraction(1, 3)),
        steps=3,
        learner=ExactBowl(),
    )
    ends = [state.weights.vector for state in AnyOrder(job).run().states.values()]
    assert {type(number) for number in ends[0]} == {Fraction}


def test_a_vector_without_numbers_goes_through_every_link() -> None:
    method = SyncSgd(
        momentum=0.9, nesterov=True, weight_decay=0.1, max_grad_norm=1.0, lars=Lars(), schedule=Constant(warmup_steps=2)
    )
    (after,) = steps_of(method.rule([Layer("only", 0, 7)]), Null(7), [Null(7)])
    assert after == Null(7)


def test_norms() -> None:
    assert norm(fractions([3, 4])) == norm(torch.tensor([3.0, 4.0])) == norm(np.array([3.0, 4.0])) == 5.0
    assert norm(Null(9)) == 0.0
    assert norm(np.full(4, 1e30, dtype=np.float32)) == pytest.approx(2e30, rel=1e-6)  # its square is no float32


# --- schedules -------------------------------------------------------------------------------------------------------


@given(base=st.floats(1e-4, 40), total=st.integers(1, 10_000), power=st.floats(0.1, 4), data=st.data())
def test_polynomial(base: float, total: int, power: float, data: st.DataObject) -> None:
    law = Polynomial(total_steps=total, power=power)
    step = data.draw(st.integers(0, total))
    assert law.learning_rate(base, step) == pytest.approx(base * (1 - step / total) ** power)
    assert law.learning_rate(base, 0) == base
    assert law.learning_rate(base, total) == law.learning_rate(base, total + 1) == 0.0


@pytest.mark.parametrize(
    "law", [Constant(), Polynomial(total_steps=5000), Steps(milestones=(7, 900)), Exponential(gamma=0.99)]
)
@given(base=st.floats(1e-3, 40), start=st.floats(0, 40), length=st.integers(1, 500))
def test_a_ramp_is_linear_and_the_law_goes_on_as_if_there_had_been_none(
    law: LearningRateSchedule, base: float, start: float, length: int
) -> None:
    ramp = replace(law, warmup_steps=length, warmup_start=start)
    rates = [ramp.learning_rate(base, step) for step in range(length)]
    assert rates[0] == pytest.approx(start, abs=1e-12)
    np.testing.assert_allclose(rates, np.linspace(start, base, length + 1)[:-1], atol=1e-12)
    assert [ramp.learning_rate(base, step) for step in (length, 1000)] == [
        law.learning_rate(base, step) for step in (length, 1000)
    ]


def test_steps_and_exponential() -> None:
    steps = Steps(milestones=(2, 4), gamma=0.5)
    assert [steps.learning_rate(8.0, step) for step in range(6)] == [8, 8, 4, 4, 2, 2]
    assert Exponential(gamma=0.5).learning_rate(8.0, 3) == 1.0
    assert Exponential().learning_rate(0.02, 1000) == pytest.approx(0.02 * 0.999964**1000)  # the rate of its source


def test_a_step_is_an_update_of_this_rule() -> None:
    """A server's rule counts all pushes from all workers; a worker's counts its own steps."""
    sync: Any = METHODS["sync-sgd"]
    server: Any = METHODS["async-sgd"]
    for method, rank in ((sync, Rank(1)), (server, Rank(2))):
        job = job_of(method(schedule=Polynomial(total_steps=4)), 2, steps=6)
        assert AnyOrder(job).run().states[rank].optimizer_state.number == 6
    one = steps_of(
        SyncSgd(learning_rate=1.0, schedule=Steps(milestones=(1,), gamma=0.5)).rule([]), np.zeros(1), [np.ones(1)] * 3
    )
    assert [float(vector[0]) for vector in one] == [-1.0, -1.5, -2.0]


@dataclass(frozen=True)
class Slope(Bowl):
    """Every gradient is 1, wherever it is computed."""

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return np.ones_like(vector), 1.0


@pytest.mark.parametrize(
    ("name", "options", "workers", "each"),
    [
        ("async-sgd", {}, 3, Fraction(1, 3)),
        ("async-sgd", {"accumulate": 4}, 3, Fraction(1, 3)),
        ("dc-asgd", {}, 2, Fraction(1, 2)),
        ("softsync", {"n": 1, "damping": "none"}, 3, Fraction(1)),
        ("k-batch-async", {"k": 2}, 4, Fraction(1, 2)),
        ("ssp", {}, 3, Fraction(1, 3)),
        ("ssp", {"visibility": "clock-edge"}, 3, Fraction(1)),
        ("dbs-sgd", {}, 4, Fraction(1, 4)),
        ("sync-sgd-ps", {}, 3, Fraction(1)),
        ("backup-workers", {}, 4, Fraction(1)),
        ("sync-sgd", {}, 3, Fraction(1)),
        ("sync-sgd", {"accumulate": 4}, 3, Fraction(1)),
        ("layerwise-sgd", {"bucket": None}, 3, Fraction(1)),
        ("k-avg", {"k": 2}, 3, Fraction(1)),
        ("hogwild-sgd", {}, 1, Fraction(1)),
    ],
)
def test_a_schedule_can_count_global_steps(name: str, options: Any, workers: int, each: Fraction) -> None:
    """With gradients of 1, update u takes η f^(u s), where s is the part of a step of all workers in an update."""
    method: Any = METHODS[name]
    nodes = [[Rank(rank) for rank in range(workers)]]
    for counts, share in (("global-steps", float(each)), ("updates", 1.0)):
        law = Exponential(gamma=0.9, counts=counts)  # type: ignore[arg-type]
        made = method(learning_rate=0.5, schedule=law, **options)
        job = job_of(made, steps=12, nodes=nodes, learner=Slope())
        state = AnyOrder(job).run().states[job.weights_owner]
        moved = Slope().initial() - state.weights.vector
        np.testing.assert_allclose(moved, sum(0.5 * 0.9 ** (update * share) for update in range(12)), rtol=1e-12)


def test_rounds_and_sums_count_all_their_steps() -> None:
    """A push of downpour has the gradients of four steps, and a round of acco those of 2 A steps."""
    downpour: Any = METHODS["downpour"]
    job = job_of(downpour(schedule=Exponential(gamma=0.9, counts="global-steps")), 2, steps=6, learner=Slope())
    state = AnyOrder(job).run().states[job.weights_owner]
    moved = Slope().initial() - state.weights.vector
    np.testing.assert_allclose(moved, sum(4 * 0.1 * 0.9 ** (update * 4 / 2) for update in range(6)), rtol=1e-12)
    acco: Any = METHODS["acco"]
    made = acco(accumulate=2, schedule=Exponential(gamma=0.9, counts="global-steps"))
    state = AnyOrder(job_of(made, 2, steps=15, learner=Slope())).run().states[Rank(0)]
    rounds = state.weights.version
    moved = Slope().initial() - state.weights.vector
    assert rounds == 3
    np.testing.assert_allclose(moved, sum(0.1 * 0.9 ** (4 * number) for number in range(rounds)), rtol=1e-12)


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"schedule": Polynomial()}, "schedule.total_steps: found 0, expected a whole number of 1 or more"),
        ({"schedule": Polynomial(total_steps=9, power=0.0)}, "schedule.power: found 0.0, expected a number above 0"),
        (
            {"schedule": Constant(warmup_steps=-1)},
            "schedule.warmup_steps: found -1, expected a whole number of 0 or more",
        ),
        (
            {"schedule": Constant(warmup_start=-0.1)},
            "schedule.warmup_start: found -0.1, expected a number of 0 or more",
        ),
        (
            {"schedule": Steps(milestones=(3, 3))},
            "schedule.milestones: found (3, 3), expected whole numbers of 1 or more, each above",
        ),
        ({"schedule": Steps()}, "schedule.milestones: found (), expected whole numbers of 1 or more, each above"),
        ({"schedule": Exponential(gamma=1.5)}, "schedule.gamma: found 1.5, expected a number above 0, up to 1"),
        ({"lars": Lars(trust_coefficient=0.0)}, "lars.trust_coefficient: found 0.0, expected a number above 0"),
        ({"lars": Lars(epsilon=-1.0)}, "lars.epsilon: found -1.0, expected a number of 0 or more"),
        ({"max_grad_norm": 0.0}, "max_grad_norm: found 0.0, expected a number above 0"),
        ({"weight_decay": -1.0}, "weight_decay: found -1.0, expected a number of 0 or more"),
        ({"nesterov": True}, "nesterov: found true with a momentum of 0, expected a momentum above 0"),
        ({"optimizer": "adamw", "momentum": 0.9}, "momentum: found 0.9, expected 0 with optimizer = adamw"),
        ({"optimizer": "adam", "nesterov": True}, "nesterov: found true, expected false with optimizer = adam"),
        ({"optimizer": "adam", "lars": Lars()}, "lars: found it, expected null with optimizer = adam"),
        ({"optimizer": "adamw", "beta1": 1.0}, "beta1: found 1.0, expected a number from 0 to below 1"),
        ({"optimizer": "adamw", "epsilon": 0.0}, "epsilon: found 0.0, expected a number above 0"),
        ({"beta2": 0.95}, "beta2: found 0.95 without adam or adamw, expected 0.999, its default"),
        ({"compression": TopK(ratio=0.0)}, "compression.ratio: found 0.0, expected a number above 0, up to 1"),
        ({"compression": PowerSgd(rank=0)}, "compression.rank: found 0, expected a whole number of 1 or more"),
    ],
)
def test_a_wrong_value_is_told_where_it_stands(wrong: dict[str, Any], told: str) -> None:
    (problem,) = SyncSgd(**wrong).problems(NODES)
    assert problem.startswith(told)


def test_what_is_right_is_not_complained_of() -> None:
    method = SyncSgd(
        momentum=0.9,
        nesterov=True,
        weight_decay=5e-4,
        max_grad_norm=1.0,
        lars=Lars(),
        schedule=Polynomial(total_steps=100, warmup_steps=10),
        compression=TopK(),
    )
    assert not method.problems(NODES)


def test_a_method_that_applies_layer_by_layer_cannot_clip() -> None:
    (problem,) = LayerwiseSgd(max_grad_norm=1.0).problems(NODES)
    assert problem.startswith("max_grad_norm: found 1.0, expected null")
