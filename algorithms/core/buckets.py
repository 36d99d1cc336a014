"""Consecutive layers: buckets, whose gradients are exchanged together, and shards, which one server holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.algorithms.core.errors import InputError
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

    @property
    def range_name(self) -> str:
        """The names of its first and its last layer."""
        first, last = self.layers[0].name, self.layers[-1].name
        return first if len(self.layers) == 1 else f"{first} to {last}"

    def alone(self) -> list[Layer]:
        """Returns the layers with their positions in the bucket's own vector."""
        start = self.layers[0].start
        return [Layer(layer.name, layer.start - start, layer.stop - start) for layer in self.layers]


def buckets(
    layers: Sequence[Layer], least: int | None = None, first: int | None = None, *, forward: bool = False
) -> tuple[Bucket, ...]:
    """Groups layers into buckets, and returns them last layers first, as the backward pass completes them.

    Args:
        layers: all layers of the model, first layer first.
        least: the size, in numbers, at which a bucket is full; the last bucket may be smaller. None: one bucket per
            layer.
        first: the size, in numbers, at which the first bucket is full, if that is less; None: as the others.
        forward: whether the layers are joined in the order of the forward pass, so that the first bucket has the first
            layers; it is still returned last.

    >>> layers = [Layer("a", 0, 5), Layer("b", 5, 7), Layer("c", 7, 8)]
    >>> [bucket.part for bucket in buckets(layers, 3)], [bucket.name for bucket in buckets(layers)]
    ([slice(5, 8, None), slice(0, 5, None)], ['c', 'b', 'a'])
    >>> [bucket.part for bucket in buckets(layers, 7, first=1)]
    [slice(7, 8, None), slice(0, 7, None)]
    >>> [bucket.part for bucket in buckets(layers, 3, forward=True)]
    [slice(5, 8, None), slice(0, 5, None)]
    """
    complete: list[Bucket] = []
    held: tuple[Layer, ...] = ()
    for layer in layers if forward else layers[::-1]:
        held = (*held, layer) if forward else (layer, *held)
        full = least if complete or first is None or least is None else min(first, least)
        if full is None or held[-1].stop - held[0].start >= full:
            complete.append(Bucket(held))
            held = ()
    if held:
        complete.append(Bucket(held))
    return tuple(complete[::-1] if forward else complete)


def shards(layers: Sequence[Layer], count: int) -> tuple[Bucket, ...]:
    """Divides layers into consecutive shards of about equal size, one for each of several servers.

    A shard takes layers, first to last, until it has its share of the numbers that are left: the next layer belongs to
    it if half of that layer still fits. So a layer is never divided, and a large one may make a shard larger than
    others. If there are fewer layers than shards, the numbers are divided evenly instead.

    Args:
        layers: all layers of the model, first layer first.
        count: number of shards.

    Raises:
        InputError: there are fewer weights than shards.

    >>> layers = [Layer("conv", 0, 10), Layer("fc1", 10, 110), Layer("fc2", 110, 130), Layer("fc3", 130, 135)]
    >>> [shard.part for shard in shards(layers, 2)], [shard.part for shard in shards(layers, 3)]
    ([slice(0, 110, None), slice(110, 135, None)], [slice(0, 10, None), slice(10, 110, None), slice(110, 135, None)])
    >>> [shard.part for shard in shards(layers[:1], 2)]
    [slice(0, 5, None), slice(5, 10, None)]
    """
    if len(layers) < count:
        size = layers[-1].stop
        if size < count:
            raise InputError(f"servers: found {count}, expected at most {size}, the number of weights")
        edges = [size * place // count for place in range(count + 1)]
        layers = [Layer(f"part {place + 1}", *edges[place : place + 2]) for place in range(count)]
    made, left = list[Bucket](), list(layers)
    for others in reversed(range(count)):
        share, held = (left[-1].stop - left[0].start) / (others + 1), 1
        while len(left) - held > others and (left[held].start + left[held].stop) / 2 - left[0].start <= share:
            held += 1
        held = held if others else len(left)
        made.append(Bucket(tuple(left[:held])))
        left = left[held:]
    return tuple(made)
