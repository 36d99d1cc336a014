"""The outer optimizers of a server that applies pseudo-gradients one by one, as they arrive.

Plain momenta are those of `outer_step`, which `diloco` uses; this file adds the delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from paceline.algorithms.core.traffic import COMBINE, NOTHING, SCALE, Traffic
from paceline.algorithms.methods.outer import HEAVY_BALL, NESTEROV, outer_step

OuterKind = Literal["delayed-nesterov", "nesterov", "heavy-ball", "sgd"]


@dataclass(frozen=True, slots=True)
class OuterMemory:
    """The memory of an outer optimizer."""

    number: int
    """pseudo-gradients applied"""
    velocity: Any
    """V; None without momentum"""
    total: Any = None
    """the sum of the pseudo-gradients since the last update of a delayed V; None if there is none"""


@dataclass(frozen=True, slots=True)
class OuterOptimizer:
    """Applies one pseudo-gradient Δ to the weights x.

    delayed-nesterov, arrival t = 1, 2, …:
        if N divides t:  V ← M V + (1/N) Σ of the last N Δ;  x ← x − R (Δ/N + (1 − c (N − 1)) M V)
        else:            x ← x − R (Δ/N + c M V)
    nesterov:            V ← M V + Δ;  x ← x − R (Δ + M V)
    heavy-ball:          V ← M V + Δ;  x ← x − R V
    sgd:                 x ← x − R Δ

    With N = 1 the delayed form is plain Nesterov, whatever c is. With c = 0, N pseudo-gradients move x as one step of
    plain Nesterov with their mean does. With c = 1/N each of the N arrivals gets an equal part of the momentum.

    Args:
        kind: the form.
        learning_rate: R.
        momentum: M; not used by sgd.
        count: N, the arrivals between two updates of a delayed V.
        c: the part of the momentum in each arrival between two updates of a delayed V, from 0 to 1/N.

    Source: Liu et al. 2024, arXiv 2401.09135, Algorithm 3, as implemented in HALoS (utnslab/halos); see the page of
    `async-diloco`.

    >>> import numpy as np
    >>> x, rule = np.array([1.0]), OuterOptimizer("delayed-nesterov", learning_rate=0.5, momentum=0.5, count=2)
    >>> memory = rule.init(x)
    >>> for _ in range(2):
    ...     x, memory = rule.update(x, np.array([1.0]), memory)
    >>> float(x[0]), float(memory.velocity[0])  # − 0.5 · 1/2, then − 0.5 (1/2 + 0.5 · 1)
    (0.25, 1.0)
    """

    kind: OuterKind
    learning_rate: float
    momentum: float
    count: int = 1
    c: float = 0.0

    def init(self, vector: Any) -> OuterMemory:
        """Returns the memory before the first arrival."""
        return OuterMemory(0, None if self.kind == "sgd" else 0 * vector)

    def update(self, vector: Any, change: Any, memory: OuterMemory) -> tuple[Any, OuterMemory]:
        """Takes a step.

        Args:
            vector: x, the weights.
            change: Δ, a vector of the same shape and type.
            memory: the result of `init` or of the last step.

        Returns:
            The new weights and the new memory.
        """
        number = memory.number + 1
        if self.kind == "sgd":
            return vector - self.learning_rate * change, OuterMemory(number, None)
        if self.kind == "delayed-nesterov":
            direction, memory = self._delayed(change, memory)
            return vector - self.learning_rate * direction, memory
        plain = partial(outer_step, nesterov=self.kind == "nesterov")
        vector, velocity = plain(vector, memory.velocity, change, self.learning_rate, self.momentum)
        return vector, OuterMemory(number, velocity)

    def _delayed(self, change: Any, memory: OuterMemory) -> tuple[Any, OuterMemory]:
        """Returns the direction of a step with delayed momentum, and the new memory."""
        number, part = memory.number + 1, self._mean(change)
        total = change if memory.total is None else memory.total + change
        if number % self.count == 0:
            velocity = self.momentum * memory.velocity + self._mean(total)
            share = (1 - self.c * (self.count - 1)) * self.momentum
            return part + share * velocity, OuterMemory(number, velocity)
        if self.c:
            part = part + self.c * self.momentum * memory.velocity
        return part, OuterMemory(number, memory.velocity, total)

    def _mean(self, vector: Any) -> Any:
        return vector / self.count if self.count > 1 else vector  # a division by 1 would only cost time

    def traffic(self, memory: OuterMemory) -> Traffic:
        """Returns the memory traffic of `update` with this memory."""
        step, momentum = SCALE + COMBINE, SCALE + COMBINE
        if self.kind == "sgd":
            return step
        if self.kind == "heavy-ball":
            return HEAVY_BALL
        if self.kind == "nesterov":
            return NESTEROV
        before = NOTHING if memory.total is None else COMBINE
        mean = SCALE if self.count > 1 else NOTHING
        if (memory.number + 1) % self.count == 0:
            return before + 2 * (mean + momentum) + step
        return before + mean + (momentum if self.c else NOTHING) + step
