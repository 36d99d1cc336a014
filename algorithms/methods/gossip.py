"""Gossip: each worker averages with one peer at a time, without a global collective.

The pairs are a pure function of hyper-parameters, rank and step, so that peers need no agreement. Workers exchange
copies, made when they are sent: averaging copies does not change the mean of all weights. If the peer has died, the
worker takes a local step. Copies that it had sent before still count.

AD-PSGD: asynchronous averages with a random peer, concurrent with its gradient, without waiting for slow workers.

Active workers request averages and passive workers answer, so there is no cycle of waiting ranks. The peer is a pure
function of seed, rank and step. A peer that has died is not asked again. A passive worker tracks which workers are
left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
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
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import GradientResult, Message, Null, Rank, Weights, nbytes
from paceline.algorithms.methods.survivors import survives, without

HALFWAY = SCALE + COMBINE
"""memory traffic of `halfway`"""


def halfway(own: Any, other: Any) -> Any:
    """Returns ½ (own + other) for vectors, and for all vectors in an optimizer state; counts are those of `own`.

    Args:
        own: a vector, None, a count, or a tuple or dataclass of these.
        other: the same of the peer.

    >>> halfway((np.array([1.0]), 3, None), (np.array([2.0]), 4, None))
    (array([1.5]), 3, None)
    """
    if own is None or isinstance(own, int):
        return own
    if isinstance(own, tuple):
        return tuple(map(halfway, own, other))
    if dataclasses.is_dataclass(own) and not isinstance(own, Null | type):
        names = [field.name for field in dataclasses.fields(own)]
        return replace(own, **{name: halfway(getattr(own, name), getattr(other, name)) for name in names})
    return (own + other) / 2


@lru_cache(maxsize=64)
def order_of(seed: int, number: int, workers: int) -> tuple[int, ...]:
    """Returns a random permutation of the workers, which depends only on the arguments.

    Args:
        seed: of the method.
        number: which of the permutations.
        workers: number of workers.

    >>> sorted(order_of(0, 1, 4)), order_of(0, 1, 4) == order_of(0, 1, 4)
    ([0, 1, 2, 3], True)
    """
    return tuple(np.random.default_rng([seed, number]).permutation(workers).tolist())


def rounds(workers: int) -> int:
    """Returns the exchanges until information of each worker has reached all others: log2 P, rounded up."""
    return (workers - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class Meeting(SgdMethod):
    """Base of the gossip methods: at least two workers, and random peers from a seed."""

    seed: int = 0
    """seed of the random choice of peers, the same on all workers; provenance: ours, independent of the run's seed, so
    that runs with several seeds differ only in their data"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if sum(map(len, nodes)) < 2:
            problems.append("name: found 1 worker, expected 2 or more, since a worker averages with another")
        return problems


@dataclass(frozen=True, slots=True)
class SentReplica:
    """A worker's weights and optimizer state at the time of sending."""

    weights: Weights
    optimizer_state: Any


@dataclass(frozen=True, slots=True)
class Gossiping:
    """A replica, with the peer's copy of the last step in flight."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    coming: Handle[Message] | None = None


@dataclass(frozen=True, kw_only=True)
class Gossip(Meeting):
    """GossipGraD: in each step every worker averages with one peer, whose copy was sent during the last gradient.

    x, v ← ½ (x + x_peer), ½ (v + v_peer), with the peer's x and v from the start of its last step
    send x, v to the step's peer;  v ← μ v + η g(x);  x ← x − v

    v, the velocity, is sent and averaged only if there is momentum. The copy of the last step is stored in the state
    and not averaged. In the paper, peers also exchange samples; here samples depend only on seed, rank and step, as
    in all methods.
    """

    name = "gossip"
    staleness_kind = StalenessKind.PEER_AGE
    source = "Daily et al. 2018, GossipGraD, arXiv 1803.05880"
    guarantees = frozenset(
        {
            Guarantee.DETERMINISTIC,
            Guarantee.BOUNDED_STALENESS,
            Guarantee.CONSERVES_MEAN,
            Guarantee.SURVIVES_WORKERS,
        }
    )

    partners: Literal["hypercube", "dissemination"] = "hypercube"
    """the pairs of round k = 0 … log2 P − 1: positions whose numbers differ in bit k, or sending to position − 2^k and
    receiving from position + 2^k; provenance: both are the paper's, the default is ours"""
    rotate: bool = True
    """whether each log2 P steps use the next of P random orders of the workers; provenance: the paper"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems, workers = super().problems(nodes), sum(map(len, nodes))
        if self.partners == "hypercube" and workers & (workers - 1):
            right = "a power of two, or dissemination, whose averages are then unequal"
            problems.append(f"partners: found 'hypercube' with {workers} workers, expected {right}")
        return problems

    def initial_weight(self, updates: int) -> float | None:
        return None  # an average is with weights of another age

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: 1, **survives(workers - 1)}

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns half of the mean's, if there is a peer: an average has the peer's copy from before its last step."""
        return super().gradient_weight(gradient) / (2 if gradient.living > 1 else 1)

    def peers(self, me: RankContext, step: int) -> tuple[Rank, Rank]:
        """Returns the rank to which the worker sends in this step, and the rank from which it receives."""
        ranks = me.workers.ranks
        workers = len(ranks)
        cycle, k = divmod(step, rounds(workers))
        order = order_of(self.seed, cycle % workers, workers) if self.rotate else range(workers)
        place, hop = order.index(ranks.index(me.rank)), 1 << k
        if self.partners == "hypercube":
            there = back = place ^ hop
        else:
            there, back = (place - hop) % workers, (place + hop) % workers
        return ranks[order[there]], ranks[order[back]]

    def begin(self, me: RankContext, vector: Any) -> Gossiping:
        return Gossiping(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Gossiping) -> Program[Gossiping]:
        rule, living = self.rule(me.layout.layers), frozenset(me.workers)
        while step := (yield from NextStep(state)):
            weights, optimizer_state, seen = state.weights, state.optimizer_state, state.weights.version
            if state.coming is not None:
                try:
                    copy: SentReplica = (yield from Wait(state.coming)).value
                except PeerFailed as failure:
                    living = without(living, failure)
                else:
                    yield from Charge("update", nbytes(copy), traffic=HALFWAY)
                    weights = Weights(halfway(weights.vector, copy.weights.vector), weights.version)
                    optimizer_state, seen = halfway(optimizer_state, copy.optimizer_state), copy.weights.version
            to, source = self.peers(me, step.number)
            yield from Send(to, SentReplica(weights, optimizer_state))
            coming = (yield from Start(Receive(source))) if source in living else None
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(weights, batch)
            yield from rule.charge(gradient.vector.nbytes)
            vector, optimizer_state = rule.update(weights.vector, gradient.vector, optimizer_state)
            version = yield from RecordUpdate(Weights(vector, weights.version), [gradient.contribution(version=seen)])
            state = Gossiping(step.number + 1, Weights(vector, version), optimizer_state, coming)
        return state


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
