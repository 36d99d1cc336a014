"""The torch.distributed interpreter and everything that a real run needs.

Read `rank.interpreter` first, then `local.launch`, `transports` and `supervision`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.backend.local.launch import Launch, RankFailed, run_job
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "Launch": "local.launch",
            "RankFailed": "local.launch",
            "run_job": "local.launch",
        },
    )

__all__ = ["Launch", "RankFailed", "run_job"]
