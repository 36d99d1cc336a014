"""The experiments of the papers behind the methods: published figures beside those that Paceline computes.

Read `claim` first, then `registry` and `reproduce`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.papers.claim import Claim, Curve, Effort, Input, Predicted, verdict_of
    from paceline.papers.registry import claims_named
    from paceline.papers.reproduce import Reproduction
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "Claim": "claim",
            "Curve": "claim",
            "Effort": "claim",
            "Input": "claim",
            "Predicted": "claim",
            "Reproduction": "reproduce",
            "claims_named": "registry",
            "verdict_of": "claim",
        },
    )

__all__ = ["Claim", "Curve", "Effort", "Input", "Predicted", "Reproduction", "claims_named", "verdict_of"]
