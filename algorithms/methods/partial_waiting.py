"""Parameter servers that wait for some of the workers: K of P, any K gradients, or the first R of P."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    Cancel,
    Charge,
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
from paceline.algorithms.methods.parameter_server import SERVING, Damped, ParameterServer, Push, Stop, opened, server_of
from paceline.algorithms.methods.survivors import Crew

DUTTA = "Dutta, Joshi, Ghosh, Dube, Nagpurkar, 'Slow and Stale Gradients Can Win the Race', AISTATS'18"


@dataclass(frozen=True, kw_only=True)
class KBatchAsync(Damped):
    """K-batch-async: an update for every K gradients, whoever they come from; nobody waits for anybody.

    server, after K gradients g_k from any workers:  x ← x − η (1/K) Σ_k g_k;  version ← version + 1

    The rule of softsync with c = K, here without damping. A push is answered at once, so one worker may be in an update
    twice.
    """

    name = "k-batch-async"
    source = f"{DUTTA} (K-batch-async)"
    guarantees = SERVING

    k: int | None = None
    """K, gradients for an update, or half of the workers, rounded up; provenance: ours"""

    def needed(self, workers: int) -> int:
        return half(workers) if self.k is None else self.k


@dataclass(frozen=True, kw_only=True)
class KAsync(KBatchAsync):
    """K-async: an update for every K gradients from K workers, who wait for it; the others keep going.

    server, after K gradients g_k from different workers:  x ← x − η (1/K) Σ_k g_k;  reply x to these K

    A worker whose gradient is in goes on only after the update, so no worker is in an update twice. K = P is
    synchronous SGD, K = 1 asynchronous SGD.
    """

    name = "k-async"
    source = f"{DUTTA} (K-async)"
    guarantees = SERVING | {Guarantee.DISTINCT_WORKERS}
    prompt: ClassVar[bool] = False

    k: int | None = None
    """K, workers that make an update, 1 … P, or half of them, rounded up; provenance: ours"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        return super().problems(nodes) + self.too_many("k", nodes)


@dataclass(frozen=True, kw_only=True)
class BackupWorkers(ParameterServer):
    """Synchronous SGD with backup workers: an update takes the first R = P − B fresh gradients, later ones are dropped.

    x ← x − η (1/R) Σ_{first R} g_i(x);  a gradient of older weights is dropped, its worker gets the newest

    Nobody is interrupted: a slow worker finishes a gradient that nobody will use, and then joins the others.
    """

    name = "backup-workers"
    source = "Chen, Pan, Monga, Bengio, Jozefowicz, 'Revisiting Distributed Synchronous SGD', 2016; SyncReplicas (TF)"
    guarantees = SERVING | {Guarantee.SYNCHRONOUS, Guarantee.DISTINCT_WORKERS}
    prompt: ClassVar[bool] = False
    fresh: ClassVar[bool] = True

    ranges: ClassVar[Mapping[str, Range]] = {"backups": COUNT_OR_NONE}

    backups: int | None = None
    """B, gradients that an update does without, 0 … P − 1, or one for four workers, rounded down; provenance: ours"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        return super().problems(nodes) + self.too_many("backups", nodes, spared=1)

    def needed(self, workers: int) -> int:
        return workers - (workers // 4 if self.backups is None else self.backups)


@dataclass(frozen=True, kw_only=True)
class KSync(ParameterServer):
    """K-sync: an update takes the first K gradients of the newest weights; the others give theirs up and start anew.

    x ← x − η (1/K) Σ_{first K} g_i(x);  then everybody gets x, and what was still being computed is cancelled

    A gradient that was under way when the update was made is dropped. K = P is synchronous SGD.
    """

    name = "k-sync"
    source = f"{DUTTA} (K-sync)"
    guarantees = SERVING | {Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL, Guarantee.DISTINCT_WORKERS}

    k: int | None = None
    """K, workers that make an update, 1 … P, or half of them, rounded up; provenance: ours"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        return super().problems(nodes) + self.too_many("k", nodes)

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
                yield from Cancel(gradient)  # whether or not that is in time, nobody wants it any more
            else:
                kept = yield from self.push(me, (yield from Wait(gradient)), kept)
            reply = (yield from Wait(news)).value
            if isinstance(reply, Stop):
                yield from Send(server, reply)  # the last of this worker: the server hears everything before it leaves
                return state
            state = Replica(step.number + 1, reply, state.optimizer_state, kept)
        return state

    @program
    def collect(
        self, me: RankContext, build_team: Crew, weights: Weights
    ) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        taken: list[Push] = []
        while len(taken) < self.needed(len(me.workers)):
            push = opened((yield from build_team.message()))
            if push.origin.version == weights.version:
                yield from Charge("update", push.vector.nbytes, where="host")
                taken.append(push)
        return taken, me.workers

    @program
    def farewell(self, build_team: Crew) -> Program[None]:
        """All are told; what they still send is dropped, up to each one's own goodbye."""
        for worker in sorted(build_team.living):
            yield from Send(worker, Stop())
        gone: set[Rank] = set()
        while build_team.living - gone:
            message = yield from build_team.hear()
            if message is not None and isinstance(message.value, Stop):
                gone.add(message.source)


def half(workers: int) -> int:
    """Half of them, rounded up: K where nobody says."""
    return -(-workers // 2)
