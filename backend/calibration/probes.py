"""Programs that only measure: the operations whose costs a prediction needs, performed as in any method.

Rules of this file:

* Collectives and messages are mostly waited for at once. At regular intervals one overlaps with other work, as in
  methods that overlap, which shows its cost for the rank's own processor. A sub-program without operations is started
  then, too.
* A word is a message without a vector.
* Updates use the optimizer chain, with a learning rate of 0. Those of odd turns write into the gradient's buffer, which
  shows what new memory costs, unless a collective in flight reads it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Charge,
    Gradient,
    Handle,
    LayerGradients,
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
from paceline.algorithms.core.values import Batch, GradientResult, Group, Message, Rank, Weights
from paceline.algorithms.methods.parameter_server import server_of
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.topologies.catalogue.machine_profile import Asked

ZERO_RATE = Chain((ScaleByLearningRate(0.0),))
"""an update that does not change the weights"""
FEW = 16
"""numbers of a small update"""
STARTED = 5
"""of so many turns of each collective, the last one is started and waited for later"""


@dataclass(frozen=True, kw_only=True)
class Probe(Method):
    """A method whose updates do not change the weights."""

    staleness_kind = StalenessKind.STEPS
    source = "a probe"
    guarantees = frozenset()

    def begin(self, me: RankContext, vector: Any) -> Replica:
        return Replica(0, Weights(vector, 0), ZERO_RATE.init(vector))


@dataclass(frozen=True, kw_only=True)
class ProbeCollectives(Probe):
    """Performs each collective of the runs in turn, after a gradient, on a part of it of the same size."""

    name = "probe-collectives"

    asked: tuple[Asked, ...]
    inside: bool = False
    """whether it is launched with its nodes' shared memory"""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            turn, place = divmod(step.number, len(self.asked))
            probed, started = self.asked[place], turn % STARTED == STARTED - 1
            own = own_bytes(probed.operation, probed.members, probed.nbytes)
            part = gradient.vector[: own * me.layout.size // gradient.vector.nbytes]
            key = f"{probed.operation} {probed.nbytes} {'started' if started else 'entered'} {step.number}"
            in_flight: list[Handle[Any]] = []
            for group in workers_of(probed, me):
                if me.rank not in group:
                    continue
                if started:
                    in_flight.append((yield from Start(collective(probed, part, group, key))))
                else:
                    yield from collective(probed, part, group, key)
            out = gradient.vector if turn % 2 and not started else None
            yield from ZERO_RATE.charge(gradient.vector.nbytes, donated=out is not None)
            vector, memory = ZERO_RATE.update(state.weights.vector, gradient.vector, state.optimizer_state, out=out)
            yield from update_few(state.weights.vector, gradient.vector)
            for handle in in_flight:
                yield from Wait(handle)
            if started:
                yield from Now()  # `lanes` computes the difference
                lane = yield from Start(nothing())
                yield from Now()
                yield from Wait(lane)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version), memory)
        return state


@program
def update_few(weights: Any, gradient: Any) -> Program[None]:
    """Updates a few numbers, which shows what an update takes besides reading and writing."""
    part = gradient[:FEW]
    yield from Charge("update", part.nbytes)
    ZERO_RATE.update(weights[:FEW], part, ZERO_RATE.init(part))


GRADIENTS = 12
"""gradients of each busy rank in one step of `ProbeGradients`"""


PAUSES_S = (0.0003, 0.001, 0.003, 0.01)
"""pauses before gradients; methods wait for so long between the gradients of small networks. Our choice"""


@dataclass(frozen=True, kw_only=True)
class ProbeGradients(Probe):
    """Computes gradients on more and more ranks, after pauses, layer by layer, and beside an all-reduce; see `Phase`.

    Args:
        hosts: the workers of each host; none: all are on one.
        cores: the cores that the ranks of a host share. No more ranks than cores compute after pauses, because a rank
            that waits for a core has another pause.
    """

    name = "probe-gradients"

    cores: int
    hosts: tuple[tuple[int, ...], ...] = ()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            phase = phase_of(step.number, self.phases(me.workers))
            for turn in range(GRADIENTS):
                if phase.name == "layers":
                    for handle in (yield from LayerGradients(state.weights, batch)):
                        yield from Wait(handle)
                elif phase.name == "started":
                    yield from Wait((yield from Start(Gradient(state.weights, batch))))
                elif phase.name == "beside":
                    yield from beside(me, state.weights, batch, f"{step.number} {turn}")
                elif self.beside(me.rank, me.workers).index(me.rank) < phase.busy:
                    if phase.pause_s:
                        time.sleep(phase.pause_s)  # as while it waits for a message: this rank runs nothing else
                    yield from Gradient(state.weights, batch)
            yield from Barrier(group=me.workers, key=f"busy {step.number}")
            state = replace(state, step=step.number + 1)
        return state

    def beside(self, rank: Rank, workers: Group) -> tuple[int, ...]:
        """Returns the workers of a rank's host."""
        return next((ranks for ranks in self.hosts if rank in ranks), workers.ranks)

    def phases(self, workers: Group) -> tuple[Phase, ...]:
        """Returns what its steps measure in turn."""
        return phases_of(max(map(len, self.hosts), default=len(workers)), len(workers), self.cores)


class Phase(NamedTuple):
    """What a step of `ProbeGradients` measures.

    Args:
        name: `busy`: gradients of so many ranks of each host; `paused`: the same, each after a pause; `started`:
            gradients of all ranks, in another lane than the program's; `layers`: layer-wise gradients of all ranks;
            `beside`: an all-reduce alone, and another one beside a gradient, on all ranks.
        busy: the number of ranks of a host that compute.
        pause_s: the pause before each gradient, in seconds.
    """

    name: Literal["busy", "paused", "started", "layers", "beside"]
    busy: int
    pause_s: float = 0.0


def phases_of(most: int, workers: int, cores: int) -> tuple[Phase, ...]:
    """Returns what the steps of `ProbeGradients` measure in turn.

    Args:
        most: the largest number of workers of a host.
        workers: the workers of all hosts.
        cores: the cores that the workers of a host share.

    >>> [(phase.name, phase.busy) for phase in phases_of(2, 2, 2) if not phase.pause_s]
    [('busy', 1), ('busy', 2), ('started', 2), ('layers', 2), ('beside', 2)]
    """
    phases = [Phase("busy", count) for count in range(1, most + 1)]
    phases += [Phase("paused", min(most, cores), pause_s) for pause_s in PAUSES_S]
    phases += [Phase("started", most), Phase("layers", most)]
    return tuple(phases + [Phase("beside", most)] * (workers > 1))


def phase_of(step: int, phases: Sequence[Phase]) -> Phase:
    """Returns what a step of `ProbeGradients` measures."""
    return phases[step % len(phases)]


@program
def beside(me: RankContext, weights: Weights, batch: Batch, key: str) -> Program[None]:
    """Performs an all-reduce alone, and then one beside a gradient."""
    value = weights.vector
    yield from AllReduce(value=value, group=me.workers, key=f"alone {key}")
    handle = yield from Start(AllReduce(value=value, group=me.workers, key=f"beside {key}"))
    yield from Gradient(weights, batch)
    yield from Wait(handle)


@program
def nothing() -> Program[None]:
    """Runs a sub-program without operations."""
    yield from ()


def collective(asked: Asked, part: Any, group: Group, key: str) -> Collective:
    """Returns a collective of this kind; `unlabel` of the calibration reads the kind from the key."""
    root = group.ranks[0]
    match asked.operation:
        case "AllReduce":
            return AllReduce(value=part, group=group, key=key, donate=asked.donate)
        case "Reduce":
            return Reduce(value=part, group=group, root=root, key=key)
        case "Broadcast":
            return Broadcast(value=part, group=group, root=root, key=key)
        case "AllGather":
            return AllGather(value=part, group=group, key=key)
        case _:
            return Barrier(group=group, key=key)


def own_bytes(operation: str, members: int, nbytes: int) -> int:
    """Returns the bytes of a member's own value; for an all-gather, `nbytes` counts the values of all members."""
    return nbytes // members if operation == "AllGather" else nbytes


def workers_of(asked: Asked, me: RankContext) -> list[Group]:
    """Returns the groups to probe: a probe has no server, so all workers replace a group with one."""
    groups = [Group(tuple(map(Rank, ranks))) for ranks in asked.groups]
    return [group if set(group.ranks) <= set(me.workers.ranks) else me.workers for group in groups]


@dataclass(frozen=True, slots=True)
class Word:
    """A message without a vector, which needs no answer."""


@dataclass(frozen=True, slots=True)
class MessageReplica(Replica):
    """A worker's state between messages."""

    last: GradientResult | None = None
    """the gradient of the previous step"""


@dataclass(frozen=True, kw_only=True)
class ProbeMessages(Probe):
    """Workers send a gradient and wait for an answer of the same size, alternately at once and after the next gradient.

    After the latter they send a word.

    Args:
        active: the number of workers that do so, without gradients in between; the others end at once. None: all.
    """

    active: int | None = None
    name = "probe-messages"
    staleness_kind = StalenessKind.VERSION_LAG
    has_server: ClassVar[bool] = True

    def talkers(self, me: RankContext) -> tuple[Rank, ...]:
        """Returns the workers that send messages."""
        return me.workers.ranks[: self.active]

    def begin(self, me: RankContext, vector: Any) -> MessageReplica:
        return MessageReplica(0, Weights(vector, 0), ZERO_RATE.init(vector))

    @program
    def worker(self, me: RankContext, state: MessageReplica) -> Program[MessageReplica]:
        server = server_of(me)
        if me.rank not in self.talkers(me):
            return state
        while step := (yield from NextStep(state)):
            early = step.number % 2 == 1 and self.active is None
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
            vector, memory = ZERO_RATE.update(answer.vector, gradient.vector, state.optimizer_state)
            if early or self.active is not None:
                yield from Send(server, Word())
            state = MessageReplica(step.number + 1, Weights(vector, answer.version), memory, last=gradient)
        return state

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            message = yield from vector_message()
            yield from Charge("update", message.value.vector.nbytes, where="host")
            vector, memory = ZERO_RATE.update(state.weights.vector, message.value.vector, state.optimizer_state)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [message.value.contribution()])
            state = replace(state, step=step.number + 1, weights=Weights(vector, version), optimizer_state=memory)
            yield from Send(message.source, state.weights)
        for _ in self.talkers(me):
            message = yield from vector_message()
            yield from Send(message.source, None)
        return state


@program
def vector_message() -> Program[Message]:
    """Receives the next message that has a vector."""
    while isinstance((message := (yield from Receive())).value, Word):
        pass
    return message
