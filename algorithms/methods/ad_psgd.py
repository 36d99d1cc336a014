"""AD-PSGD: asynchronous averages with a random peer, concurrent with its gradient, without waiting for slow workers.

Active workers request averages and passive workers answer, so there is no cycle of waiting ranks. The peer is a pure
function of seed, rank and step. A peer that has died is not asked again. A passive worker tracks which workers are
left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import (
    Charge,
    Gradient,
    Handle,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Send,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.values import GradientResult, Message, Rank, Weights
from paceline.algorithms.methods.gossip import HALFWAY, Meeting, halfway
from paceline.algorithms.methods.survivors import survives, without


@dataclass(frozen=True, slots=True)
class Goodbye:
    """An active worker's last message: it sends no more offers."""


@dataclass(frozen=True, slots=True)
class PassiveState:
    """The state of a passive worker between two of its gradients."""

    weights: Weights
    oldest: int
    """the lowest version among its own weights and those averaged with them since its last gradient"""
    living: frozenset[Rank]
    """the living workers"""
    actives: frozenset[Rank]
    """the active ones among them that may still send offers"""
    offer: Handle[Message] | None
    """the handle of the next offer; None if there will be none"""


@dataclass(frozen=True, kw_only=True)
class AdPsgd(Meeting):
    """AD-PSGD: a worker with a gradient first averages its weights with a random peer, and waits only for that peer.

    active i (even), with g at x_i:  x_i, x_j ← ½ (x_i + x_j) for a random passive j;  x_i ← x_i − η g
    passive j (odd):                 x_j ← x_j − η g, with g at the x_j from before the averages made meanwhile

    Passive workers answer while they compute, so two workers never wait for each other; both sides of an average use
    the same pair of weights. Each worker has its own momentum.
    """

    name = "ad-psgd"
    staleness_kind = StalenessKind.PEER_AGE
    source = "Lian, Zhang, Zhang, Liu, ICML'18, arXiv 1710.06952"
    guarantees = frozenset({Guarantee.CONSERVES_MEAN, Guarantee.SURVIVES_WORKERS})
    independent: ClassVar[bool] = True

    def initial_weight(self, updates: int) -> float | None:
        return None  # an average is with weights of another age

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - 1)

    def worker(self, me: RankContext, state: Replica) -> Routine[Replica]:
        return self.passive(me, state) if me.rank in passives(me) else self.active(me, state)

    @program
    def active(self, me: RankContext, state: Replica) -> Program[Replica]:
        """Computes a gradient, averages with a passive peer, and applies the gradient."""
        rule, others = self.rule(me.layout.layers), frozenset(passives(me))
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            own, reply = state.weights, state.weights
            if others:
                chance = np.random.default_rng([self.seed, int(me.rank), step.number])
                peer = sorted(others)[int(chance.integers(len(others)))]
                yield from Send(peer, own)
                try:
                    reply = (yield from Receive(peer)).value
                except PeerFailed as failure:
                    others = without(others, failure)
            yield from rule.charge(own.vector.nbytes, also=HALFWAY)
            vector, optimizer_state = rule.update(
                halfway(own.vector, reply.vector), gradient.vector, state.optimizer_state
            )
            seen = min(own.version, reply.version)
            version = yield from RecordUpdate(Weights(vector, own.version), [gradient.contribution(version=seen)])
            state = Replica(step.number + 1, Weights(vector, version), optimizer_state)
        for peer in sorted(others):
            yield from Send(peer, Goodbye())
        return state

    @program
    def passive(self, me: RankContext, state: Replica) -> Program[Replica]:
        """Computes and applies gradients and answers offers, at the end until all active workers have ended."""
        rule = self.rule(me.layout.layers)
        living = frozenset(me.workers)
        actives, offer = living - frozenset(passives(me)), (yield from Start(Receive()))
        current = PassiveState(state.weights, state.weights.version, living, actives, offer)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            computing = yield from Start(Gradient(current.weights, batch))
            gradient: GradientResult | None = None
            while gradient is None:
                waiting: list[Handle[Any]] = [computing] if current.offer is None else [computing, current.offer]
                try:
                    done = yield from WaitFor(waiting, "any")
                except PeerFailed as failure:
                    current = yield from self.lost_peer(current, failure)
                    continue
                for index, answer in done:
                    if index == 0:
                        gradient = answer
                    else:
                        current = yield from self.answer(current, answer)
            yield from rule.charge(gradient.vector.nbytes)
            vector, optimizer_state = rule.update(current.weights.vector, gradient.vector, state.optimizer_state)
            version = yield from RecordUpdate(
                Weights(vector, current.weights.version), [gradient.contribution(version=current.oldest)]
            )
            state = Replica(step.number + 1, Weights(vector, version), optimizer_state)
            current = replace(current, weights=state.weights, oldest=version)
        while current.offer is not None:
            try:
                message = yield from Wait(current.offer)
            except PeerFailed as failure:
                current = yield from self.lost_peer(current, failure)
            else:
                current = yield from self.answer(current, message)
        return replace(state, weights=current.weights)

    @program
    def answer(self, current: PassiveState, message: Message) -> Program[PassiveState]:
        """Processes an offer, which is answered with the weights from before the average, or a `Goodbye`.

        Args:
            current: the state.
            message: the offer or the goodbye.

        Returns:
            The new state.
        """
        weights, oldest, actives = current.weights, current.oldest, current.actives
        if isinstance(message.value, Goodbye):
            actives -= {message.source}
        else:
            yield from Send(message.source, weights)
            yield from Charge("update", weights.vector.nbytes, traffic=HALFWAY)
            oldest = min(oldest, message.value.version)
            weights = Weights(halfway(weights.vector, message.value.vector), weights.version)
        offer = (yield from Start(Receive())) if actives else None
        return PassiveState(weights, oldest, current.living, actives, offer)

    @program
    def lost_peer(self, current: PassiveState, failure: PeerFailed) -> Program[PassiveState]:
        """Returns the state after the death of another worker, which sends no more offers if it was an active one."""
        living = without(current.living, failure)
        actives = current.actives & living
        offer = (yield from Start(Receive())) if actives else None
        return replace(current, living=living, actives=actives, offer=offer)


def passives(me: RankContext) -> tuple[Rank, ...]:
    """Returns the passive workers: those at odd positions."""
    return me.workers.ranks[1::2]
