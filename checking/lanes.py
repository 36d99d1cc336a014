"""What the any-order interpreter drives: lanes with what each asks for."""

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


@dataclass(slots=True, eq=False)
class Task:
    """One lane on its way.

    `stream` names the order in which its collectives stand: what a program starts directly stands in the program's own
    order, a sub-program has one for itself.
    """

    me: RankContext
    name: str
    lane: Lane
    line: str = ""
    """its name by `Branches`"""
    stream: str = ""
    begun_at: str | None = None
    """where it was started, for a bare operation, which has no line of its own"""
    promise: Promise | None = None
    op: Op[Any] | None = None
    asked_s: float = 0.0
    ready_s: float | None = None
    """when the message that it received was sent"""
    room: Room | None = None
    """the collective that it waits in"""
    answer: Any = None
    """what the collective came to"""

    @property
    def place(self) -> str:
        return self.begun_at or self.lane.where()

    def standing(self, step: int) -> str:
        """The rank, its lane, the line of its program and the step, for messages."""
        return place_of(self.me, self.name, self.place, step)


@dataclass(frozen=True, slots=True)
class LayerReady(Op[None]):
    """Between `backward` and its interpreter: this bucket's gradient is complete."""

    promise: Promise
    answer: GradientResult


@program
def alone(op: Op[Any]) -> Program[Any]:
    """A lane of a single operation."""
    return (yield from op)


@program
def backward(op: LayerGradients, layout: Layout, promises: list[Promise]) -> Program[None]:
    """Bucket by bucket, last layers first. The version is the oldest among the layers', on all of which it depends."""
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
    """What remains of a stopped run, enough to enter all programs again."""

    states: dict[Any, Any]
    answers: dict[Handle[Any], Any]
    weights: Any
    """the weights being learned"""
    ages: dict[Any, int]
    """local steps of each rank since its version last moved"""
