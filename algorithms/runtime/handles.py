"""Handles: what `Start`, `Wait`, `WaitFor` and `Cancel` mean, apart from how an interpreter waits.

Rules of this file:

* Each rank has one `HandleTable`. A handle stands for an `Entry`; the table keeps that as long as a program keeps the
  handle, because an answer may be asked for again.
* `Wait` and `WaitFor` are answered in two halves: `awaited` checks the operation, the interpreter waits until enough of
  the entries have settled, and `answers` makes the answer.
* Which handles of a partial `WaitFor` were done and whether a `Cancel` was in time depend on timing. The table reports
  both to the run's record, so that a replay is told the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from paceline.algorithms.core.operations import Handle, Op, WaitFor
from paceline.algorithms.core.program import Routine
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.collective_matching import describe
from paceline.algorithms.runtime.program_errors import cancelled, too_few_handles, unknown_handle

Outcome = tuple[int, ...] | bool
"""depends on timing: of a partial `WaitFor`, the indices of the handles that were done; of a `Cancel`, its answer"""
Report = Callable[[str, Outcome], object]
"""takes the name of a lane and what it was told"""


class Entry(Protocol):
    """What a handle stands for."""

    @property
    def settled(self) -> bool:
        """Whether it has ended or been cancelled."""
        ...

    def result(self) -> Any:
        """Its answer; raises its failure, or `InvalidOperation` where it was cancelled."""
        ...

    def cancel(self) -> bool:
        """Gives it up; False if it has settled before."""
        ...


E = TypeVar("E", bound=Entry)


@dataclass(eq=False, slots=True)
class Promise:
    """Something started in an interpreter that runs all ranks in one thread.

    >>> promise = Promise(lambda: "Receive(), started at method.py:7")
    >>> promise.watchers.append(lambda: print("settled"))
    >>> promise.end(answer=3)
    settled
    >>> promise.result(), promise.cancel()
    (3, False)
    """

    what: Callable[[], str]
    """names it; asked only for messages, because the name of a large group is long"""
    give_up: Callable[[], object] | None = None
    """stops the work behind it; None where the work goes on for others"""
    settled: bool = False
    cancelled: bool = False
    answer: Any = None
    failure: Exception | None = None
    watchers: list[Callable[[], object]] = field(default_factory=list)
    """called once, when it settles"""

    def end(self, answer: Any = None, failure: Exception | None = None) -> None:
        """Keeps the outcome; the first one counts."""
        if self.settled:
            return
        self.settled, self.answer, self.failure, self.give_up = True, answer, failure, None
        watchers, self.watchers = self.watchers, []
        for tell in watchers:
            tell()

    def result(self) -> Any:
        if self.cancelled:
            raise cancelled(self.what())
        if self.failure is not None:
            raise self.failure
        return self.answer

    def cancel(self) -> bool:
        if self.settled:
            return False
        if self.give_up is not None:
            self.give_up()
        self.cancelled = True
        self.end()
        return True


class UnheardFailures:
    """Failures of what was started that no program has been told of: a run does not end without a word of them."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []

    def add(self, error: Exception) -> None:
        """Notes a failure, once."""
        if not any(error is one for one in self._errors):
            self._errors.append(error)

    def hear(self, error: Exception) -> None:
        """A program has been told of it."""
        self._errors = [one for one in self._errors if one is not error]

    def raise_first(self) -> None:
        """Raises the earliest one, if there is any."""
        if self._errors:
            raise self._errors[0]


class HandleTable(Generic[E]):
    """The handles of one rank.

    Args:
        rank: whose handles they are.
        report: takes what a partial `WaitFor` and a `Cancel` were told, for the record of the run.
        unheard: told which failures the program has been told of.

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
        self._entries: WeakKeyDictionary[Handle[Any], E] = WeakKeyDictionary()
        self._numbers = count(1)

    def give(self, entry: E) -> Handle[Any]:
        """A new handle for something that has been started."""
        handle: Handle[Any] = Handle(self._rank, next(self._numbers))
        self._entries[handle] = entry
        return handle

    def restore(self, entries: Mapping[Handle[Any], E]) -> None:
        """Takes in the handles of a checkpoint; new ones are numbered after them."""
        self._entries.update(entries)
        self._numbers = count(max((handle.number for handle in entries), default=0) + 1)

    def entry(self, handle: Handle[Any]) -> E:
        """What a handle stands for; raises `InvalidOperation` if it is none of this rank's."""
        entry = self._entries.get(handle) if handle.rank == self._rank else None
        if entry is None:
            raise unknown_handle(handle, self._rank)
        return entry

    def items(self) -> list[tuple[Handle[Any], E]]:
        """All handles that a program still keeps, with what they stand for."""
        return list(self._entries.items())

    def is_over(self, handles: Sequence[Handle[Any]], least: int) -> bool:
        """Whether a wait for these would end at once; also where it is a mistake, which the program is then told."""
        settled = 0
        for handle in reversed(handles):  # the latest settles last, mostly
            entry = self._entries.get(handle) if handle.rank == self._rank else None
            if entry is None or entry.settled:
                settled += 1
            elif least == len(handles):
                return False
        return settled >= min(least, len(handles))

    def awaited(self, handles: Sequence[Handle[Any]], least: int) -> list[E]:
        """What the handles of a wait stand for; raises `InvalidOperation` if the wait makes no sense."""
        entries = [self.entry(handle) for handle in handles]
        if not 0 <= least <= len(entries):
            raise too_few_handles(least, len(entries))
        return entries

    def answers(
        self, lane: str, entries: Sequence[E], least: int, found: tuple[int, ...] | None = None
    ) -> tuple[tuple[int, Any], ...]:
        """The answer of a `WaitFor` whose waiting is over.

        Args:
            lane: that has waited.
            entries: of the handles, by `awaited`.
            least: how many of them had to settle.
            found: the indices of those that the program is to hear of; None: of all that have settled.
        """
        if found is None:
            found = tuple([index for index, entry in enumerate(entries) if entry.settled])
        if least < len(entries):
            self._report(lane, found)
        return tuple([(index, self.result(entries[index])) for index in found])

    def result(self, entry: E) -> Any:
        """The answer of what has settled; its failure is raised, and has then been heard of."""
        try:
            return entry.result()
        except Exception as error:
            self._unheard.hear(error)
            raise

    def cancel(self, lane: str, handle: Handle[Any]) -> bool:
        """The answer of a `Cancel`: whether it was in time."""
        in_time = self.entry(handle).cancel()
        self._report(lane, in_time)
        return in_time


def is_partial(op: WaitFor[Any]) -> bool:
    """Whether the answer of a wait depends on timing."""
    return op.least < len(op.handles)


def named(what: Op[Any] | Routine[Any], line: str) -> str:
    """Names something that was started at a line of the program, for messages.

    >>> from paceline.algorithms.core.operations import Receive
    >>> named(Receive(Rank(1), tag="go"), "method.py:7 in worker")
    "Receive(source=1, tag='go', timeout_s=None), started at method.py:7 in worker"
    """
    return f"{describe(what) if isinstance(what, Op) else f'program {what.name}'}, started at {line}"
