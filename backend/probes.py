"""Programs that only measure: what a prediction of this machine asks for, done as any method does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.algorithms.method import Me, Method, Notion, Replica
from paceline.algorithms.operations import (
    AllGather,
    AllReduce,
    Applied,
    Barrier,
    Broadcast,
    Gradient,
    Load,
    Next,
    Receive,
    Reduce,
    Send,
    Work,
)
from paceline.algorithms.program import Program, program
from paceline.algorithms.server import server_of
from paceline.algorithms.values import Group, Rank, Weights
from paceline.topologies.profile import Asked


@dataclass(frozen=True, kw_only=True)
class ProbeCollectives(Method):
    """Each collective that runs will ask for in turn, after a gradient, on a part of it of the size asked for."""

    name = "probe-collectives"
    notion = Notion.STEPS
    source = "a probe"
    guarantees = frozenset()

    asked: tuple[Asked, ...]
    inside: bool = False
    """whether it is to be launched with its nodes' shared memory"""

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            one = self.asked[step.number % len(self.asked)]
            part = gradient.vector[: elements(one, gradient.vector.nbytes // me.layout.size)]
            mine = [ranks for ranks in workers_of(one, me) if me.rank in ranks]
            for group in mine:
                yield from self.collective(one.operation, part, group, f"{one.operation} {one.nbytes} {step.number}")
            yield from Work("update", part.nbytes)
            vector = state.weights.vector - 0.0 * gradient.vector
            version = yield from Applied(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version))
        return state

    @program
    def collective(self, operation: str, part: Any, group: Group, key: str) -> Program[None]:
        """One of them, by its name; `unlabel` reads what it was from the key."""
        root = group.ranks[0]
        match operation:
            case "AllReduce":
                yield from AllReduce(value=part, group=group, key=key)
            case "Reduce":
                yield from Reduce(value=part, group=group, root=root, key=key)
            case "Broadcast":
                yield from Broadcast(value=part, group=group, root=root, key=key)
            case "AllGather":
                yield from AllGather(value=part, group=group, key=key)
            case "Barrier":
                yield from Barrier(group=group, key=key)


def elements(one: Asked, item_bytes: int) -> int:
    """Numbers of a member's value."""
    own = one.nbytes // one.members if one.operation == "AllGather" else one.nbytes
    return own // item_bytes


def workers_of(one: Asked, me: Me) -> list[Group]:
    """The groups to probe: of workers only, since a probe has no server; where one has a server, all workers."""
    groups = [Group(tuple(map(Rank, ranks))) for ranks in one.groups]
    return [group if set(group.ranks) <= set(me.workers.ranks) else me.workers for group in groups]


@dataclass(frozen=True, kw_only=True)
class ProbeMessages(Method):
    """Workers send their gradient and wait for an answer of the same size."""

    name = "probe-messages"
    notion = Notion.VERSION_LAG
    source = "a probe"
    guarantees = frozenset()
    has_server: ClassVar[bool] = True

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        server = server_of(me)
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            yield from Send(server, gradient)
            answer = (yield from Receive(server)).value
            if answer is None:
                return state
            state = Replica(step.number + 1, answer)
        return state

    @program
    def server(self, me: Me, state: Replica) -> Program[Replica]:
        while step := (yield from Next(state)):
            message = yield from Receive()
            yield from Work("update", message.value.vector.nbytes, where="host")
            vector = state.weights.vector - 0.0 * message.value.vector
            version = yield from Applied(Weights(vector, state.weights.version), [message.value.contribution()])
            state = Replica(step.number + 1, Weights(vector, version))
            yield from Send(message.source, state.weights)
        for _ in me.workers:
            message = yield from Receive()
            yield from Send(message.source, None)
        return state
