"""Reads pickles that contain only plain values.

A pickle can run any code when it is read, and a checkpoint may come from an untrusted source. So pickles are read with
an allow-list: dataclasses, named tuples and enums of modules that are already imported, and the functions with which
NumPy and torch rebuild arrays. Anything else is refused before it is called.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import torch


def _storage(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


ALLOWED: dict[tuple[str, str], Any] = {
    ("torch.storage", "_load_from_bytes"): _storage,  # torch's own function would read a pickle without the allow-list
}
BUILDERS = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "bytearray"),
    ("collections", "OrderedDict"),
    ("collections", "Counter"),
    ("collections", "deque"),
    ("pathlib", "PosixPath"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("torch._utils", "_rebuild_tensor_v2"),
}


SPARE_BYTES, GROWTH = 2**30, 32
"""memory that reading may take: so much, and so many times the file; Python's small objects are 20 times as large"""


class Restricted(pickle.Unpickler):
    """Reads a pickle of plain values; raises `UnpicklingError` for anything else."""

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, **options)
        self._file = file

    def load(self) -> Any:
        with memory_limit(SPARE_BYTES + GROWTH * _size(self._file)):
            return super().load()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ALLOWED:
            return ALLOWED[module, name]
        found = getattr(sys.modules.get(module), name, None)
        if (module, name) in BUILDERS or isinstance(found, torch.dtype) or _is_value(found):
            return found
        raise pickle.UnpicklingError(f"found {module}.{name}, which no checkpoint holds")


def _size(file: Any) -> int:
    """The bytes of a file, or of a buffer in memory."""
    return len(file.getbuffer()) if isinstance(file, io.BytesIO) else os.fstat(file.fileno()).st_size


def _is_value(found: Any) -> bool:
    if not isinstance(found, type):
        return False
    return (
        dataclasses.is_dataclass(found)
        or issubclass(found, Enum)
        or (issubclass(found, tuple) and hasattr(found, "_fields"))
    )


def pieces(file: io.BufferedReader, size: int) -> Iterator[Any]:
    """Yields the pieces in the first `size` bytes of a rank's record; a damaged record raises errors of many types."""
    while file.tell() < size:
        yield Restricted(file).load()
    if file.tell() > size:
        raise EOFError(f"found a piece that ends at byte {file.tell()}, expected {size}")


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
