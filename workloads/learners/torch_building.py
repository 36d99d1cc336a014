"""Builds a torch learner from names: the module, its examples, its initial weights and its loss.

A built-in model starts from `initial_weights`; a custom model starts from the weights that its function returned.

Tries a custom module on a few samples before anything runs, to check that it can be trained.

A gradient must be a function of the seed, weights and samples alone, or the interpreters would differ. So a module that
changes its buffers is rejected, and one that draws random numbers elsewhere than in a forward pass from torch's own
generator, which `torch_learner` seeds for each batch: from NumPy's or Python's, from a generator of its own, or in the
backward pass. Batch normalisation uses the statistics of the batch only: running means would be buffers that change,
and differ between workers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import replace_all_batch_norm_modules_

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import describe_error
from paceline.workloads import datasets as sets
from paceline.workloads.batches.drawing import Draw, FromFile, InMemoryExamples, read_part
from paceline.workloads.batches.examples import Examples, LabelledBatch, Loss, Shaped, Standardised, digits
from paceline.workloads.datasets import DATA, MANY, Half, LoadedDataset
from paceline.workloads.datasets.sentences import ALPHABET, sentences
from paceline.workloads.learners.torch_learner import PROCESSOR, TorchLearner, evaluating, seeded
from paceline.workloads.models import custom
from paceline.workloads.models.custom import Own
from paceline.workloads.models.threads import torch_threads
from paceline.workloads.models.zoo import USUAL, known_model
from paceline.workloads.reading import ReadingSettings
from paceline.workloads.reading.file import LABEL
from paceline.workloads.reading.folder import RecordedDataset

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


# They are drawn in float64 by NumPy and then rounded, so that both precisions start from the same point.


def uniform(module: nn.Module, seed: int) -> Tensor:
    """Draws weights and biases of linear layers and convolutions uniformly in ± 1/√inputs, the default of torch.

    Embeddings are drawn uniformly in ± 1/√width: like those of a layer with their vectors as inputs. Parameters of
    other layers (normalisation) keep their constants.

    Args:
        module: the module.
        seed: the seed.

    Returns:
        The weights, flat, in float64.

    >>> float(uniform(nn.Linear(4, 3), seed=1).abs().max()) <= 0.5
    True
    """
    generator = np.random.default_rng(np.random.SeedSequence((seed, 0, 2)))
    parts = []
    for layer in module.modules():
        for parameter in layer.parameters(recurse=False):
            if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd):
                bound = math.prod(layer.weight.shape[1:]) ** -0.5
                parts.append(torch.from_numpy(generator.uniform(-bound, bound, size=parameter.numel())))
            elif isinstance(layer, nn.Embedding):
                bound = layer.embedding_dim**-0.5
                parts.append(torch.from_numpy(generator.uniform(-bound, bound, size=parameter.numel())))
            else:
                parts.append(parameter.detach().reshape(-1).double())
    return torch.cat(parts)


def trained(
    model: str,
    *,
    dataset: str | None,
    data_dir: str | None,
    seed: int,
    dtype: torch.dtype,
    reading: ReadingSettings | None = None,
    samples: int | None = None,
) -> TorchLearner:
    """Builds the learner of a valid workload (see `building.problems`); the arguments are those of `building.build`.

    Raises:
        InputError: the custom function fails with this seed, although it works with another.
    """
    known = known_model(model)
    if known is None:
        try:
            return _own(model, dataset, data_dir, seed, dtype, reading, samples)
        except InputError as error:
            raise InputError(f"workload.model: {model!r} cannot be trained with seed {seed}: {error}") from error
    module = prepared(custom.unpacked(known.make()).module)
    examples = named(dataset or str(known.data), data_dir, known.shape).limited(samples)
    draw = _draw(examples, reading, seed, dtype)
    random = known.size is not None and known.size.drops
    return TorchLearner(module, examples, uniform(module, seed), seed=seed, dtype=dtype, draw=draw, random=random)


def _draw(examples: Examples, reading: ReadingSettings | None, seed: int, dtype: torch.dtype) -> Draw | None:
    """Returns a source of batches in the order of reading; None for the default order."""
    if examples.file is not None:
        order = (reading or ReadingSettings()).order(examples.num_samples, seed)
        return FromFile(examples.file, order, dtype=dtype, classes=examples.classes)
    if reading is None:
        return None
    train = examples.train.rounded(dtype)
    return InMemoryExamples(train, reading.order(len(train.labels), seed).positions)


def named(name: str, directory: str | None, shape: tuple[int, ...]) -> Examples:
    """Loads a data set of the catalogue.

    Args:
        name: the data set's name.
        directory: its folder; None: the default.
        shape: shape of the model's samples.
    """
    if name == "sentences":
        return _texts()
    if name == "digits":
        return digits() if len(shape) == 1 else replace(digits(), prepare=Shaped(shape))
    there = sets.read(name, directory, shape)
    return _in_files(there, shape) if isinstance(there, RecordedDataset) else _standardised(there, shape)


@lru_cache(maxsize=1)
def _texts() -> Examples:
    """Returns the sentences; the label of each token is the next one."""
    made = sentences()
    train, test = (
        LabelledBatch(half[:, :-1].contiguous(), half[:, 1:].contiguous())
        for half in map(torch.from_numpy, (made.train, made.test))
    )
    return Examples(train, test, classes=len(ALPHABET))


@lru_cache(maxsize=2)
def _standardised(loaded: LoadedDataset, shape: tuple[int, ...]) -> Examples:
    train, test = (_batch(half) for half in (loaded.train, loaded.test))
    return Examples(train, test, loaded.classes, Standardised.by(train.inputs, shape))


@lru_cache(maxsize=2)
def _in_files(there: RecordedDataset, shape: tuple[int, ...]) -> Examples:
    """Loads the held-out data and the first few training samples."""
    about, shape = there.about, shape or there.about.shape
    prepare: Callable[[Tensor, torch.dtype], Tensor] = Shaped(shape, kept=len(about.shape))
    if about.normalisation is not None:
        prepare = Standardised(_by_channel(about.normalisation.mean), _by_channel(about.normalisation.deviation), shape)
    first = min(TRIED, there.num_samples)
    counts = {there.train: first, there.test: there.test.num_samples}
    train, test = (read_part(file, count, there.classes) for file, count in counts.items())
    return Examples(train, test, there.classes, prepare, there.train)


def _by_channel(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None, None]


def _batch(half: Half) -> LabelledBatch:
    """Converts to tensors without copying."""
    return LabelledBatch(torch.from_numpy(half.pictures), torch.from_numpy(half.labels))


# --- a user's own ----------------------------------------------------------------------------------------------------


def _own(
    model: str,
    dataset: str | None,
    data_dir: str | None,
    seed: int,
    dtype: torch.dtype,
    reading: ReadingSettings | None,
    samples: int | None,
) -> TorchLearner:
    own = custom.made(model, seed)
    examples, random = _tried(own, _examples(own, dataset, data_dir).limited(samples))
    module, loss = prepared(copy.deepcopy(own.module)), _loss(own, examples)
    draw = _draw(examples, reading, seed, dtype)
    start = custom.start_of(own.module)
    return TorchLearner(module, examples, start, seed=seed, dtype=dtype, loss=loss, draw=draw, random=random)


def own_problems(model: str, dataset: str | None, data_dir: str | None) -> list[str]:
    """Returns all mistakes of a custom workload for training, each as ``key: …``.

    Args:
        model: as for `building.build`.
        dataset: as for `building.build`.
        data_dir: as for `building.build`.
    """
    try:
        own = custom.made(model)
    except InputError as error:
        return [f"model: {model!r}: {error}"]
    if own.examples is not None:
        brings = f"expected none: {model} brings data of its own"
        problems = [
            f"{key}: found {value!r}, {brings}"
            for key, value in [("dataset", dataset), ("data_dir", data_dir)]
            if value
        ]
    elif dataset is None:
        problems = [
            f"dataset: missing; expected one of {', '.join(DATA)}, or data that {model} returns beside its module"
        ]
    else:
        shape = _shape(own, dataset)
        problems = sets.misfit(model, dataset, shape, MANY) or sets.unreadable(dataset, data_dir, shape, MANY)
    if problems:
        return problems
    try:
        _tried(own, _examples(own, dataset, data_dir))
    except InputError as error:
        return [f"model: {model!r} cannot be trained: {error}"]
    return []


def own_population(model: str, dataset: str | None, data_dir: str | None) -> int:
    """Returns the number of samples in one epoch of a custom workload; the arguments are those of `own_problems`."""
    return _examples(custom.made(model), dataset, data_dir).num_samples


def own_record_bytes(model: str, dataset: str | None, data_dir: str | None) -> int:
    """Returns the bytes of one sample in a record file; the arguments are those of `own_problems`."""
    examples = _examples(custom.made(model), dataset, data_dir)
    inputs = examples.train.inputs
    if examples.file is not None:
        return examples.file.record_bytes
    return inputs[0].nbytes + LABEL.itemsize


def _examples(own: Own, dataset: str | None, data_dir: str | None) -> Examples:
    return own.examples or named(str(dataset), data_dir, _shape(own, str(dataset)))


def _shape(own: Own, dataset: str) -> tuple[int, ...]:
    """Returns the shape of a sample, from the function or the data set; (): as in the data set's folder."""
    known = DATA[dataset].shape if dataset in DATA else None
    return tuple(own.sample.shape) if own.sample is not None else USUAL if known is None else known


@lru_cache(maxsize=2)
def _tried(own: Own, examples: Examples) -> Tried:
    return tried(own.module, examples, _loss(own, examples))


def _loss(own: Own, examples: Examples) -> Loss:
    """Returns the custom loss, or the one that fits the labels."""
    return own.loss or (custom.squared if examples.train.labels.is_floating_point() else F.cross_entropy)
