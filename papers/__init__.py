"""The experiments of the papers behind the methods: published figures beside those that Paceline computes.

Read `core.claim` first, then `core.registry` and `core.reproduce`. Each paper is a package;
its claims are in `claims`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.papers.core.claim import Claim, Curve, Effort, Input, Predicted, verdict_of
    from paceline.papers.core.registry import claims_named
    from paceline.papers.core.reproduce import Reproduction
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "Claim": "core.claim",
            "Curve": "core.claim",
            "Effort": "core.claim",
            "Input": "core.claim",
            "Predicted": "core.claim",
            "Reproduction": "core.reproduce",
            "claims_named": "core.registry",
            "verdict_of": "core.claim",
        },
    )

__all__ = ["Claim", "Curve", "Effort", "Input", "Predicted", "Reproduction", "claims_named", "verdict_of"]
