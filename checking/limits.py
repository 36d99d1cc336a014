"""Limits of runs of programs that may not end: a number of moves, and that there are moves at all."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from paceline.algorithms.core.errors import PacelineError
from paceline.checking.moves import Chooser, Move

STUCK_S, LOOKS = 5.0, 4
"""seconds without an operation, and the looks for one in them; provenance: ours, far above what an operation takes"""
Clock = Literal["real time", "processor time"]
"""processor time does not advance while a program sleeps, or while the process is stopped, such as in a debugger"""
TIMERS = {
    "real time": (signal.ITIMER_REAL, signal.SIGALRM),
    "processor time": (signal.ITIMER_VIRTUAL, signal.SIGVTALRM),
}
"""for each clock its timer and the signal of that timer"""
MADE = [0]
"""the number of operations that limited runs have made in this process"""


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
        MADE[0] += 1
        if left < 0:
            raise DoesNotEnd(f"the run has not ended after {most:,} moves; the next would be {ready[0]}")
        return choose(ready)

    return limit


@contextmanager
def interrupted_when_stuck(
    error: Callable[[], BaseException], clock: Clock = "processor time", seconds: float = STUCK_S
) -> Iterator[None]:
    """Raises an exception in the middle of a program that goes on without an operation.

    A timer looks at the operations that the runs of this process have made. If there was none between several looks,
    the program is stuck: an operation takes microseconds. How long a run takes, on a slow or loaded machine, does not
    matter; nor does how long the process gets no processor, since that is one look. There is no limit
    outside of the main thread, because Python runs signal handlers there only.

    Args:
        error: returns the exception.
        clock: of the timer; a program that sleeps is found with real time only.
        seconds: of `LOOKS` looks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen, silent = -1, 0

    def look(*_: Any) -> None:
        nonlocal seen, silent
        silent = silent + 1 if seen == MADE[0] else 0
        if silent == LOOKS:
            raise error()
        seen = MADE[0]

    timer, number = TIMERS[clock]
    handler, earlier = signal.signal(number, look), signal.setitimer(timer, seconds / LOOKS, seconds / LOOKS)
    try:
        yield
    finally:
        signal.setitimer(timer, 0.0)
        signal.signal(number, handler)
        signal.setitimer(timer, *earlier)  # restores an earlier timer, delayed by the duration of the block
