"""Driving a lane: the operations of its program one after the other, by one thread.

Rules of this file:

* An operation may leave behind what is computed for it by this very thread: a gradient by layers. It begins as soon as
  the program has gone on and come to its next operation.
* Meanwhile the program has a turn whenever a layer is done: it goes on as far as it can without waiting for anybody. So
  what it starts overlaps with the rest of the computation, and a step pays for no second thread and no hand-over.
* What the program raises in a turn is raised after the computation: it is none of the computation's failures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.operations import Op
from paceline.backend.rank.handles import Started
from paceline.backend.rank.rank_context import Behind, Station, Thread

AT_ONCE = (ops.RecordUpdate, ops.Now, ops.Send, ops.Start, ops.Charge)
"""what waits for nobody, and not for the device"""


def nobodys_turn() -> None:
    """Where whoever computes is not who drives the program."""


class Drive:
    """A lane under way.

    Args:
        station: the rank's own.
        thread: whose lane it is.
        started: knows what is done of what was started.
        perform: answers an operation.
    """

    def __init__(
        self, station: Station, thread: Thread, started: Started, perform: Callable[[Thread, Op[Any]], Any]
    ) -> None:
        assert thread.lane is not None, "only routines are driven"
        self._station, self._thread, self._lane = station, thread, thread.lane
        self._started, self._perform = started, perform
        thread.leave = self._leave
        self._op: Op[Any] | None = None
        self._behind: Behind | None = None
        self._raised: BaseException | None = None

    def to_its_end(self) -> Any:
        """Performs the program's operations until it ends; answers what it returned."""
        self._op = self._lane.advance()
        while self._op is not None:
            self._one(self._op)
            if (behind := self._behind) is not None:
                self._behind = None
                behind(self._turn)
                if self._raised is not None:
                    raise self._raised
        return self._lane.answer

    def _leave(self, behind: Behind) -> None:
        """Has this computed once the operation that is being performed has been answered."""
        self._behind = behind

    def _one(self, op: Op[Any]) -> None:
        """Performs an operation, and has the program come to its next one."""
        answer, failure = None, None
        try:
            answer = self._perform(self._thread, op)
        except Exception as error:
            failure = error
        began = self._station.clock.now()
        self._op = self._lane.advance(answer, failure)
        if isinstance(op, ops.Charge) and failure is None:  # the program does it itself, before it asks again
            self._station.accelerator.synchronize()
            self._station.span(self._thread, "update", began)

    def _turn(self) -> None:
        """Lets the program go on until it would have to wait."""
        try:
            while self._raised is None and self._op is not None and self._waits_for_nobody(self._op):
                self._one(self._op)
        except BaseException as error:
            self._raised = error

    def _waits_for_nobody(self, op: Op[Any]) -> bool:
        if isinstance(op, ops.Wait):
            return self._started.all_done([op.handle])
        if isinstance(op, ops.WaitFor) and op.need == "all":
            return self._started.all_done(op.handles)
        return isinstance(op, AT_ONCE)
