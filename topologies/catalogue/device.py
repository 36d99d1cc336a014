"""Devices: how long the computation of a gradient takes.

A step costs a fixed overhead (kernel launches, the input pipeline, the framework) and a time per sample: the straight
line that is fitted to throughput tables over batch sizes. Both numbers belong to a device and a model together:
`roofline.device` computes them from the catalogue's figures and a model's layers, or from measured points.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that computes gradients.

    compute_s(b) = overhead_s + b · per_sample_s

    Args:
        forward_shares, backward_shares: the share of each layer with parameters in the time of a gradient, first layer
            first; together they add up to 1. Empty if they are not known.
        batches: the batch sizes at which its time was fitted, smallest first. Empty if it was not fitted.
        inferred: whether its time is inferred from other chips or other families of models.

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
    """γ: the time to add a received byte to a local one"""

    def compute_s(self, samples: int) -> float:
        """Returns the time of a gradient of so many samples in seconds, without jitter."""
        return self.overhead_s + samples * self.per_sample_s
