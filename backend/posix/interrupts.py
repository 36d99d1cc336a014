"""Interrupts that have to wait: what must be done whole is not left half done by a Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A Ctrl-C or a request to terminate during the block comes into force at its end."""
    if threading.current_thread() is not threading.main_thread():  # interrupts come to the main thread alone
        yield
        return
    heard: list[int] = []
    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: heard.append(number)) for number in both]
    try:
        yield
    finally:
        for number, handler in zip(both, before, strict=True):
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])


@contextmanager
def noted(heard: list[int]) -> Iterator[None]:
    """Requests to end are noted, for the block, and nothing is interrupted.

    After a failure they are not even that, as the process ends anyway: a launcher that sees one of its processes end
    tells the others to, while the first one still writes the record.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: heard.append(number)) for number in numbers]
    try:
        yield
    except BaseException:
        before = [signal.SIG_IGN, signal.SIG_IGN]
        raise
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
