"""Common parts of the contract programs: one step, whose answers end up in the state.

Everything is defined at module level, so that an interpreter may start processes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import Barrier, NextStep
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.values import Rank, Step
from paceline.records.trace import Trace
from paceline.testing.contract.jobs import job_of

Interpreter = Callable[[Job], Trace]


class Contract:
    """Base of the parts of `InterpreterContract`: tests of an interpreter.

    A subclass defines `run`, or the fixture `interpreter` if the tests run in several interpreters.
    """

    def run(self, job: Job) -> Trace:
        """Runs a job and returns its trace.

        Args:
            job: any job; its learner is in memory and takes no time worth mentioning.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.run: missing, expected a function of a job that returns a Trace"
        )

    @pytest.fixture
    def interpreter(self) -> Interpreter:
        """The interpreter that the tests run."""
        return self.run


@dataclass(frozen=True, kw_only=True)
class ContractProgram(Method):
    """A method of which only `body` matters: its result is stored as the optimizer state."""

    name = "contract-program"
    staleness_kind = StalenessKind.STEPS
    source = "the contract of interpreters"
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
    run: Interpreter, method: Method, workers: int = 2, nodes: list[list[int]] | None = None, learner: Any = None
) -> list[Any]:
    """Returns the result of each worker's body, by rank.

    Args:
        run: the interpreter.
        method: the program, which is run for one step.
        workers: number of workers, each on its own node.
        nodes: the ranks on each node, instead of `workers`.
        learner: the problem; None: `Bowl`.
    """
    trace = run(job_of(method, workers, steps=1, nodes=nodes, learner=learner))
    return [trace.states[Rank(rank)].optimizer_state for rank in range(len(trace.states))]


def vector(*elements: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns a float64 vector."""
    return np.array(elements, dtype=np.float64)


def numbers(answer: Any) -> list[float]:
    """Returns a vector as plain numbers, for comparisons."""
    return [float(number) for number in answer]


def number(answer: Any) -> float:
    """Returns the first number of a vector."""
    return numbers(answer)[0]
