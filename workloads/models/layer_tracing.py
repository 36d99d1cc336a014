"""Layer tables by tracing a torch module on the meta device, where tensors have shapes and no numbers.

    python -m paceline.workloads.models.layer_tracing          # compares workloads/tables/ with the traces
    python -m paceline.workloads.models.layer_tracing --write  # writes the tables

FLOPs are counted by torch's formulas (`torch.utils.flop_counter`). Every operator that is not a view is one kernel,
which reads its inputs and writes its outputs once. A backward operator belongs to the module whose forward pass made
its autograd node. Two batch sizes are traced; costs that do not grow with the batch are fixed. The sizes of
convolutions and products are read from the operators of the forward pass (`shapes`).
"""

from __future__ import annotations

import argparse
import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._autograd import _get_sequence_nr
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from paceline.workloads.models.custom import unpacked
from paceline.workloads.models.layer_costs import TABLES, LayerWork, Pass, Product, read_table, write_table
from paceline.workloads.models.tensor_recording import DispatchMode
from paceline.workloads.models.zoo import ZOO

# A size that grows from one traced batch to the next belongs to the samples. Products that do not grow with the
# batch, and transposed convolutions, have no sizes here; their operations are counted all the same.


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


FREE = {"detach", "_unsafe_view", "_reshape_alias", "empty", "empty_like", "empty_strided", "new_empty"}
"""operators without a kernel, besides the views"""
WHOLE = "model"
"""the row of the module itself"""
SMALL, LARGE = 2, 4
"""the traced batch sizes; normalisation needs two samples"""


@dataclass(slots=True)
class Tally:
    """The costs of one module in one direction."""

    flops: int = 0
    moved_bytes: int = 0
    kernels: int = 0


@dataclass(slots=True)
class Traced:
    """The costs of one module for one batch size."""

    forward: Tally = field(default_factory=Tally)
    backward: Tally = field(default_factory=Tally)
    saved_bytes: int = 0
    shapes: list[Shape] = field(default_factory=list)


class OperatorRecorder(DispatchMode):
    """Records every operator for the module that it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.modules: dict[str, Traced] = {}
        self.current = ""
        self.backward = False
        self._starts: list[tuple[int, str]] = []

    def enter(self, name: str) -> None:
        """Records that the forward pass has entered this module."""
        self.current = name
        self.modules.setdefault(name, Traced())
        self._starts.append((_get_sequence_nr(), name))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        answer = func(*args, **(kwargs or {}))
        if not func.is_view and func.overloadpacket.__name__ not in FREE and self.current:
            module = self.modules[self._owner()]
            tally = module.backward if self.backward else module.forward
            tally.kernels += 1
            tally.moved_bytes += sum(_nbytes(leaf) for leaf in tree_leaves((args, kwargs, answer)))
            tally.flops += _flops(func.overloadpacket, args, kwargs or {}, answer)
            if not self.backward:
                module.shapes += shapes(func.overloadpacket.__name__, args, answer)
        return answer

    def _owner(self) -> str:
        node: Any = torch._C._current_autograd_node() if self.backward else None
        if node is not None:
            at = bisect_right(self._starts, node._sequence_nr(), key=lambda start: start[0])
            if at > 0 and node._sequence_nr() < 1 << 62:  # nodes that add up gradients have no number
                self.current = self._starts[at - 1][1]
        return self.current


def _flops(operator: Any, args: Sequence[Any], kwargs: dict[str, Any], answer: Any) -> int:
    """Returns the FLOPs by torch's formulas, corrected for backward convolutions with channel groups."""
    if operator is torch.ops.aten.convolution_backward:
        towards, weight, wanted = args[0], args[2], args[10]
        return int(2 * towards.numel() * weight[0].numel() * sum(wanted[:2]))
    return int(flop_registry[operator](*args, **kwargs, out_val=answer)) if operator in flop_registry else 0


def _nbytes(leaf: object) -> int:
    return leaf.numel() * leaf.element_size() if isinstance(leaf, Tensor) else 0


@contextmanager
def _hooked(model: nn.Module, recorder: OperatorRecorder) -> Iterator[None]:
    """Records the current module of the forward pass and the tensors saved for the backward pass."""
    held: dict[int, Tensor] = {tensor.untyped_storage()._cdata: tensor for tensor in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in held and recorder.current:
            held[storage._cdata] = tensor  # keeps it alive, so that its address is not reused
            recorder.modules[recorder.current].saved_bytes += storage.nbytes()
        return tensor

    def entering(name: str) -> Callable[..., None]:
        return lambda *_: recorder.enter(name)

    hooks = [
        part.register_forward_pre_hook(entering(name or WHOLE))
        for name, part in model.named_modules()
        if not list(part.children()) or list(part.parameters(recurse=False))
    ]
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _run(model: nn.Module, sample: Tensor, batch: int) -> dict[str, Traced]:
    recorder = OperatorRecorder()
    model.zero_grad(set_to_none=True)  # otherwise gradients would be added to those of the previous batch
    inputs = sample.expand(batch, *sample.shape).clone()
    with _hooked(model, recorder), recorder:
        outputs = model(inputs)
        recorder.backward = True
        torch.autograd.backward(outputs, torch.empty_like(outputs))
    return recorder.modules


def trace(model: nn.Module, sample: Tensor) -> tuple[LayerWork, ...]:
    """Traces a model and returns its rows.

    Args:
        model: the model on any device; a copy of its structure is traced on the meta device.
        sample: one input, without the batch dimension; only shape and type are used.
    """
    shared = list(model.named_parameters())  # on the meta device, every parameter is one of its own
    model = model.to("meta").train()
    model.requires_grad_(True)
    with torch.device("meta"):  # also for tensors that the model makes without naming a device
        small, large = (_run(model, sample.to("meta"), batch) for batch in (SMALL, LARGE))
    sizes = _sizes(shared, list(small))
    rows = []
    for name, few in small.items():
        many = large[name]
        saved = (many.saved_bytes - few.saved_bytes) // (LARGE - SMALL)
        forward, backward = _pass(few.forward, many.forward), _pass(few.backward, many.backward)
        pairs = zip(few.shapes, many.shapes, strict=False)
        products = [work for pair in pairs if (work := product(*pair, LARGE - SMALL))]
        rows.append(LayerWork(name, sizes.get(name, 0), saved, forward, backward, tuple(products)))
    return tuple(rows)


def _sizes(parameters: Iterable[tuple[str, Tensor]], rows: Sequence[str]) -> dict[str, int]:
    """Returns the parameters of each row.

    Those of a module that is never called itself, such as the output projection of `nn.MultiheadAttention`, belong to
    the nearest module around it with a row, or to the last row.
    """
    sizes: dict[str, int] = {}
    for name, tensor in parameters:
        row = name.rpartition(".")[0]
        while row and row not in rows:
            row = row.rpartition(".")[0]
        if not row:
            row = WHOLE if WHOLE in rows else rows[-1]
        sizes[row] = sizes.get(row, 0) + tensor.numel()
    return sizes


def _pass(few: Tally, many: Tally) -> Pass:
    growth = LARGE - SMALL
    per_sample = (many.moved_bytes - few.moved_bytes) // growth
    return Pass(
        flops=(many.flops - few.flops) // growth,
        moved_bytes=per_sample,
        fixed_bytes=few.moved_bytes - SMALL * per_sample,
        kernels=few.kernels,
    )


def trace_named(name: str) -> tuple[LayerWork, ...]:
    """Traces a built-in model and returns its rows.

    >>> sum(row.parameters for row in trace_named("lenet"))
    431080
    """
    with torch.device("meta"):
        made = unpacked(ZOO[name].make())
        return trace(made.module, torch.empty(*ZOO[name].shape) if made.sample is None else made.sample)


def main() -> int:
    parser = argparse.ArgumentParser(description="Derives the layer tables.")
    parser.add_argument("--write", action="store_true", help="write them, rather than compare")
    write = parser.parse_args().write
    wrong = []
    names = [name for name, known in ZOO.items() if known.size is None]
    for name in names:
        rows, path = trace_named(name), TABLES / f"{name}.csv"
        if write:
            write_table(path, rows)
        elif not path.exists() or read_table(path) != rows:
            wrong.append(name)
    sys.stdout.write(f"{len(names)} models, wrong: {', '.join(wrong) or 'none'}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
