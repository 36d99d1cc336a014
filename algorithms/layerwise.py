"""Layer-wise exchange: a layer's all-reduce starts as its gradient is ready, while earlier layers still compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.guarantees import Guarantee
from paceline.algorithms.method import Descent, Me, Notion, Replica
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
from paceline.algorithms.rules import Chain
from paceline.algorithms.values import Layer, Rank, Weights, join


@dataclass(frozen=True, kw_only=True)
class LayerwiseSgd(Descent):
    """Synchronous SGD with layer-wise overlap: backward goes last layer first, and so do the exchanges.

    x[l] ← x[l] − η (1/P) Σ_i g_i[l](x), for l = L…1, all before the next forward pass; in value, `sync-sgd`.
    """

    name = "layerwise-sgd"
    notion = Notion.STEPS
    source = "PNNL (OpenReview rkFd2P5gl; class MPIAsyncParams of matex-org/caffe-intel), waiting before the update"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})

    def rules(self, me: Me) -> list[Chain]:
        """Each layer's own rule, first layer first: it sees that layer's slice alone."""
        return [self.rule([Layer(layer.name, 0, layer.stop - layer.start)]) for layer in me.layout.layers]

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        found = super().problems(nodes)
        if self.clip is not None:
            found.append(
                f"clip: found {self.clip!r}, expected null: layers are applied one by one, before all have come"
            )
        return found

    def begin(self, me: Me, vector: Any) -> Replica:
        layers = zip(self.rules(me), me.layout.layers, strict=True)
        return Replica(0, Weights(vector, 0), tuple(rule.init(vector[layer.part]) for rule, layer in layers))

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        rules, layers = self.rules(me), me.layout.layers
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            parts = yield from LayerGradients(state.weights, batch)
            means = []
            for layer, part in zip(reversed(layers), parts, strict=True):
                gradient = yield from Wait(part)
                key = f"gradient {step.number} {layer.name}"
                means.append((yield from Start(AllReduce(value=gradient.vector, group=me.workers, key=key))))
            updated, memories = [], []
            for layer, rule, own, mean in zip(layers[::-1], rules[::-1], state.memory[::-1], means, strict=True):
                reduced = yield from Wait(mean)
                yield from Work("update", reduced.nbytes)
                part, own = rule.update(state.weights.vector[layer.part], reduced, own)
                updated.append(part)
                memories.append(own)
            vector, memory = join(updated[::-1]), tuple(memories[::-1])
            version = yield from Applied(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version), memory)
        return state
