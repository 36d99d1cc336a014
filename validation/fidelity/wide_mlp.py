"""The third model of the fidelity study: a perceptron of 197,482 weights that learns the digits.

It is larger than the two models for digits that come with Paceline, so that a message costs more than its handling.
"""

from __future__ import annotations

from torch import nn

HIDDEN = 408
"""gives the weights of 64·408 + 408 + 408·408 + 408 + 408·10 + 10"""


def wide_mlp() -> nn.Module:
    """Returns the module; it takes samples of 1 × 8 × 8."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, 10),
    )
