"""Planted bugs that only runs in seconds show.

The clock of the any-order interpreter counts moves: two readings differ by a whole number of at least 1. So what a
program does with equal times, or with less than a second, can only be seen in the simulated interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Gradient as ComputeGradient
from paceline.algorithms.core.operations import Load, NextStep, Now, Receive, RecordUpdate, Send, Start, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import apply_gradient, average_gradient, gradient_at, local_step
from paceline.algorithms.core.values import GradientResult, Rank, Samples, Weights
from paceline.algorithms.methods.async_elastic import AsyncEasgd
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.dynamic_batch import Estimate, Portioned, Timed
from paceline.algorithms.methods.elastic import Exchange
from paceline.algorithms.methods.parameter_server import AsyncSgd, Push, ServerStopped, SyncSgdPs, opened, server_of
from paceline.algorithms.methods.ssp import Cached, Packet, Ssp
from paceline.algorithms.methods.survivors import LivingWorkers
from tests.planted_bugs.bug import planted
from tests.planted_bugs.replicas import EverySecond
from tests.planted_bugs.servers import Collected, OftenBalanced, TwoOfAll


@program
def timed_gradient(weights: Weights, samples: Samples) -> Program[tuple[GradientResult, float]]:
    """Returns the gradient of a batch and the seconds that it took."""
    begun_s = yield from Now()
    gradient = yield from gradient_at(weights, samples)
    return gradient, (yield from Now()) - begun_s


@dataclass(frozen=True, kw_only=True)
class Unguarded(OftenBalanced):
    """`dbs-sgd` that also uses durations of 0 s, by which it divides."""

    name = "dbs-sgd-unguarded"

    def measured(self, estimates: tuple[Estimate | None, ...], rank: Rank, push: Timed) -> tuple[Estimate | None, ...]:
        before, batch = estimates[rank], push.origin.samples
        now = before.seen(batch, push.seconds, self.smoothing) if before else Estimate(batch, push.seconds)
        return (*estimates[:rank], now, *estimates[rank + 1 :])


@dataclass(frozen=True, kw_only=True)
class WholeSeconds(Unguarded):
    """A worker sends the duration of its gradient in whole seconds, and the server divides by it."""

    name = "dbs-sgd-whole-seconds"

    @program
    def worker(self, me: RankContext, state: Portioned) -> Program[Portioned]:
        server = server_of(me)
        while step := (yield from NextStep(state)):
            samples = state.part.of(step.samples) if state.part else step.samples
            gradient, seconds = yield from timed_gradient(state.weights, samples)
            timed = Timed(gradient.vector, gradient.contribution(), int(seconds), step.samples.count)
            yield from Send(server, timed)
            reply = (yield from Receive(server)).value
            if isinstance(reply, ServerStopped):
                return state
            state = Portioned(step.number + 1, reply.weights, state.optimizer_state, reply.part)
        return state


@dataclass(frozen=True, kw_only=True)
class TimesTheStart(Unguarded):
    """A worker measures how long it takes to start its gradient instead of how long the gradient takes."""

    name = "dbs-sgd-times-the-start"

    @program
    def worker(self, me: RankContext, state: Portioned) -> Program[Portioned]:
        server = server_of(me)
        while step := (yield from NextStep(state)):
            batch = yield from Load(state.part.of(step.samples) if state.part else step.samples)
            begun_s = yield from Now()
            computing = yield from Start(ComputeGradient(state.weights, batch))
            seconds = (yield from Now()) - begun_s
            gradient = yield from Wait(computing)
            yield from Send(server, Timed(gradient.vector, gradient.contribution(), seconds, step.samples.count))
            reply = (yield from Receive(server)).value
            if isinstance(reply, ServerStopped):
                return state
            state = Portioned(step.number + 1, reply.weights, state.optimizer_state, reply.part)
        return state


@dataclass(frozen=True, kw_only=True)
class FiledByTime(SyncSgdPs):
    """The server keeps pushes in a dictionary by their time of arrival, so one of two that arrive together is lost."""

    name = "sync-sgd-ps-filed-by-time"

    @program
    def collect(self, me: RankContext, team: LivingWorkers, weights: Weights) -> Program[Collected]:
        pushes: dict[float, Push] = {}
        while len(pushes) < len(me.workers):
            push = opened((yield from team.message()))
            pushes[(yield from Now())] = push
        return sorted(pushes.values(), key=lambda push: push.origin.rank), me.workers


@dataclass(frozen=True, kw_only=True)
class SortedByTime(TwoOfAll):
    """The server sorts pairs of arrival time and push, which compares the pushes themselves if the times are equal."""

    name = "k-async-sorted-by-time"

    @program
    def collect(self, me: RankContext, team: LivingWorkers, weights: Weights) -> Program[Collected]:
        pairs: list[Any] = []
        while len(pairs) < self.needed(len(me.workers)):
            push = opened((yield from team.message()))
            pairs.append(((yield from Now()), push))
        pushes = [push for _, push in sorted(pairs)]
        return pushes, [push.origin.rank for push in pushes]


@dataclass(frozen=True, kw_only=True)
class DropsRepeats(TwoOfAll):
    """A push less than half a second after another one counts as its repetition by the network, and is dropped."""

    name = "k-async-drops-repeats"

    @program
    def collect(self, me: RankContext, team: LivingWorkers, weights: Weights) -> Program[Collected]:
        taken, waiting, last_s = list[Push](), list[Rank](), -1.0
        while len(waiting) < self.needed(len(me.workers)):
            push = opened((yield from team.message()))
            now_s = yield from Now()
            if now_s - last_s >= 0.5:
                taken.append(push)
            waiting.append(push.origin.rank)
            last_s = now_s
        return taken, waiting


@dataclass(frozen=True, kw_only=True)
class DividesByTheInterval(AsyncSgd):
    """A gradient is divided by the time since the last push, which is 0 if two arrive together."""

    name = "async-sgd-divides-by-the-interval"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, team, last_s = self.rule(me.layout.layers), LivingWorkers(me), -1.0
        while step := (yield from NextStep(state)):
            message = yield from team.message()
            push, now_s = opened(message), (yield from Now())
            taken = [replace(push, vector=push.vector / max(1.0, 1 / (now_s - last_s)))]
            last_s = now_s
            vector, optimizer_state = self.applied(rule, state, taken)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [push.origin])
            state = Replica(step.number + 1, Weights(vector, version), optimizer_state)
            yield from Send(message.source, state.weights)
        yield from self.farewell(team)
        return state


@dataclass(frozen=True, kw_only=True)
class ScaledByDuration(SyncSgd):
    """A gradient that took less than a second is scaled by its duration, so the weights depend on the speeds."""

    name = "sync-sgd-scaled-by-duration"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient, seconds = yield from timed_gradient(state.weights, step.samples)
            scaled = replace(gradient, vector=min(1.0, seconds) * gradient.vector)
            mean = yield from average_gradient(scaled, me.workers, f"gradient {step.number}")
            state = yield from apply_gradient(rule, state, mean)
        return state


@dataclass(frozen=True, kw_only=True)
class PeriodBySpeed(EverySecond):
    """A worker whose steps take less than a second averages less often, without agreeing on it with the others."""

    name = "k-avg-period-by-speed"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            begun_s = yield from Now()
            state = yield from local_step(rule, state, step.samples)
            seconds = (yield from Now()) - begun_s
            if state.step % max(self.k, int(self.k / max(seconds, 0.1))) == 0:
                state = yield from self.average_all(me, state)
        return state


@dataclass(frozen=True, kw_only=True)
class FastStepsAlone(EverySecond):
    """A worker whose step took less than half a second does not take part in the average."""

    name = "k-avg-fast-steps-alone"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            begun_s = yield from Now()
            state = yield from local_step(rule, state, step.samples)
            if state.step % self.k == 0 and (yield from Now()) - begun_s >= 0.5:
                state = yield from self.average_all(me, state)
        return state


@dataclass(frozen=True, kw_only=True)
class ReadsWhenStale(Ssp):
    """`ssp` without slack, whose workers read when their copy is too old."""

    name = "ssp-when-stale"

    slack: int = 0
    pull: Literal["always", "when-stale"] = "when-stale"


@dataclass(frozen=True, kw_only=True)
class SlackBySpeed(ReadsWhenStale):
    """A worker whose gradients take less than a second asks less often, so it runs ahead of the slowest."""

    name = "ssp-slack-by-speed"

    @program
    def worker(self, me: RankContext, state: Cached) -> Program[Cached]:
        server, rule = server_of(me), self.rule(me.layout.layers)
        while True:
            if state.waits:
                answer = (yield from Receive(server)).value
                if isinstance(answer, ServerStopped):
                    return state
                state = replace(state, weights=answer.weights, clock=answer.clock, waits=False)
            if not (step := (yield from NextStep(state))):
                return state
            gradient, seconds = yield from timed_gradient(state.weights, step.samples)
            slack = self.slack + int(0.9 / max(seconds, 0.1))
            asks = step.number + 1 - state.clock > slack
            yield from Send(server, Packet(gradient.vector, (gradient.contribution(),), asks))
            weights, optimizer_state = state.weights, state.optimizer_state
            if not asks:
                vector, optimizer_state = rule.update(weights.vector, gradient.vector, optimizer_state)
                weights = Weights(vector, weights.version)
            state = Cached(step.number + 1, weights, optimizer_state, asks, state.clock)


@dataclass(frozen=True, kw_only=True)
class WarmUp(SyncSgdPs):
    """A gradient that is complete in the first half second of the run counts as a warm-up, and is not pushed."""

    name = "sync-sgd-ps-warm-up"
    warm_up_s: ClassVar[float] = 0.5

    @program
    def push(self, me: RankContext, gradient: GradientResult, kept: Any) -> Program[Any]:
        if (yield from Now()) < self.warm_up_s:
            return kept
        return (yield from super().push(me, gradient, kept))


@dataclass(frozen=True, kw_only=True)
class PullByDuration(AsyncEasgd):
    """A worker moves towards the centre in proportion to the duration of its step, up to 1 s; the centre does not."""

    name = "easgd-pull-by-duration"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, alpha, rule = server_of(me), self.alpha(me), self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            before = state.weights.vector
            gradient, seconds = yield from timed_gradient(state.weights, step.samples)
            yield from Send(server, Exchange(before, gradient.contribution(version=0)))
            centre = (yield from Receive(server)).value
            if isinstance(centre, ServerStopped):
                return state
            stepped, optimizer_state = rule.update(before, gradient.vector, state.optimizer_state)
            pull = alpha * min(1.0, seconds) * (before - centre.vector)
            state = Replica(step.number + 1, Weights(stepped - pull, state.weights.version + 1), optimizer_state)
        return state


BUGS = (
    planted(WholeSeconds(), OftenBalanced(), "no-errors", only_simulated=True),
    planted(TimesTheStart(), OftenBalanced(), "no-errors", only_simulated=True),
    planted(FiledByTime(), SyncSgdPs(), "no-deadlock", only_simulated=True),
    planted(SortedByTime(), TwoOfAll(), "no-errors", only_simulated=True),
    planted(DropsRepeats(), TwoOfAll(), "full-updates", only_simulated=True),
    planted(DividesByTheInterval(), AsyncSgd(), "no-errors", only_simulated=True),
    planted(ScaledByDuration(), SyncSgd(), "deterministic", only_simulated=True),
    planted(
        PeriodBySpeed(), EverySecond(), "bounded-staleness", "collectives-match", "no-deadlock", only_simulated=True
    ),
    planted(FastStepsAlone(), EverySecond(), "collectives-match", "no-deadlock", only_simulated=True),
    planted(SlackBySpeed(), ReadsWhenStale(), "bounded-clock-gap", "bounded-staleness", only_simulated=True),
    planted(WarmUp(), SyncSgdPs(), "no-deadlock", only_simulated=True),
    planted(PullByDuration(), AsyncEasgd(), "conserves-sum", only_simulated=True),
)
