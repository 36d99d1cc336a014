"""Layer tables of the models: parameters and costs of each layer, first layer first.

Counts are derived by tracing (`layer_tracing`), or computed from a transformer's shape (`transformer_shapes`), never
entered as totals; tests compare them with the totals of papers. A table is read when its model is requested. Only the
tracing of custom models needs torch.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import imported, near_miss
from paceline.algorithms.core.values import Layer, Layout
from paceline.workloads.models.layer_costs import TABLES, LayerWork, read_table
from paceline.workloads.models.transformer_config import EXAMPLE, canonical, is_size
from paceline.workloads.models.transformer_shapes import TransformerShape, shape_rows
from paceline.workloads.models.zoo import IMAGENET, USUAL, ZOO, Known, known_model


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """One layer: weights and biases together."""

    name: str
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A model's layers, and the size of the data set that it is usually trained on.

    Args:
        layers: the layers with parameters.
        works: all modules with their costs; empty if unknown.
        family: name of the models with similar kernels; the model's own name if there are no others.
        sample_bytes: bytes of the input of one sample on a device.

    >>> MODELS["lenet"].parameters
    431080
    """

    name: str
    layers: tuple[LayerInfo, ...]
    num_samples: int
    """number of samples in one epoch"""
    provenance: str
    works: tuple[LayerWork, ...] = ()
    family: str = ""
    sample_bytes: int = 0

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def forward_flops(self) -> int:
        """Floating point operations of a forward pass of one sample; a multiplication and an addition are two.

        >>> MODELS["resnet50"].forward_flops / 2e9
        3.857973248
        """
        return sum(work.forward.flops for work in self.works)

    @property
    def training_flops(self) -> int:
        """Floating point operations of the forward and the backward pass of one sample."""
        return self.forward_flops + sum(work.backward.flops for work in self.works)

    def layout(self) -> Layout:
        """Returns the places of the layers in one flat vector.

        >>> MODELS["digits-mlp"].layout().layers[1]
        Layer(name='output', start=4160, stop=4810)
        """
        return layout_of(self.layers)


def layout_of(layers: tuple[LayerInfo, ...]) -> Layout:
    """Returns the place of each layer in a flat vector of all layers, in elements."""
    placed, start = [], 0
    for layer in layers:
        placed.append(Layer(layer.name, start, start + layer.parameters))
        start += layer.parameters
    return Layout(tuple(placed))


QUADRATIC = ModelInfo(
    name="quadratic",
    layers=(LayerInfo("first", 32), LayerInfo("second", 32)),
    num_samples=1024,
    provenance="noisy quadratic model, Zhang et al., NeurIPS 2019; dimensions ours, an option of the learning problem",
)


def _of(name: str, works: tuple[LayerWork, ...], **fields: Any) -> ModelInfo:
    layers = tuple(LayerInfo(work.name, work.parameters) for work in works if work.parameters)
    return ModelInfo(name=name, layers=layers, works=works, **fields)


def transformer_model(name: str, shape: TransformerShape, **fields: Any) -> ModelInfo:
    """Returns a transformer of a shape; a sample is its context.

    Args:
        name: of the model.
        shape: its sizes.
        fields: the other fields of `ModelInfo`.

    >>> from paceline.workloads.models.transformer_shapes import GPT2_SMALL
    >>> transformer_model("mine", GPT2_SMALL, num_samples=1, provenance="an example").parameters
    124439808
    """
    return _of(name, shape_rows(shape), **fields)


@cache
def _known(name: str) -> ModelInfo:
    about = ZOO[name]
    return _described(name, about, read_table(TABLES / f"{name}.csv") if about.size is None else shape_rows(about.size))


@lru_cache(maxsize=64)
def _sized(text: str) -> ModelInfo:
    about = known_model(text)
    assert about is not None and about.size is not None, "the text is that of a size"
    return _described(text, about, shape_rows(about.size))


def _described(name: str, about: Known, works: tuple[LayerWork, ...]) -> ModelInfo:
    return _of(
        name,
        works,
        family=about.family,
        num_samples=about.num_samples,
        provenance=about.provenance,
        sample_bytes=about.number_bytes * math.prod(about.shape),
    )


class _Models(Mapping[str, ModelInfo]):
    """Reads the table of a model when it is requested."""

    _names = (*ZOO, QUADRATIC.name)

    def __getitem__(self, name: str) -> ModelInfo:
        if name not in self._names:
            raise KeyError(name)
        return QUADRATIC if name == QUADRATIC.name else _known(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # without reading a table


MODELS: Mapping[str, ModelInfo] = _Models()


def find_model(name: str, shape: tuple[int, ...] | None = None) -> ModelInfo:
    """Finds a model by its name in `MODELS`, its size, or ``module:function`` or ``path/to/file.py:function``.

    A size is a text, or the path of a config.json (see `transformer_config`).

    The function returns a `torch.nn.Module`, or a tuple of it with the shape of one sample (without the batch), a
    sample itself, or data (see `custom`). It is traced.

    Args:
        name: the model.
        shape: the shape of a sample for a function that does not give it; by default 3 × 224 × 224.

    Raises:
        InputError: there is no such model, or it cannot be traced.

    >>> find_model("vgg19").parameters
    143667240
    >>> find_model("paceline.workloads.models.paper_networks:transformer").parameters
    8289552
    >>> find_model("vgg")
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: unknown model 'vgg' (did you mean vgg19?)
    """
    if name in MODELS:
        return MODELS[name]
    if is_size(name):
        try:
            return _sized(canonical(name))
        except InputError as error:
            raise InputError(f"model {name!r}: {'; '.join(str(error).splitlines())}") from error
    if ":" in name:
        return _traced(name, shape or USUAL)
    there_are = f"there are {', '.join(MODELS)}, your own as module:function, or a size such as {EXAMPLE}"
    raise InputError(f"unknown model {name!r}{near_miss(name, MODELS, there_are, cutoff=0.5)}")


@cache
def _traced(name: str, shape: tuple[int, ...]) -> ModelInfo:
    try:
        maker = imported(name)
    except InputError as error:
        raise InputError(f"model {name!r}: {error}; expected module:function or path/to/file.py:function") from error
    import torch  # imported here, as it takes a second and the built-in models do not need it

    from paceline.workloads.models.custom import FORM, Own, called, made, unpacked
    from paceline.workloads.models.layer_tracing import trace

    def info(own: Own) -> ModelInfo:
        sample = torch.empty(*shape, device="meta") if own.sample is None else own.sample
        works = trace(copy.deepcopy(own.module), sample)
        num_samples = IMAGENET if own.examples is None else len(own.examples.train.labels)
        words = "DERIVED by tracing the user's own module"
        size = sample.element_size() * sample.nelement()
        return _of(name, works, family="", num_samples=num_samples, provenance=words, sample_bytes=size)

    with contextlib.suppress(Exception), torch.device("meta"):  # a model of any size costs no memory there,
        return info(unpacked(called(maker, 1)))
    try:  # but a function that uses real data fails there
        return info(made(name))
    except Exception as error:  # custom code can raise anything
        raise InputError(f"model {name!r} cannot be traced: {error}; expected {FORM}") from error
