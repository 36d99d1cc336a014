"""The experiments of the papers behind the methods: published figures beside those that Paceline computes.

Read `claim` first, then `reproduce`, which has the registry. Each paper is one module with its `CLAIMS`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.papers.claim import Claim, Curve, Effort, Input, Predicted, verdict_of
    from paceline.papers.reproduce import Reproduction, claims_named
else:
    names = dict.fromkeys(("Claim", "Curve", "Effort", "Input", "Predicted", "verdict_of"), "claim")
    __getattr__, __dir__ = deferred(__name__, names | {"Reproduction": "reproduce", "claims_named": "reproduce"})

__all__ = ["Claim", "Curve", "Effort", "Input", "Predicted", "Reproduction", "claims_named", "verdict_of"]
