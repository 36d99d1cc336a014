"""How a gradient becomes a step: pure functions in Optax's shape, `init` and `update`, composed by `Chain`.

Rules of this file:

* A transform takes what is to be subtracted from the weights, first the gradient itself, and answers what is to be
  subtracted in its place. It has no state of its own: what it remembers goes in and comes out.
* A rule works on a flat vector and knows where its layers lie; one that acts on each layer for itself (LARS) or on the
  whole (clipping) says so.
* What a transform remembers is new: it keeps no vector that it was given, whose memory may be given away.
* Nothing here knows whose gradient it is or how old: programs scale stale gradients before they come here.
* Where the rate comes last, it is applied together with the subtraction: as torch.optim.SGD does it, to the bit.
* The order of a chain is that of LARS with momentum: clip, decay and layer-wise ratio, rate, velocity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.algorithms.core import arrays
from paceline.algorithms.core.schedules import LearningRateSchedule
from paceline.algorithms.core.values import Layer, norm


@dataclass(frozen=True, slots=True)
class StepContext:
    """Where a step is taken: at these weights, as the step of this number, from 0."""

    vector: Any
    number: int
    layers: Sequence[Layer] = ()


class Transform(Protocol):
    """One link of a chain."""

    def init(self, vector: Any) -> Any:
        """What it remembers before the first step from `vector`; None if it remembers nothing."""
        ...

    def update(self, change: Any, memory: Any, at: StepContext) -> tuple[Any, Any]:
        """What is to be subtracted instead of `change`, and what is remembered now."""
        ...


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """What a chain remembers: the steps taken, and each link's own memory."""

    number: int
    links: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Transforms one after the other, then x ← x − what they make of the gradient.

    Args:
        links: first to last; the last ones scale by the rate and keep the velocity.
        layers: where the layers lie in the vectors that it is given.

    >>> import numpy as np
    >>> x, rule = np.array([1.0]), Chain((ScaleByLearningRate(0.5), Momentum(0.5)))
    >>> memory = rule.init(x)
    >>> for _ in range(2):
    ...     x, memory = rule.update(x, np.array([1.0]), memory)
    >>> float(x[0])  # −0.5, then −0.25 − 0.5
    -0.25
    """

    links: tuple[Transform, ...]
    layers: Sequence[Layer] = ()

    def init(self, vector: Any) -> OptimizerState:
        """The memory before the first step from `vector`."""
        return OptimizerState(0, tuple(link.init(vector) for link in self.links))

    def update(self, vector: Any, gradient: Any, memory: OptimizerState, out: Any = None) -> tuple[Any, OptimizerState]:
        """The new vector and the new memory.

        Args:
            vector: where the step is taken.
            gradient: what the step is made of.
            memory: what `init` or the step before has answered.
            room: a vector that nobody looks at again, such as the gradient, whose memory the new one may take.
        """
        last = self.links[-1] if self.links else None
        if not isinstance(last, ScaleByLearningRate):
            change, memory = self.step(vector, gradient, memory)
            return arrays.less(vector, None, change, out), memory
        change, kept = self._through(self.links[:-1], vector, gradient, memory)
        kept = OptimizerState(kept.number, (*kept.links, None))
        return arrays.less(vector, last.at(memory.number), change, out), kept

    def step(self, vector: Any, gradient: Any, memory: OptimizerState) -> tuple[Any, OptimizerState]:
        """What is to be subtracted from the vector, and the new memory."""
        return self._through(self.links, vector, gradient, memory)

    def look_ahead(self, vector: Any, memory: OptimizerState) -> Any:
        """x + μ v: where momentum alone moves the vector, without decay and layer-wise rates; x where there is none.

        v is minus what `Momentum` remembers, since a rule subtracts.

        >>> import numpy as np
        >>> x, rule = np.array([1.0]), Chain((WeightDecay(0.5), ScaleByLearningRate(0.1), Momentum(0.5)))
        >>> float(rule.look_ahead(x, OptimizerState(1, (None, None, np.array([0.2])))).round(3)[0])
        0.9
        """
        for link, own in zip(self.links, memory.links, strict=True):
            if isinstance(link, Momentum):
                return arrays.less(vector, None, link.momentum * own)
        return vector

    def _through(
        self, links: Sequence[Transform], vector: Any, change: Any, memory: OptimizerState
    ) -> tuple[Any, OptimizerState]:
        """What these links, the first of all, make of a change."""
        at, kept = StepContext(vector, memory.number, self.layers), []
        for link, own in zip(links, memory.links, strict=False):
            change, own = link.update(change, own, at)
            kept.append(own)
        return change, OptimizerState(memory.number + 1, tuple(kept))


class Stateless:
    """A transform that remembers nothing."""

    __slots__ = ()

    def init(self, vector: Any) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Clip(Stateless):
    """Shortens what is longer than the limit: g min(1, c / ‖g‖), the norm being that of the whole vector.

    Source: Pascanu, Mikolov, Bengio, ICML'13 (arXiv 1211.5063), section 3.2.

    >>> import numpy as np
    >>> Clip(1.0).update(np.array([3.0, 4.0]), None, StepContext(None, 0))[0]
    array([0.6, 0.8])
    """

    limit: float

    def update(self, change: Any, memory: None, at: StepContext) -> tuple[Any, None]:
        """The change, no longer than the limit."""
        length = norm(change)
        return (self.limit / length * change if length > self.limit else change), None


@dataclass(frozen=True, slots=True)
class WeightDecay(Stateless):
    """Weight decay as the gradient of β ‖x‖² / 2, coupled to whatever follows: g + β x."""

    decay: float

    def update(self, change: Any, memory: None, at: StepContext) -> tuple[Any, None]:
        """g + β x."""
        return change + self.decay * at.vector, None


@dataclass(frozen=True, slots=True)
class ScaleByLearningRate(Stateless):
    """Multiplies by the rate: η g; with a schedule by the rate of this step, η_t g."""

    learning_rate: float
    schedule: LearningRateSchedule | None = None

    def at(self, step: int) -> float:
        """η_t."""
        return self.learning_rate if self.schedule is None else self.schedule.learning_rate(self.learning_rate, step)

    def update(self, change: Any, memory: None, at: StepContext) -> tuple[Any, None]:
        """η_t times the change."""
        return self.at(at.number) * change, None


@dataclass(frozen=True, slots=True)
class Momentum:
    """Momentum: v ← μ v + change; what is subtracted is v, or with Nesterov's change + μ v, for the new v.

    With `ScaleByLearningRate` before it this is the papers' MSGD, V ← μ V − η g, W ← W + V (equations (3) and (4) of
    You, Buluç, Demmel, SC'17), with the opposite sign of V. The rate is inside the velocity, where torch.optim.SGD has
    it outside: for a constant rate their weights are the same, and v is η times torch's buffer.
    """

    momentum: float
    nesterov: bool = False

    def init(self, vector: Any) -> Any:
        """A velocity of 0."""
        return 0 * vector

    def update(self, change: Any, memory: Any, at: StepContext) -> tuple[Any, Any]:
        """What is to be subtracted, and the velocity, to be remembered."""
        velocity = self.momentum * memory + change
        return (change + self.momentum * velocity if self.nesterov else velocity), velocity
