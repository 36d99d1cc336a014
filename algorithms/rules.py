"""How a gradient becomes a step: pure functions in Optax's shape, `init` and `update`, used inside programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sgd:
    """Stochastic gradient descent, with heavy-ball momentum where `momentum` is not 0.

    v ← μ v − η g,  x ← x + v   (papers' MSGD, equations (3) and (4) of You, Buluç, Demmel, SC'17)

    Args:
        rate: η, per step.
        momentum: μ, without unit; 0 is plain SGD and keeps no memory.

    >>> import numpy as np
    >>> rule = Sgd(rate=0.5)
    >>> x, memory = rule.update(np.array([1.0]), np.array([1.0]), rule.init())
    >>> float(x[0])
    0.5
    """

    rate: float
    momentum: float = 0.0

    def init(self) -> Any:
        """The memory before the first step."""
        return None

    def update(self, vector: Any, gradient: Any, memory: Any) -> tuple[Any, Any]:
        """The new vector and the new memory."""
        if not self.momentum:
            return vector - self.rate * gradient, None
        velocity = -self.rate * gradient if memory is None else self.momentum * memory - self.rate * gradient
        return vector + velocity, velocity
