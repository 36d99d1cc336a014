"""Handles: the semantics of `Start`, `Wait`, `WaitFor` and `Cancel`, except for the waiting itself.

Each rank has one `HandleTable`, which maps handles to promises. A promise exists as long as the program holds its
handle, because the answer may be requested again. `Wait` and `WaitFor` have two phases: `awaited` checks the operation;
the interpreter waits until enough promises have settled; `answers` returns the answer. Which handles of a partial
`WaitFor` were done and whether a `Cancel` was in time depend on timing. The table reports both to the record of the
run, so that a replay gives the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from paceline.algorithms.core.operations import Handle, Op, WaitFor
from paceline.algorithms.core.program import Routine
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.collective_matching import describe
from paceline.algorithms.runtime.program_errors import cancelled, too_few_handles, unknown_handle

Outcome = tuple[int, ...] | bool
"""depends on timing: the indices of the handles that were done (partial `WaitFor`), or the answer of a `Cancel`"""
Report = Callable[[str, Outcome], object]
"""receives the name of a lane and its outcome"""


@dataclass(eq=False, slots=True)
class Promise:
    """The outcome of something that a program has started.

    >>> promise = Promise(lambda: "Receive(), started at method.py:7")
    >>> promise.watchers.append(lambda: print("settled"))
    >>> promise.end(answer=3)
    settled
    >>> promise.result(), promise.cancel()
    (3, False)
    """

    what: Callable[[], str]
    """returns its name; called only for messages, because the name of a large group is long"""
    give_up: Callable[[], object] | None = None
    """stops the work; None if others need it to continue. It returns False if the work has just ended"""
    settled: bool = False
    cancelled: bool = False
    answer: Any = None
    failure: Exception | None = None
    watchers: list[Callable[[], object]] = field(default_factory=list)
    """callbacks, called once when it settles"""

    def end(self, answer: Any = None, failure: Exception | None = None) -> None:
        """Sets the outcome; later calls have no effect."""
        if self.settled:
            return
        self.settled, self.answer, self.failure, self.give_up = True, answer, failure, None
        watchers, self.watchers = self.watchers, []
        for tell in watchers:
            tell()

    @property
    def over(self) -> bool:
        """Whether a wait for it ends at once."""
        return self.settled

    def result(self) -> Any:
        """Returns its answer; raises its failure, or `InvalidOperation` if it was cancelled."""
        if self.cancelled:
            raise cancelled(self.what())
        if self.failure is not None:
            raise self.failure
        return self.answer

    def cancel(self) -> bool:
        """Cancels it; returns False if it was over."""
        if self.over or (self.give_up is not None and self.give_up() is False):
            return False
        self.cancelled = True
        self.end()
        return True


P = TypeVar("P", bound=Promise)


class UnheardFailures:
    """Failures of started operations that no program has received; they are raised at the end of the run."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []

    def add(self, error: Exception) -> None:
        """Adds a failure, once."""
        if not any(error is known for known in self._errors):
            self._errors.append(error)

    def hear(self, error: Exception) -> None:
        """Removes a failure that a program has received."""
        self._errors = [known for known in self._errors if known is not error]

    def raise_first(self) -> None:
        """Raises the earliest one, if any."""
        if self._errors:
            raise self._errors[0]


class HandleTable(Generic[P]):
    """The handles of one rank.

    Args:
        rank: the rank.
        report: receives the outcomes of partial `WaitFor` and of `Cancel`, for the record of the run.
        unheard: the failures that no program has received yet.

    >>> table = HandleTable[Promise](Rank(0), print)
    >>> one, other = (Promise(lambda: "an operation") for _ in range(2))
    >>> first, second = table.give(one), table.give(other)
    >>> one.end(answer="here")
    >>> table.answers("lane", table.awaited([first, second], 1), 1)
    lane (0,)
    ((0, 'here'),)
    >>> table.cancel("lane", second)
    lane True
    True
    """

    def __init__(self, rank: Rank, report: Report, unheard: UnheardFailures | None = None) -> None:
        self._rank, self._report, self._unheard = rank, report, unheard or UnheardFailures()
        self._promises: WeakKeyDictionary[Handle[Any], P] = WeakKeyDictionary()
        self._numbers = count(1)

    def give(self, promise: P) -> Handle[Any]:
        """Returns a new handle for something that was started."""
        handle: Handle[Any] = Handle(self._rank, next(self._numbers))
        self._promises[handle] = promise
        return handle

    def restore(self, promises: Mapping[Handle[Any], P]) -> None:
        """Adds the handles of a checkpoint; new handles get higher numbers."""
        self._promises.update(promises)
        self._numbers = count(max((handle.number for handle in promises), default=0) + 1)

    def promise(self, handle: Handle[Any]) -> P:
        """Returns the promise of a handle; raises `InvalidOperation` if the handle is not from this rank."""
        promise = self._promises.get(handle) if handle.rank == self._rank else None
        if promise is None:
            raise unknown_handle(handle, self._rank)
        return promise

    def items(self) -> list[tuple[Handle[Any], P]]:
        """Returns all handles that the program still holds, with their promises."""
        return list(self._promises.items())

    def is_over(self, handles: Sequence[Handle[Any]], least: int) -> bool:
        """Returns whether a wait would end immediately, also with an error.

        Args:
            handles: the handles of the wait.
            least: how many of them must settle.
        """
        settled = 0
        for handle in reversed(handles):  # the latest usually settles last
            promise = self._promises.get(handle) if handle.rank == self._rank else None
            if promise is None or promise.over:
                settled += 1
            elif least == len(handles):
                return False
        return settled >= min(least, len(handles))

    def awaited(self, handles: Sequence[Handle[Any]], least: int) -> list[P]:
        """Returns the promises of the handles of a wait.

        Args:
            handles: the handles of the wait.
            least: how many of them must settle.

        Raises:
            InvalidOperation: a handle is not from this rank, or `least` is out of range.
        """
        promises = [self.promise(handle) for handle in handles]
        if not 0 <= least <= len(promises):
            raise too_few_handles(least, len(promises))
        return promises

    def answers(
        self, lane: str, promises: Sequence[P], least: int, over: tuple[int, ...] | None = None
    ) -> tuple[tuple[int, Any], ...]:
        """Returns the answer of a `WaitFor` after the waiting has ended.

        Args:
            lane: the lane that has waited.
            promises: the promises of the handles, from `awaited`.
            least: how many of them had to settle.
            over: the indices of those that count as settled (in a replay); None: all that have.
        """
        if over is None:
            over = tuple([index for index, promise in enumerate(promises) if promise.over])
        if least < len(promises):
            self._report(lane, over)
        return tuple([(index, self.result(promises[index])) for index in over])

    def result(self, promise: P) -> Any:
        """Returns the answer of a settled promise; raises its failure, which then counts as received."""
        try:
            return promise.result()
        except Exception as error:
            self._unheard.hear(error)
            raise

    def cancel(self, lane: str, handle: Handle[Any]) -> bool:
        """Cancels what a handle stands for; returns whether that was in time."""
        in_time = self.promise(handle).cancel()
        self._report(lane, in_time)
        return in_time


def answered(answers: Mapping[Handle[Any], Any]) -> dict[Handle[Any], Promise]:
    """Returns the promises of operations from before a checkpoint, by their handles."""

    def what() -> str:
        return "an operation from before the checkpoint"

    return {handle: Promise(what, settled=True, answer=answer) for handle, answer in answers.items()}


def is_partial(op: WaitFor[Any]) -> bool:
    """Returns whether the answer of a wait depends on timing."""
    return op.least < len(op.handles)


def named(what: Op[Any] | Routine[Any], line: str) -> str:
    """Describes a started operation or program for messages.

    Args:
        what: what was started.
        line: the line of the program at which it was started.

    >>> from paceline.algorithms.core.operations import Receive
    >>> named(Receive(Rank(1), tag="go"), "method.py:7 in worker")
    "Receive(source=1, tag='go', timeout_s=None), started at method.py:7 in worker"
    """
    return f"{describe(what) if isinstance(what, Op) else f'program {what.name}'}, started at {line}"
