"""Custom workloads: a function that returns a module, and optionally data and a loss.

The function is called with seeded generators of torch, NumPy and Python, so that it draws the same numbers in every
process. The initial weights are those of its module.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import describe_error, imported
from paceline.workloads.batches.examples import Examples, LabelledBatch, Loss, as_they_are
from paceline.workloads.models.threads import torch_threads

FORM = (
    "a function that returns a torch.nn.Module, it and the shape of one sample, or it and data as "
    "((inputs, labels), (inputs, labels)), and then a loss if wanted"
)


@dataclass(frozen=True, slots=True, eq=False)
class Own:
    """The result of the function, compared by identity."""

    module: nn.Module
    sample: Tensor | None
    """one sample in the module's form, if known; only shape and type are used"""
    examples: Examples | None
    loss: Loss | None


def made(reference: str, seed: int = 1) -> Own:
    """Calls the function with this name.

    Args:
        reference: ``module:function`` or ``path/to/file.py:function``.
        seed: seed of the generators; also passed to the function if it has a parameter `seed`.

    Raises:
        InputError: there is no such function, it fails, or it returns something else.
    """
    return _made(imported(reference), seed)


@lru_cache(maxsize=2)
def _made(function: Callable[..., Any], seed: int) -> Own:
    return unpacked(called(function, seed))


def called(function: Callable[..., Any], seed: int) -> Any:
    """Calls a function with seeded generators.

    Args:
        function: the custom function.
        seed: the seed.

    Raises:
        InputError: the function fails; with its error.
    """
    try:
        wanted = {"seed": seed} if "seed" in inspect.signature(function).parameters else {}
        with _seeded(seed):
            return function(**wanted)
    except (Exception, SystemExit) as error:  # custom code can raise anything
        raise InputError(f"it fails with {describe_error(error)}") from error


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds all generators and limits torch to one thread for the block; restores everything afterwards."""
    before, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002  # the legacy generator, which is still in use
    with torch.random.fork_rng(devices=[]), torch_threads(1):  # ranks forked later must not inherit a pool of threads
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numbers)  # noqa: NPY002


def _as_expected(parts: Sequence[Any]) -> bool:
    return (
        len(parts) in (1, 2, 3)
        and isinstance(parts[0], nn.Module)
        and all(loss is None or callable(loss) for loss in parts[2:])
    )


def unpacked(answer: Any) -> Own:
    """Returns the parts of a function's result; raises `InputError` if they have another form."""
    parts: tuple[Any, ...] = answer if isinstance(answer, tuple) else (answer,)
    padded: list[Any] = [*parts, None, None, None]
    module, given, loss = padded[:3]
    if not _as_expected(parts):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise InputError(f"it returns {kinds}; expected {FORM}")
    if given is None or isinstance(given, Tensor):
        return Own(module, given, None, loss)
    if isinstance(given, Sequence) and all(isinstance(size, int) for size in given):
        return Own(module, torch.empty(*given), None, loss)
    examples = given if isinstance(given, Examples) else examples_of(given)
    return Own(module, examples.first(1).inputs[0], examples, loss)


def examples_of(data: Any) -> Examples:
    """Converts the data of a function: arrays or tensors, ((inputs, labels), (inputs, labels)).

    Integer labels are classes: one for each sample, or several, such as the next tokens of a text. Byte inputs are
    converted to numbers without scaling.
    """
    try:
        train, test = (LabelledBatch(_tensor(inputs), _tensor(labels)) for inputs, labels in data)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"it returns data that are no ((inputs, labels), (inputs, labels)): {error}") from error
    for half, name in ((train, "learned from"), (test, "held out")):
        counts = [len(part) if part.dim() else 0 for part in half]
        if counts[0] != counts[1] or not counts[0]:
            raise InputError(
                f"it returns {counts[0]} inputs and {counts[1]} labels to be {name}; expected a label each"
            )
    small = train.inputs.dtype in (torch.uint8, torch.bool)
    train, test = (LabelledBatch(half.inputs, _label(half.labels)) for half in (train, test))
    counted = not train.labels.is_floating_point()
    classes = int(max(train.labels.max(), test.labels.max())) + 1 if counted else None
    return Examples(train, test, classes, _numbers if small else as_they_are)


def _tensor(part: Any) -> Tensor:
    return torch.as_tensor(part).detach()


def _label(labels: Tensor) -> Tensor:
    return labels if labels.is_floating_point() else labels.long()


def _numbers(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    return inputs.to(dtype)


def squared(outputs: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean squared error; the outputs may have an additional dimension of size 1.

    Args:
        outputs: outputs of the module.
        labels: the labels.
    """
    if outputs.numel() != labels.numel():
        sizes = [" × ".join(map(str, part.shape)) for part in (outputs, labels)]
        raise ValueError(f"found answers of {sizes[0]} for labels of {sizes[1]}, expected as many numbers")
    return F.mse_loss(outputs.reshape(labels.shape), labels)


def start_of(module: nn.Module) -> Tensor:
    """Returns the initial weights of the module, flat, in double precision."""
    return torch.cat([parameter.detach().reshape(-1).double() for parameter in module.parameters()])
