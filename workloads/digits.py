"""Handwritten digits and the small network that learns them, in torch.

Rules of this file:

* Data and split never change, whatever the seed: results of different seeds are about the same problem. The seed
  fixes the initial weights and the order of samples.
* Weights are one flat tensor; layers are views of it. Nothing given is changed in place, and every gradient is new.
* Initial weights come from NumPy in float64 and are then rounded, so that both precisions start from the same point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor

from paceline.algorithms.job import Score
from paceline.algorithms.values import Layout, Samples
from paceline.workloads.models import MODELS
from paceline.workloads.sampling import positions

SHAPES = {"hidden": (64, 64), "output": (10, 64)}  # outputs x inputs of each layer's weights; its biases follow them

Data = tuple[Tensor, Tensor]
"""pixels and labels"""


@dataclass(frozen=True, slots=True)
class Digits:
    """scikit-learn's 1797 digits, split and standardised."""

    train: Data
    test: Data


@lru_cache(maxsize=2)
def digits(dtype: torch.dtype) -> Digits:
    """The data as tensors: 80 % to train on, 20 % held out, every class split alike (seed 0, whatever the run's).

    Each pixel is standardised by its mean and deviation over the training part; pixels that never change there stay 0.
    """
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(pixels, labels, test_size=0.2, stratify=labels, random_state=0)
    train, test, train_labels, test_labels = map(np.asarray, parts)
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    changes = deviation > 0

    def standardised(part: np.ndarray) -> Tensor:
        scaled = np.where(changes, (part - mean) / np.where(changes, deviation, 1.0), 0.0)
        return torch.tensor(scaled, dtype=dtype)

    return Digits(
        train=(standardised(train), torch.tensor(train_labels)),
        test=(standardised(test), torch.tensor(test_labels)),
    )


class DigitsMlp:
    """A 64-64-10 network with ReLU under cross-entropy, as a learner.

    Args:
        seed: of the initial weights and of the order of samples.
        dtype: of weights and data.
    """

    layout: Layout = MODELS["digits-mlp"].layout()

    def __init__(self, *, seed: int, dtype: torch.dtype = torch.float32) -> None:
        self.seed, self.dtype = seed, dtype
        self._digits = digits(dtype)

    @property
    def population(self) -> int:
        return len(self._digits.train[1])

    def initial(self) -> Tensor:
        """Uniform in ± 1/√inputs, weights and biases alike (what torch's Linear does)."""
        generator = np.random.default_rng(np.random.SeedSequence((self.seed, 0, 2)))
        parts = []
        for outputs, inputs in SHAPES.values():
            bound = inputs**-0.5
            parts.append(generator.uniform(-bound, bound, size=outputs * inputs + outputs))
        return torch.tensor(np.concatenate(parts), dtype=self.dtype)

    def load(self, samples: Samples) -> Data:
        """Pixels and labels of the batch."""
        chosen = torch.tensor(positions(samples, population=self.population, seed=self.seed))
        pixels, labels = self._digits.train
        return pixels.index_select(0, chosen), labels.index_select(0, chosen)

    def gradient(self, vector: Tensor, data: Data) -> tuple[Tensor, float]:
        """Mean gradient, flat and new, and mean loss over the batch."""
        leaves = self._leaves(vector)
        loss = _loss(leaves, data)
        gradients = torch.autograd.grad(loss, leaves)
        return torch.cat([part.reshape(-1) for part in gradients]), loss.item()

    def layer_gradients(self, vector: Tensor, data: Data, ready: Callable[[str, Tensor], None]) -> float:
        """As `gradient`, calling `ready` with each layer's part from within the backward pass, when it is complete.

        Returns the mean loss. The parts are bit for bit those of `gradient`.
        """
        leaves = self._leaves(vector)
        for number, name in enumerate(SHAPES):
            _hook(leaves[2 * number], leaves[2 * number + 1], name, ready)
        loss = _loss(leaves, data)
        loss.backward()
        return loss.item()

    def evaluate(self, vector: Tensor) -> Score:
        """Mean loss and accuracy on the digits held out."""
        pixels, labels = self._digits.test
        with torch.no_grad():
            logits = _logits(self._leaves(vector), pixels)
            loss = F.cross_entropy(logits, labels)
            accuracy = (logits.argmax(dim=1) == labels).double().mean()
        return Score(loss.item(), accuracy.item())

    def _leaves(self, vector: Tensor) -> list[Tensor]:
        """Weight and bias of each layer as views of `vector`; each is a leaf, so autograd writes no zeros around it."""
        leaves = []
        for layer, (outputs, inputs) in zip(self.layout.layers, SHAPES.values(), strict=True):
            part = vector.detach()[layer.part]
            weight, bias = part[: outputs * inputs].view(outputs, inputs), part[outputs * inputs :]
            leaves += [weight.requires_grad_(), bias.requires_grad_()]
        return leaves


def _logits(leaves: list[Tensor], pixels: Tensor) -> Tensor:
    hidden_weight, hidden_bias, output_weight, output_bias = leaves
    return F.linear(F.relu(F.linear(pixels, hidden_weight, hidden_bias)), output_weight, output_bias)


def _loss(leaves: list[Tensor], data: Data) -> Tensor:
    pixels, labels = data
    return F.cross_entropy(_logits(leaves, pixels), labels)


def _hook(weight: Tensor, bias: Tensor, name: str, ready: Callable[[str, Tensor], None]) -> None:
    """Calls `ready` once both of the layer's gradients are there, whichever comes second."""
    gradients: dict[str, Tensor] = {}

    # The hooks take the leaf as an argument and do not close over it: leaf, hook and leaf again would be a cycle,
    # and every step's tensors would wait for the garbage collector.
    def arrives(part: str) -> Callable[[Tensor], None]:
        def arrived(leaf: Tensor) -> None:
            assert leaf.grad is not None
            gradients[part] = leaf.grad.reshape(-1)
            if len(gradients) == 2:
                ready(name, torch.cat([gradients["weight"], gradients["bias"]]))

        return arrived

    weight.register_post_accumulate_grad_hook(arrives("weight"))
    bias.register_post_accumulate_grad_hook(arrives("bias"))
