"""Decoupled momentum: each worker keeps its own momentum and sends only the largest part of it.

In every step, or at the end of rounds of local steps, where the momentum is that of the outer optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from paceline.algorithms.core.chunk_top_k import ChunkTopK
from paceline.algorithms.core.compression import average_compressed, average_of_messages, beginning
from paceline.algorithms.core.dct_top_k import DctTopK
from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind, changed
from paceline.algorithms.core.operations import Charge, NextStep, RecordUpdate
from paceline.algorithms.core.option_groups import Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain, Clip, ScaleByLearningRate, Sign, StepContext, Transform, WeightDecay
from paceline.algorithms.core.steps import apply_gradient, gradient_at
from paceline.algorithms.core.values import GradientResult, Layer, Rank, Weights
from paceline.algorithms.methods.outer import CHANGE, NESTEROV, NesterovRounds, Outer


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


@dataclass(frozen=True, kw_only=True)
class SparseLoCo(NesterovRounds):
    """Rounds of local steps; of its changes a worker sends the largest of every chunk in few bits, and keeps the rest.

    H times:  x_i ← one step of the inner optimizer
    then:     e_i ← β e_i + (x' − x_i);  q_i = Q(the k largest numbers of every chunk of e_i);  e_i ← e_i − q_i;
              Δ = (1/P) Σ_i q_i;  V ← M V + Δ;  x' ← x' − R (Δ + M V);  x_i ← x'

    What a worker keeps takes the place of the outer momentum, so M is 0. Q rounds to 2 bits.
    """

    name = "sparse-loco"
    source = (
        "Sarfi, Thérien, Lidin, Belilovsky 2025, 'Communication Efficient LLM Pre-training with SparseLoCo', "
        "arXiv 2508.15706; its authors' code, tplr-ai/SparseLoCo"
    )
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.REPLICAS_MEET, Guarantee.BOUNDED_STALENESS})

    ranges: ClassVar[Mapping[str, Range]] = {
        "chunk": ChunkTopK.ranges["chunk"],
        "error_decay": ChunkTopK.ranges["decay"],
    }

    learning_rate: float = 0.01
    """η of the inner optimizer; provenance: ours, the best of 0.005, 0.01 and 0.02 on the digits"""
    outer_learning_rate: float = 1.0
    """R; provenance: the source's listing has no other factor; reports on its authors' run say 1, later 0.65"""
    outer_momentum: float = 0.0
    """M; provenance: the source, in which the error feedback takes its place"""
    chunk: int = 4096
    """consecutive numbers of a layer in a chunk; provenance: the source"""
    k: int = 64
    """numbers sent of each whole chunk, and as large a share of a smaller one; provenance: the source"""
    error_decay: float = 0.95
    """β, the factor on what was not sent before; provenance: the source"""
    bits: Literal[1, 2, 4] | None = 2
    """of a number that is sent; None: numbers as they are; provenance: the source"""
    average_over: Literal["workers", "senders"] = "workers"
    """whether the mean of a number is over all workers, or over those that sent it; provenance: the source's listing;
    its code takes senders"""

    @property
    def sparsification(self) -> ChunkTopK:
        """The compression whose unsent part is the error feedback."""
        return ChunkTopK(
            chunk=self.chunk, k=self.k, decay=self.error_decay, bits=self.bits, average_over=self.average_over
        )

    def linear_form(self) -> Self:
        """Returns the form in which all of what is not sent is sent later, as it is."""
        return changed(super().linear_form(), error_decay=1.0, bits=None, average_over="workers")

    def begin(self, me: RankContext, vector: Any) -> Outer:
        return replace(super().begin(me, vector), residual=beginning(self.sparsification, vector, me.layout.layers))

    @program
    def end_of_round(self, me: RankContext, state: Outer) -> Program[Outer]:
        moved, key = state.start - state.weights.vector, f"everyone {state.step}"
        change, unsent = yield from average_of_messages(moved, me.workers, key, self.sparsification, state.residual)
        yield from Charge("update", change.nbytes, traffic=CHANGE + NESTEROV)
        vector, velocity = self.outer(state.start, state.velocity, change)
        version = yield from RecordUpdate(Weights(vector, state.weights.version))
        return replace(state, weights=Weights(vector, version), start=vector, velocity=velocity, residual=unsent)
