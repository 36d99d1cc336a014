"""Hogwild: workers of one node update shared memory without a lock; reads may be torn and additions may be lost.

Each worker counts the updates that it has added, which are its steps, in a cell that only it writes. The version is the
sum of the counts. The first worker initializes the shared cell from its state if the cell is empty; the others wait for
this. So a run can be restarted from its states. When a run stops, all workers read the cell after all have added their
last updates. These are the final weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from paceline.algorithms.core.guarantees import AppliedGradient
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import (
    Access,
    Barrier,
    Cell,
    Gradient,
    Load,
    Lock,
    NextStep,
    RecordUpdate,
    Start,
    Unlock,
    Wait,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.traffic import COMBINE, ELASTIC_PULL, SCALE
from paceline.algorithms.core.values import Rank, Weights
from paceline.algorithms.methods.elastic import Elastic, Elastically

SHARED = Cell("weights")
"""the shared weights"""


def count_of(rank: Rank) -> Cell:
    """Returns the cell in which a worker counts its updates."""
    return Cell(f"updates-{rank}")


@program
def count(rank: Rank, updates: int) -> Program[None]:
    """Publishes the number of updates of a worker; a single number written by one rank is never torn.

    Args:
        rank: the worker.
        updates: the number of updates that it has added.
    """
    yield from Access(count_of(rank), "swap", np.array([updates]))


@program
def landed(me: RankContext) -> Program[int]:
    """Returns the number of updates in the shared weights: the sum of all workers' counts."""
    total = 0
    for rank in me.workers:
        counted: Any = yield from Access(count_of(rank), "read")
        total += int(counted[0])
    return total


@dataclass(frozen=True, kw_only=True)
class SharedMemorySgd(SgdMethod):
    """Base of methods whose workers use shared memory."""

    independent: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    guarantees = frozenset()

    lock: bool = False
    """whether reading and adding take a lock, so that nothing is torn or lost; provenance: in SC'17 the version with a
    lock is Async"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if len(nodes) > 1:
            problems.append(
                f"name: {self.name} shares memory; found workers on {len(nodes)} nodes, expected one; "
                "put them on one node, or take async-sgd or async-easgd"
            )
        return problems

    @program
    def enter_memory(self, me: RankContext, vector: Any, updates: int) -> Program[None]:
        """Initializes the shared cells; returns when those of all workers are initialized.

        Args:
            me: this rank.
            vector: the initial weights.
            updates: the number of updates that this worker has added before.
        """
        if me.rank == me.workers.ranks[0] and (yield from Access(SHARED, "read")) is None:
            yield from Access(SHARED, "swap", vector)
        yield from count(me.rank, updates)
        yield from Barrier(group=me.workers, key="the memory is filled")

    @program
    def leave_memory(self, me: RankContext) -> Program[Weights]:
        """Returns the shared weights after all workers have added their last updates, and records them."""
        yield from Barrier(group=me.workers, key="all updates have landed")
        updates = yield from landed(me)
        vector: Any = yield from Access(SHARED, "read")
        if updates > 0:
            yield from RecordUpdate(Weights(vector, updates - 1))
        return Weights(vector, updates)


@dataclass(frozen=True, kw_only=True)
class HogwildSgd(SharedMemorySgd):
    """Each worker adds its step to shared weights as soon as it is computed, number by number, without a lock.

    worker i:  read x;  x ← x − η g_i(x), adding number by number while others read and add

    With `lock`, adding a step and reading the weights for the next gradient is atomic, as at a parameter server: Async
    SGD in shared memory.
    """

    name = "hogwild-sgd"
    staleness_kind = StalenessKind.VERSION_LAG
    source = "Niu, Recht, Ré, Wright, NIPS 2011 (arXiv 1106.5730); You, Buluç, Demmel, SC'17 (Hogwild SGD)"

    def initial_weight(self, updates: int) -> float | None:
        return None  # a worker's decay is that of the weights that it has read

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns η / (1 − μ): every worker adds its own whole step to the shared weights."""
        return self.learning_rate_at(gradient.step) / (1 - self.momentum)

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        yield from self.enter_memory(me, state.weights.vector, state.step)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            yield from rule.charge_step(gradient.vector.nbytes, also=SCALE)
            change, optimizer_state = rule.step(state.weights.vector, gradient.vector, state.optimizer_state)
            done = step.number + 1
            weights = yield from self.add(me, -1 * change, done)
            version = yield from RecordUpdate(weights, [gradient.contribution()])
            state = Replica(done, Weights(weights.vector, version), optimizer_state)
        weights = yield from self.leave_memory(me)
        return Replica(state.step, weights, state.optimizer_state)

    @program
    def add(self, me: RankContext, change: Any, done: int) -> Program[Weights]:
        """Adds a change to the shared weights.

        Args:
            me: this rank.
            change: the vector to add.
            done: the number of steps of this worker, including this one.

        Returns:
            The weights read afterwards, with the version that the change replaced.
        """
        if self.lock:
            yield from Lock(SHARED)
        yield from Access(SHARED, "add", change)
        yield from count(me.rank, done)
        version = yield from landed(me)
        vector: Any = yield from Access(SHARED, "read")
        if self.lock:
            yield from Unlock(SHARED)
        return Weights(vector, version - 1)


@dataclass(frozen=True, slots=True)
class Handled:
    """The result of an exchange with the centre: α (x − c), the version of c, and c with the term added."""

    term: Any
    version: int
    centre: Weights


@dataclass(frozen=True, kw_only=True)
class HogwildEasgd(SharedMemorySgd, Elastic):
    """Workers have their own weights; the centre is in shared memory, and elastic terms are added without a lock.

    worker i:  read c;  d = α (x_i − c);  c ← c + d, adding number by number while others read and add
               x_i ← x_i − η g(x_i) − d

    The exchange runs concurrently with the gradient, which does not depend on it, in a handler of each worker. With
    `lock`, one handler runs at a time.
    """

    name = "hogwild-easgd"
    staleness_kind = StalenessKind.EXCHANGE_LAG
    source = "You, Buluç, Demmel, SC'17 (Hogwild EASGD)"

    def begin(self, me: RankContext, vector: Any) -> Elastically:
        return Elastically(0, Weights(vector, 0), Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Elastically) -> Program[Elastically]:
        rule = self.rule(me.layout.layers)
        yield from self.enter_memory(me, state.centre.vector, state.step)
        while step := (yield from NextStep(state)):
            before, done = state.weights.vector, step.number + 1
            handler = yield from Start(self.handler(me, before, done))
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            handled = yield from Wait(handler)
            yield from rule.charge(before.nbytes, also=ELASTIC_PULL + COMBINE)
            stepped, optimizer_state = rule.update(before, gradient.vector, state.optimizer_state)
            version = yield from RecordUpdate(handled.centre, [gradient.contribution(version=handled.version)])
            weights = Weights(stepped - handled.term, state.weights.version + 1)
            state = Elastically(done, weights, Weights(handled.centre.vector, version), optimizer_state)
        centre = yield from self.leave_memory(me)
        return Elastically(state.step, state.weights, centre, state.optimizer_state)

    @program
    def handler(self, me: RankContext, before: Any, done: int) -> Program[Handled]:
        """Moves the centre towards a worker's weights.

        Args:
            me: this rank.
            before: its weights before the step.
            done: the number of steps of this worker, including this one.
        """
        if self.lock:
            yield from Lock(SHARED)
        version = yield from landed(me)
        centre: Any = yield from Access(SHARED, "read")
        term = self.alpha(me) * (before - centre)
        untouched: Any = yield from Access(SHARED, "add", term)
        yield from count(me.rank, done)
        landing = yield from landed(me)
        if self.lock:
            yield from Unlock(SHARED)
        return Handled(term, version, Weights(untouched + term, landing - 1))
