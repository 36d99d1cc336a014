"""The baselines: one worker, and synchronous SGD by all-reduce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.algorithms.core.compression import Compression, averaged, beginning
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Descent, Me, Notion, Replica
from paceline.algorithms.core.operations import (
    Applied,
    Gradient,
    Load,
    Next,
    Work,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Weights


@dataclass(frozen=True, kw_only=True)
class SequentialSgd(Descent):
    """SGD on one worker: what every other method is compared with.

    x ← x − η g(x)
    """

    name = "sequential-sgd"
    notion = Notion.STEPS
    source = "Robbins and Monro 1951; the baseline of all five papers"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})
    alone: ClassVar[bool] = True

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            yield from Work("update", gradient.vector.nbytes)
            vector, memory = rule.update(state.weights.vector, gradient.vector, state.memory, room=gradient.vector)
            version = yield from Applied(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version), memory)
        return state


@dataclass(frozen=True, kw_only=True)
class SyncSgd(Descent):
    """Every gradient of every worker is averaged before anyone takes the step: one worker with P times the batch.

    x ← x − η (1/P) Σ_i g_i(x)
    """

    name = "sync-sgd"
    notion = Notion.STEPS
    source = "the synchronous baseline of all five papers"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})

    compression: Compression | None = None
    """how gradients are made smaller before they are averaged; provenance: None, as in all five papers"""

    def begin(self, me: Me, vector: Any) -> Replica:
        layers = me.layout.layers
        kept = beginning(self.compression, vector, layers)
        return Replica(0, Weights(vector, 0), self.rule(layers).init(vector), kept)

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            key = f"gradient {step.number}"
            mean, kept = yield from averaged(me.workers, gradient.vector, key, self.compression, state.kept)
            yield from Work("update", mean.nbytes)
            vector, memory = rule.update(state.weights.vector, mean, state.memory, room=mean)
            version = yield from Applied(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version), memory, kept)
        return state
