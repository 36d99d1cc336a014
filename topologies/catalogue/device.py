"""Devices: how long a gradient takes on one.

A step costs a fixed overhead (launching kernels, the input pipeline, the framework) and a time per sample: the
straight line that throughput tables over batch sizes are fitted with. The two numbers belong to a device and a model
together: `roofline.device` makes them from the catalogue's figures and a model's layers, or from measured points.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Something that computes gradients.

    compute_s(b) = overhead_s + b · per_sample_s

    Args:
        forward_shares, backward_shares: of each layer that has parameters, in the time of a gradient, first layer
            first; together they make 1. Empty where they are not known.
        batches: those that its time was fitted at, smallest first. Empty where it was not fitted.
        inferred: whether its time follows from other chips or other families of models than what it computes.

    >>> slow = Device(name="slow", overhead_s=0.004, per_sample_s=0.001125)
    >>> round(slow.compute_s(32), 9)
    0.04
    """

    name: str
    overhead_s: float
    per_sample_s: float
    provenance: str = "given in the scenario"
    forward_shares: tuple[float, ...] = ()
    backward_shares: tuple[float, ...] = ()
    batches: tuple[int, ...] = ()
    inferred: bool = False
    reduce_s_per_byte: float = 0.0
    """γ: what adding a byte that has come to one's own takes"""

    def compute_s(self, samples: int) -> float:
        """Seconds that a gradient over so many samples takes, without spread."""
        return self.overhead_s + samples * self.per_sample_s
