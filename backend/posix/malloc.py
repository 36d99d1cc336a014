"""Configures the C library to retain the memory that a rank frees.

Programs change no vector in place, so every step allocates new vectors and frees old ones. By default glibc returns
large blocks to the kernel, and each new one then costs a page fault for every 4 KiB: writing 39 MB takes 18 ms into
fresh pages and 2 ms into pages that the process has used before. So ranks retain freed memory, and the next vector of
the same size reuses it. A process holds its peak memory until it ends.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
"""constants of glibc's malloc.h"""
NEVER = 2**31 - 1


def keep_freed() -> bool:
    """Configures malloc to retain freed memory; returns False if the C library is not glibc.

    All threads share one heap afterwards, so that one can reuse what another has freed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(*option) == 1 for option in ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, NEVER)))
