"""The weight of one gradient in the weights: what a method declares and `paceline check` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedGradient:
    """A gradient that an update has applied, as `Method.gradient_weight` is asked about it.

    Args:
        step: of its worker, from 0.
        version: of the weights to which it was applied: the number of updates before this one.
        staleness: of the update, of the method's own kind.
        together: gradients in the same update.
        workers: of the run.
        living: those among them that have not died.
        layers: layers of the weights.
        layer: the index of the layer, of `layers`, whose weight is asked for.
    """

    step: int
    version: int
    staleness: int
    together: int
    workers: int
    living: int
    layers: int
    layer: int
