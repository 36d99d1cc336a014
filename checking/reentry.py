"""Enters programs again from their states, in memory, to test what checkpoints of real runs rely on.

`run_in_parts` works like a checkpoint: it stops all programs at a step, and enters all of them again from the states
that they return. `Reentered` needs no stop: it closes a program whenever it asks for its next step, and enters it again
from the state that it has just given to `NextStep`. So it can do this to one role only. If all programs keep
everything in their states, the run makes the same moves as an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Role
from paceline.algorithms.core.operations import NextStep
from paceline.algorithms.core.program import Lane, innermost
from paceline.checking.anyorder import AnyOrder
from paceline.checking.lanes import Checkpoint, Task
from paceline.checking.moves import Chooser, first
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
    checkpoint: Checkpoint | None = None
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
        self._entered: set[Task] = set()
        """main programs that have not asked for a step since they were entered"""

    def _drive(self, task: Task) -> None:
        if task.promise is None:
            self._entered.add(task)
        super()._drive(task)

    def _advance(self, task: Task, answer: Any = None, failure: BaseException | None = None) -> None:
        super()._advance(task, answer, failure)
        if task.lane.done or not isinstance(task.op, NextStep) or task.promise is not None:
            return
        if task in self._entered:  # the first step that it requests
            self._entered.remove(task)
        elif task.me.role in self.roles:
            self._enter_again(task, task.op.state)

    def _enter_again(self, task: Task, state: Any) -> None:
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


def _same(one: Any, other: Any) -> bool:
    """Whether two values of a local variable are known to be equal; objects are compared by their attributes."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    try:
        if np.all(one == other):
            return True
        return _equal_by_identity(type(one)) and bool(vars(one)) and _all_same(vars(one), vars(other))
    except Exception:  # the value does not support == or `vars`: not known to be equal
        return False


def _equal_by_identity(kind: Any) -> bool:
    """Whether objects of this class are compared by identity, because the class has no `__eq__`."""
    return bool(kind.__eq__ is object.__eq__)


def _all_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
