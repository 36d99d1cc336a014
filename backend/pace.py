"""Time on a real run: its clock, and waiting until a moment precisely."""

from __future__ import annotations

import time

SPIN_S = 0.0002
"""the last part of a wait is spun: sleeping to the end is late by a scheduler tick now and then"""


class Clock:
    """Seconds since the run's common start. All ranks of a host share one monotonic clock."""

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s

    def now(self) -> float:
        return time.monotonic() - self.start_s

    def wait_until(self, due_s: float) -> float:
        """Returns at `due_s`, or at once if that has passed; answers by how many seconds it is late.

        >>> clock = Clock(time.monotonic())
        >>> clock.wait_until(0.01) < 0.01
        True
        """
        while (left := due_s - self.now()) > SPIN_S:
            time.sleep(left - SPIN_S)
        while (late := self.now() - due_s) < 0:
            time.sleep(0)  # lets other threads of this process have the interpreter
        return late
