"""Limits of runs of programs that may not end: a number of moves, real time, and processor time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from paceline.algorithms.core.errors import PacelineError
from paceline.checking.moves import Chooser, Move

Clock = Literal["real time", "processor time"]
"""processor time does not advance while the process is stopped, such as in a debugger"""
TIMERS = {
    "real time": (signal.ITIMER_REAL, signal.SIGALRM),
    "processor time": (signal.ITIMER_VIRTUAL, signal.SIGVTALRM),
}
"""for each clock its timer and the signal of that timer"""


class DoesNotEnd(PacelineError):
    """A run has not ended after the permitted number of moves."""


def limited(choose: Chooser, most: int) -> Chooser:
    """Wraps a chooser such that it raises `DoesNotEnd` after this many moves.

    Args:
        choose: selects the moves.
        most: the number of moves.

    >>> from paceline.algorithms.core.values import Rank
    >>> from paceline.checking.moves import first
    >>> choose = limited(first, 1)
    >>> _ = choose([Move(act="go", rank=Rank(0))])
    >>> choose([Move(act="go", rank=Rank(0))])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    DoesNotEnd: the run has not ended after 1 moves; the next would be go 0/main NoneType
    """
    left = most

    def limit(ready: Sequence[Move]) -> Move:
        nonlocal left
        left -= 1
        if left < 0:
            raise DoesNotEnd(f"the run has not ended after {most:,} moves; the next would be {ready[0]}")
        return choose(ready)

    return limit


@contextmanager
def interrupted_after(seconds: float, clock: Clock, error: Callable[[], BaseException]) -> Iterator[None]:
    """Raises an exception in the middle of the block when it has taken this long.

    The limit has no effect outside of the main thread, because Python runs signal handlers there only.

    Args:
        seconds: the limit.
        clock: which time is limited.
        error: returns the exception.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    timer, number = TIMERS[clock]

    def stop(*_: Any) -> None:
        raise error()

    handler, earlier = signal.signal(number, stop), signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0.0)
        signal.signal(number, handler)
        signal.setitimer(timer, *earlier)  # restores an earlier timer, delayed by the duration of the block
