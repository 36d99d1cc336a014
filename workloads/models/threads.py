"""How many threads torch computes with: a count that must not differ between runs that are to agree bit for bit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Has torch compute with `count` threads for a while, if anything here has imported torch at all.

    >>> with torch_threads(1):
    ...     pass
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
