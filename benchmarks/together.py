"""Compares gradients computed together and one by one: the data behind the size rule of docs/workloads.md.

    python benchmarks/together.py
    python benchmarks/together.py --batches 32 --turns 9
    python benchmarks/together.py --json

For each model and batch size: the processor time of a gradient computed together, divided by that of one computed
alone, for 16 gradients in one block and for 64 in blocks of 32. Both sides alternate in one process with one thread,
and the median counts. Every gradient has its own weights and batch. The size rule is disabled: blocks are computed for
all sizes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from paceline.algorithms.core.values import Samples
from paceline.workloads.learners.torch_building import uniform
from paceline.workloads.learners.torch_learner import RECORDED_AFTER, TorchLearner
from paceline.workloads.models.paper_networks import digits_cnn
from training_speed.models import CLASSES, cnn, made_up, mlp

POPULATION = 8192
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "CNN, 1 x 8 x 8": (digits_cnn, (1, 8, 8)),
    "CNN, 3 x 32 x 32": (cnn, (3, 32, 32)),
    **{
        "MLP " + "-".join(map(str, widths)): (partial(mlp, *widths), widths[:1])
        for widths in (
            (64, 64, CLASSES),
            (64, 256, CLASSES),
            (784, 32, CLASSES),
            (64, 256, 128, CLASSES),
            (784, 64, CLASSES),
            (784, 128, CLASSES),
            (784, 256, CLASSES),
        )
    },
}
"""the module, and the shape of a sample"""
MOST_WORK = 128 * 64 * 3.2e6
"""operations above which a cell is left out, because it would take minutes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model with one batch size."""

    model: str
    parameters: int
    batch: int
    sixteen: float
    """ratio for 16 gradients in one block"""
    blocks: float
    """ratio for 64 gradients in blocks of 32"""


def learner_of(model: str, together: int) -> TorchLearner:
    """Returns a learner of the model on random examples."""
    make, shape = MODELS[model]
    module = make()
    return TorchLearner(module, made_up(shape, POPULATION), uniform(module, 1), seed=1, together=together)


def ratio(model: str, batch: int, count: int, block: int, turns: int) -> float:
    """Returns the time together divided by the time one by one."""
    sides = learner_of(model, block), learner_of(model, 1)
    vectors = [sides[0].initial() * (1 + number / 100) for number in range(count)]
    samples = [Samples(number, count, 0, batch) for number in range(count)]
    for _ in range(RECORDED_AFTER + 1):  # from then on the block's recorded operations are repeated
        sides[0].gradients(vectors[:block], samples[:block])
    spent: list[list[float]] = [[], []]
    for _ in range(turns):
        for side, times in zip(sides, spent, strict=True):
            start_s = time.process_time()
            side.gradients(vectors, samples)
            times.append(time.process_time() - start_s)
    together, single = map(statistics.median, spent)
    return together / single


def cells(batches: Sequence[int], turns: int) -> Iterator[Cell]:
    """Yields the cells of each model, the smallest model first."""
    sizes = {name: learner_of(name, 1).layout.size for name in MODELS}
    for name in sorted(MODELS, key=lambda name: sizes[name]):
        work = learner_of(name, 1).forward_flops
        for batch in batches:
            if 64 * batch <= POPULATION and 64 * batch * work < MOST_WORK / 2:
                found = [ratio(name, batch, count, block, turns) for count, block in ((16, 16), (64, 32))]
                yield Cell(model=name, parameters=sizes[name], batch=batch, sixteen=found[0], blocks=found[1])


def table(found: Sequence[Cell], batches: Sequence[int]) -> Table:
    """Renders a row for each model."""
    shown = Table(title="time together / one by one: 16 in one block, 64 in blocks of 32")
    for name in ("model", "parameters", *(f"batch {batch}" for batch in batches)):
        shown.add_column(name, justify="left" if name == "model" else "right")
    for model in dict.fromkeys(cell.model for cell in found):
        mine: dict[int, Any] = {cell.batch: cell for cell in found if cell.model == model}
        texts = [f"{mine[b].sixteen:.2f}, {mine[b].blocks:.2f}" if b in mine else "" for b in batches]
        shown.add_row(model, f"{next(iter(mine.values())).parameters:,}", *texts)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32, 128])
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = list(cells(given.batches, given.turns))
    if given.json:
        print(json.dumps({"cells": [asdict(cell) for cell in found]}))
    else:
        Console().print(table(found, given.batches))


if __name__ == "__main__":
    main()
