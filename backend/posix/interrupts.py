"""Defers interrupts, so that a Ctrl-C does not leave a block half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defers SIGINT and SIGTERM to the end of the block."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
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
    """Records SIGINT and SIGTERM during the block without interrupting it.

    Args:
        heard: receives the numbers of the signals.

    After an error in the block the signals are ignored, because the process ends anyway: a launcher that sees one of
    its processes end sends SIGTERM to the others, while the first one may still be writing the record.
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
