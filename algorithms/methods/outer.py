"""Rounds of local steps that end with the step of an outer optimizer: what `diloco` and its relatives share.

The outer optimizer exists once, as `outer_step`. Its gradient is the change of a round: the weights at the start of the
round minus those at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from paceline.algorithms.core.gradient_weights import AppliedGradient
from paceline.algorithms.core.method import FADING, RankContext, Replica, StalenessKind, changed
from paceline.algorithms.core.option_groups import FRACTION, POSITIVE, Range
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Weights
from paceline.algorithms.methods.inner_optimizer import InnerOptimizer

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
class Rounds(InnerOptimizer):
    """Base of methods with rounds of equally many local steps: each worker keeps the inner optimizer's state."""

    staleness_kind = StalenessKind.LOCAL_AGE
    state: ClassVar[type[Outer]] = Outer
    """the class of a worker's state; fields that it adds have defaults"""

    period: int = 8
    """H, inner steps in a round; provenance: ours, the source takes 500 of far more steps"""

    def longest_period(self, workers: int) -> int:
        return self.period

    def begin(self, me: RankContext, vector: Any) -> Outer:
        optimizer_state = self.rule(me.layout.layers).init(vector)
        return self.state(0, Weights(vector, 0), optimizer_state, start=vector, velocity=0 * vector)


@dataclass(frozen=True, kw_only=True)
class NesterovRounds(Rounds):
    """Base of `diloco` and of its variants, whose outer optimizer is SGD with Nesterov momentum."""

    ranges: ClassVar[Mapping[str, Range]] = {"outer_learning_rate": POSITIVE, "outer_momentum": FRACTION}

    outer_learning_rate: float = 0.7
    """R; provenance: the source"""
    outer_momentum: float = 0.9
    """M; provenance: the source"""

    def linear_form(self) -> Self:
        return changed(super().linear_form(), outer_momentum=min(self.outer_momentum, FADING))

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns the local step's, times R / (1 − M)."""
        return super().gradient_weight(gradient) * self.outer_learning_rate / (1 - self.outer_momentum)

    def outer(self, start: Any, velocity: Any, change: Any) -> tuple[Any, Any]:
        """Takes a step of the outer optimizer; arguments as in `outer_step`."""
        return outer_step(start, velocity, change, self.outer_learning_rate, self.outer_momentum)
