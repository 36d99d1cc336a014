"""The inner optimizer of methods that also have an outer one: AdamW, unless another one is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from paceline.algorithms.core.method import Optimizer, SgdMethod, changed
from paceline.algorithms.core.values import Rank


@dataclass(frozen=True, kw_only=True)
class InnerOptimizer(SgdMethod):
    """Base of methods whose local steps are those of an inner optimizer."""

    rate_of_adam: ClassVar[float | None] = None

    learning_rate: float = 0.005
    """η of the inner optimizer; provenance: ours; the length of AdamW's steps depends only on its learning rate"""
    inner: Optimizer = "adamw"
    """the inner optimizer; provenance: the source has AdamW; sgd is the chain that all methods share"""
    optimizer: Optimizer | None = None  # type: ignore[assignment]  # None: as `inner` says, see `steps_by`
    """the name that all other methods have for `inner`; None: as `inner` says"""

    @property
    def steps_by(self) -> Optimizer:
        """The inner optimizer."""
        return self.inner if self.optimizer is None else self.optimizer

    @property
    def _key_of_optimizer(self) -> str:
        return "inner" if self.optimizer is None else "optimizer"

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.optimizer is not None and self.inner not in (self.optimizer, type(self).inner):
            problems.append(
                f"optimizer: found {self.optimizer} beside inner = {self.inner}, expected one of them: both are the "
                "inner optimizer"
            )
        return problems

    def linear_form(self) -> Self:
        return changed(super().linear_form(), inner="sgd", optimizer=None)

    def initial_weight(self, updates: int) -> float | None:
        return None  # an outer step changes what local steps have decayed
