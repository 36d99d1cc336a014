"""The interpreters in which every contract test runs, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.local.launch import Launch, run_job
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Adversary, Chooser, RoundRobin, Shuffled, first
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork, NetworkModel, NoCost
from paceline.testing.contract.programs import Interpreter
from tests.support import FixedTiming

CHOOSERS: dict[str, Callable[[], Chooser]] = {
    "any-order, first": lambda: first,
    "any-order, in turn": RoundRobin,
    "any-order, shuffled": lambda: Shuffled(1),
    "any-order, starving rank 0": lambda: Adversary(Rank(0)),
}

NETWORKS: dict[str, Callable[[], NetworkModel]] = {
    "simulated, messages for nothing": NoCost,
    "simulated, messages cost time": lambda: MeasuredNetwork(
        lambda _kind, members, size: 0.5 + 1e-3 * (size + members), lambda size: 0.25 + 1e-3 * size
    ),
}

REAL = "torch.distributed"
SHUFFLED = "any-order, shuffled"

BY_DEFAULT = {SHUFFLED, "any-order, starving rank 0", "simulated, messages cost time", REAL}
"""those of `make test`: the two orders that differ most from the order of ranks, and one network"""


class Quick:
    """A pace that separates real ranks by a few milliseconds, with the fast ones ahead."""

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return 0.002 * (1 + (rank + step) % 3)

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [1 / 6, 1 / 6], [1 / 3, 1 / 3]


def named(name: str) -> Interpreter:
    """Runs a job and returns its trace."""

    def in_any_order(job: Job) -> Trace:
        return AnyOrder(job).run(CHOOSERS[name]())

    def simulated(job: Job) -> Trace:
        unlike = FixedTiming(compute=lambda rank, step: 1.0 + (rank + step) % 3 / 7)
        return simulate_job(job, unlike, NETWORKS[name](), Schedule(every=1))

    def real(job: Job) -> Trace:
        return run_job(Launch(job=job, schedule=lambda: Schedule(every=1), pace=Quick(), deadlock_timeout_s=3.0))

    if name == REAL:
        return real
    return in_any_order if name in CHOOSERS else simulated


def every_interpreter(keep: Callable[[str], bool] = BY_DEFAULT.__contains__, *more: Any) -> list[Any]:
    """Returns the interpreters as values of a parameter, each with the marks that it needs.

    Args:
        keep: whether `make test` runs this one.
        more: values of further parameters, which follow the interpreter.
    """

    def marks(name: str) -> list[pytest.MarkDecorator]:
        return [pytest.mark.backend] * (name == REAL) + [pytest.mark.thorough] * (not keep(name))

    return [pytest.param(name, *more, marks=marks(name)) for name in (*CHOOSERS, *NETWORKS, REAL)]


class InEveryInterpreter:
    """Runs the tests of a class in every interpreter."""

    @pytest.fixture(params=every_interpreter())
    def interpreter(self, request: pytest.FixtureRequest) -> Interpreter:
        return named(request.param)
