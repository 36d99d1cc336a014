"""Buckets: consecutive layers whose gradients are exchanged and applied together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.algorithms.core.values import Layer


@dataclass(frozen=True, slots=True)
class Bucket:
    """Consecutive layers, first layer first."""

    layers: tuple[Layer, ...]

    @property
    def part(self) -> slice:
        """Their position in the whole vector."""
        return slice(self.layers[0].start, self.layers[-1].stop)

    @property
    def name(self) -> str:
        """The name of its first layer, whose gradient completes the bucket."""
        return self.layers[0].name

    def alone(self) -> list[Layer]:
        """Returns the layers with their positions in the bucket's own vector."""
        start = self.layers[0].start
        return [Layer(layer.name, layer.start - start, layer.stop - start) for layer in self.layers]


def buckets(layers: Sequence[Layer], least: int | None = None, first: int | None = None) -> tuple[Bucket, ...]:
    """Groups layers into buckets, last layers first, as the backward pass completes them.

    Args:
        layers: all layers of the model, first layer first.
        least: the size, in numbers, at which a bucket is full; the last bucket may be smaller. None: one bucket per
            layer.
        first: the size, in numbers, at which the first bucket is full, if that is less; None: as the others.

    >>> layers = [Layer("a", 0, 5), Layer("b", 5, 7), Layer("c", 7, 8)]
    >>> [bucket.part for bucket in buckets(layers, 3)], [bucket.name for bucket in buckets(layers)]
    ([slice(5, 8, None), slice(0, 5, None)], ['c', 'b', 'a'])
    >>> [bucket.part for bucket in buckets(layers, 7, first=1)]
    [slice(7, 8, None), slice(0, 7, None)]
    """
    complete: list[Bucket] = []
    held: tuple[Layer, ...] = ()
    for layer in layers[::-1]:
        held = (layer, *held)
        full = least if complete or first is None or least is None else min(first, least)
        if full is None or held[-1].stop - layer.start >= full:
            complete.append(Bucket(held))
            held = ()
    return tuple([*complete, Bucket(held)] if held else complete)
