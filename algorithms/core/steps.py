"""Steps that several methods share: compute a gradient, average it, apply it, average weights.

Rules of this file:

* These are sub-programs. The method's own program decides which ranks call them, and when.
* They take and return states, so that everything a rank remembers is in its state.
* Buffers are reused here and not in the methods. `average_gradient`, `start_average` and `apply_gradient` consume their
  gradient: they reuse its buffer and remove the vector from it, so that a later use raises a `ProgramError`. This is
  safe because the answers of `Gradient` and of a donating `AllReduce` belong to the program alone. `descend` and
  `mean_of` leave their vectors unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.method import Replica
from paceline.algorithms.core.operations import AllReduce, Charge, Gradient, Handle, Load, RecordUpdate, Start, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.traffic import COMBINE, NOTHING, SCALE, Traffic
from paceline.algorithms.core.values import Contribution, GradientResult, Group, Samples, Vector, Weights

if TYPE_CHECKING:
    from paceline.algorithms.core.compression import Cast

R = TypeVar("R", bound=Replica)


@program
def gradient_at(weights: Weights, samples: Samples) -> Program[GradientResult]:
    """Loads a batch and returns its mean gradient.

    Args:
        weights: the point at which the gradient is computed.
        samples: the samples of the batch.
    """
    batch = yield from Load(samples)
    return (yield from Gradient(weights, batch))


@program
def accumulated_gradient(weights: Weights, samples: Samples, parts: int) -> Program[GradientResult]:
    """Computes the mean gradient of a step, micro-batch by micro-batch.

    Args:
        weights: the point at which the gradients are computed.
        samples: the samples of the step.
        parts: the number of micro-batches.
    """
    held: list[GradientResult] = []
    for batch in samples.micro_batches(parts):
        gradient = yield from gradient_at(weights, batch)
        held = [(yield from accumulated(held, gradient, parts))]
    return held[0]


@program
def accumulated(before: Sequence[GradientResult], gradient: GradientResult, parts: int) -> Program[GradientResult]:
    """Adds the gradient of a micro-batch, or a layer's part of it, to those before; divides after the last one.

    Args:
        before: the sum of the earlier micro-batches, as this function returned it; empty at the first one.
        gradient: that of the micro-batch.
        parts: the number of micro-batches.

    Returns:
        The sum, whose `samples` are those of all its micro-batches, or the mean if it is complete.
    """
    if not before:
        return gradient
    (first,) = before
    done = 1 + first.samples // gradient.samples
    yield from Charge("accumulate", gradient.vector.nbytes, traffic=COMBINE + (SCALE if done == parts else NOTHING))
    total = first.vector + gradient.vector
    return replace(
        gradient,
        vector=total / parts if done == parts else total,
        loss=first.loss + (gradient.loss - first.loss) / done,
        samples=first.samples + gradient.samples,
        busy_s=first.busy_s + gradient.busy_s,
    )


@program
def average_gradient(gradient: GradientResult, group: Group, key: str) -> Program[GradientResult]:
    """Averages a gradient over a group and consumes it: the mean may lie in its buffer.

    Args:
        gradient: this rank's own, as `Gradient` answered it. Its vector cannot be used afterwards.
        group: the ranks that take part.
        key: the name of the all-reduce, the same on all members.

    Returns:
        The gradient with the mean as its vector. Its other fields, such as the loss, remain this rank's own.
    """
    mean = yield from AllReduce(value=gradient.take_vector(), group=group, key=key, donate=True)
    return replace(gradient, vector=mean)


@program
def start_average(gradient: GradientResult, group: Group, key: str) -> Program[Handle[Vector]]:
    """Starts to average a gradient, or a layer's part of it, and consumes it: the mean may lie in its buffer.

    Args:
        gradient: this rank's own, as `Gradient` or `LayerGradients` answered it. Its vector cannot be used afterwards.
        group: the ranks that take part.
        key: the name of the all-reduce, the same on all members.

    Returns:
        The handle of the all-reduce, for `Wait` or `apply_layer`.
    """
    return (yield from Start(AllReduce(value=gradient.take_vector(), group=group, key=key, donate=True)))


@program
def apply_gradient(rule: Chain, state: R, gradient: GradientResult, *, advance: bool = True) -> Program[R]:
    """Takes one step with a gradient and consumes it: the new weights may lie in its buffer.

    Args:
        rule: computes the step.
        state: the state before the step.
        gradient: this rank's own, or the mean that `average_gradient` returned. Its vector cannot be used afterwards;
            `descend` leaves it unchanged.
        advance: whether the update advances the version; False for a local step between averages.

    Returns:
        The state after the step, with the update recorded.
    """
    origin = gradient.contribution()
    return (yield from _apply(rule, state, gradient.take_vector(), origin, advance, donate=True))


@program
def descend(
    rule: Chain,
    state: R,
    gradient: Any,
    origin: Contribution,
    *,
    advance: bool = True,
    also: Traffic = NOTHING,
) -> Program[R]:
    """Takes one step with a vector that stays as it is.

    Args:
        rule: computes the step.
        state: the state before the step.
        gradient: a vector that others may hold too, such as the answer of a `Broadcast`.
        origin: this rank's own gradient, as far as it is part of the vector.
        advance: whether the update advances the version; False for a local step between averages.
        also: memory traffic of the program's own arithmetic on vectors of this size, which is charged with the step.

    Returns:
        The state after the step, with the update recorded.
    """
    return (yield from _apply(rule, state, gradient, origin, advance, donate=False, also=also))


@program
def _apply(
    rule: Chain,
    state: R,
    gradient: Any,
    origin: Contribution,
    advance: bool,
    *,
    donate: bool,
    also: Traffic = NOTHING,
) -> Program[R]:
    held, out = state.weights, gradient if donate else None
    yield from rule.charge(gradient.nbytes, also=also, donated=donate)
    vector, memory = rule.update(held.vector, gradient, state.optimizer_state, out=out)
    version = yield from RecordUpdate(Weights(vector, held.version), [origin], advance)
    return replace(state, step=state.step + 1, weights=Weights(vector, version), optimizer_state=memory)


@program
def unrecorded_step(
    rule: Chain, weights: Weights, memory: Any, samples: Samples, also: Traffic = NOTHING
) -> Program[tuple[GradientResult, Any, Any]]:
    """Computes a gradient and takes a local step with it, for a worker whose steps a server records.

    Args:
        rule: computes the step.
        weights: the point of the gradient.
        memory: what the rule remembers.
        samples: the samples of the batch.
        also: as in `descend`.

    Returns:
        The gradient, the vector after the step, and the rule's new memory.
    """
    gradient = yield from gradient_at(weights, samples)
    yield from rule.charge(gradient.vector.nbytes, also=also)
    vector, memory = rule.update(weights.vector, gradient.vector, memory)
    return gradient, vector, memory


@program
def apply_layer(
    rule: Chain,
    weights: Weights,
    memory: Any,
    mean: Handle[Vector],
    origin: Contribution,
    layer: str,
    cast: Cast | None = None,
) -> Program[tuple[Vector, Any]]:
    """Waits for a layer's mean gradient and applies it; the new weights may lie in the buffer of the mean.

    Args:
        rule: computes the layer's step.
        weights: the layer's, before the step.
        memory: what the rule remembers of the layer.
        mean: what `start_average` returned. It is applied once, because its answer is overwritten.
        origin: this rank's own gradient in the mean.
        layer: its name in the record.
        cast: the short type in which the mean was computed; None: that of the weights.

    Returns:
        The layer's new vector and the rule's new memory.
    """
    gradient = yield from Wait(mean)
    if cast is not None:
        gradient = yield from cast.opened(gradient, weights.vector)
    yield from rule.charge(gradient.nbytes, donated=True)
    vector, memory = rule.update(weights.vector, gradient, memory, out=gradient)
    yield from RecordUpdate(Weights(vector, weights.version), [origin], layer=layer)
    return vector, memory


@program
def local_step(rule: Chain, state: R, samples: Samples) -> Program[R]:
    """Takes one step with this rank's own gradient; the version does not advance.

    Args:
        rule: computes the step.
        state: the state before the step.
        samples: the samples of the step.

    Returns:
        The state after the step. Nothing else holds its weights, see `average_weights`.
    """
    gradient = yield from gradient_at(state.weights, samples)
    return (yield from apply_gradient(rule, state, gradient, advance=False))


@program
def average_weights(state: R, group: Group, key: str) -> Program[R]:
    """Averages weights over a group, in their own buffer.

    Args:
        state: as `local_step` returned it. Only such weights may be overwritten: those of the last `NextStep` may be in
            a checkpoint, and those of an update that advanced the version may be waiting for their evaluation.
        group: the ranks that take part.
        key: the name of the all-reduce, the same on all members.

    Returns:
        The state with the mean as its weights; the version is unchanged.
    """
    vector = yield from AllReduce(value=state.weights.vector, group=group, key=key, donate=True)
    return replace(state, weights=Weights(vector, state.weights.version))


@program
def mean_of(value: Any, group: Group, key: str) -> Program[Any]:
    """Returns `value` with the group's mean in place of every vector in it, by one all-reduce for each vector.

    Used for optimizer state: a velocity, the moments of Adam, or nothing.

    Args:
        value: a vector, a tuple or a dataclass of such values, or anything else, which is returned unchanged.
        group: the ranks that take part.
        key: the name of the all-reduces; those of parts have a suffix.
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
