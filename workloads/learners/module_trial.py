"""Tries a custom module on a few samples before anything runs, to check that it can be trained.

A gradient must be a function of the seed, weights and samples alone, or the interpreters would differ. So a module that
changes its buffers is rejected, and one that draws random numbers elsewhere than in a forward pass from torch's own
generator, which `torch_learner` seeds for each batch: from NumPy's or Python's, from a generator of its own, or in the
backward pass. Batch normalisation uses the statistics of the batch only: running means would be buffers that change,
and differ between workers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import replace_all_batch_norm_modules_

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import describe_error
from paceline.workloads.batches.examples import Examples, LabelledBatch, Loss
from paceline.workloads.learners.torch_learner import PROCESSOR, evaluating, seeded
from paceline.workloads.models.threads import torch_threads

BUT = ", or random numbers in the forward pass from torch's generator"
TRIED = 32
"""number of samples of a trial"""


def prepared(module: nn.Module) -> nn.Module:
    """Switches the module to training, with batch normalisation that uses the batch only and no running means."""
    return replace_all_batch_norm_modules_(module).train()


class Tried(NamedTuple):
    """What a trial found."""

    examples: Examples
    """without classes if the module does not return a score for each class, so there is no accuracy"""
    random: bool
    """whether the module draws random numbers"""


def tried(module: nn.Module, examples: Examples, loss: Loss) -> Tried:
    """Computes gradients of a few examples to check the module.

    Args:
        module: the custom module.
        examples: its data.
        loss: its loss.

    Raises:
        InputError: the module cannot be trained; with the reasons.
    """
    if said := [*_unfit(module)]:
        raise InputError("; ".join(said))
    module = prepared(copy.deepcopy(module)).float()
    batch, classes = examples.first(TRIED), examples.classes or 0
    try:
        with torch_threads(1):  # ranks forked later must not inherit a pool of threads
            trial = _try(module, batch, loss, classes)
    except InputError:
        raise
    except Exception as error:  # custom code can raise anything
        size = " × ".join(map(str, batch.inputs.shape[1:])) or "one number"
        raise InputError(
            f"it fails on a batch of {len(batch.labels)} samples of {size}: {describe_error(error)}"
        ) from error
    if said := [*trial.changes(module, batch.inputs)]:
        raise InputError("; ".join(said) + f"; expected a function of weights and samples alone{BUT}")
    fits = _scores(trial.answers, batch.labels) >= classes
    return Tried(examples if fits else replace(examples, classes=None), trial.random)


def _unfit(module: nn.Module) -> Iterator[str]:
    """Yields the mistakes that can be found without running the module."""
    parameters = dict(module.named_parameters())
    if not parameters:
        yield "it has no parameters; expected some to learn"
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            yield f"its parameter {name} needs no gradient; expected all to be learned (register a buffer instead)"


@dataclass(frozen=True, slots=True)
class _Trial:
    """The results of a module for a batch."""

    answers: Tensor
    again: Tensor
    """with the same random numbers of torch"""
    random: bool
    """whether torch's generator was used"""
    inputs: Tensor
    """afterwards"""
    buffers: Mapping[str, Tensor]
    """before"""
    slopes: Mapping[str, Tensor | None]
    slopes_again: Mapping[str, Tensor | None]

    def changes(self, module: nn.Module, inputs: Tensor) -> Iterator[str]:
        """Yields the reasons why the gradient is not a function of weights and samples alone."""
        if not torch.equal(self.answers, self.again):
            yield "it answers the same samples otherwise the second time"
        if not torch.equal(self.inputs, inputs):
            yield "it changes its inputs in place"
        for name, buffer in module.named_buffers():
            if not torch.equal(buffer, self.buffers[name]):
                yield f"it changes its buffer {name}"
        for name, slope in self.slopes.items():
            again = self.slopes_again[name]
            if slope is None or again is None:
                yield f"its loss does not depend on its parameter {name}"
            elif torch.equal(self.answers, self.again) and not torch.equal(slope, again):
                yield f"the gradient of its parameter {name} is otherwise the second time"


def _scores(answers: Tensor, labels: Tensor) -> int:
    """Returns the number of classes in dimension 1 of the module's outputs; 0 if they are not scores of the labels."""
    fits = answers.dim() == labels.dim() + 1 and answers.shape[2:] == labels.shape[1:]
    return answers.shape[1] if fits else 0


def _try(module: nn.Module, batch: LabelledBatch, loss: Loss, classes: int) -> _Trial:
    buffers = copy.deepcopy(dict(module.named_buffers()))
    parameters = dict(module.named_parameters())
    inputs = batch.inputs.clone()
    answers, random = _answers(module, inputs)
    if loss is F.cross_entropy and _scores(answers, batch.labels) < classes:
        actual = f"it answers with {_scores(answers, batch.labels)} scores a label"
        raise InputError(f"{actual}, expected one for each of {classes} classes")
    value = loss(answers, batch.labels)
    if value.dim():
        raise ValueError(f"the loss is a tensor of {' × '.join(map(str, value.shape))}, expected one number")
    again, _ = _answers(module, batch.inputs.clone())
    slopes, slopes_again = (
        dict(zip(parameters, torch.autograd.grad(scalar, [*parameters.values()], allow_unused=True), strict=True))
        for scalar in (value, loss(again, batch.labels))
    )
    with torch.no_grad(), evaluating(module), seeded(PROCESSOR, 1):
        loss(module(batch.inputs.clone()), batch.labels)
    return _Trial(answers.detach(), again.detach(), random, inputs, buffers, slopes, slopes_again)


def _answers(module: nn.Module, inputs: Tensor) -> tuple[Tensor, bool]:
    """Returns the outputs for a fixed seed of torch's generator, and whether it was used."""
    with seeded(PROCESSOR, 1):
        before = torch.get_rng_state()
        answers = module(inputs)
        return answers, not torch.equal(torch.get_rng_state(), before)
