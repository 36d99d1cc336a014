"""What distributed SGD methods are made of.

Read `operations` first, then `baseline` (the simplest methods), then `method`. Nothing here knows a clock, a socket,
SimPy or torch.distributed.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.algorithms.registry import METHODS, find, reference
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "METHODS": "registry",
            "find": "registry",
            "reference": "registry",
        },
    )

__all__ = ["METHODS", "find", "reference"]
