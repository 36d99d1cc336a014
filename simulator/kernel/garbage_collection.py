"""Reduces the frequency of Python's garbage collection during a run.

A run of a thousand workers allocates millions of objects that stay alive, and almost no cyclic garbage. With Python's
default thresholds, garbage collection took two thirds of the time of such a run. Nothing else depends on it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (200_000, 20, 20)
"""thresholds of `gc.set_threshold`; the default is 700, 10, 10"""


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Returns a context manager that raises the thresholds; thresholds that are higher, or 0 (off), are not changed.

    >>> with collected_seldom():
    ...     gc.get_threshold() >= SELDOM
    True
    """
    before = gc.get_threshold()
    if 0 < before[0] < SELDOM[0]:
        gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
