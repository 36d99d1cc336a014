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
    >>> x, rule = np.array([1.0]), Sgd(rate=0.5, momentum=0.5)
    >>> memory = rule.init(x)
    >>> for _ in range(2):
    ...     x, memory = rule.update(x, np.array([1.0]), memory)
    >>> float(x[0])  # −0.5, then −0.25 − 0.5
    -0.25
    """

    rate: float
    momentum: float = 0.0

    def init(self, vector: Any) -> Any:
        """The memory before the first step from `vector`: the velocity, or None without momentum."""
        return 0.0 * vector if self.momentum else None

    def update(self, vector: Any, gradient: Any, memory: Any) -> tuple[Any, Any]:
        """The new vector and the new memory."""
        if memory is None:
            return vector - self.rate * gradient, None
        velocity = self.momentum * memory - self.rate * gradient
        return vector + velocity, velocity
