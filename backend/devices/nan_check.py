"""The NaN check: detects a loss or a gradient that is NaN or infinite.

Rules of this file:

* The loss is checked in every step, which costs almost nothing: weights with a NaN give a NaN loss. The gradient is
  checked every `EVERY` steps, and when the loss is not finite, to name the first layers that are not finite.
* Each rank reports its first finding: as the failure that ends the run, or in the rank's log. The run's summary says in
  any case that the run diverged.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.values import Layout, norm
from paceline.backend.status.rank_logs import life

OnNonfinite = Literal["raise", "warn"]
EVERY = 100
"""steps between two checks of a whole gradient; provenance: ours, a check takes about as long as reading it once"""


class NotFinite(RunFailed):
    """A loss or a gradient is not finite, and this is configured to end the run."""


class NanCheck:
    """Checks the losses and gradients of one rank.

    >>> import numpy as np
    >>> from paceline.algorithms.core.values import Layer
    >>> layout = Layout((Layer("first", 0, 1), Layer("second", 1, 2)))
    >>> NanCheck("rank 1 (worker)", layout, "raise").check(7, np.array([0.5, np.nan]), math.nan)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline...NotFinite: rank 1 (worker), step 7: the loss is nan; the gradient is not finite in 'second'
    """

    def __init__(self, subject: str, layout: Layout, then: OnNonfinite) -> None:
        self._subject, self._layout, self._then = subject, layout, then
        self._said = False

    def check(self, step: int, gradient: Any, loss: float) -> None:
        """Checks a whole gradient and its loss; raises `NotFinite` if that is configured to end the run."""
        if math.isfinite(loss) and (step % EVERY or math.isfinite(norm(gradient))):
            return
        wrong = [layer.name for layer in self._layout.layers if not math.isfinite(norm(gradient[layer.part]))]
        self._report(step, loss, wrong)

    def check_layers(self, step: int, loss: float) -> None:
        """Checks a gradient that was computed layer by layer, by its loss alone."""
        if not math.isfinite(loss):
            self._report(step, loss, [])

    def _report(self, step: int, loss: float, layers: list[str]) -> None:
        found = [] if math.isfinite(loss) else [f"the loss is {loss}"]
        if layers:
            found.append(f"the gradient is not finite in {', '.join(map(repr, layers))}")
        message = f"{self._subject}, step {step}: {'; '.join(found)}"
        if self._then == "raise":
            raise NotFinite(message)
        if not self._said:
            self._said = True
            life.info("%s; the run continues (train.on_nonfinite: raise ends it)", message)
