"""The baselines: one worker, and synchronous SGD by all-reduce.

Partitions of one chip: each has its own weights, and all together compute the batch of the chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from paceline.algorithms.core.compression import Compression, average_compressed, beginning, with_linear_compression
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import AccumulatingMethod, RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import AllReduce, NextStep
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import accumulated_gradient, apply_gradient, descend, gradient_at
from paceline.algorithms.core.traffic import SCALE
from paceline.algorithms.core.values import Rank, Samples, Weights


@dataclass(frozen=True, kw_only=True)
class SequentialSgd(AccumulatingMethod):
    """SGD on one worker, the reference for all other methods.

    x ← x − η g(x)
    """

    name = "sequential-sgd"
    staleness_kind = StalenessKind.STEPS
    source = "Robbins and Monro 1951; the baseline of all five papers"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})
    alone: ClassVar[bool] = True

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from accumulated_gradient(state.weights, step.samples, self.accumulate)
            state = yield from apply_gradient(rule, state, gradient)
        return state


@dataclass(frozen=True, kw_only=True)
class SyncSgd(AccumulatingMethod):
    """All workers average their gradients in each step and take the same step, as one worker with P times the batch.

    x ← x − η (1/P) Σ_i g_i(x)
    """

    name = "sync-sgd"
    staleness_kind = StalenessKind.STEPS
    source = "the synchronous baseline of all five papers"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})

    compression: Compression | None = None
    """compression of gradients before they are averaged; provenance: None, as in all five papers"""

    def linear_form(self) -> Self:
        return with_linear_compression(super().linear_form(), self.compression)

    def begin(self, me: RankContext, vector: Any) -> Replica:
        layers = me.layout.layers
        kept = beginning(self.compression, vector, layers)
        return Replica(0, Weights(vector, 0), self.rule(layers).init(vector), kept)

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from accumulated_gradient(state.weights, step.samples, self.accumulate)
            key = f"gradient {step.number}"
            mean, kept = yield from average_compressed(gradient, me.workers, key, self.compression, state.residual)
            state = yield from apply_gradient(rule, replace(state, residual=kept), mean)
        return state


@dataclass(frozen=True, kw_only=True)
class ChipPartitionedSgd(SgdMethod):
    """Each worker is a partition of one chip: it computes a part of the chip's batch, and all sum their gradients.

    part i of P, with b_i of the chip's B samples:  x ← x − η Σ_i (b_i / B) g_i(x)

    `batch_per_worker` is the chip's batch B, as in sequential SGD, divided into parts that differ by at most one
    sample.
    """

    name = "chip-partitioned-sgd"
    staleness_kind = StalenessKind.STEPS
    source = "You, Buluç, Demmel, SC'17 (partitioning one KNL chip)"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})

    divides_batch: ClassVar[bool] = True

    def samples_per_step(self, batch: int, workers: int) -> int:
        return batch

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if len(nodes) > 1:
            said = f"name: {self.name} divides one chip, found {len(nodes)} nodes"
            problems.append(f"{said}; put all workers on one node")
        return problems

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            part, whole = part_of(step.samples), step.samples.count
            gradient = yield from gradient_at(state.weights, part)
            share = part.count * gradient.vector / whole
            key = f"gradient {step.number}"
            total = yield from AllReduce(value=share, group=me.workers, key=key, op="sum")
            state = yield from descend(rule, state, total, gradient.contribution(), also=2 * SCALE)
        return state


def part_of(samples: Samples) -> Samples:
    """Returns a worker's part of the batch of the chip.

    >>> [part_of(Samples(worker, workers=3, index=0, count=8)).count for worker in range(3)]
    [3, 3, 2]
    """
    least, more = divmod(samples.count, samples.workers)
    if not least:
        raise InputError(
            f"batch_per_worker: {samples.count} samples do not make {samples.workers} parts; "
            f"give {samples.workers} or more"
        )
    before = samples.worker * least + min(samples.worker, more)
    return replace(samples, count=least + (samples.worker < more), before=before, together=samples.count)
