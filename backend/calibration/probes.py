"""Programs that only measure: what a prediction of this machine asks for, done as any method does it.

Rules of this file:

* Collectives and messages are mostly waited for at once. Now and then one goes on beside other work, as in methods that
  overlap: that shows what it costs a rank's own processor. Then a sub-program without operations is started, too.
* A word is a message without a vector.
* Updates go through the optimizer's chain, with a rate of 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Charge,
    Gradient,
    Handle,
    Load,
    NextStep,
    Now,
    Receive,
    RecordUpdate,
    Reduce,
    Send,
    Start,
    Wait,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain, ScaleByLearningRate
from paceline.algorithms.core.values import GradientResult, Group, Message, Rank, Weights
from paceline.algorithms.methods.parameter_server import server_of
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.topologies.catalogue.machine_profile import Asked

STANDING = Chain((ScaleByLearningRate(0.0),))
"""an update that changes nothing"""
STARTED = 5
"""of so many turns of each collective, the last one is started and waited for later"""


@dataclass(frozen=True, kw_only=True)
class ProbeCollectives(Method):
    """Each collective that runs will ask for in turn, after a gradient, on a part of it of the size asked for."""

    name = "probe-collectives"
    staleness_kind = StalenessKind.STEPS
    source = "a probe"
    guarantees = frozenset()

    asked: tuple[Asked, ...]
    inside: bool = False
    """whether it is to be launched with its nodes' shared memory"""

    def begin(self, me: RankContext, vector: Any) -> Replica:
        return Replica(0, Weights(vector, 0), STANDING.init(vector))

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            turn, place = divmod(step.number, len(self.asked))
            one, started = self.asked[place], turn % STARTED == STARTED - 1
            own = own_bytes(one.operation, one.members, one.nbytes)
            part = gradient.vector[: own * me.layout.size // gradient.vector.nbytes]
            key = f"{one.operation} {one.nbytes} {'started' if started else 'entered'} {step.number}"
            under_way: list[Handle[Any]] = []
            for group in workers_of(one, me):
                if me.rank not in group:
                    continue
                if started:
                    under_way.append((yield from Start(collective(one.operation, part, group, key))))
                else:
                    yield from collective(one.operation, part, group, key)
            yield from Charge("update", part.nbytes)
            vector, memory = STANDING.update(state.weights.vector, gradient.vector, state.optimizer_state)
            for handle in under_way:
                yield from Wait(handle)
            if started:
                yield from Now()  # `lanes` takes the difference
                lane = yield from Start(nothing())
                yield from Now()
                yield from Wait(lane)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version), memory)
        return state


@program
def nothing() -> Program[None]:
    """A sub-program that asks for nothing."""
    yield from ()


def collective(operation: str, part: Any, group: Group, key: str) -> Collective:
    """One of them, by its name; `unlabel` of the calibration reads what it was from the key."""
    root = group.ranks[0]
    match operation:
        case "AllReduce":
            return AllReduce(value=part, group=group, key=key)
        case "Reduce":
            return Reduce(value=part, group=group, root=root, key=key)
        case "Broadcast":
            return Broadcast(value=part, group=group, root=root, key=key)
        case "AllGather":
            return AllGather(value=part, group=group, key=key)
        case _:
            return Barrier(group=group, key=key)


def own_bytes(operation: str, members: int, nbytes: int) -> int:
    """Bytes of a member's own value; those of an all-gather are everybody's."""
    return nbytes // members if operation == "AllGather" else nbytes


def workers_of(one: Asked, me: RankContext) -> list[Group]:
    """The groups to probe: of workers only, since a probe has no server; where one has a server, all workers."""
    groups = [Group(tuple(map(Rank, ranks))) for ranks in one.groups]
    return [group if set(group.ranks) <= set(me.workers.ranks) else me.workers for group in groups]


@dataclass(frozen=True, slots=True)
class Word:
    """A message without a vector, which is not answered."""


@dataclass(frozen=True, slots=True)
class Asking(Replica):
    """A worker's state between messages."""

    last: GradientResult | None = None
    """of the step before"""


@dataclass(frozen=True, kw_only=True)
class ProbeMessages(Method):
    """Workers send a gradient and wait for an answer of the same size, in turn at once and behind the next gradient.

    After the latter they send a word.
    """

    name = "probe-messages"
    staleness_kind = StalenessKind.VERSION_LAG
    source = "a probe"
    guarantees = frozenset()
    has_server: ClassVar[bool] = True

    def begin(self, me: RankContext, vector: Any) -> Asking:
        return Asking(0, Weights(vector, 0), STANDING.init(vector))

    @program
    def worker(self, me: RankContext, state: Asking) -> Program[Asking]:
        server = server_of(me)
        while step := (yield from NextStep(state)):
            early = step.number % 2 == 1
            if early:
                yield from Send(server, state.last)
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            if not early:
                yield from Send(server, gradient)
            answer = (yield from Receive(server)).value
            if answer is None:
                return state
            yield from Charge("update", answer.vector.nbytes)
            vector, memory = STANDING.update(answer.vector, gradient.vector, state.optimizer_state)
            if early:
                yield from Send(server, Word())
            state = Asking(step.number + 1, Weights(vector, answer.version), memory, last=gradient)
        return state

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            message = yield from vector_message()
            yield from Charge("update", message.value.vector.nbytes, where="host")
            vector, memory = STANDING.update(state.weights.vector, message.value.vector, state.optimizer_state)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [message.value.contribution()])
            state = replace(state, step=step.number + 1, weights=Weights(vector, version), optimizer_state=memory)
            yield from Send(message.source, state.weights)
        for _ in me.workers:
            message = yield from vector_message()
            yield from Send(message.source, None)
        return state


@program
def vector_message() -> Program[Message]:
    """The next message that is no word."""
    while isinstance((message := (yield from Receive())).value, Word):
        pass
    return message
