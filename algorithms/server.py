"""Parameter servers: workers push gradients, the server applies them and answers with its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.algorithms.guarantees import Guarantee
from paceline.algorithms.method import Descent, Me, Notion, Replica
from paceline.algorithms.operations import (
    Applied,
    Gradient,
    Load,
    Next,
    Receive,
    Send,
    Work,
)
from paceline.algorithms.program import Program, program
from paceline.algorithms.values import Contribution, Rank, Weights


@dataclass(frozen=True, slots=True)
class Push:
    """A worker's gradient, and where it comes from."""

    vector: Any
    origin: Contribution


@dataclass(frozen=True, slots=True)
class Stop:
    """The server's goodbye."""


@dataclass(frozen=True, kw_only=True)
class AsyncSgd(Descent):
    """Each worker's gradient is applied when it arrives, first come first served; the worker gets the new weights back.

    server, on push g from i:  x ← x − η g;  version ← version + 1;  reply x

    All start from the same weights, so the first pull of the papers' programs is left out. The reply to a push is the
    acknowledgement and the next pull in one, as in SC'17's Async SGD.
    """

    name = "async-sgd"
    notion = Notion.VERSION_LAG
    source = "Dean et al. 2012 (Downpour with period 1); You, Buluç, Demmel, SC'17 (Async SGD)"
    guarantees = frozenset({Guarantee.CONSERVES_MESSAGES})
    has_server: ClassVar[bool] = True

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        server = server_of(me)
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            yield from Send(server, Push(gradient.vector, gradient.contribution()))
            reply = (yield from Receive(server)).value
            if isinstance(reply, Stop):
                return state
            state = Replica(step.number + 1, reply, state.memory)
        return state

    @program
    def server(self, me: Me, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from Next(state)):
            message = yield from Receive()
            push: Push = message.value
            yield from Work("update", push.vector.nbytes, where="host")
            vector, memory = rule.update(state.weights.vector, push.vector, state.memory)
            version = yield from Applied(Weights(vector, state.weights.version), [push.origin])
            state = Replica(step.number + 1, Weights(vector, version), memory)
            yield from Send(message.source, state.weights)
        for _ in me.workers:  # each has one push under way; it is dropped, and its sender goes home
            message = yield from Receive()
            yield from Send(message.source, Stop())
        return state


def server_of(me: Me) -> Rank:
    """The server's rank, for a method that has one."""
    assert me.server is not None, "a method with has_server=True is always given a server"
    return me.server
