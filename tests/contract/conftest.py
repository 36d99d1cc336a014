"""The interpreters that every contract test runs in.

A test asks for `interpreter` and gets a callable that runs a job and answers its trace; it may look at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.local.launch import Launch, run_job
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Adversary, Chooser, RoundRobin, Shuffled, first
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork, Network, NoCost
from tests.contract.cases import Interpreter, RunOf, job_for
from tests.support import FixedTiming, built

CHOOSERS: dict[str, Callable[[], Chooser]] = {
    "any-order, first": lambda: first,
    "any-order, in turn": RoundRobin,
    "any-order, shuffled": lambda: Shuffled(1),
    "any-order, starving rank 0": lambda: Adversary(Rank(0)),
}


NETWORKS: dict[str, Callable[[], Network]] = {
    "simulated, messages for nothing": NoCost,
    "simulated, messages cost time": lambda: MeasuredNetwork(
        lambda _kind, members, size: 0.5 + 1e-3 * (size + members), lambda size: 0.25 + 1e-3 * size
    ),
}


REAL = "torch.distributed"


class Quick:
    """A pace that keeps real ranks apart by a few milliseconds, and the fast ones ahead."""

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return 0.002 * (1 + (rank + step) % 3)

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [1 / 6, 1 / 6], [1 / 3, 1 / 3]


@pytest.fixture(params=[*CHOOSERS, *NETWORKS, pytest.param(REAL, marks=pytest.mark.backend)])
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    def in_any_order(job: Job) -> Trace:
        return AnyOrder(job).run(CHOOSERS[request.param]())

    def simulated(job: Job) -> Trace:
        unlike = FixedTiming(compute=lambda rank, step: 1.0 + (rank + step) % 3 / 7)
        return simulate_job(job, unlike, NETWORKS[request.param](), Schedule(every=1))

    def real(job: Job) -> Trace:
        return run_job(Launch(job=job, schedule=lambda: Schedule(every=1), pace=Quick(), patience_s=3.0))

    if request.param == REAL:
        return real
    return in_any_order if request.param in CHOOSERS else simulated


RUNS: dict[tuple[str, str], tuple[Job, Trace]] = {}
"""by interpreter and method: what several tests look at is run once"""


@pytest.fixture
def run_of(request: pytest.FixtureRequest, interpreter: Interpreter) -> RunOf:
    """Answers the job that a method of this name is tried on, and its run, which nobody may change."""
    kind = request.node.callspec.params["interpreter"]

    def run(name: str) -> tuple[Job, Trace]:
        if (kind, name) not in RUNS:
            job = job_for(built(name))
            RUNS[kind, name] = job, interpreter(job)
        return RUNS[kind, name]

    return run
