"""Forking a process in which nothing of its parent's ends."""

from __future__ import annotations

import gc
import os


def fork() -> int:
    """Forks, as `os.fork` does; the collector of the child lets be what it has inherited.

    The parent's garbage is the parent's to collect. A process group of torch's that a child collected would wait in its
    destructor for a thread that has not been forked, for ever (met: a rank that never came to the start).

    Returns:
        0 in the child, and the child's process id in the parent.
    """
    collects = gc.isenabled()
    gc.disable()  # not even between the fork and the next line
    try:
        if (pid := os.fork()) == 0:
            gc.freeze()
        return pid
    finally:
        if collects:
            gc.enable()
