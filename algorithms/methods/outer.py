"""Rounds of local steps that end with the step of an outer optimizer: what `diloco` and its relatives share.

Rules of this file:

* The outer optimizer exists once, as `outer_step`. Its gradient is the change of a round: the weights at the start of
  the round minus those at its end.
* A method states the memory traffic of its outer step as a sum of the constants below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.adam import AdamW
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.option_groups import FRACTION, POSITIVE, Range
from paceline.algorithms.core.rules import Chain, Clip, ScaleByLearningRate, Transform
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Layer, Rank, Weights

ADAMW_DECAY = 0.01
"""AdamW's weight decay if a scenario gives none; provenance: torch.optim.AdamW's default"""
CHANGE = COMBINE
"""memory traffic of a round's change"""
HEAVY_BALL = 2 * (SCALE + COMBINE)
"""memory traffic of `outer_step` without Nesterov's term"""
NESTEROV = HEAVY_BALL + SCALE + COMBINE
"""memory traffic of `outer_step` with Nesterov's term"""


def outer_step(
    start: Any, velocity: Any, change: Any, learning_rate: float, momentum: float, *, nesterov: bool = True
) -> tuple[Any, Any]:
    """Takes a step of the outer optimizer, in the form of torch.optim.SGD.

    V ← M V + Δ;  x ← x − R (Δ + M V), or x − R V without Nesterov's term

    Args:
        start: x, the weights at the start of the round, or a part of them.
        velocity: V, of the same shape.
        change: Δ, the gradient of the outer optimizer, of the same shape.
        learning_rate: R.
        momentum: M.
        nesterov: whether the step has Nesterov's term.

    Returns:
        The new x and the new V.

    >>> import numpy as np
    >>> outer_step(np.array([1.0]), np.array([0.0]), np.array([0.5]), learning_rate=1.0, momentum=0.5)
    (array([0.25]), array([0.5]))
    """
    velocity = momentum * velocity + change
    step = change + momentum * velocity if nesterov else velocity
    return start - learning_rate * step, velocity


@dataclass(frozen=True, slots=True)
class Outer(Replica):
    """A worker's state: the weights at the start of the round, and the velocity of the outer optimizer."""

    start: Any = None
    velocity: Any = None


@dataclass(frozen=True, kw_only=True)
class Rounds(SgdMethod):
    """Base of methods with rounds of local steps: the inner optimizer, whose state each worker keeps."""

    staleness_kind = StalenessKind.LOCAL_AGE

    ranges: ClassVar[Mapping[str, Range]] = {"beta1": FRACTION, "beta2": FRACTION, "epsilon": POSITIVE}

    learning_rate: float = 0.005
    """η of the inner optimizer; provenance: ours; the length of AdamW's steps depends only on its learning rate"""
    period: int = 8
    """H, inner steps in a round; provenance: ours, the source takes 500 of far more steps"""
    inner: Literal["adamw", "sgd"] = "adamw"
    """the inner optimizer; provenance: the source has AdamW; sgd is the chain that all methods share"""
    beta1: float = 0.9
    """β1 of AdamW; provenance: torch's default, as are those below"""
    beta2: float = 0.999
    """β2 of AdamW"""
    epsilon: float = 1e-8
    """ε of AdamW"""
    weight_decay: float | None = None  # type: ignore[assignment]  # None: the default of the inner optimizer, see `decay`
    """the inner optimizer's decay, which AdamW does not pass through the moments; None is `ADAMW_DECAY` with AdamW,
    and 0 with sgd, as in every method; provenance: torch's defaults"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        found = super().problems(nodes)
        if self.inner == "adamw":
            if self.momentum:
                found.append(f"momentum: found {self.momentum}, expected 0 with inner = adamw, which has β1")
            if self.lars is not None:
                found.append(
                    "lars: found it with inner = adamw, whose steps have no gradient's length; use inner = sgd"
                )
        return found

    def longest_period(self, workers: int) -> int:
        return self.period

    @property
    def decay(self) -> float:
        """The weight decay of the inner optimizer: the given one, or its default."""
        if self.weight_decay is not None:
            return self.weight_decay
        return ADAMW_DECAY if self.inner == "adamw" else 0.0

    def rule(self, layers: Sequence[Layer]) -> Chain:
        """Returns the inner optimizer."""
        if self.inner == "sgd":
            return super().rule(layers)
        adamw = AdamW(self.beta1, self.beta2, self.epsilon, self.decay)
        clipped: tuple[Transform, ...] = () if self.max_grad_norm is None else (Clip(self.max_grad_norm),)
        return Chain((*clipped, adamw, ScaleByLearningRate(self.learning_rate, self.schedule)), layers)

    def begin(self, me: RankContext, vector: Any) -> Outer:
        optimizer_state = self.rule(me.layout.layers).init(vector)
        return Outer(0, Weights(vector, 0), optimizer_state, start=vector, velocity=0 * vector)


@dataclass(frozen=True, kw_only=True)
class NesterovRounds(Rounds):
    """Base of `diloco` and of its variants, whose outer optimizer is SGD with Nesterov momentum."""

    ranges: ClassVar[Mapping[str, Range]] = {"outer_learning_rate": POSITIVE, "outer_momentum": FRACTION}

    outer_learning_rate: float = 0.7
    """R; provenance: the source"""
    outer_momentum: float = 0.9
    """M; provenance: the source"""

    def outer(self, start: Any, velocity: Any, change: Any) -> tuple[Any, Any]:
        """Takes a step of the outer optimizer; arguments as in `outer_step`."""
        return outer_step(start, velocity, change, self.outer_learning_rate, self.outer_momentum)
