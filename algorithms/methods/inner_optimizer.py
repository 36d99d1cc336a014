"""The inner optimizer of methods that also have an outer one: AdamW, or the chain that all methods share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from paceline.algorithms.core.adam import AdamW
from paceline.algorithms.core.method import SgdMethod, changed
from paceline.algorithms.core.option_groups import FRACTION, POSITIVE, Range
from paceline.algorithms.core.rules import Chain, Clip, ScaleByLearningRate, Transform
from paceline.algorithms.core.values import Layer, Rank

ADAMW_DECAY = 0.01
"""AdamW's weight decay if a scenario gives none; provenance: torch.optim.AdamW's default"""


@dataclass(frozen=True, kw_only=True)
class InnerOptimizer(SgdMethod):
    """Base of methods whose local steps are those of AdamW or of plain SGD."""

    ranges: ClassVar[Mapping[str, Range]] = {"beta1": FRACTION, "beta2": FRACTION, "epsilon": POSITIVE}

    learning_rate: float = 0.005
    """η of the inner optimizer; provenance: ours; the length of AdamW's steps depends only on its learning rate"""
    inner: Literal["adamw", "sgd"] = "adamw"
    """the inner optimizer; provenance: the source has AdamW; sgd is the chain that all methods share"""
    beta1: float = 0.9
    """β1 of AdamW; provenance: torch's default, as are those below"""
    beta2: float = 0.999
    """β2 of AdamW"""
    epsilon: float = 1e-8
    """ε of AdamW"""
    weight_decay: float | None = None  # type: ignore[assignment]  # None: the default of the inner optimizer, see `decay`
    """the inner optimizer's decay, which AdamW does not pass through the moments; None is `ADAMW_DECAY` with AdamW,
    and 0 with sgd, as in every method; provenance: torch's defaults"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        found = super().problems(nodes)
        if self.inner == "adamw":
            if self.momentum:
                found.append(f"momentum: found {self.momentum}, expected 0 with inner = adamw, which has β1")
            if self.lars is not None:
                found.append(
                    "lars: found it with inner = adamw, whose steps have no gradient's length; use inner = sgd"
                )
        return found

    @property
    def decay(self) -> float:
        """The weight decay of the inner optimizer: the given one, or its default."""
        if self.weight_decay is not None:
            return self.weight_decay
        return ADAMW_DECAY if self.inner == "adamw" else 0.0

    def linear_form(self) -> Self:
        return changed(super().linear_form(), inner="sgd")

    def initial_weight(self, updates: int) -> float | None:
        return None  # an outer step changes what local steps have decayed

    def rule(self, layers: Sequence[Layer]) -> Chain:
        """Returns the inner optimizer."""
        if self.inner == "sgd":
            return super().rule(layers)
        adamw = AdamW(self.beta1, self.beta2, self.epsilon, self.decay)
        clipped: tuple[Transform, ...] = () if self.max_grad_norm is None else (Clip(self.max_grad_norm),)
        return Chain((*clipped, adamw, ScaleByLearningRate(self.learning_rate, self.schedule)), layers)
