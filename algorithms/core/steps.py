"""The parts that steps are made of: a gradient, the step that it makes, the mean of what workers hold.

Rules of this file:

* These are sub-programs: a method's own program says who does which of them with whom, and when.
* They take and return states, so that what a rank remembers is never anywhere else.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from paceline.algorithms.core.method import Replica
from paceline.algorithms.core.operations import AllReduce, Charge, Gradient, Load, RecordUpdate
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.values import Contribution, GradientResult, Group, Samples, Vector, Weights

R = TypeVar("R", bound=Replica)


@program
def gradient_at(weights: Weights, samples: Samples) -> Program[GradientResult]:
    """The mean gradient over these samples, loaded for it."""
    batch = yield from Load(samples)
    return (yield from Gradient(weights, batch))


@program
def descend(
    rule: Chain, state: R, gradient: Any, origin: Contribution, *, advance: bool = True, donate: bool = False
) -> Program[R]:
    """The state after one step of the rule.

    Args:
        rule: how the gradient becomes a step.
        state: where the step is taken.
        gradient: a vector; one's own gradient, or what all agreed on.
        origin: one's own gradient, as far as it is in there.
        advance: whether what is being learned moves; a local step between averages does not move it.
        spent: whether nobody else has the gradient or looks at it again: the new weights may lie in its memory.
    """
    yield from Charge("update", gradient.nbytes)
    vector, memory = rule.update(
        state.weights.vector, gradient, state.optimizer_state, out=gradient if donate else None
    )
    version = yield from RecordUpdate(Weights(vector, state.weights.version), [origin], advance)
    return dataclasses.replace(state, step=state.step + 1, weights=Weights(vector, version), optimizer_state=memory)


@program
def local_step(rule: Chain, state: R, samples: Samples) -> Program[R]:
    """The state after a step that nobody else knows of."""
    gradient = yield from gradient_at(state.weights, samples)
    return (yield from descend(rule, state, gradient.vector, gradient.contribution(), advance=False, donate=True))


@program
def mean_of(value: Any, group: Group, key: str) -> Program[Any]:
    """`value` with the group's mean in the place of every vector in it; numbers stay each member's own.

    For what rules remember: a velocity, the moments of Adam, or nothing. One all-reduce for each vector.
    """
    if isinstance(value, Vector):
        return (yield from AllReduce(value=value, group=group, key=key))
    if isinstance(value, tuple):
        means = []
        for place, part in enumerate(value):
            means.append((yield from mean_of(part, group, f"{key}.{place}")))
        return tuple(means)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        parts = yield from mean_of(tuple(getattr(value, name) for name in names), group, key)
        return dataclasses.replace(value, **dict(zip(names, parts, strict=True)))
    return value
