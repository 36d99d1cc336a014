"""The models of `benchmarks/backend.py`: three models on random pictures, and a learner without arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from paceline.algorithms.core.job import Evaluation, OneByOne
from paceline.algorithms.core.values import Layer, Layout, Samples
from paceline.workloads.batches.examples import Examples, LabelledBatch
from paceline.workloads.learners.torch_learner import TorchLearner

SEED = 1
EXAMPLES = 4096
CLASSES = 10


def mlp(*widths: int) -> nn.Module:
    """Returns dense layers from 784 inputs to 10 classes."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip((784, *widths), widths, strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))


def cnn() -> nn.Module:
    """Two convolutions and two dense layers for pictures of 28 × 28."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1600, 122),
        nn.ReLU(),
        nn.Linear(122, CLASSES),
    )


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the length of its runs.

    Args:
        make: Builds the module.
        steps: The number of timed steps in each launch; whole periods of averaging.
    """

    make: Callable[[], nn.Module]
    steps: int


MODELS = {
    "mlp": Model(lambda: mlp(256), 320),
    "cnn": Model(cnn, 64),
    "mlp-10m": Model(lambda: mlp(2800, 2700), 32),
}
"""784-256-10 of 204 thousand parameters, 215 thousand, and 784-2800-2700-10 of 9.8 million"""


def learner_of(name: str) -> TorchLearner:
    """Returns the model on random pictures with random labels, because the timing does not depend on them."""
    torch.manual_seed(SEED)
    module = MODELS[name].make()
    pictures, labels = torch.randn(EXAMPLES, 784), torch.randint(CLASSES, (EXAMPLES,))
    train = LabelledBatch(pictures, labels)
    examples = Examples(train, train.at(slice(0, CLASSES)), CLASSES)
    start = parameters_to_vector(module.parameters()).detach().clone()
    return TorchLearner(module, examples, start, seed=SEED)


@dataclass(frozen=True)
class Nothing(OneByOne):
    """A learner without arithmetic: the time of a step is the overhead of the run."""

    layers: int = 4
    num_samples: int = EXAMPLES

    @property
    def layout(self) -> Layout:
        return Layout(tuple(Layer(f"layer{place}", place, place + 1) for place in range(self.layers)))

    def initial(self) -> Any:
        return torch.zeros(self.layers)

    def load(self, samples: Samples) -> Any:
        return None

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return vector.clone(), 0.0

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        gradient = vector.clone()
        for layer in reversed(self.layout.layers):
            ready(layer.name, gradient[layer.part])
        return 0.0

    def evaluate(self, vector: Any) -> Evaluation:
        return Evaluation(0.0, None)
