"""Gossip: each worker averages with one peer at a time, and nobody waits for everybody.

Rules of this file:

* Who meets whom is a pure function of hyper-parameters, rank and step, so that peers need not agree on anything.
* What is exchanged is a copy, taken when it is sent: an average of copies leaves the mean of all weights as it is.
* A peer that has died is passed over: the worker's step is then one of its own. What a peer had sent still counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from paceline.algorithms.errors import PeerFailed
from paceline.algorithms.guarantees import Guarantee
from paceline.algorithms.method import Descent, Me, Notion, Replica
from paceline.algorithms.operations import (
    Applied,
    Gradient,
    Handle,
    Load,
    Next,
    Receive,
    Send,
    Start,
    Wait,
    WaitFor,
    Work,
)
from paceline.algorithms.program import Program, Routine, program
from paceline.algorithms.survivors import survives, without
from paceline.algorithms.values import GradientResult, Message, Null, Rank, Weights, nbytes


def halfway(own: Any, other: Any) -> Any:
    """½ (own + other) for vectors, and for all vectors in what a rule remembers; counts stay one's own.

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
    """Random order `number` of so many workers: a permutation that follows from its arguments alone.

    >>> sorted(order_of(0, 1, 4)), order_of(0, 1, 4) == order_of(0, 1, 4)
    ([0, 1, 2, 3], True)
    """
    return tuple(np.random.default_rng([seed, number]).permutation(workers).tolist())


def rounds(workers: int) -> int:
    """Exchanges after which every worker has heard of every other: log2 P, rounded up."""
    return (workers - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class Meeting(Descent):
    """What the gossip methods share: at least two workers, and chance that follows from a seed."""

    seed: int = 0
    """of the random choice of peers, the same on all workers; provenance: ours, apart from the run's seed, so that
    runs with several seeds differ in their data alone"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        found = super().problems(nodes)
        if sum(map(len, nodes)) < 2:
            found.append("name: found 1 worker, expected 2 or more, since a worker averages with another")
        return found


@dataclass(frozen=True, slots=True)
class Copy:
    """A worker's weights, and what its rule remembers, as they were when they were sent."""

    weights: Weights
    memory: Any


@dataclass(frozen=True, slots=True)
class Gossiping:
    """A replica with the peer's copy of its last step on the way."""

    step: int
    weights: Weights
    memory: Any = None
    coming: Handle[Message] | None = None


@dataclass(frozen=True, kw_only=True)
class Gossip(Meeting):
    """GossipGraD: in each step every worker averages with one peer, whose copy has travelled behind the last gradient.

    x, v ← ½ (x + x_peer), ½ (v + v_peer), with the peer's x and v from the start of its last step
    send x, v to the step's peer;  v ← μ v + η g(x);  x ← x − v

    v, the momentum's history, is sent and averaged only where there is momentum. The copy of the last step arrives
    and is kept in the state, not averaged. The paper also hands samples on between peers; here samples follow from
    seed, rank and step alone, as in all methods, so that is left out.
    """

    name = "gossip"
    notion = Notion.PEER_AGE
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
    """who meets whom in round k = 0 … log2 P − 1: places whose numbers differ in bit k, or to place − 2^k and from
    place + 2^k; provenance: both are the paper's, the default is ours"""
    rotate: bool = True
    """after each log2 P steps, the next of P random orders of the workers; provenance: the paper"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        found, workers = super().problems(nodes), sum(map(len, nodes))
        if self.partners == "hypercube" and workers & (workers - 1):
            right = "a power of two, or dissemination, whose averages are then unequal"
            found.append(f"partners: found 'hypercube' with {workers} workers, expected {right}")
        return found

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: 1, **survives(workers - 1)}

    def peers(self, me: Me, step: int) -> tuple[Rank, Rank]:
        """To whom the worker sends in this step, and from whom it receives."""
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

    def begin(self, me: Me, vector: Any) -> Gossiping:
        return Gossiping(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: Me, state: Gossiping) -> Program[Gossiping]:
        rule, living = self.rule(me.layout.layers), frozenset(me.workers)
        while step := (yield from Next(state)):
            weights, memory, seen = state.weights, state.memory, state.weights.version
            if state.coming is not None:
                try:
                    copy: Copy = (yield from Wait(state.coming)).value
                except PeerFailed as failure:
                    living = without(living, failure)
                else:
                    yield from Work("update", nbytes(copy))
                    weights = Weights(halfway(weights.vector, copy.weights.vector), weights.version)
                    memory, seen = halfway(memory, copy.memory), copy.weights.version
            to, source = self.peers(me, step.number)
            yield from Send(to, Copy(weights, memory))
            coming = (yield from Start(Receive(source))) if source in living else None
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(weights, batch)
            yield from Work("update", gradient.vector.nbytes)
            vector, memory = rule.update(weights.vector, gradient.vector, memory)
            version = yield from Applied(Weights(vector, weights.version), [gradient.contribution(version=seen)])
            state = Gossiping(step.number + 1, Weights(vector, version), memory, coming)
        return state


@dataclass(frozen=True, slots=True)
class Goodbye:
    """An active worker's last message: it will offer nothing any more."""


@dataclass(frozen=True, slots=True)
class Open:
    """A passive worker between two of its gradients."""

    weights: Weights
    oldest: int
    """the lowest version among its own and those averaged with since its last gradient"""
    living: frozenset[Rank]
    """the workers that are left"""
    actives: frozenset[Rank]
    """those of them who may still offer"""
    knock: Handle[Message] | None
    """the next offer; None once there will be none"""


@dataclass(frozen=True, kw_only=True)
class AdPsgd(Meeting):
    """AD-PSGD: whoever has a gradient averages with a random peer first, and waits for nobody else.

    active i (even), with g at x_i:  x_i, x_j ← ½ (x_i + x_j) for a random passive j;  x_i ← x_i − η g
    passive j (odd):                 x_j ← x_j − η g, with g at the x_j from before the averages made meanwhile

    Actives ask, passives answer while they compute, so no two workers ever wait for each other; both sides of an
    average use the same pair of weights. Each keeps its own momentum.
    """

    name = "ad-psgd"
    notion = Notion.PEER_AGE
    source = "Lian, Zhang, Zhang, Liu, ICML'18, arXiv 1710.06952"
    guarantees = frozenset({Guarantee.CONSERVES_MEAN, Guarantee.SURVIVES_WORKERS})
    independent: ClassVar[bool] = True

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - 1)

    def worker(self, me: Me, state: Replica) -> Routine[Replica]:
        return self.passive(me, state) if me.rank in passives(me) else self.active(me, state)

    @program
    def active(self, me: Me, state: Replica) -> Program[Replica]:
        """Computes, averages with a passive peer, applies."""
        rule, others = self.rule(me.layout.layers), frozenset(passives(me))
        while step := (yield from Next(state)):
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
            yield from Work("update", 2 * own.vector.nbytes)
            vector, memory = rule.update(halfway(own.vector, reply.vector), gradient.vector, state.memory)
            seen = min(own.version, reply.version)
            version = yield from Applied(Weights(vector, own.version), [gradient.contribution(version=seen)])
            state = Replica(step.number + 1, Weights(vector, version), memory)
        for peer in sorted(others):
            yield from Send(peer, Goodbye())
        return state

    @program
    def passive(self, me: Me, state: Replica) -> Program[Replica]:
        """Computes and applies, and averages with whoever comes meanwhile; at the end, until all have gone."""
        rule = self.rule(me.layout.layers)
        living = frozenset(me.workers)
        actives, knock = living - frozenset(passives(me)), (yield from Start(Receive()))
        door = Open(state.weights, state.weights.version, living, actives, knock)
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            computing = yield from Start(Gradient(door.weights, batch))
            gradient: GradientResult | None = None
            while gradient is None:
                waiting: list[Handle[Any]] = [computing] if door.knock is None else [computing, door.knock]
                try:
                    done = yield from WaitFor(waiting, "any")
                except PeerFailed as failure:
                    door = yield from self.missed(door, failure)
                    continue
                for index, answer in done:
                    if index == 0:
                        gradient = answer
                    else:
                        door = yield from self.answer(door, answer)
            yield from Work("update", gradient.vector.nbytes)
            vector, memory = rule.update(door.weights.vector, gradient.vector, state.memory)
            version = yield from Applied(
                Weights(vector, door.weights.version), [gradient.contribution(version=door.oldest)]
            )
            state = Replica(step.number + 1, Weights(vector, version), memory)
            door = replace(door, weights=state.weights, oldest=version)
        while door.knock is not None:
            try:
                message = yield from Wait(door.knock)
            except PeerFailed as failure:
                door = yield from self.missed(door, failure)
            else:
                door = yield from self.answer(door, message)
        return replace(state, weights=door.weights)

    @program
    def answer(self, door: Open, message: Message) -> Program[Open]:
        """The door after an offer, which is answered with the weights from before their average, or a goodbye."""
        weights, oldest, actives = door.weights, door.oldest, door.actives
        if isinstance(message.value, Goodbye):
            actives -= {message.source}
        else:
            yield from Send(message.source, weights)
            yield from Work("update", weights.vector.nbytes)
            oldest = min(oldest, message.value.version)
            weights = Weights(halfway(weights.vector, message.value.vector), weights.version)
        knock = (yield from Start(Receive())) if actives else None
        return Open(weights, oldest, door.living, actives, knock)

    @program
    def missed(self, door: Open, failure: PeerFailed) -> Program[Open]:
        """The door after the death of another worker: if that was an active one, it will not come any more."""
        living = without(door.living, failure)
        actives = door.actives & living
        knock = (yield from Start(Receive())) if actives else None
        return replace(door, living=living, actives=actives, knock=knock)


def passives(me: Me) -> tuple[Rank, ...]:
    """The workers in odd places."""
    return me.workers.ranks[1::2]
