"""Adam, with or without decoupled weight decay, as a transform of a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core import arrays
from paceline.algorithms.core.rules import StepContext
from paceline.algorithms.core.traffic import COMBINE, NOTHING, SCALE, Traffic
from paceline.algorithms.core.values import root

ADAMW_DECAY = 0.01
"""AdamW's weight decay if a scenario gives none; provenance: FOUND, the default of torch.optim.AdamW"""
ADAM_LEARNING_RATE = 0.001
"""η with Adam and AdamW if a scenario gives none; provenance: FOUND, the default of torch.optim.Adam and AdamW"""


@dataclass(frozen=True, slots=True)
class Moments:
    """The running means of the gradients and of their squares."""

    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class AdamW:
    """Divides the mean gradient by the root of the mean square, and adds weight decay that bypasses the moments.

    m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²
    change = (m / (1 − β1^t)) / (√(v / (1 − β2^t)) + ε) + d x, with t counted from 1

    The learning rate is applied by `ScaleByLearningRate` after it. The decay is not part of the moments; this is the
    difference from Adam on a loss with |x|² in it (Loshchilov and Hutter, ICLR'19). That one is this transform with
    d = 0 after `WeightDecay` (Kingma and Ba, ICLR'15, with the L2 penalty of torch.optim.Adam).

    Args:
        beta1: β1, from 0 to below 1.
        beta2: β2, from 0 to below 1.
        epsilon: ε, above 0.
        decay: d, 0 or more.

    >>> import numpy as np
    >>> x, rule = np.array([1.0, 1.0]), AdamW()
    >>> change, _ = rule.update(np.array([100.0, -0.01]), rule.init(x), StepContext(x, 0))
    >>> change.round(3)
    array([ 1., -1.])
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.0

    def init(self, vector: Any) -> Moments:
        """Returns moments of 0."""
        return Moments(0 * vector, 0 * vector)

    def update(self, change: Any, memory: Moments, at: StepContext) -> tuple[Any, Moments]:
        """Returns the step at learning rate 1, and the new moments."""
        first = arrays.between(memory.first, change, 1 - self.beta1)
        second = arrays.plus_square(self.beta2 * memory.second, 1 - self.beta2, change)
        whole, square = 1 - self.beta1 ** (at.number + 1), 1 - self.beta2 ** (at.number + 1)
        # both corrections as factors of the divisor, in one pass: √(v / b) a + ε a
        quotient = first / (whole / square**0.5 * root(second) + self.epsilon * whole)
        return (arrays.less(quotient, -self.decay, at.vector) if self.decay else quotient), Moments(first, second)

    def traffic(self, layers: int) -> Traffic:
        """Returns the traffic of the moments, of their corrections, of the quotient and of a decay."""
        moments = COMBINE + SCALE + COMBINE
        quotient = 3 * SCALE + COMBINE
        return moments + quotient + (COMBINE if self.decay else NOTHING)
