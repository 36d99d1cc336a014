"""The steps of a probe's workers, measured or simulated: how long they take, and how long their gradients take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from paceline.records.trace import Span

WARM_UP = 5
"""steps of a probe that are left out: all workers begin them together"""


class ProbeSteps(NamedTuple):
    """Mean seconds of the steps of a probe."""

    step_s: float
    """from the beginning of a step to that of the next"""
    compute_s: float
    """of the gradients of a step"""

    @classmethod
    def of(cls, spans: Iterable[Span], workers: Sequence[int]) -> ProbeSteps | None:
        """Returns the steps of the workers that made enough of them; None if none did.

        >>> spans = [Span(0, "main", "compute", None, step, step * 0.5, step * 0.5 + 0.25) for step in range(8)]
        >>> ProbeSteps.of(spans, [0])
        ProbeSteps(step_s=0.5, compute_s=0.25)
        """
        begun_s: dict[int, dict[int, float]] = defaultdict(dict)
        computing_s: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for span in spans:
            if span.rank in workers:
                begun = begun_s[span.rank]
                begun[span.step] = min(span.start_s, begun.get(span.step, span.start_s))
                if span.activity == "compute":
                    computing_s[span.rank][span.step] += span.end_s - span.start_s
        steps_s, computed_s = list[float](), list[float]()
        for rank, begun in begun_s.items():
            kept = sorted(begun)[WARM_UP:]
            steps_s += np.diff([begun[step] for step in kept]).tolist()
            computed_s += [computing_s[rank][step] for step in kept[:-1]]
        return cls(float(np.mean(steps_s)), float(np.mean(computed_s))) if steps_s else None
