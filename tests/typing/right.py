"""Correct programs, and the exact type of every operation's answer. `make types` checks this file; nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

from paceline.algorithms.core.method import Replica
from paceline.algorithms.core.operations import (
    Access,
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Cancel,
    Cell,
    Charge,
    Gradient,
    Handle,
    LayerGradients,
    Load,
    Lock,
    NextStep,
    Now,
    Receive,
    RecordUpdate,
    Reduce,
    Send,
    Start,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.values import Batch, GradientResult, Group, Message, Rank, Step, Vector


@program
def twice(number: float) -> Program[float]:
    now = yield from Now()
    return 2 * number * now


@program
def learning(state: Replica) -> Program[Replica]:
    step = yield from NextStep(state)
    assert_type(step, Step | None)
    if step is None:
        return state
    batch = yield from Load(step.samples)
    assert_type(batch, Batch)
    assert_type((yield from Gradient(state.weights, batch)), GradientResult)
    assert_type((yield from LayerGradients(state.weights, batch)), tuple[Handle[GradientResult], ...])
    assert_type((yield from RecordUpdate(state.weights)), int)
    yield from Charge("update", 8)
    return state


@program
def together(value: Vector, group: Group) -> Program[Vector]:
    root = Rank(0)
    assert_type((yield from AllReduce(value=value, group=group, key="a")), Vector)
    assert_type((yield from Reduce(value=value, group=group, root=root, key="b")), Vector | None)
    assert_type((yield from Broadcast(value=value, group=group, root=root, key="c")), Vector)
    assert_type((yield from AllGather(value=value, group=group, key="d")), tuple[Vector, ...])
    yield from Barrier(group=group, key="e")
    yield from Send(root, value)
    assert_type((yield from Receive()), Message)
    yield from Lock(Cell("x"))
    assert_type((yield from Access(Cell("x"), "read")), Vector | None)
    yield from Unlock(Cell("x"))
    return value


@program
def lanes() -> Program[float]:
    handle = yield from Start(assert_type(twice(1.0), Routine[float]))
    assert_type(handle, Handle[float])
    clock = yield from Start(Now())
    assert_type(clock, Handle[float])
    message = yield from Start(Receive())
    assert_type(message, Handle[Message])
    assert_type((yield from Wait(message)), Message)
    assert_type((yield from WaitFor([handle, clock], "any")), tuple[tuple[int, float], ...])
    assert_type((yield from Cancel(message)), bool)
    answer: Any = yield from twice(3.0)
    assert_type((yield from twice(4.0)), float)
    return float(answer)
