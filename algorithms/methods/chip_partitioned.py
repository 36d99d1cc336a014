"""Partitions of one chip: each has its own weights, and all together compute the batch of the chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.gradient_weights import AppliedGradient
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import AllReduce, NextStep
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import descend, gradient_at
from paceline.algorithms.core.traffic import SCALE
from paceline.algorithms.core.values import Rank, Samples


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

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns η / (1 − μ): the weights of the parts, b_i / B, add up to 1."""
        return self.learning_rate_at(gradient.step) / (1 - self.momentum)

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
