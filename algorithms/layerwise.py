"""Layer-wise exchange: a layer's all-reduce starts as its gradient is ready, while earlier layers still compute."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.algorithms.method import Descent, Guarantee, Me, Notion, Replica
from paceline.algorithms.operations import (
    AllReduce,
    Applied,
    LayerGradients,
    Load,
    Next,
    Start,
    Wait,
    Work,
)
from paceline.algorithms.program import Program, program
from paceline.algorithms.values import Weights, join


@dataclass(frozen=True, kw_only=True)
class LayerwiseSgd(Descent):
    """Synchronous SGD with layer-wise overlap: backward goes last layer first, and so do the exchanges.

    x[l] ← x[l] − η (1/P) Σ_i g_i[l](x), for l = L…1, all before the next forward pass; in value, `sync-sgd`.
    """

    name = "layerwise-sgd"
    notion = Notion.STEPS
    source = "PNNL (OpenReview rkFd2P5gl; class MPIAsyncParams of matex-org/caffe-intel), waiting before the update"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        rule, layers = self.rule, me.layout.layers
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            parts = yield from LayerGradients(state.weights, batch)
            means = []
            for layer, part in zip(reversed(layers), parts, strict=True):
                gradient = yield from Wait(part)
                key = f"gradient {step.number} {layer.name}"
                means.append((yield from Start(AllReduce(value=gradient.vector, group=me.workers, key=key))))
            updated, memories = [], []
            for layer, mean in zip(reversed(layers), means, strict=True):
                reduced = yield from Wait(mean)
                yield from Work("update", reduced.nbytes)
                before = None if state.memory is None else state.memory[layer.part]
                vector, memory = rule.update(state.weights.vector[layer.part], reduced, before)
                updated.append(vector)
                memories.append(memory)
            vector, memory = join(updated[::-1]), None if state.memory is None else join(memories[::-1])
            version = yield from Applied(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version), memory)
        return state
