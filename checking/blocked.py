"""Spans for the trace of an any-order run, and descriptions of what each blocked lane waits for."""

from __future__ import annotations

from typing import Any

from paceline.algorithms.core.operations import (
    Cancel,
    Charge,
    Gradient,
    Load,
    Lock,
    Op,
    Receive,
    Send,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.values import nbytes
from paceline.algorithms.runtime.cells import Cells
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, describe, sent_bytes
from paceline.algorithms.runtime.handles import HandleTable, Promise
from paceline.algorithms.runtime.program_errors import message_wanted
from paceline.checking.lanes import Task
from paceline.records.trace import Activity, Span

ACTIVITIES: dict[type[Op[Any]], Activity] = {
    Gradient: "compute",
    Load: "load",
    Charge: "update",
    Receive: "receive",
    Send: "send",
}


def span_of(task: Task, answer: Any, step: int, now_s: float) -> Span | None:
    """Returns the span of the operation that the lane has just completed; None for operations without a span."""
    op = task.op
    assert op is not None, "it was answered just now"
    key = None
    activity: Activity
    if isinstance(op, COLLECTIVES):
        activity, size, key = "collective", sent_bytes(op, task.me.rank), f"{op.group}{task.stream} {op.key}"
    elif type(op) in ACTIVITIES:
        activity, size = (
            ACTIVITIES[type(op)],
            nbytes(op.value) if isinstance(op, Send) else nbytes(answer) if isinstance(op, Receive) else 0,
        )
    else:
        return None
    start_s = now_s if isinstance(op, Send) else task.asked_s
    return Span(task.me.rank, task.name, activity, None, step, start_s, now_s, size, task.ready_s, key)


def line_of(task: Task, step: int, handles: HandleTable[Promise], cells: Cells) -> str:
    """Describes a blocked lane: rank, role, program line, step and what it waits for."""
    return f"{task.standing(step)}: waits for {need_of(task, handles, cells)}"


def need_of(task: Task, handles: HandleTable[Promise], cells: Cells) -> str:
    """Describes what would let the lane continue."""
    match task.op:
        case Receive():
            return f"a message from {message_wanted(task.op)}"
        case Wait(handle) | Cancel(handle):
            return f"the end of {handles.promise(handle).what()}"
        case WaitFor(waited, need):
            unsettled = [promise.what() for promise in map(handles.promise, waited) if not promise.settled]
            return f"{need} of {len(waited)} handles; open are {', '.join(unsettled)}"
        case Lock(cell):
            rank, lane = cells.holder(task.me.node, cell) or (task.me.rank, task.name)
            return f"the lock of cell {cell.name!r}, held by rank {rank}, lane {lane}"
        case _:
            assert task.room is not None and task.op is not None, "nothing else blocks a lane"
            return f"{describe(task.op)}, where {', '.join(f'rank {rank}' for rank in task.room.missing)} did not come"
