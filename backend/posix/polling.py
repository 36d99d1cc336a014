"""Waits for a condition by polling."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

EVERY_S = 0.01


def wait_until(
    condition: Callable[[], bool],
    *,
    within_s: float = math.inf,
    every_s: float = EVERY_S,
    check: Callable[[], object] | None = None,
) -> bool:
    """Waits until a condition is true.

    Waits of microseconds, between ranks that compute, use `backoff` instead.

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
