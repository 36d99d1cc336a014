"""Decoupled momentum: each worker keeps its own momentum and sends only the largest part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from paceline.algorithms.core.compression import average_compressed, beginning
from paceline.algorithms.core.dct_top_k import DctTopK
from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind, changed
from paceline.algorithms.core.operations import Charge, NextStep
from paceline.algorithms.core.option_groups import Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain, Clip, ScaleByLearningRate, Sign, StepContext, Transform, WeightDecay
from paceline.algorithms.core.steps import apply_gradient, gradient_at
from paceline.algorithms.core.values import GradientResult, Layer, Rank, Weights


@dataclass(frozen=True, kw_only=True)
class DeMo(SgdMethod):
    """Each worker sends the largest cosine coefficients of its own momentum, and all step by the sign of their mean.

    m_i ← μ m_i + g_i(x);  q_i = the k largest of C m_i in every tile;  m_i ← m_i − Cᵀ q_i;
    x ← x − η (sign(Cᵀ mean_i q_i) + λ x)

    C is the orthonormal cosine transform of tiles of s × s numbers. With update = plain there is no sign.
    """

    name = "demo"
    staleness_kind = StalenessKind.STEPS
    source = "Peng, Quesnelle, Kingma 2024, 'DeMo: Decoupled Momentum Optimization', arXiv 2411.19870"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})

    ranges: ClassVar[Mapping[str, Range]] = {"chunk": DctTopK.ranges["chunk"]}

    learning_rate: float = 0.01
    """η; provenance: ours, for the digits; a step by the sign moves every weight by η. The authors' model of 1 billion
    parameters has 4e-4"""
    momentum: float = 0.999
    """μ, the decay of each worker's own momentum; provenance: `compression_decay` of the authors' code"""
    chunk: int = 64
    """s, rows and columns of a tile; provenance: `compression_chunk` of the authors' code"""
    k: int = 32
    """coefficients sent of each tile, all of them if a tile has fewer; provenance: `compression_topk` of the authors'
    code"""
    update: Literal["sign", "plain"] = "sign"
    """whether a step is the sign of the mean or the mean itself; provenance: the authors' code has sign"""
    average_over: Literal["senders", "workers"] = "senders"
    """whether the mean of a coefficient is over the workers that sent it, or over all; provenance: the authors' code
    has senders"""

    @property
    def extraction(self) -> DctTopK:
        """The compression whose unsent part is the momentum."""
        return DctTopK(chunk=self.chunk, k=self.k, decay=self.momentum, average_over=self.average_over)

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.nesterov:
            problems.append("nesterov: found true, expected false: a worker sends a part of its momentum as it is")
        if self.lars is not None:
            problems.append("lars: found it, expected null: the momentum is scaled by its sign, not by norms of layers")
        return problems

    def linear_form(self) -> Self:
        """Returns the form without signs that sends all coefficients, so that no momentum remains."""
        every = self.chunk * self.chunk
        return changed(super().linear_form(), update="plain", average_over="workers", k=every)

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns η / P."""
        return self.learning_rate_at(gradient.step) / gradient.living

    def rule(self, layers: Sequence[Layer]) -> Chain:
        """Returns the chain that is applied to the mean: the momentum is before it, in `extraction`."""
        links: list[Transform] = [Sign()] if self.update == "sign" else []
        if self.decay:
            links.append(WeightDecay(self.decay))
        return Chain((*links, ScaleByLearningRate(self.learning_rate, self.schedule)), layers)

    def begin(self, me: RankContext, vector: Any) -> Replica:
        layers = me.layout.layers
        return Replica(
            0, Weights(vector, 0), self.rule(layers).init(vector), beginning(self.extraction, vector, layers)
        )

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            if self.max_grad_norm is not None:
                gradient = yield from self.clipped(gradient, self.max_grad_norm)
            key = f"momentum {step.number}"
            mean, unsent = yield from average_compressed(gradient, me.workers, key, self.extraction, state.residual)
            state = yield from apply_gradient(rule, replace(state, residual=unsent), mean)
        return state

    @program
    def clipped(self, gradient: GradientResult, limit: float) -> Program[GradientResult]:
        """Clips this worker's own gradient, as the authors' training does, before it enters the momentum."""
        clip = Clip(limit)
        yield from Charge("clip", gradient.vector.nbytes, traffic=clip.traffic(1))
        vector, _ = clip.update(gradient.take_vector(), None, StepContext(None, gradient.step))
        return replace(gradient, vector=vector)
