"""Common parts of the contract programs: one step, whose answers end up in the state.

Everything is defined at module level, so that an interpreter may start processes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import Barrier, NextStep
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.values import Rank, Step
from paceline.records.trace import Trace
from tests.support import UNLIKE, job_of, nodes_for

Interpreter = Callable[[Job], Trace]
STEPS = 17  # no multiple of the number of workers, of k1, or of k2


def job_for(method: Method, steps: int = STEPS) -> Job:
    """The placement on which every method is tried: workers on nodes of different sizes."""
    return job_of(method, steps=steps, nodes=nodes_for(method, UNLIKE))


@dataclass(frozen=True, kw_only=True)
class Case(Method):
    """A method of which only `body` matters: its result is stored as the optimizer state."""

    name = "case"
    staleness_kind = StalenessKind.STEPS
    source = "the contract suite"
    guarantees = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            memory = yield from self.body(me, step, state)
            yield from Barrier(group=me.world, key=f"end {step.number}")  # no rank ends before all have their answers
            state = Replica(step.number + 1, state.weights, memory)
        return state

    @abstractmethod
    def body(self, me: RankContext, step: Step, state: Replica) -> Routine[Any]:
        """The rank's part of the step; the test examines its result."""


def answers(
    run: Interpreter, case: Method, workers: int = 2, nodes: list[list[int]] | None = None, learner: Any = None
) -> list[Any]:
    """Returns the result of each worker's body, by rank."""
    trace = run(job_of(case, workers, steps=1, nodes=nodes, learner=learner))
    return [trace.states[Rank(rank)].optimizer_state for rank in range(len(trace.states))]


def vector(*elements: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A float64 vector."""
    return np.array(elements, dtype=np.float64)


def numbers(answer: Any) -> list[float]:
    """Returns a vector as plain numbers, for comparisons."""
    return [float(number) for number in answer]


def number(answer: Any) -> float:
    """A vector's first number."""
    return numbers(answer)[0]
