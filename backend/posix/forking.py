"""Forks a process whose garbage collector ignores the parent's objects."""

from __future__ import annotations

import gc
import os


def fork() -> int:
    """Forks, as `os.fork` does; the child's collector ignores the objects that the child has inherited.

    If a child collected a process group of torch's, its destructor would wait for ever for a thread that was not
    forked. We have seen this as a rank that never started.

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
