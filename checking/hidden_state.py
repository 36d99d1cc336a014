"""Finds state that programs keep in local variables instead of in their states; a checkpoint would lose it.

Rules of this file:

* Programs are entered again from their states at every `NextStep` (`Reentered`), in the order of moves of an
  uninterrupted run. If the final weights have the same bits, there is no hidden state.
* If they differ, the method may still be correct: a program may act before its first step (pull the weights, say), or
  store local variables in the state that it returns at a stop. So the method is also stopped at every step and
  resumed (`run_in_parts`); it is correct if that changes nothing. A stop drops the messages in flight of asynchronous
  workers, so such methods are compared with one worker, which computes the dropped gradients again from the same
  weights.
* A method is tried once per process for the same hyper-parameters.
* The trial of a program that sleeps or computes without an operation ends with a warning: the actual run shows where
  it hangs. A trial that takes long, such as on a loaded machine, does not end early: its length is a number of moves.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import MethodWarning
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method, Role
from paceline.algorithms.core.operations import NextStep
from paceline.algorithms.core.program import Lane, innermost
from paceline.checking.anyorder import AnyOrder
from paceline.checking.driver import LaneTask, StoppedRun
from paceline.checking.limits import interrupted_when_stuck, limited
from paceline.checking.moves import Adversary, Chooser, first
from paceline.checking.small_runs import (
    MOST_MOVES,
    ONE_WORKER,
    ORDERS,
    Ended,
    Nodes,
    Order,
    Trial,
    end_of,
    ended,
    trial_of,
    trial_on,
)
from paceline.records.figures import significant
from paceline.records.trace import Trace


def run_in_parts(job: Job, stops: Sequence[int], choose: Callable[[], Chooser] = lambda: first) -> list[Trace]:
    """Runs `job` in parts, up to each of these steps and from the last one to its end.

    At each stop every program returns its state, everything in flight is completed, and all programs are entered again
    from the states alone. The handles in the states keep their answers.

    Args:
        job: the job to run.
        stops: ascending steps of the role that owns the weights, below the job's own limit.
        choose: returns the chooser of each part.

    Returns:
        The trace of each part; the last one has the states and weights at the end of the run.
    """
    checkpoint: StoppedRun | None = None
    traces = []
    for stop in [*stops, job.limit]:
        samples = job.budget.samples if stop is None else job.samples_in(stop)
        part = AnyOrder(dataclasses.replace(job, budget=Budget(samples=samples)), start=checkpoint)
        traces.append(part.run(choose()))
        checkpoint = part.checkpoint()
    return traces


class Reentered(AnyOrder):
    """A run in which the programs of some roles are entered again from their state at every `NextStep`.

    Args:
        job: the job to run.
        roles: the roles whose programs are entered again.
    """

    def __init__(self, job: Job, roles: Collection[Role]) -> None:
        super().__init__(job)
        self.roles = roles
        self.changed: set[str] = set()
        """local variables of programs that had another value after the program was entered again"""
        self._entered: set[LaneTask] = set()
        """main programs that have not asked for a step since they were entered"""

    def _drive(self, task: LaneTask) -> None:
        if task.promise is None:
            self._entered.add(task)
        super()._drive(task)

    def _advance(self, task: LaneTask, answer: Any = None, failure: BaseException | None = None) -> None:
        super()._advance(task, answer, failure)
        if task.lane.done or not isinstance(task.op, NextStep) or task.promise is not None:
            return
        if task in self._entered:  # the first step that it requests
            self._entered.remove(task)
        elif task.me.role in self.roles:
            self._enter_again(task, task.op.state)

    def _enter_again(self, task: LaneTask, state: Any) -> None:
        old = _variables(task.lane)
        task.lane.steps.close()
        task.lane = Lane(self.job.method.enter(task.me, state))
        self._entered.add(task)
        self._advance(task)
        if isinstance(task.op, NextStep):  # false if the program acts before its first step
            new = _variables(task.lane)
            self.changed |= {name for name in old.keys() & new.keys() if not _same(old[name], new[name])}


def _variables(lane: Lane) -> dict[str, Any]:
    """Returns the local variables of the innermost program function of a lane."""
    frame = innermost(lane.steps)
    return {} if frame is None else dict(frame.f_locals)


def _same(value: Any, other: Any) -> bool:
    """Whether two values of a local variable are known to be equal; objects are compared by their attributes."""
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    try:
        if np.all(value == other):
            return True
        return _equal_by_identity(type(value)) and bool(vars(value)) and _all_same(vars(value), vars(other))
    except Exception:  # the value does not support == or `vars`: not known to be equal
        return False


def _equal_by_identity(kind: Any) -> bool:
    """Whether objects of this class are compared by identity, because the class has no `__eq__`."""
    return bool(kind.__eq__ is object.__eq__)


def _all_same(values: dict[str, Any], other: dict[str, Any]) -> bool:
    return values.keys() == other.keys() and all(_same(value, other[name]) for name, value in values.items())


STUCK_S = 20.0
"""seconds without an operation; provenance: ours, far above the time of building a large cluster"""
_FOUND: dict[tuple[type[Method], str], tuple[str, ...]] = {}


@dataclass(frozen=True, slots=True)
class ReentryEffect:
    """The effect of entering programs again: different weights, or an error."""

    away: float | None
    error: str
    changed: tuple[str, ...]
    """local variables that had another value afterwards"""

    def words(self, roles: Collection[str], trial: Trial) -> str:
        """Returns a sentence about the difference."""
        named = " and ".join(sorted(roles, reverse=True))
        tried = ", ".join(f"{name}={here} in place of {there}" for name, (there, here) in trial.replaced.items())
        steps = f"{trial.steps} steps" + (f" with {tried}" if tried else "")
        again = "if the program is entered again from its state at each NextStep"
        if self.error:
            problem = f"within {steps} the program fails {again} ({self.error})"
        elif self.away is None or isnan(self.away):
            problem = f"after {steps} the weights differ {again}"
        else:
            problem = f"after {steps} the weights differ by {significant(self.away)} {again}"
        what = " and ".join(self.changed) or "everything that it needs after NextStep"
        return (
            f"{named}: {problem}; keep {what} in the state that is given to NextStep, as a checkpoint stores only that"
        )


def hidden_state(method: Method, nodes: Callable[[], Nodes] = tuple, *, tensors: bool = False) -> tuple[str, ...]:
    """Finds state that the programs of a method keep outside of their states.

    Args:
        method: the method, with the hyper-parameters of the scenario.
        nodes: returns the workers of each node of the scenario; called if the method accepts no smaller cluster.
        tensors: whether the vectors are torch tensors, as in training, instead of NumPy arrays.

    Returns:
        A sentence for each role whose programs have hidden state; empty if none was found.

    >>> from paceline.algorithms import find
    >>> hidden_state(find("sync-sgd")())
    ()
    """
    key = (type(method), repr(method))
    if key not in _FOUND:
        _FOUND[key] = ()
        if tensors:
            import torch  # noqa: F401  # an import that is interrupted cannot be repeated
        try:
            with interrupted_when_stuck(_Stuck, "real time", STUCK_S):
                trial = trial_of(method, nodes, tensors=tensors)
                _FOUND[key] = () if trial is None else tuple(_search(trial, tensors=tensors))
        except _Stuck:
            warnings.warn(
                f"{method.name}: its programs were not checked for state in local variables, because in a small run "
                "one of them goes on without an operation",
                MethodWarning,
                stacklevel=2,
            )
    return _FOUND[key]


class _Stuck(BaseException):
    """Raised in the middle of a program. It is not an `Exception`, since the program might catch that."""


def _search(trial: Trial, *, tensors: bool) -> Iterator[str]:
    roles: set[Role] = {me.role for me in trial.job.team}
    for order, end in zip(ORDERS, trial.ends, strict=True):
        together = _difference(trial, roles, order, end)
        if together is None:
            continue
        if not _repeats(trial) or _survives_stops(trial, tensors=tensors):
            return
        alone = {role: _difference(trial, {role}, order, end) for role in sorted(roles, reverse=True)}
        different = [(role, difference) for role, difference in alone.items() if difference is not None]
        yield from (difference.words({role}, trial) for role, difference in different)
        if not different:
            yield together.words(roles, trial)
        return


def _difference(trial: Trial, roles: Collection[Role], order: Order, end: Ended) -> ReentryEffect | None:
    """Enters the programs of these roles again and returns the difference that this makes; None if there is none."""
    run, error, away = Reentered(trial.job, roles), "", None
    try:
        away = end_of(run, order()).away(end)
    except Exception as failure:  # of any kind: the program is not ours
        error = f"{type(failure).__name__}: {str(failure).partition(chr(10))[0]}"
    return ReentryEffect(away, error, tuple(sorted(run.changed))) if error or away is not None else None


def _repeats(trial: Trial) -> bool:
    """Whether the same order gives the same weights again, which any comparison requires."""
    return all(_ends_alike(trial, order, end) for order, end in zip(ORDERS, trial.ends, strict=True))


def _ends_alike(trial: Trial, order: Order, end: Ended) -> bool:
    """Whether the uninterrupted run in this order ends with these weights."""
    return end_of(AnyOrder(trial.job), order()).away(end) is None


def _survives_stops(trial: Trial, *, tensors: bool) -> bool:
    """Whether a run that is stopped at every step and resumed ends with the weights of an uninterrupted one."""
    if _same_in_parts(trial):
        return True
    job = trial.job
    orders: tuple[Order, ...] = (*ORDERS, lambda: first, lambda: Adversary(job.team[0].rank))
    if all(_ends_alike(trial, order, trial.ends[0]) for order in orders):
        return False  # the order does not matter, so nothing that a stop drops may matter either
    alone = trial_on(job.method, ONE_WORKER, tensors=tensors)
    return alone is not None and _same_in_parts(alone)


def _same_in_parts(trial: Trial) -> bool:
    """Whether this holds on one cluster."""
    assert trial.job.limit is not None, "a trial ends after a number of samples"
    choose = limited(ORDERS[0](), MOST_MOVES)
    try:
        parts = run_in_parts(trial.job, range(1, trial.job.limit), lambda: choose)
    except Exception:  # of any kind: the program is not ours
        return False
    return ended(trial.job, parts[-1]).away(trial.ends[0]) is None
