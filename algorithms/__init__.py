"""What distributed SGD methods are made of.

Read `operations` first, then `baseline` (the simplest methods), then `method`. Nothing here knows a clock, a socket,
SimPy or torch.distributed.
"""

from paceline.algorithms.registry import METHODS, find, reference

__all__ = ["METHODS", "find", "reference"]
