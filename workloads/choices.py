"""Types of the keys of a scenario that select how a workload is computed. It has no slow imports."""

from typing import Literal

Learning = Literal["train", "quadratic", "none"]
Precision = Literal["float32", "float64"]
Vmap = Literal["auto", "on", "off"]
"""whether gradients that are in flight at the same time are computed together by torch.func.vmap; auto: by sizes
(`torch_learner.together_of`)"""
