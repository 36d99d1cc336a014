"""Programs of ranks on one host that only communicate, and measure the time themselves. Nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from paceline.algorithms.core.job import Budget, Evaluation, Job, OneByOne
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import NextStep, Now, Receive, Send
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples
from paceline.backend.calibration.probes import ProbeCollectives
from paceline.backend.calibration.recorded_costs import costs
from paceline.backend.local.launch import Launch, run_job
from paceline.records.trace import Schedule
from paceline.topologies.catalogue.machine_profile import Asked

SIZES = {4: 300, 1_000: 300, 16_000: 300, 256_000: 150, 1_000_000: 60, 8_000_000: 15}
"""bytes, and the number of round trips of such a message in one launch"""
PUSHED_BYTES, PUSHES, PUSHING = 810_000, 300, 2
"""weights of a perceptron with 784, 256 and 10 units; pushes of each of so many workers"""
COLLECTIVES, COLLECTIVE_BYTES = ("AllReduce", "Reduce", "Broadcast"), (20_000, 800_000, 8_000_000)
TIMES = 20
"""repetitions of each collective in a launch"""
PAUSES_S = (0.003, 0.006)

Times = dict[tuple[str, int, int], float]
"""seconds by operation, ranks and bytes"""


@dataclass(frozen=True)
class Flat(OneByOne):
    """A learner whose gradient costs one copy of the weights."""

    size: int
    num_samples: int = 1000

    @property
    def layout(self) -> Layout:
        return Layout((Layer("all", 0, self.size),))

    def initial(self) -> Any:
        return np.ones(self.size, np.float32)

    def load(self, samples: Samples) -> Any:
        return None

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return vector.copy(), 0.0

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        ready("all", vector.copy())
        return 0.0

    def evaluate(self, vector: Any) -> Evaluation:
        return Evaluation(0.0, None)


def never() -> Schedule:
    """A schedule without evaluations."""
    return Schedule(every=float("inf"))


# --- messages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Timed(Method):
    """A method of one step whose result is the time that the program measured."""

    name = "timed"
    staleness_kind = StalenessKind.STEPS
    source = "a benchmark"
    guarantees = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        memory = None
        while (yield from NextStep(state)):
            memory = yield from self.timed(me)
            state = Replica(state.step + 1, state.weights, memory)
        return state

    def timed(self, me: RankContext) -> Routine[Any]:
        """Runs the rank's part of the step and returns seconds."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class RoundTrips(Timed):
    """Rank 0 sends, and rank 1 sends the message back."""

    @program
    def timed(self, me: RankContext) -> Program[dict[int, float]]:
        medians: dict[int, float] = {}
        other = Rank(1 - me.rank)
        for size, times in SIZES.items():
            value, took = np.ones(size // 4, np.float32), []
            for _ in range(times):
                start = yield from Now()
                if me.rank == 0:
                    yield from Send(other, value)
                    yield from Receive(other)
                else:
                    yield from Send(other, (yield from Receive(other)).value)
                took.append((yield from Now()) - start)
            medians[size] = median(took)
        return medians


@dataclass(frozen=True, kw_only=True)
class Pushes(Timed):
    """Rank 0 answers each message with one of the same size, like a server; the others push and pull."""

    @program
    def timed(self, me: RankContext) -> Program[float]:
        value, others = np.ones(PUSHED_BYTES // 4, np.float32), len(me.workers) - 1
        start = yield from Now()
        for _ in range(PUSHES * (others if me.rank == 0 else 1)):
            if me.rank == 0:
                yield from Send((yield from Receive()).source, value)
            else:
                yield from Send(Rank(0), value)
                yield from Receive(Rank(0))
        return (yield from Now()) - start


def message_times(*, shared_memory: bool) -> Times:
    """Returns seconds of a round trip of each size, and of a push and pull, in one launch of each program."""

    def launched(method: Method, ranks: int) -> Any:
        job = _job(method, ranks, Flat(PUSHED_BYTES // 4), samples=ranks)
        return run_job(Launch(job=job, schedule=never, shared_memory=shared_memory)).states[Rank(0)].optimizer_state

    trips = launched(RoundTrips(), 2)
    pushed_s = launched(Pushes(), PUSHING + 1) / (PUSHING * PUSHES)
    pushes = {("push and pull", PUSHING, PUSHED_BYTES): pushed_s}
    return {("round trip", 2, size): seconds for size, seconds in trips.items()} | pushes


def _job(method: Method, ranks: int, learner: Flat, samples: int) -> Job:
    return Job.of(method, [[Rank(rank) for rank in range(ranks)]], learner, batch=1, budget=Budget(samples=samples))


# --- collectives ------------------------------------------------------------------------------------------------------


class Pauses:
    """The pause of each rank before each collective, which differs between ranks as between gradients.

    Without it, a fast rank would always find the others waiting.
    """

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return float(np.random.default_rng((int(rank), step)).uniform(*PAUSES_S))

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [0.5], [0.5]


def collective_times(ranks: int, *, shared_memory: bool) -> Times:
    """Returns the mean seconds of each collective in one launch, from the entry of its last member to each exit.

    The mean counts because rare long collectives delay training, too.
    """
    group = tuple(range(ranks))
    asked = tuple(Asked(operation, ranks, size, (group,)) for operation in COLLECTIVES for size in COLLECTIVE_BYTES)
    method = ProbeCollectives(asked=asked, inside=shared_memory)
    job = _job(method, ranks, Flat(max(COLLECTIVE_BYTES) // 4), samples=TIMES * len(asked) * ranks)
    launch = Launch(job=job, schedule=never, pace=Pauses(), shared_memory=shared_memory)
    return {
        (cost.operation, ranks, cost.nbytes): fmean(times)
        for cost, times in costs(job, run_job(launch), launch.pace).items()
        if cost.members == ranks and cost.operation in COLLECTIVES
    }
