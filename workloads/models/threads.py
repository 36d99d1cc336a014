"""The number of torch threads, which must be equal in runs that are to agree bit for bit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Sets the number of torch threads for the block, if torch has been imported.

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
