"""Servers whose workers push without waiting and request weights only sometimes: used by `ssp` and `downpour`.

A worker that has requested weights waits for them before its next step. A push without a request is not acknowledged. A
stop loses no message. A stopped server receives messages until every worker waits, stores the messages that it has not
applied in its state, and sends `ServerStopped`. After a restart it applies them, and the workers still wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from paceline.algorithms.core.operations import Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Contribution, Message, Rank, Weights
from paceline.algorithms.methods.parameter_server import ServerStopped
from paceline.algorithms.methods.survivors import LivingWorkers


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """A message of a worker: a gradient or a sum of gradients, their origins, and whether it requests weights.

    Packets are compared by identity.
    """

    vector: Any
    """None if nothing is pushed"""
    origins: tuple[Contribution, ...]
    asks: bool


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker between two steps."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    waits: bool = False
    """whether it has requested weights and has no answer yet"""


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server between two steps."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    pending: tuple[tuple[Rank, Packet], ...] = ()
    """packets that have arrived and are not applied, oldest first"""
    waiting: tuple[Rank, ...] = ()
    """workers that have requested weights and have no answer yet"""

    def received(self, message: Message) -> Self:
        """Returns the state after one more message."""
        rank, packet = message.source, message.value
        waiting = (*self.waiting, rank) if packet.asks else self.waiting
        return replace(self, pending=(*self.pending, (rank, packet)), waiting=waiting)

    def answered(self, *ranks: Rank) -> Self:
        """Returns the state in which these workers no longer wait."""
        return replace(self, waiting=tuple(rank for rank in self.waiting if rank not in ranks))


D = TypeVar("D", bound=ServerState)


@program
def close(team: LivingWorkers, state: D) -> Program[D]:
    """Receives messages until every worker waits, and sends `ServerStopped` to each.

    Args:
        team: the living workers.
        state: the state of the server.

    Returns:
        The state in which the server stops.
    """
    for worker in sorted(state.waiting):
        yield from Send(worker, ServerStopped())
    while team.living - set(state.waiting):
        if (message := (yield from team.receive())) is None:
            continue
        state = state.received(message)
        if message.value.asks:
            yield from Send(message.source, ServerStopped())
    return state
