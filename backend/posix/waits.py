"""The clock of a real run, and its waits: by polling, with exponential backoff, and until a precise time."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable

EVERY_S = 0.01
"""pause between two checks of a condition, in seconds; provenance: ours"""


def wait_until(
    condition: Callable[[], bool],
    *,
    within_s: float = math.inf,
    every_s: float = EVERY_S,
    check: Callable[[], object] | None = None,
) -> bool:
    """Waits until a condition is true.

    Waits of microseconds, between ranks that compute, use `Backoff` instead.

    Args:
        condition: evaluated at once and then after each pause.
        within_s: timeout in seconds.
        every_s: length of a pause, in seconds.
        check: called before each pause; an exception that it raises ends the wait.

    Returns:
        Whether the condition became true in time.

    >>> wait_until(lambda: True), wait_until(lambda: False, within_s=0.0)
    (True, False)
    """
    until_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        if check is not None:
            check()
        time.sleep(every_s)
    return True


YIELD_S = 2e-4
"""how long a wait only yields its core between checks"""
PAUSE_S, LONGER, LONGEST_S = 2e-5, 1.5, 2e-4
"""the sleeps after that: the first, the factor between two, and the longest"""
yield_core = getattr(ctypes.CDLL(None), "sched_yield", lambda: time.sleep(0))
"""yields the core to other threads; unlike `os.sched_yield`, it also releases the interpreter's lock"""


class Backoff:
    """The state of one wait.

    Args:
        longest_s: the longest sleep, in seconds.

    >>> backoff = Backoff()
    >>> while backoff.try_yield():
    ...     pass
    >>> backoff.pause()
    """

    __slots__ = ("_longest_s", "_pause_s", "_until")

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._until, self._pause_s, self._longest_s = time.monotonic() + YIELD_S, PAUSE_S, longest_s

    def try_yield(self) -> bool:
        """Yields the core and returns True during the first `YIELD_S` of the wait; then returns False."""
        if time.monotonic() >= self._until:
            return False
        yield_core()
        return True

    def pause(self) -> None:
        """Sleeps, each time longer than before."""
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * LONGER, self._longest_s)


SPIN_S = 0.00005
"""the last part of a wait is a busy loop; it is short, because ranks that share cores would slow each other down"""
PR_SET_TIMERSLACK = 29


def wake_on_time() -> None:
    """Makes the kernel wake this thread, and those that it starts later, without timer slack.

    By default the kernel may wake a thread 50 us late, to wake several at once. Without slack the median wait is half
    as late, so the busy loop can be shorter: a paced step takes 0.05 ms of processor time to wait, instead of 0.08.
    """
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


class RunClock:
    """Seconds since the run's common start. All ranks of a host share one monotonic clock."""

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s

    def now(self) -> float:
        return time.monotonic() - self.start_s

    def wait_until(self, due_s: float, unless: threading.Event | None = None) -> float:
        """Waits until `due_s`, or until `unless` is set.

        Args:
            due_s: the time on this clock; one that has passed ends the wait at once.
            unless: ends the wait early.

        Returns:
            By how many seconds the wait ended late; negative if `unless` ended it.

        >>> clock = RunClock(time.monotonic())
        >>> clock.wait_until(0.01) >= 0.0
        True
        """
        while (left := due_s - self.now()) > SPIN_S:
            if unless is None:
                time.sleep(left - SPIN_S)
            elif unless.wait(left - SPIN_S):
                return -left
        while (late := self.now() - due_s) < 0:
            time.sleep(0)  # releases the interpreter's lock
        return late
