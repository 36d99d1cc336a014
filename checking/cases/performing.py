"""Runs cases: in the any-order interpreter, in parts if the case has stops, or in the simulated interpreter.

The ends of two runs are compared bit for bit.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.operations import Op
from paceline.algorithms.core.values import Rank
from paceline.checking.cases.case import Case, Times
from paceline.checking.cases.observed import Finding, Observed
from paceline.checking.cases.purity import outside_of
from paceline.checking.check_guarantees import KeptResults
from paceline.checking.driver import Driver, LoggedMove, StoppedRun
from paceline.checking.limits import MADE, STUCK_S, DoesNotEnd, interrupted_when_stuck, limited
from paceline.checking.moves import Adversary, Chooser, Move, Noted, RoundRobin, Shuffled
from paceline.checking.small_runs import ended
from paceline.records.figures import SECONDS
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.host_costs import NO_COSTS
from paceline.simulator.interpreter.interpreter import Simulation
from paceline.simulator.kernel.timing import GradientsOnly
from paceline.simulator.network.network import MeasuredNetwork

MOVES_PER_STEP = 200
"""limit of moves for each step of each rank, before a program is said not to end; provenance: ours, layerwise methods
take about 30"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case did: the record of its run, the log of moves (any-order interpreter), and the error that ended it."""

    case: Case
    job: Job
    trace: Trace
    log: tuple[LoggedMove, ...] = ()
    error: Exception | None = None
    findings: tuple[Finding, ...] = ()
    """violated invariants that the run itself has found; the trace does not show them"""
    seconds: float = 0.0
    """that the run took"""


def moves_of(case: Case, job: Job) -> int:
    """Returns the number of moves after which a case is said not to end."""
    return MOVES_PER_STEP * len(job.team) * (case.steps + 2)


class TooLong(PacelineError):
    """A program computes without an operation."""


def interrupted_if_stuck() -> AbstractContextManager[None]:
    """Raises `TooLong` in the block if a program computes without operations."""
    words = f"a program computed for {SECONDS.with_symbol(STUCK_S)} of processor time without an operation"
    return interrupted_when_stuck(lambda: TooLong(words))


__all__ = ["Chosen", "Outcome", "append", "in_any_order", "in_recorded_order", "performed"]


Kind = Callable[[Job, Sequence[tuple[int, int]], StoppedRun | None], Observed]
"""makes the run of a job with deaths, from a checkpoint if there is one"""


def performed(
    case: Case, *, simulation: Callable[[Simulation], object] | None = None, kind: Kind = Observed
) -> Outcome:
    """Runs a case.

    Args:
        case: the case.
        simulation: called with the simulation of a case with times before it runs, such as to read its clock.
        kind: the run of a case without times.

    Returns:
        The outcome. A `DeadlockError`, `ProgramError` or any other exception of a program is its `error`.

    >>> from paceline.algorithms import find
    >>> outcome = performed(Case(method=find("sync-sgd")(), nodes=(1, 1), steps=2))
    >>> len(outcome.trace.updates), outcome.error, outcome.log[0].move
    (4, None, go 0/main NextStep)
    """
    outside_of(type(case.method))
    if case.times is not None:
        return simulated(case, simulation or (lambda _: None))
    return in_any_order(case, Chosen(case.choices), kind)


class Chosen:
    """Selects moves by their indices among the possible ones; after the last index, the first possible move.

    An index beyond the possible moves counts from the first one again, so that any list of numbers is a schedule.
    `made` lists the indices of the moves that were made.

    >>> from paceline.algorithms.core.values import Rank
    >>> choose = Chosen((1, 5))
    >>> moves = [Move(act="go", rank=Rank(0)), Move(act="go", rank=Rank(1))]
    >>> [choose(moves).rank for _ in range(3)], choose.made
    ([1, 1, 0], [1, 1, 0])
    """

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices, self.made = choices, list[int]()

    def __call__(self, ready: Sequence[Move]) -> Move:
        at = len(self.made)
        index = self._choices[at] % len(ready) if at < len(self._choices) else 0
        self.made.append(index)
        return ready[index]


def in_recorded_order(case: Case, choose: Chooser) -> Outcome:
    """Like `in_any_order`; the case of the outcome has the choices that were made, so it repeats the run.

    Args:
        case: the case.
        choose: selects the moves of all parts of the run.

    >>> from paceline.algorithms import find
    >>> from paceline.checking.moves import Shuffled
    >>> outcome = in_recorded_order(Case(method=find("async-sgd")(), nodes=(1, 1), steps=2), Shuffled(1))
    >>> [entry.move for entry in performed(outcome.case).log] == [entry.move for entry in outcome.log]
    True
    """
    noted = Noted(choose)
    outcome = in_any_order(case, noted)
    return dataclasses.replace(outcome, case=dataclasses.replace(case, choices=noted.choices))


def in_any_order(case: Case, choose: Chooser, kind: Kind = Observed) -> Outcome:
    """Runs a case in the any-order interpreter with any chooser instead of its `choices`; arguments as in `performed`.

    Args:
        case: the case.
        choose: selects the moves of all parts of the run.
        kind: the run of a part of the case.
    """
    outside_of(type(case.method))  # notes it before the first run
    job, start, begun_s = case.job(), None, time.monotonic()
    limit = moves_of(case, job)
    whole, log, findings, error = Trace(in_seconds=False), list[LoggedMove](), list[Finding](), None
    for stop in [*sorted(stop for stop in case.stops if stop < (job.limit or 0)), None]:
        samples = job.budget.samples if stop is None else job.samples_in(stop)
        part = dataclasses.replace(job, budget=Budget(samples=samples))
        deaths = [(rank, move - len(log)) for rank, move in case.deaths]
        run = kind(part, deaths, start)
        error = _error_of(run, limited(choose, limit - len(log)))
        append(whole, run.trace, len(log))
        log += run.log
        if error is not None:
            break
        findings += run.findings()
        start = run.checkpoint()
    return Outcome(
        case=case,
        job=job,
        trace=whole,
        log=tuple(log),
        error=error,
        findings=tuple(findings),
        seconds=time.monotonic() - begun_s,
    )


def _error_of(run: Driver, choose: Chooser) -> Exception | None:
    """Runs to the end; returns the exception that ended the run, if any."""
    try:
        with interrupted_if_stuck():
            run.run(choose)
    except Exception as error:  # of any kind: the program is the user's
        return error
    return None


def append(whole: Trace, part: Trace, moves: int) -> None:
    """Appends the record of a part of a run that was stopped and entered again.

    Args:
        whole: the record of the parts before.
        part: the record of the next part; its clock starts at 0.
        moves: the number of moves before it, which is the time at which it starts.
    """
    whole.spans += [
        span._replace(
            start_s=span.start_s + moves,
            end_s=span.end_s + moves,
            ready_s=None if span.ready_s is None else span.ready_s + moves,
        )
        for span in part.spans
    ]
    whole.updates += [row._replace(time_s=row.time_s + moves) for row in part.updates]
    whole.layers += [row._replace(time_s=row.time_s + moves) for row in part.layers]
    whole.snapshots += [dataclasses.replace(shot, time_s=shot.time_s + moves) for shot in part.snapshots]
    whole.heard += part.heard
    whole.hearers += part.hearers
    whole.states, whole.weights, whole.wall_s = part.states, part.weights, moves + part.wall_s


@dataclass(frozen=True, slots=True)
class CaseTiming(GradientsOnly):
    """The timing of a simulated case: gradients take the times of the case, and other work takes none."""

    times: Times

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return self.times.of(rank, step)


class _BoundedSimulation(Simulation):
    """A simulation that fails after a number of operations."""

    most: int

    def _table(self) -> dict[type[Op[Any]], Callable[[Any, Any], Any]]:
        return {kind: partial(self._counted, meaning) for kind, meaning in super()._table().items()}

    def _counted(self, meaning: Callable[[Any, Any], Any], task: Any, op: Op[Any]) -> Any:
        MADE[0] += 1
        if self._operations > self.most:
            raise DoesNotEnd(f"the run has not ended after {self.most:,} operations; {task.standing()}")
        return meaning(task, op)


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


MOST = 256
"""number of reference runs that are kept"""

ORDERS: tuple[Callable[[], Chooser], ...] = (
    RoundRobin,
    lambda: Shuffled(0),
    lambda: Adversary(Rank(0)),
    lambda: Adversary(Rank(1)),
)

reference_of = KeptResults(performed, MOST)
"""returns the outcome of a case, and keeps it for the next comparison with the same case"""


def order_is_irrelevant(case: Case) -> bool:
    """Returns whether the case, without its stops, ends with the same weights in several orders of moves."""
    return _has_one_end(dataclasses.replace(case, choices=(), stops=()))


def _ends_equally(whole: Case) -> bool:
    reference = reference_of(whole)
    others = (in_any_order(whole, make()) for make in ORDERS)
    return reference.error is None and all(other.error is None and unlike(other, reference) is None for other in others)


_has_one_end = KeptResults(_ends_equally, MOST)


def unlike(outcome: Outcome, other: Outcome) -> float | None:
    """Returns the largest difference of the weights at the ends of two runs; None if every bit is the same."""
    return ended(outcome.job, outcome.trace).away(ended(other.job, other.trace))
