"""The sizes of convolutions and matrix products, read from torch's operators as they are performed.

A size that grows from one traced batch to the next belongs to the samples. Products that do not grow with the batch,
and transposed convolutions, have no sizes here; their operations are counted all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paceline.workloads.models.layer_costs import Product

Shape = tuple[str, tuple[int, ...]]
"""the form of a product with its sizes in one batch; the first size grows with the batch"""


def shapes(operator: str, args: Sequence[Any], answer: Any) -> list[Shape]:
    """Returns the products that an operator performs.

    Args:
        operator: its name in `torch.ops.aten`.
        args: as it was called.
        answer: what it returned.
    """
    if operator == "convolution" and not args[6]:
        return [_convolution(args, answer)]
    if operator in ("mm", "addmm"):
        left, right = args[-2:]
        return [("dense", (left.shape[0], left.shape[1], right.shape[1]))]
    if operator in ("bmm", "baddbmm"):
        left, right = args[-2:]
        return [("attention", (left.shape[0], left.shape[1], left.shape[2], right.shape[2]))]
    if operator.startswith("_scaled_dot_product"):
        query, key, value = args[:3]
        count, rows = math.prod(query.shape[:-2]), query.shape[-2]
        scores = (count, rows, query.shape[-1], key.shape[-2])
        return [("attention", scores), ("attention", (count, rows, key.shape[-2], value.shape[-1]))]
    return []


def _convolution(args: Sequence[Any], answer: Any) -> Shape:
    """The depth of a convolution in three dimensions counts as height; in one dimension the height is 1."""
    images, weight, stride, groups = args[0], args[1], args[3], args[8]

    def plane(sizes: Sequence[int]) -> tuple[int, int]:
        return math.prod(sizes[:-1]), sizes[-1]

    channels = images.shape[1], answer.shape[1]
    kernel = plane(weight.shape[2:])
    return "conv", (
        images.shape[0], *channels, *kernel, max(stride), groups, *plane(images.shape[2:]), *plane(answer.shape[2:]),
    )  # fmt: skip


def product(few: Shape, many: Shape, growth: int) -> Product | None:
    """The product per sample, from its sizes in two batches; None where it does not grow with the batch.

    Args:
        few: in the smaller batch.
        many: in the larger batch.
        growth: samples by which the batches differ.

    >>> found = product(("dense", (256, 64, 10)), ("dense", (512, 64, 10)), 2)
    >>> found.count, found.channels_in, found.channels_out
    (128, 64, 10)
    """
    (form, small), (_, large) = few, many
    count, rest = (large[0] - small[0]) // growth, small[1:]
    if count < 1 or large[1:] != rest:
        return None
    if form == "attention":
        rows, inner, columns = rest
        return Product(form, count, inner, columns, height_in=rows, height_out=rows)
    return Product(form, count, *rest)
