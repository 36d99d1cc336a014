"""Any-order runs that also record what a trace does not show, and in which workers may die.

Vectors are never changed in place (see `paceline.algorithms.core.values`), except a gradient that a program has taken.
A program that does it anyway works in one interpreter and fails in another, because some interpreters share a vector
between ranks where others copy it.

Deaths have the semantics of real runs (see `paceline.algorithms.methods.survivors`):

* What a rank has sent before its death is delivered. A receive from the dead rank fails after that, and a receive from
  any rank fails once for each dead rank.
* A collective fails at all members that wait for a dead rank.
* A message to a dead rank is lost without an error.
* A started operation that fails because of a death, and for which no program waits, has no effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import AllReduce, NextStep, Op, Receive, RecordUpdate, Send, Start
from paceline.algorithms.core.values import Rank, Weights, parts_of
from paceline.algorithms.runtime.collective_matching import COLLECTIVES
from paceline.checking.anyorder import AnyOrder
from paceline.checking.driver import LaneTask, StoppedRun
from paceline.checking.moves import Move

STEPS = 2
"""vectors are observed until their rank begins this many further steps: a buffer that is used again is used by then"""

Finding = tuple[str, str]
"""the name of an invariant, and what was found"""


@dataclass(frozen=True, slots=True, eq=False)
class ObservedVector:
    """A vector that a program has sent or received, and its bytes at that time."""

    vector: Any
    content: bytes
    words: str


class WithDeaths(AnyOrder):
    """One run of one job in which ranks die.

    Args:
        job: the job to run.
        deaths: (rank, number of the move before which it dies) for each. A rank that has ended before does not die.
        start: as in `AnyOrder`.
    """

    def __init__(self, job: Job, deaths: Sequence[tuple[int, int]] = (), start: StoppedRun | None = None) -> None:
        super().__init__(job, start=start)
        self._to_die = sorted(deaths, key=lambda death: death[1])
        self._dead: set[Rank] = set()

    @property
    def dead(self) -> frozenset[Rank]:
        """The ranks that have died."""
        return frozenset(self._dead)

    def _ready(self) -> list[Move]:
        while self._to_die and self._to_die[0][1] <= self._moves:
            self._die(Rank(self._to_die.pop(0)[0]))
        return super()._ready()

    def _die(self, rank: Rank) -> None:
        tasks = list(self._lanes[rank])
        if not any(task.promise is None for task in tasks):
            return
        self._dead.add(rank)
        self._mail.lose(rank)
        self._abandon(tasks)
        for task in tasks:
            task.lane.steps.close()
        self._lanes[rank].clear()
        self._touch(self._lanes)

    def _failed_peer(self, task: LaneTask) -> Rank | None:
        """Returns the dead rank because of which the lane's operation fails; None if it does not fail now."""
        if not self._dead:
            return None
        op = task.op
        if isinstance(op, COLLECTIVES):
            missing = [] if task.room is None else task.room.missing
            return next((peer for peer in missing if peer in self._dead), None)
        if not isinstance(op, Receive) or self._letter(task, op) is not None:
            return None
        return self._mail.failed_peer(task.me.rank, op.source)

    def _can_go(self, task: LaneTask) -> bool:
        return super()._can_go(task) or self._failed_peer(task) is not None

    def _perform(self, task: LaneTask, op: Op[Any]) -> Any:
        dead = self._failed_peer(task)
        if dead is None:
            return super()._perform(task, op)
        if isinstance(op, Receive):
            self._mail.inboxes[task.me.rank].report(op.source, dead)
        task.room = None
        raise PeerFailed(f"rank {dead} died", dead)

    def _lane_failed(self, error: Exception) -> None:
        if not isinstance(error, PeerFailed):
            super()._lane_failed(error)

    def _send(self, task: LaneTask, op: Send) -> None:
        if op.to not in self._dead:
            super()._send(task, op)


class Observed(WithDeaths):
    """One run of one job, as `WithDeaths`; `findings` returns what it has violated."""

    def __init__(self, job: Job, deaths: Sequence[tuple[int, int]] = (), start: StoppedRun | None = None) -> None:
        super().__init__(job, deaths, start)
        self._observations: dict[Rank, deque[deque[ObservedVector]]] = {
            me.rank: deque(deque() for _ in range(STEPS)) for me in job.team
        }
        self._changed: dict[str, None] = {}
        self._sent_old: dict[str, None] = {}
        self._newest: dict[Rank, Weights] = {}
        """the weights of the last update, by the rank that has recorded it"""

    def findings(self) -> Iterator[Finding]:
        """Yields the violated invariants of a run that has ended."""
        for rank in self._observations:
            self._compare(rank, "the end of the run")
        yield from (("vectors-unchanged", words) for words in self._changed)
        yield from (("newest-weights", words) for words in self._sent_old)
        for letter in self._mail.unread():
            tag = f" with tag {letter.tag!r}" if letter.tag else ""
            words = f"rank {letter.to} never received a message{tag} that rank {letter.source} sent to it"
            yield "messages-read", words
        for room in self._meetings.open():
            missing = ", ".join(map(str, room.missing))
            yield (
                "collectives-match",
                f"rank {room.first} at {room.place} entered {room.kind} over {room.group}; rank {missing} never did",
            )

    def _advance(self, task: LaneTask, answer: Any = None, failure: BaseException | None = None) -> None:
        if task.op is not None and isinstance(task.op, (Receive, *COLLECTIVES)) and not _donates(task.op):
            self._observe(task.me.rank, task.op, answer, task, "received from")
        if isinstance(task.op, RecordUpdate) and task.op.advance and task.op.layer is None and failure is None:
            self._newest[task.me.rank] = replace(task.op.weights, version=answer)
        super()._advance(task, answer, failure)
        rank, op = task.me.rank, task.op
        self._compare(rank, task.place)
        if isinstance(op, Start) and not task.lane.done:
            op = op.what if isinstance(op.what, Op) else op
        if isinstance(op, NextStep) and task.promise is None:
            steps = self._observations[rank]
            steps.popleft()
            steps.append(deque())
        if isinstance(op, Send) and task.me.role == "server":
            self._check_newest(rank, op, task)
        if isinstance(op, Send | RecordUpdate) or (isinstance(op, COLLECTIVES) and not _donates(op)):
            value = op.weights if isinstance(op, RecordUpdate) else getattr(op, "value", None)
            self._observe(rank, op, value, task, "gave to")

    def _check_newest(self, rank: Rank, op: Send, task: LaneTask) -> None:
        """Compares the weights that a server sends with those of its last update: their version, and if whole, all."""
        if (newest := self._newest.get(rank)) is None:
            return
        for sent in parts_of_kind(op.value, Weights):
            if sent.version != newest.version:
                self._sent_old[
                    f"rank {rank} sent version {sent.version} of the weights to rank {op.to} at {task.place}, and had "
                    f"version {newest.version}"
                ] = None
            elif len(sent.vector) == len(newest.vector) and sent.vector.tobytes() != newest.vector.tobytes():
                self._sent_old[
                    f"rank {rank} sent other weights to rank {op.to} at {task.place} than those of version "
                    f"{newest.version}, as which it sent them"
                ] = None

    def _observe(self, rank: Rank, op: Op[Any], value: Any, task: LaneTask, how: str) -> None:
        for vector in vectors_in(value):
            words = f"rank {rank} {how} {type(op).__name__} at {task.place}"
            self._observations[rank][-1].append(ObservedVector(vector, vector.tobytes(), words))

    def _compare(self, rank: Rank, place: str) -> None:
        for step in self._observations[rank]:
            for observed in list(step):
                if observed.vector.tobytes() != observed.content:
                    step.remove(observed)
                    self._changed[f"a vector that {observed.words} was changed in place before {place}"] = None


def _donates(op: Op[Any]) -> bool:
    return isinstance(op, AllReduce) and op.donate


def vectors_in(value: Any) -> Iterator[Any]:
    """Yields the NumPy arrays of a message, at any depth."""
    return parts_of_kind(value, np.ndarray)


def parts_of_kind(value: Any, kind: type) -> Iterator[Any]:
    """Yields the parts of a message that are instances of a class, at any depth."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from parts_of_kind(part, kind)
    elif isinstance(value, dict):
        yield from parts_of_kind(list(value.values()), kind)
    else:
        of: type = type(value)
        for name in parts_of(of) or ():
            yield from parts_of_kind(getattr(value, name, None), kind)
