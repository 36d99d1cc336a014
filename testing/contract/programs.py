"""A small learning problem, jobs on it, and programs of one step, whose answers end up in the state.

Everything is defined at module level, so that an interpreter may start processes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from paceline.algorithms.core.job import Budget, Evaluation, Job, OneByOne
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import Barrier, NextStep
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples, Step
from paceline.records.trace import Trace

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bowl(OneByOne):
    """Worker i's loss is |w − centre(i)|² / 2, without noise: gradient w − centre(i), centre(i) = (1 + i, 2 + i, …).

    Float64 in two layers, so that every method runs on it. Accuracy is 1 / (1 + loss), which a stop rule can watch.
    """

    size: int = 4
    num_samples: int = 64

    @property
    def layout(self) -> Layout:
        half = self.size // 2
        return Layout((Layer("first", 0, half), Layer("second", half, self.size)))

    def initial(self) -> Vector:
        return np.zeros(self.size)

    def load(self, samples: Samples) -> Vector:
        return np.arange(self.size, dtype=np.float64) + samples.worker + 1.0

    def gradient(self, vector: Vector, data: Vector) -> tuple[Vector, float]:
        away = vector - data
        return away, float(away @ away) / 2

    def layer_gradients(self, vector: Vector, data: Vector, ready: Callable[[str, Vector], None]) -> float:
        gradient, loss = self.gradient(vector, data)
        for layer in reversed(self.layout.layers):
            ready(layer.name, gradient[layer.part])
        return loss

    def evaluate(self, vector: Vector) -> Evaluation:
        away = vector - (1.0 + np.arange(self.size))
        loss = float(away @ away) / 2
        return Evaluation(loss, 1 / (1 + loss))


def job_of(
    method: Method,
    workers: int = 2,
    *,
    steps: int | None = 4,
    nodes: Sequence[Sequence[int]] | None = None,
    learner: Any = None,
    seed: int = 0,
    batch: int | Sequence[int] = 8,
    **budget: Any,
) -> Job:
    """Returns a job of `method` in which the weights' owner takes `steps` steps; one worker per node unless `nodes` is
    given.
    """
    placed = [[Rank(rank) for rank in node] for node in nodes] if nodes else [[Rank(rank)] for rank in range(workers)]
    job = Job.of(method, placed, learner or Bowl(), batch=batch, budget=Budget(), seed=seed)
    return replace(job, budget=Budget(samples=None if steps is None else job.samples_in(steps), **budget))


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
