"""The experiments of the papers behind the methods: published figures beside those that Paceline computes.

Read `claim` first, then `verdicts`, and `reproduce`, which has the registry. A paper is one module with its `CLAIMS`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.papers.claim import Claim, Curve, Effort, Given, Input
    from paceline.papers.reproduce import Reproduction, claims_named
    from paceline.papers.verdicts import Predicted, verdict_of
else:
    names = dict.fromkeys(("Claim", "Curve", "Effort", "Given", "Input"), "claim")
    names |= dict.fromkeys(("Predicted", "verdict_of"), "verdicts")
    __getattr__, __dir__ = deferred(__name__, names | {"Reproduction": "reproduce", "claims_named": "reproduce"})

__all__ = ["Claim", "Curve", "Effort", "Given", "Input", "Predicted", "Reproduction", "claims_named", "verdict_of"]
