"""What a rank's program has started and not yet heard of."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from paceline.algorithms.core.errors import PeerFailed, ProgramError
from paceline.algorithms.core.operations import Handle
from paceline.algorithms.core.values import Rank
from paceline.backend.rank.rank_context import Station, Thread

POLL_S = 0.0002
"""how often a wait for some of several looks at them: gloo has no way to wait for any"""


@dataclass(eq=False)
class Pending:
    """Something started: how to see whether it is done, and how to have its answer, once: see `answer`."""

    done: Callable[[], bool]
    finish: Callable[[], Any]
    what: str
    give_up: Callable[[], object] | None = None
    """ends it early, for those that can be ended; False if it was done already"""
    cancelled: bool = False
    _answer: tuple[Any] | None = None

    def answer(self) -> Any:
        """Waits, and answers; may be asked again, as a handle may be waited for again."""
        if self._answer is None:
            self._answer = (self.finish(),)
        return self._answer[0]


class Held(Handle[Any]):
    """A handle with what stands behind it, which so lives as long as a program keeps the handle."""

    __slots__ = ("pending",)
    pending: Pending

    def __init__(self, rank: Rank, number: int, pending: Pending) -> None:
        super().__init__(rank, number)
        object.__setattr__(self, "pending", pending)  # frozen, as handles are


class Started:
    """What a rank's program has handles of."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._numbers = count()
        self._before: dict[Handle[Any], Pending] = {}
        """what stands behind handles from before a checkpoint"""
        self._unheard: dict[Pending, None] = {}
        """of which the program has had neither answer nor failure"""

    def keep(self, pending: Pending) -> Handle[Any]:
        """A handle for it."""
        self._unheard[pending] = None
        return Held(self._station.me.rank, next(self._numbers), pending)

    def _known(self, handle: Handle[Any]) -> Pending:
        if isinstance(handle, Held):
            return handle.pending
        if handle not in self._before:
            raise ProgramError(f"rank {self._station.me.rank}: {handle} was started by nobody here")
        return self._before[handle]

    def all_done(self, handles: Sequence[Handle[Any]]) -> bool:
        """Whether a wait for all of these would be over at once; the last, mostly the latest, is looked at first."""
        return all((pending := self._known(handle)).cancelled or pending.done() for handle in reversed(handles))

    def wait(self, thread: Thread, handles: Sequence[Handle[Any]], least: int) -> tuple[tuple[int, Any], ...]:
        """Waits until `least` are done; answers (index, answer) of all that are by then."""
        pendings = [self._known(handle) for handle in handles]
        if not 0 <= least <= len(pendings):
            wrong = f"waits for {least} of {len(pendings)} handles; give no more"
            raise ProgramError(f"{self._station.standing(thread)}: {wrong}")
        if least < len(pendings):
            self._until_done(thread, pendings, least)
        elif pendings:  # the last one's first: who waits for all of them is woken once, not once for each
            self._finish(thread, pendings[-1])
        found = tuple(range(len(pendings)))
        if least < len(pendings):
            found = tuple(index for index in found if pendings[index].cancelled or pendings[index].done())
            self._station.recorder.add("outcome", (thread.line, found))
        return tuple((index, self._finish(thread, pendings[index])) for index in found)

    def _finish(self, thread: Thread, pending: Pending) -> Any:
        """Its answer, once it is there."""
        if pending.cancelled:
            wrong = f"{pending.what} was cancelled; there is no answer to wait for"
            raise ProgramError(f"{self._station.standing(thread)}: {wrong}")
        self._unheard.pop(pending, None)
        if pending.done():
            return pending.answer()
        self._station.waiting(thread, f"for {pending.what}")
        answer = pending.answer()
        self._station.moving(thread)
        return answer

    def _until_done(self, thread: Thread, pendings: Sequence[Pending], least: int) -> None:
        self._station.waiting(thread, f"for {least} of {len(pendings)}: " + ", ".join(p.what for p in pendings))
        while sum(pending.cancelled or pending.done() for pending in pendings) < least:
            if (dead := self._station.board.lost()) is not None:
                raise PeerFailed(f"rank {dead} died", dead)
            time.sleep(POLL_S)
        self._station.moving(thread)

    def cancel(self, thread: Thread, handle: Handle[Any]) -> bool:
        """Gives up what was started; True if that was in time."""
        pending = self._known(handle)
        in_time = not pending.cancelled and not pending.done()
        if in_time and pending.give_up is not None:
            in_time = pending.give_up() is not False
        if in_time:
            pending.cancelled = True
            self._unheard.pop(pending, None)
        self._station.recorder.add("outcome", (thread.line, in_time))
        return in_time

    def complete(self, thread: Thread) -> None:
        """Completes what is in flight when the program has ended, oldest first: sub-programs still start and wait.

        What a death has made impossible that the run goes on after is left: nobody asks for it any more.
        """
        while unheard := list(self._unheard):
            self._station.waiting(thread, f"for {unheard[0].what}, which it has started and not waited for")
            try:
                unheard[0].answer()
            except PeerFailed:
                if self._station.board.lost() is not None:
                    raise
            self._unheard.pop(unheard[0], None)

    def answer(self, handle: Handle[Any]) -> Any:
        """What something was answered that is complete: what a checkpoint keeps of it."""
        return self._known(handle).answer()

    def restore(self, answers: Mapping[Handle[Any], Any]) -> None:
        """Goes on from a checkpoint: its handles are answered, and new ones are numbered after them."""
        for handle, answer in answers.items():
            whole = partial(_same, answer)
            self._before[handle] = Pending(lambda: True, whole, "an operation from before the checkpoint")
        self._numbers = count(max((handle.number for handle in answers), default=-1) + 1)


def _same(answer: Any) -> Any:
    return answer
