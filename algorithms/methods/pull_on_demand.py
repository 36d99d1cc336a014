"""Servers whose workers push without waiting and ask for weights only now and then: what `ssp` and `downpour` share.

Rules of this file:

* A worker that asks waits for its answer before its next step. What it pushes in between is not acknowledged.
* Stopping loses nothing. A stopped server takes in messages until every worker waits, keeps those that it has not
  applied in its state, and says goodbye. Entered again, it goes on with them, and the workers go on waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from paceline.algorithms.core.operations import Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Contribution, Message, Rank, Weights
from paceline.algorithms.methods.parameter_server import Stop
from paceline.algorithms.methods.survivors import Crew


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """What a worker sends: a gradient or a sum of them, where they come from, and whether it now waits for weights.

    Two with the same content are two.
    """

    vector: Any
    """None where nothing is pushed"""
    origins: tuple[Contribution, ...]
    asks: bool


@dataclass(frozen=True, slots=True)
class Reader:
    """A worker between two steps."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    waits: bool = False
    """whether it has asked and has no answer yet"""


@dataclass(frozen=True, slots=True)
class Desk:
    """A server between two steps."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    heard: tuple[tuple[Rank, Packet], ...] = ()
    """what has come and is not applied, oldest first"""
    waiting: tuple[Rank, ...] = ()
    """who has asked and has no answer yet"""

    def hear(self, message: Message) -> Self:
        """With one more message."""
        rank, packet = message.source, message.value
        waiting = (*self.waiting, rank) if packet.asks else self.waiting
        return replace(self, heard=(*self.heard, (rank, packet)), waiting=waiting)

    def answered(self, *ranks: Rank) -> Self:
        """Where these wait no longer."""
        return replace(self, waiting=tuple(rank for rank in self.waiting if rank not in ranks))


D = TypeVar("D", bound=Desk)


@program
def close(build_team: Crew, desk: D) -> Program[D]:
    """Takes in messages until every worker waits, and says goodbye to each; answers the state to stop in."""
    for worker in sorted(desk.waiting):
        yield from Send(worker, Stop())
    while build_team.living - set(desk.waiting):
        if (message := (yield from build_team.hear())) is None:
            continue
        desk = desk.hear(message)
        if message.value.asks:
            yield from Send(message.source, Stop())
    return desk
