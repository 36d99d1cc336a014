"""How often Python looks for garbage during a run.

Rules of this file: a run of a thousand workers makes millions of values that stay, and next to none that are garbage.
Looking through all of them at the usual rate took two thirds of such a run. Nothing else depends on it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (200_000, 20, 20)
"""new values between two looks, and looks between two longer ones; usual is 700, 10, 10"""


@contextmanager
def collected_seldom() -> Iterator[None]:
    """For the time of a run; whoever has chosen to look even less often is not overruled.

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
