"""Numbers that are none: a loss that is NaN or infinite, a gradient that is.

Rules of this file:

* The loss is looked at in every step, which costs nothing: weights with a NaN give a loss with one. The gradient is
  looked at every so many steps, and whenever the loss is not finite, to say in which layer it begins.
* What is found first is said, once for each rank: as the failure that ends the run, or in the rank's log. That the run
  diverged stands in its summary in any case.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.values import Layout, norm
from paceline.backend.status.rank_logs import life

OnNonfinite = Literal["raise", "warn"]
EVERY = 100
"""steps between two looks at a whole gradient; provenance: ours, a look takes about as long as reading it once"""


class NotFinite(RunFailed):
    """A loss or a gradient is not finite, and that is to end the run."""


class NanCheck:
    """Looks at one rank's losses and gradients.

    >>> import numpy as np
    >>> from paceline.algorithms.core.values import Layer
    >>> layout = Layout((Layer("first", 0, 1), Layer("second", 1, 2)))
    >>> NanCheck("rank 1 (worker)", layout, "raise").check(7, np.array([0.5, np.nan]), math.nan)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline...NotFinite: rank 1 (worker), step 7: the loss is nan; the gradient is not finite in 'second'
    """

    def __init__(self, who: str, layout: Layout, then: OnNonfinite) -> None:
        self._who, self._layout, self._then = who, layout, then
        self._said = False

    def check(self, step: int, gradient: Any, loss: float) -> None:
        """Looks at a whole gradient and its loss; raises `NotFinite` where that is to end the run."""
        if math.isfinite(loss) and (step % EVERY or math.isfinite(norm(gradient))):
            return
        wrong = [layer.name for layer in self._layout.layers if not math.isfinite(norm(gradient[layer.part]))]
        self._tell(step, loss, wrong)

    def check_layers(self, step: int, loss: float) -> None:
        """The same of a gradient that was handed out layer by layer: by its loss alone."""
        if not math.isfinite(loss):
            self._tell(step, loss, [])

    def _tell(self, step: int, loss: float, layers: list[str]) -> None:
        found = [] if math.isfinite(loss) else [f"the loss is {loss}"]
        if layers:
            found.append(f"the gradient is not finite in {', '.join(map(repr, layers))}")
        message = f"{self._who}, step {step}: {'; '.join(found)}"
        if self._then == "raise":
            raise NotFinite(message)
        if not self._said:
            self._said = True
            life.info("%s; the run goes on (train.on_nonfinite: raise ends it)", message)
