"""Synchronous SGD with one fault in each method, for tests of `paceline check`."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace

import numpy as np

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import (
    AllReduce,
    Barrier,
    Charge,
    Gradient,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Send,
    Start,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import GradientResult, Rank, Step, Weights


@dataclass(frozen=True, kw_only=True)
class Faultless(SgdMethod):
    """Synchronous SGD. `fault` runs in each step between the gradient and its average; here it does nothing."""

    name = "faultless"
    staleness_kind = StalenessKind.STEPS
    source = "the tests"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            yield from self.fault(me, step, gradient)
            mean = yield from AllReduce(value=gradient.vector, group=me.workers, key=f"mean {step.number}")
            vector, memory = rule.update(state.weights.vector, mean, state.optimizer_state)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version), memory)
        return state

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        yield from Charge("nothing", 0)


def next_of(me: RankContext) -> Rank:
    """Returns the next worker on a ring."""
    return Rank((me.rank + 1) % len(me.workers))


@dataclass(frozen=True, kw_only=True)
class Deadlocked(Faultless):
    """Rank 1 waits for a message that nobody sends."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        if me.rank == 1 and step.number == 1:
            yield from Receive(Rank(0))


@dataclass(frozen=True, kw_only=True)
class Crossed(Faultless):
    """From step 1, rank 0 enters two barriers in the other order."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        keys = ["a", "b"]
        for key in reversed(keys) if step.number and me.rank == 0 else keys:
            yield from Barrier(group=me.workers, key=key)


@dataclass(frozen=True, kw_only=True)
class Unfinished(Faultless):
    """Rank 0 starts a barrier that no other rank enters."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        if me.rank == 0:
            yield from Start(Barrier(group=me.workers, key="alone"))


@dataclass(frozen=True, kw_only=True)
class Endless(Faultless):
    """Rank 0 requests operations forever."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        while me.rank == 0 and step.number == 1:
            yield from Charge("nothing", 0)


@dataclass(frozen=True, kw_only=True)
class Failing(Faultless):
    """Fails in step 1."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        yield from Charge("nothing", 0)
        if step.number == 1:
            raise KeyError("momentum")


@dataclass(frozen=True, kw_only=True)
class Changing(Faultless):
    """Changes a vector after it was sent."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        if len(me.workers) > 1:
            yield from Send(next_of(me), gradient.vector)
            gradient.vector[:] *= 0.5
            yield from Receive()


@dataclass(frozen=True, kw_only=True)
class Unread(Faultless):
    """Rank 0 sends a message that nobody receives."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        if me.rank == 0 and len(me.workers) > 1:
            yield from Send(Rank(1), 3, tag="lost")


@dataclass(frozen=True, kw_only=True)
class Doubled(Faultless):
    """Records the gradient twice."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        yield from RecordUpdate(Weights(gradient.vector, step.number), [gradient.contribution()], advance=False)


@dataclass(frozen=True, kw_only=True)
class Timed(Faultless):
    """Reads the clock of the machine."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        yield from Charge("nothing", int(time.monotonic() < 0))


@dataclass(frozen=True, kw_only=True)
class Unseeded(Faultless):
    """Adds noise without a seed."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        yield from Charge("nothing", 0)
        gradient.vector[:] += 1e-3 * np.random.default_rng().random()


@dataclass(frozen=True, kw_only=True)
class Global(Faultless):
    """Draws from the generator that all code of the process shares."""

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        yield from Charge("nothing", int(random.random() < 0))


@dataclass(frozen=True, kw_only=True)
class Forgetful(Faultless):
    """Keeps the velocity in a local variable, not in the state."""

    momentum: float = 0.5

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        memory = rule.init(state.weights.vector)
        while step := (yield from NextStep(state)):
            gradient = yield from Gradient(state.weights, (yield from Load(step.samples)))
            mean = yield from AllReduce(value=gradient.vector, group=me.workers, key=f"mean {step.number}")
            vector, memory = rule.update(state.weights.vector, mean, memory)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [gradient.contribution()])
            state = replace(state, step=step.number + 1, weights=Weights(vector, version))
        return state


@dataclass(frozen=True, kw_only=True)
class Early(Faultless):
    """Rank 0 uses the message that arrives first."""

    guarantees = frozenset({Guarantee.DETERMINISTIC})

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        if me.rank:
            yield from Send(Rank(0), gradient.vector)
            return
        came = []
        for _ in range(len(me.workers) - 1):
            came.append((yield from Receive()))
        if came and came[0].source != 1:
            gradient.vector[:] = came[0].value


FAULTS: dict[type[Faultless], str] = {
    Deadlocked: "no-deadlock",
    Crossed: "collectives-match",
    Unfinished: "collectives-match",
    Endless: "ends",
    Failing: "no-errors",
    Changing: "vectors-unchanged",
    Unread: "messages-read",
    Doubled: "gradients-once",
    Timed: "pure-programs",
    Unseeded: "pure-programs",
    Global: "pure-programs",
    Forgetful: "complete-state",
}
"""the invariant that each fault violates"""
