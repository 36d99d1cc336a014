"""The words that a scenario chooses among to say how a workload is computed. Imports nothing that takes time."""

from typing import Literal

Learning = Literal["train", "quadratic", "none"]
Precision = Literal["float32", "float64"]
Gradients = Literal["auto", "together", "one-by-one"]
"""how gradients that are in flight at the same time are computed; auto: by sizes (`torch_learner.together_of`)"""
