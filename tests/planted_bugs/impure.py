"""Planted bugs of programs that are not functions of their state and of the answers that they get, or do not end."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import NextStep, Now, Receive, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import apply_gradient, average_gradient, gradient_at
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.parameter_server import AsyncSgd, Push, ServerStopped, server_of
from tests.planted_bugs.bug import planted


@dataclass(frozen=True, kw_only=True)
class UnseededNoise(SyncSgd):
    """Random noise without a seed is added to the gradient."""

    name = "sync-sgd-unseeded-noise"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            noise = np.random.default_rng().normal(size=me.layout.size)
            noisy = replace(gradient, vector=gradient.vector + 0.1 * noise)
            mean = yield from average_gradient(noisy, me.workers, f"gradient {step.number}")
            state = yield from apply_gradient(rule, state, mean)
        return state


@dataclass(frozen=True, kw_only=True)
class ReadsTheClock(SyncSgd):
    """The gradient is scaled by the fraction of the second that the clock of the machine shows, not that of the run."""

    name = "sync-sgd-reads-the-clock"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            share = time.time() % 1.0
            scaled = replace(gradient, vector=(0.5 + share) * gradient.vector)
            mean = yield from average_gradient(scaled, me.workers, f"gradient {step.number}")
            state = yield from apply_gradient(rule, state, mean)
        return state


@dataclass(frozen=True, kw_only=True)
class NeverEnds(AsyncSgd):
    """A worker that is stopped keeps asking for its next step instead of returning."""

    name = "async-sgd-never-ends"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, stopped = server_of(me), False
        while True:
            step = None if stopped else (yield from NextStep(state))
            if step is None:
                yield from Now()  # waits for another step
                continue
            gradient = yield from gradient_at(state.weights, step.samples)
            yield from Send(server, Push(gradient.vector, gradient.contribution()))
            reply = (yield from Receive(server)).value
            if stopped := isinstance(reply, ServerStopped):
                continue
            state = Replica(step.number + 1, reply, state.optimizer_state)


BUGS = (
    planted(UnseededNoise(), SyncSgd(), "pure-programs", "same-record", "deterministic"),
    planted(ReadsTheClock(), SyncSgd(), "pure-programs", "same-record", "deterministic"),
    planted(NeverEnds(), AsyncSgd(), "ends"),
)
