"""Time on a real run: its clock, and waiting until a moment precisely."""

from __future__ import annotations

import ctypes
import threading
import time

SPIN_S = 0.00005
"""the last part of a wait is spun. It is short: many ranks on few cores would take the time from each other"""
PR_SET_TIMERSLACK = 29


def wake_on_time() -> None:
    """Has the kernel wake this thread, and those that it begins later, at the nanosecond they asked for.

    It is free to be 50 us late, to wake several at once. Half as late at the median, so that less need be spun: a paced
    step takes 0.05 ms of a processor's time to wait, where it took 0.08.
    """
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


class Clock:
    """Seconds since the run's common start. All ranks of a host share one monotonic clock."""

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s

    def now(self) -> float:
        return time.monotonic() - self.start_s

    def wait_until(self, due_s: float, unless: threading.Event | None = None) -> float:
        """Returns at `due_s`, or at once if that has passed; answers by how many seconds it is late.

        With `unless` it also returns, early, when that is set.

        >>> clock = Clock(time.monotonic())
        >>> clock.wait_until(0.01) >= 0.0
        True
        """
        while (left := due_s - self.now()) > SPIN_S:
            if unless is None:
                time.sleep(left - SPIN_S)
            elif unless.wait(left - SPIN_S):
                return -left
        while (late := self.now() - due_s) < 0:
            time.sleep(0)  # lets other threads of this process have the interpreter
        return late
