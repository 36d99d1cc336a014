"""The declared memory traffic of every formula is what torch reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paceline.algorithms.core import rules
from paceline.algorithms.core.method import build_team
from paceline.algorithms.core.rules import (
    AdamW,
    Chain,
    Clip,
    Lars,
    LayerRates,
    Momentum,
    ScaleByLearningRate,
    Sign,
    WeightDecay,
)
from paceline.algorithms.core.traffic import COMBINE, ELASTIC_PULL, Traffic
from paceline.algorithms.core.values import Contribution, Layer, Layout, Rank
from paceline.algorithms.methods.async_diloco import OuterOptimizer
from paceline.algorithms.methods.elastic import MOVE, SyncEasgd2
from paceline.algorithms.methods.gossip import HALFWAY, halfway
from paceline.algorithms.methods.noloco import PAIR_STEP, NoLoCo, RoundChange
from paceline.algorithms.methods.outer import CHANGE, HEAVY_BALL, NESTEROV, REPLACED, EagerDiLoCo, outer_step
from paceline.algorithms.methods.parameter_server import Backups, DcAsgd, Push, Softsync
from paceline.algorithms.methods.streaming_diloco import MIXED

COUNT = 4096
LAYERS = tuple(Layer(f"layer{n}", n * 1024, (n + 1) * 1024) for n in range(4))
SCALING = ScaleByLearningRate(0.1)


class Counter(TorchDispatchMode):
    """Counts the vectors that operators read and write, in units of `COUNT` float32 numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reads = self.writes = self.allocated = self.in_place = 0.0
        self.kernels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        answer = func(*args, **named)
        if func.is_view or func.overloadpacket.__name__ in ("detach", "_local_scalar_dense"):
            return answer
        out = named.pop("out", None)
        inputs = {id(one): one for one in tree_leaves((args, named)) if isinstance(one, Tensor)}
        read, wrote = sum(map(vectors, inputs.values())), vectors(answer)
        self.kernels += 1
        self.reads += read
        self.writes += wrote
        if out is None:
            self.allocated += wrote if wrote >= 1 else 0
        elif id(out) in inputs:
            self.in_place += wrote
        return answer

    @property
    def traffic(self) -> Traffic:
        figures = self.reads, self.writes, self.kernels, self.allocated, self.in_place
        whole = [round(one) for one in figures]
        assert whole == pytest.approx(figures, abs=0.01)
        return Traffic(*whole)


def vectors(tensor: Any) -> float:
    return tensor.nbytes / (4 * COUNT) if isinstance(tensor, Tensor) and tensor.dim() > 0 else 0.0


def counted(formula: Callable[[], Any]) -> Traffic:
    with Counter() as counter:
        formula()
    found: Traffic = counter.traffic
    return found


def vector(seed: int = 0) -> Tensor:
    return torch.rand(COUNT, generator=torch.Generator().manual_seed(seed)) + 0.5


CHAINS = {
    "plain": Chain((SCALING,)),
    "momentum": Chain((SCALING, Momentum(0.9))),
    "nesterov": Chain((SCALING, Momentum(0.9, nesterov=True))),
    "weight decay": Chain((WeightDecay(1e-4), SCALING)),
    "decay and momentum": Chain((WeightDecay(1e-4), SCALING, Momentum(0.9))),
    "norm clipping": Chain((Clip(0.01), SCALING)),
    "lars": Chain((LayerRates(Lars(), SCALING), SCALING), LAYERS),
    "lars with decay and momentum": Chain((LayerRates(Lars(), SCALING, 1e-4, 0.9), SCALING, Momentum(0.9)), LAYERS),
    "lars of one layer": Chain((LayerRates(Lars(), SCALING), SCALING)),
    "sign": Chain((Sign(), SCALING)),
    "adamw": Chain((AdamW(decay=0.01), SCALING)),
    "adam": Chain((WeightDecay(1e-4), AdamW(), SCALING)),
    "nothing": Chain(()),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("donated", [False, True])
def test_a_chain_moves_what_its_transforms_declare(name: str, donated: bool) -> None:
    chain, x, gradient = CHAINS[name], vector(), vector(1)
    memory = chain.init(x)
    found = counted(lambda: chain.update(x, gradient, memory, out=gradient if donated else None))
    assert found == chain.charge(gradient.nbytes, donated=donated).traffic


@pytest.mark.parametrize("name", CHAINS)
def test_a_step_that_is_not_taken(name: str) -> None:
    chain, x, gradient = CHAINS[name], vector(), vector(1)
    memory = chain.init(x)
    assert counted(lambda: chain.step(x, gradient, memory)) == chain.charge_step(gradient.nbytes).traffic


def test_every_transform_is_counted() -> None:
    used = {type(link) for chain in CHAINS.values() for link in chain.links}
    modules = [rules, *(__import__(one.__module__, fromlist=["x"]) for one in used)]
    known = {
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__ and hasattr(one, "traffic")
    }
    assert known - {rules.Transform, rules.Stateless} == used


@pytest.mark.parametrize("name", CHAINS)
def test_looking_ahead(name: str) -> None:
    chain, x = CHAINS[name], vector()
    memory = chain.init(x)
    assert counted(lambda: chain.look_ahead(x, memory)) == chain.look_ahead_traffic


@pytest.mark.parametrize(("nesterov", "traffic"), [(True, NESTEROV), (False, HEAVY_BALL)])
def test_the_outer_step(nesterov: bool, traffic: Traffic) -> None:
    x, y, z = vector(), vector(1), vector(2)
    assert counted(lambda: outer_step(x, y, z, 0.7, 0.9, nesterov=nesterov)) == traffic
    assert counted(lambda: x - y) == CHANGE


def test_eager_updates_and_mixing() -> None:
    x, y, z = vector(), vector(1), vector(2)
    assert counted(lambda: EagerDiLoCo().with_own(x, y, z, 4)) == REPLACED
    assert counted(lambda: 0.5 * x + (1 - 0.5) * y) == MIXED


def test_elastic_rules_and_averages() -> None:
    x, c = vector(), vector(1)
    assert counted(lambda: x - 0.1 * (x - c)) == ELASTIC_PULL
    method = SyncEasgd2()
    (me,) = build_team(method, [[Rank(0)]], Layout(LAYERS))
    assert counted(lambda: method.moved(me, c, x)) == MOVE
    assert counted(lambda: halfway(x, c)) == HALFWAY


def test_the_outer_step_of_noloco() -> None:
    """Without what `halfway` declares for the peer's two vectors."""
    method, x, y, z = NoLoCo(), vector(), vector(1), vector(3)
    (me, _) = build_team(method, [[Rank(0)], [Rank(1)]], Layout(LAYERS))
    state = replace(method.begin(me, x), velocity=vector(2))
    assert counted(lambda: method.after_pair(state, RoundChange(z, x - y))) == PAIR_STEP


@pytest.mark.parametrize(
    ("kind", "count", "c"),
    [
        ("sgd", 1, 0.0),
        ("heavy-ball", 1, 0.0),
        ("nesterov", 1, 0.0),
        ("delayed-nesterov", 1, 0.5),
        ("delayed-nesterov", 3, 0.0),
        ("delayed-nesterov", 3, 0.25),
    ],
)
def test_outer_optimizers(kind: Any, count: int, c: float) -> None:
    outer, x = OuterOptimizer(kind, 0.7, 0.9, count, c), vector()
    memory = outer.init(x)
    for arrival in range(4):
        change = vector(arrival + 1)
        found = counted(partial(outer.update, x, change, memory))
        assert found == outer.traffic(memory), arrival
        x, memory = outer.update(x, change, memory)


@pytest.mark.parametrize("damping", ["none", "inverse"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_mean_of_a_server(damping: Any, count: int) -> None:
    method, rule = Softsync(damping=damping), Chain((SCALING,))
    pushes = [Push(vector(n), Contribution(Rank(n), 0, 0, 8)) for n in range(count)]
    (me, _) = build_team(method, [[Rank(0)]], Layout(LAYERS))
    state = method.begin(me, vector())
    found = counted(lambda: method.applied(rule, state, pushes))
    assert found == method.traffic(count) + COMBINE


@pytest.mark.parametrize("adaptive", [False, True])
def test_delay_compensation(adaptive: bool) -> None:
    method, rule, x = DcAsgd(adaptive=adaptive), Chain((SCALING,)), vector()
    push = Push(vector(1), Contribution(Rank(0), 0, 0, 8))
    (me, _) = build_team(method, [[Rank(0)]], Layout(LAYERS))
    state = method.begin(me, x)
    state = replace(state, optimizer_state=Backups((vector(2),), vector(3), rule.init(x)))
    assert counted(lambda: method.applied(rule, state, [push])) == method.traffic(1) + COMBINE
