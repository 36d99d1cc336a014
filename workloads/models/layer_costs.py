"""The costs of a model's layers: arithmetic, memory traffic, kernel launches, saved activations.

Rules of this file: a row is one module without children (a convolution, a normalisation, a ReLU), in the order of the
forward pass; operations between two modules belong to the first of them. Numbers are per sample, in float32, and come
from `layer_tracing`; the files in `tables/` are its output. Nothing here needs torch.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

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
class LayerWork:
    """One module of a model.

    Args:
        name: the name in the module tree.
        parameters: number of its own parameters.
        saved_bytes: bytes of activations per sample that are saved for the backward pass.
    """

    name: str
    parameters: int
    saved_bytes: int
    forward: Pass
    backward: Pass


_PASS = [field.name for field in fields(Pass)]
COLUMNS = ["name", "parameters", "saved_bytes", *(f"{way}_{name}" for way in ("forward", "backward") for name in _PASS)]


def write_table(path: Path, rows: Iterable[LayerWork]) -> None:
    """Writes rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(
            (row.name, row.parameters, row.saved_bytes, *astuple(row.forward), *astuple(row.backward)) for row in rows
        )


def read_table(path: Path) -> tuple[LayerWork, ...]:
    """Reads the rows of a file from `write_table`.

    >>> read_table(TABLES / "lenet.csv")[0].forward.flops  # 20 filters of 5 × 5 at 24 × 24 places
    576000
    """
    with path.open(newline="", encoding="utf-8") as file:
        _, *lines = csv.reader(file)
    rows = []
    for name, *figures in lines:
        parameters, saved, *passes = map(int, figures)
        rows.append(LayerWork(name, parameters, saved, Pass(*passes[: len(_PASS)]), Pass(*passes[len(_PASS) :])))
    return tuple(rows)
