"""What a rank's process does with memory that it frees: it keeps it.

Programs change no vector in place, so every step makes new ones and drops old ones. By itself the C library gives large
ones back to the kernel, and each new one then costs a page fault for every 4 KiB: 39 MB take 18 ms to write into fresh
pages, and 2 ms into pages that the process has had before. So ranks keep what they free, and the next vector of that
size lies where the last one lay. A process holds as much as it ever needed at once, until it ends.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
"""of glibc's malloc.h"""
NEVER = 2**31 - 1


def keep_freed() -> bool:
    """Has the C library keep what this process frees; answers whether it can, which glibc's can.

    All threads share one heap afterwards: what one of them frees another one may use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(*option) == 1 for option in ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, NEVER)))
