"""Planted bugs of replicas that average gradients or weights: collectives, buffers, delays, periods and groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import (
    AllReduce,
    Barrier,
    Broadcast,
    Gradient,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Reduce,
    Send,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import apply_gradient, average_gradient, gradient_at, local_step
from paceline.algorithms.core.values import Contribution, Message, Rank, Weights, join
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.gossip import AdPsgd, Goodbye, Gossip, Gossiping, PassiveState, SentReplica, halfway
from paceline.algorithms.methods.layerwise import Agd, BucketsInFlight, Delayed, LayerwiseAgd
from paceline.algorithms.methods.local_sgd import Hsgd
from paceline.algorithms.methods.periodic import HbsSgd, KAvg
from tests.planted_bugs.bug import planted

SAME = SyncSgd.guarantees | {Guarantee.SAME_AS_SYNC_SGD}


@dataclass(frozen=True, kw_only=True)
class TwoAverages(SyncSgd):
    """`sync-sgd` that averages each half of the gradient on its own."""

    name = "sync-sgd-two-averages"
    guarantees = SAME
    swaps: ClassVar[bool] = False

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            vector, half = gradient.vector, me.layout.size // 2
            parts = {"first": vector[:half], "second": vector[half:]}
            order = sorted(parts, reverse=self.swaps and int(me.rank) % 2 == 1)
            means = {}
            for part in order:
                key = f"{part} {step.number}"
                means[part] = yield from AllReduce(value=parts[part], group=me.workers, key=key)
            mean = replace(gradient, vector=join([means["first"], means["second"]]))
            state = yield from apply_gradient(rule, state, mean)
        return state


@dataclass(frozen=True, kw_only=True)
class CrossedCollectives(TwoAverages):
    """Odd ranks start the two averages in the other order."""

    name = "sync-sgd-crossed-collectives"
    swaps: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class WithBarrier(SyncSgd):
    """`sync-sgd` with a barrier after every step."""

    name = "sync-sgd-with-barrier"
    skips: ClassVar[bool] = False

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
            state = yield from apply_gradient(rule, state, mean)
            if not self.skips or me.rank != me.workers.ranks[0]:
                yield from Barrier(group=me.workers, key=f"end {step.number}")
        return state


@dataclass(frozen=True, kw_only=True)
class SkipsTheBarrier(WithBarrier):
    """The first rank does not enter the barrier."""

    name = "sync-sgd-skips-the-barrier"
    skips: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ReusesTheBuffer(SyncSgd):
    """The buffer of the gradient is overwritten while its all-reduce is in flight."""

    name = "sync-sgd-reuses-the-buffer"
    guarantees = SAME

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            buffer = gradient.vector.copy()
            key = f"gradient {step.number}"
            average = yield from Start(AllReduce(value=buffer, group=me.workers, key=key))
            buffer *= 0.0  # cleared for the next step
            mean = replace(gradient, vector=(yield from Wait(average)))
            state = yield from apply_gradient(rule, state, mean)
        return state


@dataclass(frozen=True, kw_only=True)
class SendBufferRace(Gossip):
    """The copy for the peer is sent in the background while the step changes its buffer."""

    name = "gossip-send-buffer-race"

    @program
    def worker(self, me: RankContext, state: Gossiping) -> Program[Gossiping]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            vector, seen = state.weights.vector.copy(), state.weights.version
            if state.coming is not None:
                copy: SentReplica = (yield from Wait(state.coming)).value
                vector, seen = halfway(vector, copy.weights.vector), copy.weights.version
            weights = Weights(vector, state.weights.version)
            to, source = self.peers(me, step.number)
            sending = yield from Start(Send(to, SentReplica(weights, None)))
            coming = yield from Start(Receive(source))
            gradient = yield from gradient_at(weights, step.samples)
            change, optimizer_state = rule.step(vector, gradient.vector, state.optimizer_state)
            vector += 0.25  # a shift of the weights and back again, in place, as an evaluation at another point does
            yield from Wait(sending)
            vector -= 0.25
            origin = gradient.contribution(version=seen)
            version = yield from RecordUpdate(Weights(vector - change, weights.version), [origin])
            state = Gossiping(step.number + 1, Weights(vector - change, version), optimizer_state, coming)
        return state


@dataclass(frozen=True, kw_only=True)
class DelayOffByOne(Agd):
    """A gradient is applied as soon as `delay` gradients are in flight, its own included: one step too early."""

    name = "agd-delay-off-by-one"

    @program
    def worker(self, me: RankContext, state: Delayed) -> Program[Delayed]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            mean = yield from Start(AllReduce(value=gradient.vector, group=me.workers, key=f"gradient {step.number}"))
            flights = (*state.flights, BucketsInFlight((mean,), gradient.contribution()))
            vector, optimizer_state = state.weights.vector, state.optimizer_state
            inputs: list[Contribution] = []
            if len(flights) >= self.delay:
                landing, *rest = flights
                reduced = yield from Wait(landing.means[0])
                vector, optimizer_state = rule.update(vector, reduced, optimizer_state)
                flights, inputs = tuple(rest), [landing.origin]
            version = yield from RecordUpdate(Weights(vector, state.weights.version), inputs)
            state = Delayed(step.number + 1, Weights(vector, version), flights, optimizer_state)
        return state


@dataclass(frozen=True, kw_only=True)
class LayersOffByOne(LayerwiseAgd):
    """The layers' means of step t − d − 1 are applied instead of those of step t − d."""

    name = "layerwise-agd-delay-off-by-one"

    @program
    def worker(self, me: RankContext, state: Delayed) -> Program[Delayed]:
        shares = self.shares(me)
        while step := (yield from NextStep(state)):
            flights, weights, optimizer_state = state.flights, state.weights, state.optimizer_state
            late = len(flights) == self.delay + 1
            due = self.landings(shares, flights[0], weights, optimizer_state) if late else []
            flight, pieces = yield from self.exchange(me, shares, step, weights, due)
            flights, vector, inputs = (*flights, flight), weights.vector, list[Contribution]()
            if pieces:
                vector = join([piece.vector for piece in reversed(pieces)])
                optimizer_state = tuple(piece.optimizer_state for piece in pieces)
                inputs, flights = [flights[0].origin], flights[1:]
            version = yield from RecordUpdate(Weights(vector, weights.version), inputs)
            state = Delayed(step.number + 1, Weights(vector, version), flights, optimizer_state)
        return state


@dataclass(frozen=True, kw_only=True)
class Direct(SgdMethod):
    """Synchronous SGD without collectives: each worker sends the halves of its gradient to all others, in two lanes."""

    name = "direct-exchange"
    staleness_kind = StalenessKind.STEPS
    source = "ours, for the planted bugs"
    guarantees = SAME
    tagged: ClassVar[bool] = True

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            half, lanes = me.layout.size // 2, []
            for name, part in (("first", slice(0, half)), ("second", slice(half, me.layout.size))):
                tag = f"{name} {step.number}" if self.tagged else ""
                lanes.append((yield from Start(self.total(me, gradient.vector[part], tag))))
            first, second = [total for _, total in (yield from WaitFor(lanes))]
            mean = replace(gradient, vector=join([first, second]) / len(me.workers))
            state = yield from apply_gradient(rule, state, mean)
        return state

    @program
    def total(self, me: RankContext, own: Any, tag: str) -> Program[Any]:
        """Returns the sum of a part of all workers' gradients, in the order of ranks."""
        for other in me.workers:
            if other != me.rank:
                yield from Send(other, own, tag)
        total: Any = 0.0
        for rank in me.workers:
            part: Any = own if rank == me.rank else (yield from Receive(rank, tag)).value
            total = total + part
        return total


@dataclass(frozen=True, kw_only=True)
class WithoutTag(Direct):
    """Two lanes send and receive without a tag, so one may receive the half that was meant for the other."""

    name = "direct-exchange-without-tag"
    tagged: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class LarsBeforeTheAverage(Hsgd):
    """Layer-wise learning rates are computed from each worker's own gradient, before the average."""

    name = "hsgd-lars-on-local-gradients"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            change, memory = rule.step(state.weights.vector, gradient.vector, state.optimizer_state)
            mean = yield from self.mean(me, change, step.number)
            weights = Weights(state.weights.vector - mean, state.weights.version)
            version = yield from RecordUpdate(weights, [gradient.contribution()])
            state = Replica(step.number + 1, Weights(weights.vector, version), memory)
        return state


@dataclass(frozen=True, kw_only=True)
class MeanOfMeans(Hsgd):
    """The mean of the nodes' means is used, which favours workers on small nodes."""

    name = "hsgd-mean-of-means"

    @program
    def mean(self, me: RankContext, vector: Any, number: int) -> Program[Any]:
        leader = me.node.ranks[0]
        total = yield from Reduce(value=vector, group=me.node, root=leader, key=f"up {number}", op="mean")
        if total is not None:
            total = yield from AllReduce(value=total, group=me.leaders, key=f"across {number}")
        mine = vector if total is None else total
        return (yield from Broadcast(value=mine, group=me.node, root=leader, key=f"down {number}"))


@dataclass(frozen=True, kw_only=True)
class ShortPeriods(HbsSgd):
    """`hbs-sgd` with K1 = 1 and K2 = 2."""

    name = "hbs-sgd-short-periods"

    k1: int = 1
    k2: int = 2


@dataclass(frozen=True, kw_only=True)
class WrongGroup(ShortPeriods):
    """The average of all workers is taken over the node only."""

    name = "hbs-sgd-wrong-group"

    @program
    def average_all(self, me: RankContext, state: Replica) -> Program[Replica]:
        state = yield from self.average(state, me.node, f"everyone {state.step}")
        version = yield from RecordUpdate(state.weights)
        return replace(state, weights=Weights(state.weights.vector, version))


@dataclass(frozen=True, kw_only=True)
class EverySecond(KAvg):
    """`k-avg` with K = 2."""

    name = "k-avg-2"

    k: int = 2


@dataclass(frozen=True, kw_only=True)
class PeriodOffByOne(EverySecond):
    """Workers average after every K + 1 steps."""

    name = "k-avg-period-off-by-one"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if state.step % (self.k + 1) == 0:
                state = yield from self.average_all(me, state)
        return state


@dataclass(frozen=True, kw_only=True)
class AnswersAfterTheAverage(AdPsgd):
    """A passive worker answers an offer with its weights from after the average, so the mean of all moves."""

    name = "ad-psgd-answers-after-the-average"

    @program
    def answer(self, current: PassiveState, message: Message) -> Program[PassiveState]:
        weights, oldest, actives = current.weights, current.oldest, current.actives
        if isinstance(message.value, Goodbye):
            actives -= {message.source}
        else:
            oldest = min(oldest, message.value.version)
            weights = Weights(halfway(weights.vector, message.value.vector), weights.version)
            yield from Send(message.source, weights)
        offer = (yield from Start(Receive())) if actives else None
        return PassiveState(weights, oldest, current.living, actives, offer)


@dataclass(frozen=True, kw_only=True)
class OwnStep(SyncSgd):
    """The first worker takes its step with its own gradient instead of the mean."""

    name = "sync-sgd-own-gradient"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            key = f"gradient {step.number}"
            mean = yield from AllReduce(value=gradient.vector, group=me.workers, key=key)
            used = gradient if me.rank == Rank(0) else replace(gradient, vector=mean)
            state = yield from apply_gradient(rule, state, used)
        return state


BUGS = (
    planted(CrossedCollectives(), TwoAverages(), "collectives-match"),
    planted(SkipsTheBarrier(), WithBarrier(), "collectives-match", "no-deadlock"),
    planted(ReusesTheBuffer(), SyncSgd(), "vectors-unchanged", "deterministic", "same-as-sync-sgd", "replicas-equal"),
    planted(SendBufferRace(), Gossip(), "vectors-unchanged", "deterministic", "conserves-mean"),
    planted(DelayOffByOne(), Agd(), "exact-delay"),
    planted(LayersOffByOne(), LayerwiseAgd(bucket=None), "exact-delay"),
    planted(WithoutTag(), Direct(), "deterministic", "same-as-sync-sgd", "replicas-equal"),
    planted(LarsBeforeTheAverage(), Hsgd(), "same-as-sync-sgd"),
    planted(MeanOfMeans(), Hsgd(), "same-as-sync-sgd"),
    planted(WrongGroup(), ShortPeriods(), "replicas-meet", "deterministic"),
    planted(PeriodOffByOne(), EverySecond(), "bounded-staleness"),
    planted(AnswersAfterTheAverage(), AdPsgd(), "conserves-mean"),
    planted(OwnStep(), SyncSgd(), "replicas-equal"),
)
