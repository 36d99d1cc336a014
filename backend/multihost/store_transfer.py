"""Files from one host to another, through the store, in pieces of which few are on their way at once."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import RunFailed

PIECE_BYTES = 4 << 20
ON_THE_WAY = 4
"""pieces that the store holds at most, since it holds them in memory"""
LOOK_S = 0.002


def send(store: Any, folder: Path, names: Sequence[str], more: dict[str, Any], *, within_s: float) -> None:
    """Hands over files of a folder, and a word beside them.

    Raises:
        RunFailed: a piece has not been taken in time.
    """
    sizes = [(folder / name).stat().st_size for name in names]  # a file that still grows is sent as it is now
    store.set("parcels", json.dumps({"files": list(zip(names, sizes, strict=True)), "more": more}))
    number = 0
    for name, size in zip(names, sizes, strict=True):
        with (folder / name).open("rb") as file:
            for at in range(0, size, PIECE_BYTES):
                _until_taken(store, number - ON_THE_WAY, within_s)
                store.set(f"piece{number}", file.read(min(PIECE_BYTES, size - at)))
                number += 1
    for last in range(max(number - ON_THE_WAY, 0), number):
        _until_taken(store, last, within_s)


def _until_taken(store: Any, number: int, within_s: float) -> None:
    until = time.monotonic() + within_s
    while number >= 0 and store.check([f"piece{number}"]):
        if time.monotonic() > until:
            raise RunFailed(f"a piece of the record has not been taken within {within_s:g} s")
        time.sleep(LOOK_S)


def receive(store: Any, folder: Path, *, within_s: float) -> dict[str, Any]:
    """Takes what another host has sent, into a folder; answers the word beside it.

    Raises:
        RunFailed: it has not come in time.
    """
    wait = timedelta(seconds=within_s)
    try:
        store.wait(["parcels"], wait)
        said = json.loads(store.get("parcels"))
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
        raise RunFailed(f"the record of another host has not come within {within_s:g} s") from error
    more: dict[str, Any] = said["more"]
    return more
