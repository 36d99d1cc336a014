"""The costs of a model's layers: arithmetic, memory traffic, kernel launches, saved activations.

A row is one module without children (a convolution, a normalisation, a ReLU), in the order of the forward pass;
operations between two modules belong to the first of them. Numbers are per sample, in float32, and come from
`layer_tracing`; the files in `tables/` are its output. Nothing here needs torch.

The column `products` holds the convolutions and matrix products of the forward pass, separated by semicolons, each as
the fields of `Product` separated by spaces.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from paceline.algorithms.core.files import replacing

TABLES = Path(__file__).parents[1] / "tables"


@dataclass(frozen=True, slots=True)
class Pass:
    """One direction through a module.

    Args:
        flops: floating point operations of products and convolutions per sample; a multiplication and an addition
            are two.
        moved_bytes: bytes that the kernels read and write per sample, each tensor once per kernel.
        fixed_bytes: bytes that they read and write independent of the batch: weights and their gradients.
        kernels: number of kernels, independent of the batch.
    """

    flops: int
    moved_bytes: int
    fixed_bytes: int
    kernels: int


@dataclass(frozen=True, slots=True)
class Product:
    """A convolution or a matrix product of a forward pass, with its sizes.

    Args:
        form: "conv", "dense" (rows times a weight matrix) or "attention" (a product of two activations).
        count: images, rows or matrices per sample.
        channels_in, channels_out: of a convolution; columns in and out of a product.
        kernel_height, kernel_width: of a convolution, otherwise 1.
        stride, groups: of a convolution, otherwise 1.
        height_in, width_in, height_out, width_out: of an image; of an attention product `height_out` is the rows of
            one matrix, otherwise 1.
    """

    form: str
    count: int
    channels_in: int
    channels_out: int
    kernel_height: int = 1
    kernel_width: int = 1
    stride: int = 1
    groups: int = 1
    height_in: int = 1
    width_in: int = 1
    height_out: int = 1
    width_out: int = 1

    @property
    def flops(self) -> int:
        """Operations of the forward pass per sample; a multiplication and an addition are two.

        >>> Product("conv", 1, 3, 64, 7, 7, 2, 1, 224, 224, 112, 112).flops
        236027904
        """
        inner = self.channels_in // self.groups * self.kernel_height * self.kernel_width
        return 2 * self.count * self.height_out * self.width_out * self.channels_out * inner


@dataclass(frozen=True, slots=True)
class LayerWork:
    """One module of a model.

    Args:
        name: the name in the module tree.
        parameters: number of its own parameters.
        saved_bytes: bytes of activations per sample that are saved for the backward pass.
        products: the convolutions and matrix products of its forward pass.
    """

    name: str
    parameters: int
    saved_bytes: int
    forward: Pass
    backward: Pass
    products: tuple[Product, ...] = ()


_PASS = [field.name for field in fields(Pass)]
COLUMNS = [
    *("name", "parameters", "saved_bytes"),
    *(f"{way}_{name}" for way in ("forward", "backward") for name in _PASS),
    "products",
]


def write_table(path: Path, rows: Iterable[LayerWork]) -> None:
    """Writes rows as CSV."""
    with replacing(path) as hidden, hidden.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for row in rows:
            products = ";".join(" ".join(map(str, astuple(product))) for product in row.products)
            passes = *astuple(row.forward), *astuple(row.backward)
            out.writerow((row.name, row.parameters, row.saved_bytes, *passes, products))


def read_table(path: Path) -> tuple[LayerWork, ...]:
    """Reads the rows of a file from `write_table`.

    >>> read_table(TABLES / "lenet.csv")[0].forward.flops  # 20 filters of 5 × 5 at 24 × 24 places
    576000
    """
    with path.open(newline="", encoding="utf-8") as file:
        _, *lines = csv.reader(file)
    rows = []
    for name, *figures, products in lines:
        parameters, saved, *passes = map(int, figures)
        ways = Pass(*passes[: len(_PASS)]), Pass(*passes[len(_PASS) :])
        rows.append(LayerWork(name, parameters, saved, *ways, tuple(map(_product, filter(None, products.split(";"))))))
    return tuple(rows)


def _product(text: str) -> Product:
    form, *sizes = text.split()
    return Product(form, *map(int, sizes))
