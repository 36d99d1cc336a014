"""The lanes that the any-order interpreter drives, each with its pending operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import (
    Gradient,
    Handle,
    LayerGradients,
    Op,
    WaitFor,
)
from paceline.algorithms.core.parts import together
from paceline.algorithms.core.program import Lane, Program, program
from paceline.algorithms.core.values import GradientResult, Layout, Weights
from paceline.algorithms.runtime.collective_matching import Room
from paceline.algorithms.runtime.handles import Promise
from paceline.algorithms.runtime.program_errors import place_of
from paceline.checking.moves import Move


@dataclass(slots=True, eq=False)
class Task:
    """One running lane.

    `stream` names the sequence that its collectives belong to: operations that a program starts directly belong to the
    program's own sequence, and a sub-program has its own.
    """

    me: RankContext
    name: str
    lane: Lane
    line: str = ""
    """its name by `Branches`"""
    stream: str = ""
    begun_at: str | None = None
    """where a single operation was started, as it has no program line"""
    promise: Promise | None = None
    op: Op[Any] | None = None
    asked_s: float = 0.0
    ready_s: float | None = None
    """when the message that it received was sent"""
    room: Room | None = None
    """the collective that it takes part in"""
    answer: Any = None
    """the result of the collective"""
    _going: Move | None = None

    @property
    def going(self) -> Move:
        """The move that answers its operation; the same object as long as this does not happen."""
        if self._going is None or self._going.op is not self.op:
            self._going = Move(act="go", rank=self.me.rank, lane=self.name, op=self.op)
        return self._going

    @property
    def place(self) -> str:
        return self.begun_at or self.lane.where()

    def standing(self, step: int) -> str:
        """Returns the rank, its lane, its program line and the step, for messages."""
        return place_of(self.me, self.name, self.place, step)


@dataclass(frozen=True, slots=True)
class LayerReady(Op[None]):
    """Tells the interpreter that `backward` has completed the gradient of a bucket."""

    promise: Promise
    answer: GradientResult


@program
def alone(op: Op[Any]) -> Program[Any]:
    """Runs a single operation as a lane."""
    return (yield from op)


@program
def backward(op: LayerGradients, layout: Layout, promises: list[Promise]) -> Program[None]:
    """Yields the gradient bucket by bucket, last layers first. Its version is the oldest version of the layers."""
    if isinstance(op.weights, Weights):
        weights = op.weights
    else:
        weights = together([part for _, part in (yield from WaitFor(op.weights))])
    whole = yield from Gradient(weights, op.batch)
    for bucket, promise in zip(op.parts(layout), promises, strict=True):
        vector, busy_s = whole.vector[bucket.part], whole.busy_s * len(bucket.layers) / len(layout.layers)
        part = GradientResult(vector, whole.version, whole.loss, whole.samples, whole.rank, whole.step, busy_s)
        yield from LayerReady(promise, part)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a stopped run, from which all programs can be entered again."""

    states: dict[Any, Any]
    answers: dict[Handle[Any], Any]
    weights: Any
    """the weights being learned"""
    ages: dict[Any, int]
    """local steps of each rank since its version last moved"""
