"""Planted bugs of methods that average with one peer (NoLoCo), and of all-reduces that do not wait (eager SGD)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import Cancel, Receive, RecordUpdate, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Weights
from paceline.algorithms.methods.gossip import halfway
from paceline.algorithms.methods.noloco import NoLoCo, RoundChange
from paceline.algorithms.methods.outer import Outer
from paceline.algorithms.methods.partial_collectives import Eager, EagerSgd
from tests.planted_bugs.bug import planted


@dataclass(frozen=True, kw_only=True)
class MovesBeforeItSends(NoLoCo):
    """The second worker of a pair sends its slow weights after it has moved them."""

    name = "noloco-moves-before-it-sends"

    @program
    def pair_step(
        self, me: RankContext, state: Outer, living: frozenset[Rank]
    ) -> Program[tuple[Outer, frozenset[Rank]]]:
        own = mean = RoundChange(state.start, state.start - state.weights.vector)
        peer = self.peer(me, state.step // self.period - 1)
        second = peer is not None and peer < me.rank
        if peer is not None:
            if not second:
                yield from Send(peer, own)
            mean = halfway(own, (yield from Receive(peer)).value)
        velocity, vector = self.after_pair(state, mean)
        if peer is not None and second:
            yield from Send(peer, RoundChange(vector, own.change))
        version = yield from RecordUpdate(Weights(vector, state.weights.version))
        return replace(state, weights=Weights(vector, version), start=vector, velocity=velocity), living


@dataclass(frozen=True, kw_only=True)
class ClearsTheBuffer(EagerSgd):
    """A gradient that is late for its round is cleared with the buffer after the round."""

    name = "eager-sgd-clears-the-buffer"

    @program
    def until(self, me: RankContext, state: Eager, handle: Any) -> Program[tuple[Eager, Any]]:
        before = state.ahead
        state, answer = yield from super().until(me, state, handle)
        mean = bool(before) and handle is before[0].mean
        return (replace(state, unsent=None) if mean else state), answer


@dataclass(frozen=True, kw_only=True)
class AnyoneBegins(EagerSgd):
    """In majority any worker that has its gradient begins the round."""

    name = "eager-sgd-anyone-begins"

    def begins(self, me: RankContext, number: int) -> bool:
        return self.partial(number) or super().begins(me, number)


@dataclass(frozen=True, kw_only=True)
class LeavesMessages(EagerSgd):
    """A worker that has ended does not receive what its neighbours send about its last round."""

    name = "eager-sgd-leaves-messages"

    @program
    def receive_the_rest(self, me: RankContext, state: Eager) -> Program[Eager]:
        if state.hearing is not None:
            yield from Cancel(state.hearing)
        return replace(state, hearing=None)


BUGS = (
    planted(MovesBeforeItSends(period=1), NoLoCo(period=1), "conserves-mean"),
    planted(ClearsTheBuffer(), EagerSgd(), "gradients-kept"),
    planted(AnyoneBegins(), EagerSgd(), "fresh-quorum"),
    planted(LeavesMessages(), EagerSgd(), "messages-read"),
)
