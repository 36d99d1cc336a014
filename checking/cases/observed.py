"""An any-order run that also records what a trace does not show: unread messages, open collectives, changed vectors.

Vectors are never changed in place (see `paceline.algorithms.core.values`), except a gradient that a program has taken.
A program that does it anyway works in one interpreter and fails in another, because some interpreters share a vector
between ranks where others copy it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import AllReduce, NextStep, Op, Receive, RecordUpdate, Send, Start
from paceline.algorithms.core.values import Rank, parts_of
from paceline.algorithms.runtime.collective_matching import COLLECTIVES
from paceline.checking.anyorder import AnyOrder
from paceline.checking.lanes import Checkpoint, Task

STEPS = 2
"""vectors are observed until their rank begins this many further steps: a buffer that is used again is used by then"""

Finding = tuple[str, str]
"""the name of an invariant, and what was found"""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """A vector that a program has sent or received, and its bytes at that time."""

    vector: Any
    content: bytes
    words: str


class Observed(AnyOrder):
    """One run of one job, as `AnyOrder`; `findings` returns what it has violated."""

    def __init__(self, job: Job, start: Checkpoint | None = None) -> None:
        super().__init__(job, start=start)
        self._observations: dict[Rank, deque[deque[Observation]]] = {
            me.rank: deque(deque() for _ in range(STEPS)) for me in job.team
        }
        self._changed: dict[str, None] = {}

    def findings(self) -> Iterator[Finding]:
        """Yields the violated invariants of a run that has ended."""
        for rank in self._observations:
            self._compare(rank, "the end of the run")
        yield from (("vectors-unchanged", words) for words in self._changed)
        for source, message, where in self._mail.unread():
            tag = f" with tag {message.tag!r}" if message.tag else ""
            yield "messages-read", f"rank {where} never received a message{tag} that rank {source} sent to it"
        for room in self._meetings.open():
            missing = ", ".join(map(str, room.missing))
            yield (
                "collectives-match",
                f"rank {room.first} at {room.place} entered {room.kind} over {room.group}; rank {missing} never did",
            )

    def _advance(self, task: Task, answer: Any = None, failure: BaseException | None = None) -> None:
        if task.op is not None and isinstance(task.op, (Receive, *COLLECTIVES)) and not _donates(task.op):
            self._observe(task.me.rank, task.op, answer, task, "received from")
        super()._advance(task, answer, failure)
        rank, op = task.me.rank, task.op
        self._compare(rank, task.place)
        if isinstance(op, Start) and not task.lane.done:
            op = op.what if isinstance(op.what, Op) else op
        if isinstance(op, NextStep) and task.promise is None:
            steps = self._observations[rank]
            steps.popleft()
            steps.append(deque())
        elif isinstance(op, Send | RecordUpdate) or (isinstance(op, COLLECTIVES) and not _donates(op)):
            value = op.weights if isinstance(op, RecordUpdate) else getattr(op, "value", None)
            self._observe(rank, op, value, task, "gave to")

    def _observe(self, rank: Rank, op: Op[Any], value: Any, task: Task, how: str) -> None:
        for vector in vectors_in(value):
            words = f"rank {rank} {how} {type(op).__name__} at {task.place}"
            self._observations[rank][-1].append(Observation(vector, vector.tobytes(), words))

    def _compare(self, rank: Rank, place: str) -> None:
        for step in self._observations[rank]:
            for one in list(step):
                if one.vector.tobytes() != one.content:
                    step.remove(one)
                    self._changed[f"a vector that {one.words} was changed in place before {place}"] = None


def _donates(op: Op[Any]) -> bool:
    return isinstance(op, AllReduce) and op.donate


def vectors_in(value: Any) -> Iterator[Any]:
    """Yields the NumPy arrays of a message, at any depth."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from vectors_in(part)
    elif isinstance(value, dict):
        yield from vectors_in(list(value.values()))
    else:
        kind: type = type(value)
        for name in parts_of(kind) or ():
            yield from vectors_in(getattr(value, name, None))
