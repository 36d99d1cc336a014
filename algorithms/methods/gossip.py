"""Gossip: each worker averages with one peer at a time, without a global collective.

The pairs are a pure function of hyper-parameters, rank and step, so that peers need no agreement. Workers exchange
copies, made when they are sent: averaging copies does not change the mean of all weights. If the peer has died, the
worker takes a local step. Copies that it had sent before still count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.gradient_weights import AppliedGradient
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, SgdMethod, StalenessKind
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
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Message, Null, Rank, Weights, nbytes
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
