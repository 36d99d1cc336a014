"""Parameter servers that wait for a part of the workers: K of P, any K gradients, or the first R of P."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    Cancel,
    Gradient,
    Load,
    NextStep,
    Receive,
    Send,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.option_groups import COUNT_OR_NONE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Weights
from paceline.algorithms.methods.parameter_server import (
    SERVING,
    Damped,
    ParameterServer,
    Push,
    ServerStopped,
    Sharded,
    opened,
    server_of,
)
from paceline.algorithms.methods.survivors import LivingWorkers

DUTTA = "Dutta, Joshi, Ghosh, Dube, Nagpurkar, 'Slow and Stale Gradients Can Win the Race', AISTATS'18"


@dataclass(frozen=True, kw_only=True)
class KBatchAsync(Sharded, Damped):
    """K-batch-async: one update for every K gradients of any workers; no worker waits for another.

    server, after K gradients g_k from any workers:  x ← x − η (1/K) Σ_k g_k;  version ← version + 1

    The rule of softsync with c = K, here without damping. A push is answered immediately, so an update may contain two
    gradients of one worker.
    """

    name = "k-batch-async"
    source = f"{DUTTA} (K-batch-async)"
    guarantees = SERVING

    k: int | None = None
    """K, gradients in an update; None: half of the workers, rounded up; provenance: ours"""

    def needed(self, workers: int) -> int:
        return half(workers) if self.k is None else self.k


@dataclass(frozen=True, kw_only=True)
class KAsync(Damped):
    """K-async: one update for every K gradients from K workers, which wait for it; the others continue.

    server, after K gradients g_k from different workers:  x ← x − η (1/K) Σ_k g_k;  reply x to these K

    A worker continues only after the update with its gradient, so an update contains at most one gradient of a worker.
    K = P is synchronous SGD, K = 1 asynchronous SGD. There is one server: of several, each could wait for workers that
    wait for the others.
    """

    name = "k-async"
    source = f"{DUTTA} (K-async)"
    guarantees = SERVING | {Guarantee.DISTINCT_WORKERS}
    prompt: ClassVar[bool] = False

    k: int | None = None
    """K, workers in an update, 1 … P; None: half of them, rounded up; provenance: ours"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        return super().problems(nodes) + self.too_many("k", nodes)

    def needed(self, workers: int) -> int:
        return half(workers) if self.k is None else self.k


@dataclass(frozen=True, kw_only=True)
class BackupWorkers(ParameterServer):
    """Synchronous SGD with backup workers: an update uses the first R = P − B fresh gradients and drops later ones.

    x ← x − η (1/R) Σ_{first R} g_i(x);  a gradient of older weights is dropped, its worker gets the newest

    No worker is interrupted: a slow one finishes its gradient, which is dropped, and then continues with the newest
    weights.
    """

    name = "backup-workers"
    source = "Chen, Pan, Monga, Bengio, Jozefowicz, 'Revisiting Distributed Synchronous SGD', 2016; SyncReplicas (TF)"
    guarantees = SERVING | {Guarantee.SYNCHRONOUS, Guarantee.DISTINCT_WORKERS}
    prompt: ClassVar[bool] = False
    fresh: ClassVar[bool] = True
    drops_gradients: ClassVar[bool] = True

    ranges: ClassVar[Mapping[str, Range]] = {"backups": COUNT_OR_NONE}

    backups: int | None = None
    """B, gradients that an update does not wait for, 0 … P − 1; None: one for four workers, rounded down; provenance:
    ours"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        return super().problems(nodes) + self.too_many("backups", nodes, spared=1)

    def needed(self, workers: int) -> int:
        return workers - (workers // 4 if self.backups is None else self.backups)


@dataclass(frozen=True, kw_only=True)
class KSync(ParameterServer):
    """K-sync: an update uses the first K gradients of the newest weights; the other workers cancel theirs and restart.

    x ← x − η (1/K) Σ_{first K} g_i(x);  then everybody gets x, and what was still being computed is cancelled

    A gradient in flight at the time of the update is dropped. K = P is synchronous SGD.
    """

    name = "k-sync"
    source = f"{DUTTA} (K-sync)"
    guarantees = SERVING | {Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL, Guarantee.DISTINCT_WORKERS}

    drops_gradients: ClassVar[bool] = True

    k: int | None = None
    """K, workers in an update, 1 … P; None: half of them, rounded up; provenance: ours"""

    def sees_own_updates(self, workers: int) -> bool:
        return True  # everybody gets the weights after each update

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes) + self.too_many("k", nodes)
        if self.accumulate > 1:
            problems.append(
                f"accumulate: found {self.accumulate}, expected 1: a worker that is late cancels its gradient"
            )
        return problems

    def needed(self, workers: int) -> int:
        return half(workers) if self.k is None else self.k

    def distinct(self, workers: int) -> int:
        return self.needed(workers)

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server = server_of(me)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            news = yield from Start(Receive(server))
            gradient = yield from Start(Gradient(state.weights, batch))
            done, kept = dict((yield from WaitFor((news, gradient), "any"))), state.residual
            if 0 in done:
                yield from Cancel(gradient)  # in time or not, the gradient is not used
            else:
                kept = yield from self.push(me, (yield from Wait(gradient)), kept)
            reply = (yield from Wait(news)).value
            if isinstance(reply, ServerStopped):
                yield from Send(server, reply)  # the server receives all messages up to this one before it ends
                return state
            state = Replica(step.number + 1, reply, state.optimizer_state, kept)
        return state

    @program
    def collect(
        self, me: RankContext, team: LivingWorkers, weights: Weights
    ) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        taken: list[Push] = []
        while len(taken) < self.needed(len(me.workers)):
            push = opened((yield from team.message()))
            if push.origin.version == weights.version:
                yield from self.charge(me, push, len(taken) + 1)
                taken.append(push)
        return taken, me.workers

    @program
    def farewell(self, team: LivingWorkers) -> Program[None]:
        """Sends `ServerStopped` to all workers and drops their messages until each has answered with the same."""
        for worker in sorted(team.living):
            yield from Send(worker, ServerStopped())
        gone: set[Rank] = set()
        while not team.living <= gone:
            message = yield from team.receive()
            if message is not None and isinstance(message.value, ServerStopped):
                gone.add(message.source)


def half(workers: int) -> int:
    """Returns half of the workers, rounded up: the default of K."""
    return -(-workers // 2)
