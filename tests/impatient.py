"""A test method in which every step depends on the order of arrival, so that a replay needs the whole record."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import (
    Cancel,
    Gradient,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Send,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Group, Rank, Weights


@dataclass(frozen=True, kw_only=True)
class Impatient(SgdMethod):
    """Takes what arrives first, its own gradient or a neighbour's weights, and cancels the rest.

    Two receives listen for the same neighbours, so it also matters which of the two received which message.
    """

    name = "impatient"
    staleness_kind = StalenessKind.STEPS
    source = "the tests"
    guarantees = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            own = yield from Start(Gradient(state.weights, batch))
            news = []
            for _ in range(2):
                news.append((yield from Start(Receive())))
            done = dict((yield from WaitFor([own, *news], "any")))
            vector, inputs = state.weights.vector, []
            for index, handle in enumerate([own, *news]):
                if index not in done and (yield from Cancel(handle)):
                    continue
                if index == 0:
                    gradient = yield from Wait(own)
                    vector, inputs = vector - self.learning_rate * gradient.vector, [gradient.contribution()]
                else:
                    message = yield from Wait(news[index - 1])
                    vector = vector / (index + 1) + message.value * (index / (index + 1))
            for other in neighbours(me.workers, me.rank):
                yield from Send(other, vector)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), inputs)
            state = Replica(step.number + 1, Weights(vector, version))
        return state


def neighbours(group: Group, rank: Rank) -> list[Rank]:
    """All other ranks."""
    return [other for other in group.ranks if other != rank]
