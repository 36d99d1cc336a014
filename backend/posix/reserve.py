"""Reserves space for the files in memory that processes of a run share.

Rules of this file:

* A file in /dev/shm that was only truncated to its length gets a page when the page is first written. If no page is
  left, the write through a mapping kills the process with SIGBUS. So every mapped file is reserved first, because
  `posix_fallocate` fails with an error that can be reported.
* The length is set before the space is reserved: other processes take a length above 0 as a sign that the file exists.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from paceline.algorithms.core.errors import RunFailed

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM})
"""the error numbers of a full file system"""
ADVICE = "make room there, or enlarge it (`mount -o remount,size=2G /dev/shm`; `docker run --shm-size=2g`)"
OTHERWISE = "; or give `train.shared_memory: false`"
"""the remedy for memory that a run does not need"""


def shared_file(path: Path) -> IO[bytes]:
    """Opens a file that several processes map; the first one creates it."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0)


def reserve(descriptor: int, path: Path, at: int, nbytes: int, what: str, otherwise: str = "") -> None:
    """Reserves space for a part of a file, and extends the file if it is shorter.

    Args:
        descriptor: the file, open for writing.
        path: its path, for messages.
        at: where the part begins, in bytes.
        nbytes: the length of the part, in bytes.
        what: what is stored there, for messages.
        otherwise: additional advice.

    Raises:
        RunFailed: there is not enough space.
    """
    if os.fstat(descriptor).st_size < at + nbytes:
        os.ftruncate(descriptor, at + nbytes)
    try:
        os.posix_fallocate(descriptor, at, nbytes)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise no_room(path.parent, f"{what} needs {size(nbytes)}", otherwise) from error


def no_room(folder: Path, what: str, otherwise: str = "") -> RunFailed:
    """Returns the error for a run whose folder in memory is full."""
    place = next(place for place in (folder, *folder.parents) if place.is_dir())
    free = shutil.disk_usage(place).free
    return RunFailed(f"{what}; found {size(free)} free in {_mount(place)}: {ADVICE}{otherwise}")


def explained(error: BaseException, folder: Path) -> BaseException:
    """Returns the error of a rank, or one that explains it if the run's folder in memory is full."""
    text = f"{error}"
    full = getattr(error, "errno", None) in FULL or os.strerror(errno.ENOSPC) in text  # gloo's store has no errno
    if isinstance(error, RunFailed) or not full or not _is_full(folder):
        return error
    return no_room(folder, f"the run's files need more space ({text})")


@contextmanager
def explaining(folder: Path) -> Iterator[None]:
    """Raises the errors of the block as `explained` converts them."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if (converted := explained(error, folder)) is error:
            raise
        raise converted from error


def _is_full(folder: Path) -> bool:
    """Whether the folder's file system has less than 1 MiB free."""
    return not folder.is_dir() or shutil.disk_usage(folder).free < 1 << 20


def _mount(place: Path) -> Path:
    """Returns the root of the file system that contains a folder."""
    place = place.absolute()
    while not place.is_mount():
        place = place.parent
    return place


def size(nbytes: int) -> str:
    """Formats a number of bytes for a message.

    >>> size(65536), size(3 << 20)
    ('64 KiB', '3 MiB')
    """
    return f"{nbytes / 2**20:.3g} MiB" if nbytes >= 1 << 20 else f"{-(-nbytes // 1024)} KiB"
