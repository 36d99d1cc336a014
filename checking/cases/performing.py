"""Runs cases: in the any-order interpreter, in parts if the case has stops, or in the simulated interpreter."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from paceline.algorithms.core.job import Budget, Job
from paceline.checking.cases.case import Case
from paceline.checking.cases.deaths import WithDeaths
from paceline.checking.cases.observed import Finding, Observed
from paceline.checking.cases.orders import Noted
from paceline.checking.cases.outcomes import Outcome, interrupted_if_stuck, moves_of
from paceline.checking.cases.shared_state import outside_of
from paceline.checking.driver import Driver, Entry
from paceline.checking.lanes import Checkpoint
from paceline.checking.limits import limited
from paceline.checking.moves import Chooser, Move
from paceline.records.trace import Trace

if TYPE_CHECKING:
    from paceline.simulator.interpreter.interpreter import Simulation

__all__ = ["Chosen", "Outcome", "append", "in_any_order", "in_recorded_order", "performed"]


Kind = Callable[[Job, Checkpoint | None], Observed]
"""makes the run of a job without deaths, from a checkpoint if there is one"""


def performed(
    case: Case, *, simulation: Callable[[Simulation], object] | None = None, kind: Kind = Observed
) -> Outcome:
    """Runs a case.

    Args:
        case: the case.
        simulation: called with the simulation of a case with times before it runs, such as to read its clock.
        kind: the run of a case without times and deaths.

    Returns:
        The outcome. A `DeadlockError`, `ProgramError` or any other exception of a program is its `error`.

    >>> from paceline.algorithms import find
    >>> outcome = performed(Case(method=find("sync-sgd")(), nodes=(1, 1), steps=2))
    >>> len(outcome.trace.updates), outcome.error, outcome.log[0].move
    (4, None, go 0/main NextStep)
    """
    outside_of(type(case.method))
    if case.times is not None:
        from paceline.checking.cases.simulating import simulated  # the simulator takes half a second to import

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
        kind: the run of a case without deaths.
    """
    outside_of(type(case.method))  # notes it before the first run
    job, start, begun_s = case.job(), None, time.monotonic()
    limit = moves_of(case, job)
    whole, log, findings, error = Trace(in_seconds=False), list[Entry](), list[Finding](), None
    for stop in [*sorted(stop for stop in case.stops if stop < (job.limit or 0)), None]:
        samples = job.budget.samples if stop is None else job.samples_in(stop)
        part = dataclasses.replace(job, budget=Budget(samples=samples))
        deaths = [(rank, move - len(log)) for rank, move in case.deaths]
        run = WithDeaths(part, deaths, start) if deaths else kind(part, start)
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
