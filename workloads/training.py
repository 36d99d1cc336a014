"""From names to a learner that trains: the module, its examples, where it starts, its loss.

Rules of this file: a model of the zoo starts where `starts` says; one of the user's own where its function made it.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import lru_cache

import torch
import torch.nn.functional as F

from paceline.algorithms.errors import InputError
from paceline.workloads import data as sets
from paceline.workloads import own, trial
from paceline.workloads.data import DATA, Half, Loaded
from paceline.workloads.digits import digits
from paceline.workloads.drawing import Draw, InMemory
from paceline.workloads.examples import Batch, Examples, Shaped, Standardised
from paceline.workloads.own import Own
from paceline.workloads.reading import Reading
from paceline.workloads.starts import uniform
from paceline.workloads.torch_learner import Loss, TorchLearner
from paceline.workloads.zoo import USUAL, ZOO

MANY = 1 << 30
"""classes that a user's module may tell apart, for all that is known before it is tried"""


def trained(
    model: str,
    *,
    data: str | None,
    directory: str | None,
    seed: int,
    dtype: torch.dtype,
    reading: Reading | None = None,
) -> TorchLearner:
    """The learner of a workload that has no problems (`building.problems`).

    Raises:
        InputError: the user's function fails with this seed, though not with another.
    """
    if ":" in model:
        try:
            return _own(model, data, directory, seed, dtype, reading)
        except InputError as error:
            raise InputError(f"workload.model: {model!r} cannot be trained with seed {seed}: {error}") from error
    known = ZOO[model]
    module = trial.prepared(known.make())
    examples = named(data or str(known.data), directory, known.shape)
    draw = _draw(examples, reading, seed, dtype)
    return TorchLearner(module, examples, uniform(module, seed), seed=seed, dtype=dtype, draw=draw)


def _draw(examples: Examples, reading: Reading | None, seed: int, dtype: torch.dtype) -> Draw | None:
    """Batches in the order in which they are read; None: in the usual one."""
    if reading is None:
        return None
    train = examples.train.rounded(dtype)
    return InMemory(train, reading.order(len(train.labels), seed).positions)


def named(name: str, directory: str | None, shape: tuple[int, ...]) -> Examples:
    """A data set of the catalogue, for a model that takes samples of this shape."""
    if name == "digits":
        return digits() if len(shape) == 1 else replace(digits(), prepare=Shaped(shape))
    return _standardised(sets.read(name, directory, shape), shape)


@lru_cache(maxsize=2)
def _standardised(loaded: Loaded, shape: tuple[int, ...]) -> Examples:
    train, test = (_batch(half) for half in (loaded.train, loaded.test))
    return Examples(train, test, loaded.classes, Standardised.by(train.inputs, shape))


def _batch(half: Half) -> Batch:
    """The same bytes; nothing is copied."""
    return Batch(torch.from_numpy(half.pictures), torch.from_numpy(half.labels))


# --- a user's own ----------------------------------------------------------------------------------------------------


def _own(
    model: str, data: str | None, directory: str | None, seed: int, dtype: torch.dtype, reading: Reading | None
) -> TorchLearner:
    mine = own.made(model, seed)
    examples = _tried(mine, _examples(mine, data, directory))
    module, loss = trial.prepared(copy.deepcopy(mine.module)), _loss(mine, examples)
    draw = _draw(examples, reading, seed, dtype)
    return TorchLearner(module, examples, own.start_of(mine.module), seed=seed, dtype=dtype, loss=loss, draw=draw)


def own_problems(model: str, data: str | None, directory: str | None) -> list[str]:
    """All that is wrong with a workload of the user's own that is to be trained, each as ``key: …``."""
    try:
        mine = own.made(model)
    except InputError as error:
        return [f"model: {model!r}: {error}"]
    if mine.examples is not None:
        brings = f"expected none: {model} brings data of its own"
        found = [
            f"{key}: found {value!r}, {brings}" for key, value in [("data", data), ("directory", directory)] if value
        ]
    elif data is None:
        found = [f"data: missing; expected one of {', '.join(DATA)}, or data that {model} returns beside its module"]
    else:
        shape = _shape(mine, data)
        found = sets.misfit(model, data, shape, MANY) or sets.unreadable(data, directory, shape, MANY)
    if found:
        return found
    try:
        _tried(mine, _examples(mine, data, directory))
    except InputError as error:
        return [f"model: {model!r} cannot be trained: {error}"]
    return []


def own_population(model: str, data: str | None, directory: str | None) -> int:
    """Samples in one epoch."""
    return len(_examples(own.made(model), data, directory).train.labels)


def _examples(mine: Own, data: str | None, directory: str | None) -> Examples:
    return mine.examples or named(str(data), directory, _shape(mine, str(data)))


def _shape(mine: Own, data: str) -> tuple[int, ...]:
    """Of a sample: what the function says, else the data set's own."""
    known = DATA[data].shape if data in DATA else None
    return tuple(mine.sample.shape) if mine.sample is not None else known or USUAL


@lru_cache(maxsize=2)
def _tried(mine: Own, examples: Examples) -> Examples:
    return trial.tried(mine.module, examples, _loss(mine, examples))


def _loss(mine: Own, examples: Examples) -> Loss:
    """The user's, or what belongs to the labels."""
    return mine.loss or (own.squared if examples.train.labels.is_floating_point() else F.cross_entropy)
