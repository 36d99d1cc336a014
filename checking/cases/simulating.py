"""Runs cases in the simulated interpreter."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.operations import Charge, Op
from paceline.algorithms.core.values import Rank
from paceline.checking.cases.case import Case, Times
from paceline.checking.cases.outcomes import Outcome, interrupted_if_stuck, moves_of
from paceline.checking.limits import MADE, DoesNotEnd
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.host_costs import NO_COSTS
from paceline.simulator.interpreter.interpreter import Simulation
from paceline.simulator.kernel.crash_timeline import Timeline
from paceline.simulator.network.network import MeasuredNetwork


@dataclass(frozen=True, slots=True)
class CaseTiming:
    """The timing of a simulated case: gradients take the times of the case, and other work takes none."""

    times: Times
    completes: bool = False

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return self.times.of(rank, step)

    def paused_s(self, samples: int, pause_s: float) -> float:
        return 0.0

    def started_factor(self, samples: int) -> float:
        return 1.0

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return (1 / 6, 1 / 6), (1 / 3, 1 / 3)

    def timeline(self, rank: Rank) -> Timeline | None:
        return None

    def work_s(self, rank: Rank, op: Charge) -> float:
        return 0.0

    def load_s(self, rank: Rank, samples: int) -> float:
        return 0.0

    def rest_s(self, rank: Rank) -> float:
        return 0.0


class _BoundedSimulation(Simulation):
    """A simulation that fails after a number of operations."""

    most: int

    def _perform(self, task: Any, op: Op[Any]) -> Any:
        MADE[0] += 1
        if self._operations > self.most:
            raise DoesNotEnd(f"the run has not ended after {self.most:,} operations; {task.standing()}")
        return super()._perform(task, op)


def simulated(case: Case, observe: Callable[[Simulation], object]) -> Outcome:
    """Runs a case with times; the arguments and the outcome are those of `performing.performed`."""
    assert case.times is not None, "only a case with times is simulated"
    job, times = case.job(), case.times
    network = MeasuredNetwork(lambda _kind, _members, size: times.transfer_s(size), times.transfer_s)
    begun_s, error = time.monotonic(), None
    run = _BoundedSimulation(job, CaseTiming(times), network, Schedule(every=1), None, NO_COSTS)
    run.most = moves_of(case, job)
    observe(run)
    try:
        with interrupted_if_stuck():
            run.run()
    except Exception as failure:  # of any kind: the program is the user's
        error = failure
    return Outcome(case=case, job=job, trace=run.trace, error=error, seconds=time.monotonic() - begun_s)
