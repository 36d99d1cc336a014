"""Words for operations and messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from paceline.algorithms.core.operations import (
    Access,
    AllReduce,
    Broadcast,
    Charge,
    Gradient,
    Handle,
    LayerGradients,
    Load,
    Lock,
    Op,
    Receive,
    Reduce,
    Send,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Routine
from paceline.algorithms.core.values import GradientResult, Vector, Weights
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, Collective
from paceline.algorithms.runtime.program_errors import message_wanted
from paceline.checking.counterexamples.recording import RecordedOperation

LONGEST = 30
"""characters of a value in a sentence"""
Started = Mapping[Handle[Any], RecordedOperation]


def ranks(numbers: Iterable[int]) -> str:
    """Lists ranks.

    >>> ranks([0]), ranks([0, 1, 2])
    ('rank 0', 'ranks 0, 1 and 2')
    """
    *others, last = map(str, numbers)
    return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"


def message(value: Any, tag: str) -> str:
    """Names a message by its tag and its value.

    >>> message(Weights(None, version=3), ""), message(None, "pull")
    ('weights of version 3', "'pull'")
    """
    name = value_name(value)
    if not tag:
        return name or "an empty message"
    return f"{tag!r} ({name})" if name else repr(tag)


def message_label(value: Any, tag: str) -> str:
    """Names a message in fewer characters, for a diagram: weights and gradients with their version.

    >>> message_label(Weights(None, version=3), ""), message_label(Weights(None, version=3), "pull")
    ('weights v3', "'pull' (weights v3)")
    """
    match value:
        case Weights():
            name = f"weights v{value.version}"
        case GradientResult():
            name = f"gradient v{value.version}"
        case _:
            return message(value, tag)
    return f"{tag!r} ({name})" if tag else name


def value_name(value: Any) -> str:
    """Names a value without its numbers; empty for None."""
    if value is None:
        return ""
    if isinstance(value, Weights):
        return f"weights of version {value.version}"
    if isinstance(value, GradientResult):
        return f"the gradient of step {value.step}"
    if isinstance(value, Vector) and not isinstance(value, int | float):
        return "a vector"
    if dataclasses.is_dataclass(value):
        return type(value).__name__
    return repr(value) if len(repr(value)) <= LONGEST else f"a {type(value).__name__}"


def collective(op: Collective) -> str:
    """Names a collective.

    >>> from paceline.algorithms.core.values import Group, Rank
    >>> from paceline.algorithms.core.operations import Barrier
    >>> collective(Barrier(group=Group((Rank(0), Rank(1))), key="end"))
    "Barrier 'end'"
    """
    name = f"{type(op).__name__} {op.key!r}"
    if isinstance(op, AllReduce | Reduce):
        name += f" ({op.op})" if isinstance(op, AllReduce) else f" ({op.op} at rank {op.root})"
    return f"{name} from rank {op.root}" if isinstance(op, Broadcast) else name


def operation(op: Op[Any] | Routine[Any]) -> str:
    """Names an operation or a program that is started or awaited."""
    if isinstance(op, Routine):
        return f"program {op.name}"
    match op:
        case Receive():
            return f"Receive of a message from {message_wanted(op)}"
        case Send(to, value, tag):
            return f"Send of {message(value, tag)} to rank {to}"
        case LayerGradients(weights):
            return f"a gradient by layers{at_version(weights)}"
        case Gradient(weights):
            return f"Gradient{at_version(weights)}"
        case Load(samples):
            return f"Load of batch {samples.index}"
        case Charge(kind):
            return f"Charge {kind!r}"
        case Access(cell, action):
            return f"Access ({action}) of cell {cell.name!r}"
        case _:
            return collective(op) if isinstance(op, COLLECTIVES) else type(op).__name__


def at_version(weights: Any) -> str:
    """Returns the version of the weights in words; empty if they are handles of weights on their way."""
    return f" at version {weights.version}" if isinstance(weights, Weights) else ""


def handle(awaited: Handle[Any], started: Started) -> str:
    """Names what a handle represents, with the line that started it."""
    request = started.get(awaited)
    if request is None:
        return "an operation of an earlier run"
    what = request.op.what if isinstance(request.op, Start) else request.op
    return f"{operation(what)}, started at {request.place.rpartition('/')[2]}"


def awaited(request: RecordedOperation, started: Started, missing: Iterable[int], holder: str) -> str:
    """Says what an operation waits for.

    Args:
        request: the operation.
        started: the operations that were started, by handle.
        missing: of a collective: the members that have not entered it.
        holder: of a lock: who holds it.
    """
    match request.op:
        case Receive():
            return f"a message from {message_wanted(request.op)}"
        case Wait(awaited):
            return f"the end of {handle(awaited, started)}"
        case WaitFor(handles, need):
            return f"{need} of {len(handles)}: {'; '.join(handle(awaited, started) for awaited in handles)}"
        case Lock(cell):
            return f"the lock of cell {cell.name!r}{holder}"
        case _:
            absent = list(missing)
            tail = f", which {ranks(absent)} did not enter" if absent else ""
            return f"{operation(request.op)}{tail}"
