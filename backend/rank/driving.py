"""Drives a lane: one thread performs the operations of its program one after another.

Rationale:

* Invariant: a program receives its answers in its own order, and operations that it starts during a backward pass
  overlap with the rest of that pass.
* How: an operation may leave a computation behind (a gradient layer by layer), which this same thread performs. The
  computation begins when the program has reached its next operation. After each layer the program runs as far as it
  can without waiting; this is its turn.
* Rejected: computing in a second thread. Each layer would then need a switch between threads, and both would contend
  for the interpreter's lock, at every step of every rank. GPUs and paced devices work in parallel with the process, so
  the worker thread `backward` computes for them.
* An error that the program raises in its turn is raised after the computation, because the computation has not failed.
* Source: backward hooks as in PyTorch's DistributedDataParallel (Li et al. 2020, arXiv:2006.15704, section 3.2.3),
  which start a bucket's all-reduce while autograd continues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.operations import Op
from paceline.backend.rank.handles import Handles
from paceline.backend.rank.rank_context import Behind, Station, Thread

AT_ONCE = (ops.RecordUpdate, ops.Now, ops.Send, ops.Start, ops.Charge)
"""operations that wait neither for another rank nor for the device"""


def no_turn() -> None:
    """Does nothing: the turn of a computation in another thread than the program's."""


class Drive:
    """Runs one lane.

    Args:
        station: the rank's context.
        thread: the lane's thread.
        handles: the started operations.
        perform: performs an operation and returns its answer.
    """

    def __init__(
        self, station: Station, thread: Thread, handles: Handles, perform: Callable[[Thread, Op[Any]], Any]
    ) -> None:
        assert thread.lane is not None, "only routines are driven"
        self._station, self._thread, self._lane = station, thread, thread.lane
        self._handles, self._perform = handles, perform
        thread.leave = self._leave
        self._op: Op[Any] | None = None
        self._behind: Behind | None = None
        self._raised: BaseException | None = None

    def to_its_end(self) -> Any:
        """Performs the program's operations until it ends; returns its return value."""
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
        """Schedules a computation for after the answer of the current operation."""
        self._behind = behind

    def _one(self, op: Op[Any]) -> None:
        """Performs an operation, and advances the program to its next one."""
        answer, failure = None, None
        try:
            answer = self._perform(self._thread, op)
        except Exception as error:
            failure = error
        began = self._station.clock.now()
        self._op = self._lane.advance(answer, failure)
        if isinstance(op, ops.Charge) and failure is None:  # the program computes before its next operation
            self._station.accelerator.synchronize()
            self._station.span(self._thread, "update", began)

    def _turn(self) -> None:
        """Runs the program until it would have to wait."""
        try:
            while self._raised is None and self._op is not None and self._returns_at_once(self._op):
                self._one(self._op)
        except BaseException as error:
            self._raised = error

    def _returns_at_once(self, op: Op[Any]) -> bool:
        if isinstance(op, ops.Wait):
            return self._handles.all_done([op.handle])
        if isinstance(op, ops.WaitFor) and op.need == "all":
            return self._handles.all_done(op.handles)
        return isinstance(op, AT_ONCE)
