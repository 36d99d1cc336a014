"""Transfers files from one host to another through the store, a few pieces at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import RunFailed
from paceline.backend.posix.polling import wait_until

PIECE_BYTES = 4 << 20
ON_THE_WAY = 4
"""the maximum number of pieces in the store, because it holds them in memory"""
CHECK_S = 0.002


def send(store: Any, folder: Path, names: Sequence[str], more: dict[str, Any], *, within_s: float) -> None:
    """Sends files of a folder, with a message.

    Args:
        store: the store that the receiver reads.
        folder: contains the files.
        names: the files, relative to the folder.
        more: the message, for JSON.
        within_s: timeout in seconds for the receiver to read a piece.

    Raises:
        RunFailed: the receiver has not read a piece in time.
    """
    sizes = [(folder / name).stat().st_size for name in names]  # a file that still grows is sent up to its current size
    store.set("transfer", json.dumps({"files": list(zip(names, sizes, strict=True)), "more": more}))
    number = 0
    for name, size in zip(names, sizes, strict=True):
        with (folder / name).open("rb") as file:
            for at in range(0, size, PIECE_BYTES):
                _wait_until_read(store, number - ON_THE_WAY, within_s)
                store.set(f"piece{number}", file.read(min(PIECE_BYTES, size - at)))
                number += 1
    for last in range(max(number - ON_THE_WAY, 0), number):
        _wait_until_read(store, last, within_s)


def _wait_until_read(store: Any, number: int, within_s: float) -> None:
    """Waits until the receiver has deleted a piece."""
    if number >= 0 and not wait_until(lambda: not store.check([f"piece{number}"]), within_s=within_s, every_s=CHECK_S):
        raise RunFailed(f"another host has not read this host's record within {within_s:g} s")


def receive(store: Any, folder: Path, *, within_s: float) -> dict[str, Any]:
    """Receives files of another host into a folder.

    Args:
        store: the store to which the sender writes.
        folder: receives the files.
        within_s: timeout in seconds for the sender to write a piece.

    Returns:
        The sender's message.

    Raises:
        RunFailed: a piece has not arrived in time.
    """
    wait = timedelta(seconds=within_s)
    try:
        store.wait(["transfer"], wait)
        said = json.loads(store.get("transfer"))
        number = 0
        for name, size in said["files"]:
            (folder / name).parent.mkdir(exist_ok=True)
            with (folder / name).open("wb") as file:
                while file.tell() < size:
                    key = f"piece{number}"
                    store.wait([key], wait)
                    file.write(store.get(key))
                    store.delete_key(key)
                    number += 1
    except RuntimeError as error:
        raise RunFailed(f"the record of another host has not arrived within {within_s:g} s") from error
    more: dict[str, Any] = said["more"]
    return more
