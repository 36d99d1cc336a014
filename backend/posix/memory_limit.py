"""Limits how much further memory this process may allocate for a while."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Makes allocations fail with `MemoryError` that need more than so many bytes beyond what is allocated now.

    The limit holds for address space and for all threads. Without it, Linux grants a damaged file's request for tens of
    gigabytes and kills a process later, perhaps another one.

    >>> with memory_limit(2**30):
    ...     bytearray(2**40)
    Traceback (most recent call last):
    MemoryError
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    allocated = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    wanted = allocated + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (wanted if soft == resource.RLIM_INFINITY else min(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
