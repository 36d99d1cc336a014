"""Records the operations of a run with their program lines, in any interpreter that runs all ranks in one process.

Rules of this file:

* The programs are recorded, not the interpreter: each generator is wrapped in a `Watched` one, which passes everything
  on. So an interpreter needs no support for it, and the lines of error messages and breakpoints stay the same.
* An operation gives two moments: its program requests it, and the program receives the answer (or an exception). An
  operation without the second moment is the one that its lane waits for.
* Vectors may be overwritten later, so those of states and updates are copied.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.method import Method, RankContext
from paceline.algorithms.core.operations import Handle, LayerGradients, NextStep, Op, RecordUpdate, Start
from paceline.algorithms.core.program import Branches, Routine, innermost, place
from paceline.algorithms.core.values import Rank

Kind = Literal["requested", "answered", "raised", "entered", "ended", "failed"]


@dataclass(slots=True, eq=False)
class RecordedOperation:
    """One operation of one lane.

    Args:
        me: the rank.
        lane: "" for the program of the rank, else the name by `Branches`.
        step: the step of the rank.
        op: the operation.
        place: the program line, as ``file:line in function``.
        vector: a copy of the weights of an update, or of the state of a `NextStep`; None without any.
    """

    me: RankContext
    lane: str
    step: int
    op: Op[Any]
    place: str
    vector: NDArray[Any] | None = None
    answer: Any = None
    failure: BaseException | None = None
    open: bool = True
    """whether it has neither an answer nor an exception"""


@dataclass(frozen=True, slots=True)
class Moment:
    """One entry of the record.

    Args:
        kind: "requested", "answered" or "raised" for an operation; "entered" and "ended" for the program of a rank;
            "failed" for an exception in a program.
        me: the rank.
        lane: its lane.
        step: the step of the rank.
        place: the program line.
        time_s: the clock of the run, in seconds; in the any-order interpreter it has no meaning.
        request: the operation; None for a program.
        failure: the exception of "failed".
    """

    kind: Kind
    me: RankContext
    lane: str
    step: int
    place: str
    time_s: float
    request: RecordedOperation | None = None
    failure: BaseException | None = None


@dataclass(slots=True)
class OperationRecord:
    """What the programs of a run did, in the order of the run. `clock` returns the seconds of the run."""

    moments: list[Moment] = field(default_factory=list)
    open: dict[tuple[Rank, str], RecordedOperation] = field(default_factory=dict)
    """the operation that each lane waits for"""
    started: dict[Handle[Any], RecordedOperation] = field(default_factory=dict)
    """the `Start` or `LayerGradients` that gave each handle"""
    clock: Callable[[], float] = lambda: 0.0
    steps: dict[Rank, int] = field(default_factory=dict)
    branches: defaultdict[Rank, Branches] = field(default_factory=lambda: defaultdict(Branches))

    def of(self, method: Method) -> Method:
        """Returns a method with the same programs, whose operations are recorded here."""
        kind, record = type(method), self

        def enter(own: Any, me: RankContext, state: Any) -> Routine[Any]:
            routine: Routine[Any] = kind.enter(own, me, state)
            record.steps[me.rank] = getattr(state, "step", 0)
            record._enter(me, routine)
            return routine

        names = {"enter": enter, "__module__": kind.__module__, "__doc__": kind.__doc__}
        made: Any = dataclass(frozen=True, kw_only=True)(type(kind.__name__, (kind,), names))
        return made(**{option.name: getattr(method, option.name) for option in dataclasses.fields(method)})  # type: ignore[no-any-return]

    def _enter(self, me: RankContext, routine: Routine[Any]) -> None:
        self._note("entered", me, "", routine.name)
        routine.watched(lambda steps: Watched(self, me, "", steps))

    def requested(self, me: RankContext, lane: str, op: Op[Any], place: str) -> RecordedOperation:
        """Notes that a program requests an operation.

        Args:
            me: the rank.
            lane: its lane.
            op: the operation.
            place: the program line.
        """
        if isinstance(op, NextStep):
            self.steps[me.rank] = getattr(op.state, "step", self.steps.get(me.rank, 0))
        request = RecordedOperation(me, lane, self.steps.get(me.rank, 0), op, place, _copied(op))
        if isinstance(op, Start):
            name = self.branches[me.rank].name(lane, op.what)
            if isinstance(op.what, Routine):
                op.what.watched(lambda steps: Watched(self, me, name, steps))
        self.open[me.rank, lane] = request
        self._note("requested", me, lane, place, request)
        return request

    def closed(self, request: RecordedOperation, answer: Any = None, failure: BaseException | None = None) -> None:
        """Notes the answer of an operation, or its exception.

        Args:
            request: the operation.
            answer: its answer.
            failure: its exception.
        """
        request.answer, request.failure, request.open = answer, failure, False
        self.open.pop((request.me.rank, request.lane), None)
        if isinstance(answer, Handle):
            self.started[answer] = request
        elif isinstance(request.op, LayerGradients) and answer is not None:
            self.started.update(dict.fromkeys(answer, request))
        kind: Kind = "answered" if failure is None else "raised"
        self._note(kind, request.me, request.lane, request.place, request)

    def ended(self, me: RankContext, lane: str, place: str) -> None:
        """Notes that a program has returned."""
        self._note("ended", me, lane, place)

    def failed(self, me: RankContext, lane: str, failure: BaseException) -> None:
        """Notes that a program has raised an exception that it does not handle."""
        self._note("failed", me, lane, _line_of(failure), None, failure)

    def _note(
        self,
        kind: Kind,
        me: RankContext,
        lane: str,
        place: str,
        request: RecordedOperation | None = None,
        failure: BaseException | None = None,
    ) -> None:
        step = self.steps.get(me.rank, 0) if request is None else request.step
        self.moments.append(Moment(kind, me, lane, step, place, self.clock(), request, failure))


class Watched(Generator[Op[Any], Any, Any]):
    """A generator of operations that records what passes through it.

    Args:
        record: receives the operations.
        me: the rank.
        lane: its lane.
        steps: the program.
    """

    def __init__(
        self, record: OperationRecord, me: RankContext, lane: str, steps: Generator[Op[Any], Any, Any]
    ) -> None:
        self._record, self._me, self._lane, self._steps = record, me, lane, steps
        self._request: RecordedOperation | None = None

    @property
    def gi_frame(self) -> Any:
        """The frame of the program, so that its line is found as if it were not wrapped."""
        return getattr(self._steps, "gi_frame", None)

    @property
    def gi_yieldfrom(self) -> Any:
        """The generator that the program delegates to."""
        return getattr(self._steps, "gi_yieldfrom", None)

    def send(self, value: Any) -> Op[Any]:
        """Passes an answer to the program and returns its next operation."""
        if self._request is not None:
            self._record.closed(self._request, value)
        return self._advance(lambda: self._steps.send(value))

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Op[Any]:
        """Raises an exception in the program and returns its next operation."""
        if self._request is not None:
            failure = typ if isinstance(typ, BaseException) else val
            self._record.closed(self._request, failure=failure)
        return self._advance(lambda: self._steps.throw(typ))

    def close(self) -> None:
        """Closes the program, such as one that was cancelled; its operation is not open any more."""
        self._record.open.pop((self._me.rank, self._lane), None)
        self._steps.close()

    def _advance(self, resume: Callable[[], Op[Any]]) -> Op[Any]:
        self._request = None
        try:
            op = resume()
        except StopIteration:
            self._record.ended(self._me, self._lane, "")
            raise
        except Exception as error:
            self._record.failed(self._me, self._lane, error)
            raise
        if isinstance(op, Op):
            self._request = self._record.requested(self._me, self._lane, op, line_of(self._steps))
        return op


def line_of(steps: Any) -> str:
    """Returns the innermost line of the method's own programs, as in `Lane.where`."""
    frame = innermost(steps)
    return "" if frame is None else place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _line_of(failure: BaseException) -> str:
    """Returns the line that raised an exception."""
    frames = traceback.extract_tb(failure.__traceback__)
    last = frames[-1] if frames else None
    return "" if last is None or last.lineno is None else place(last.filename, last.lineno, last.name)


def _copied(op: Op[Any]) -> NDArray[Any] | None:
    """Returns a copy of the weights of an operation."""
    if isinstance(op, RecordUpdate):
        return numbers(op.weights) if op.layer is None else None
    return numbers(getattr(op.state, "weights", None)) if isinstance(op, NextStep) else None


def numbers(weights: Any) -> NDArray[Any] | None:
    """Returns a copy of the numbers of weights; None if there are none."""
    vector = getattr(weights, "vector", None)
    if vector is None or not hasattr(vector, "__len__"):
        return None
    return np.array(vector)
