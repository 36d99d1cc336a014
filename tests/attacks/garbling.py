"""Damages bytes as bad disks, interrupted copies and editors do, chosen by a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random


def _flipped(content: bytearray, random: Random) -> bytearray:
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return content


def _cut(content: bytearray, random: Random) -> bytearray:
    return content[: random.randrange(len(content))]


def _range(content: bytearray, random: Random) -> slice:
    start = random.randrange(len(content))
    return slice(start, start + random.randint(1, max(1, min(4096, len(content) - start))))


def _zeroed(content: bytearray, random: Random) -> bytearray:
    where = _range(content, random)
    content[where] = bytes(len(content[where]))
    return content


def _overwritten(content: bytearray, random: Random) -> bytearray:
    where = _range(content, random)
    content[where] = random.randbytes(len(content[where]))
    return content


def _doubled(content: bytearray, random: Random) -> bytearray:
    where = _range(content, random)
    content[where] = content[where] * 2
    return content


def _left_out(content: bytearray, random: Random) -> bytearray:
    del content[_range(content, random)]
    return content


WAYS: tuple[Callable[[bytearray, Random], bytearray], ...] = (
    _flipped,
    _cut,
    _zeroed,
    _overwritten,
    _doubled,
    _left_out,
)


def garbled(content: bytes, seed: str, count: int) -> Iterator[tuple[str, bytes]]:
    """Yields this many damaged versions of a file's content, each with a name for messages."""
    random, made = Random(seed), 0
    while made < count:
        way = WAYS[made % len(WAYS)]
        found = bytes(way(bytearray(content), random))
        if found != content:  # the bytes may have been zeros before
            yield f"{seed}, {way.__name__.strip('_')}, case {made}", found
            made += 1


def attack(path: Path, count: int, read: Callable[[str], None]) -> None:
    """Calls `read` on every damaged version of a file, and then restores the file."""
    whole = path.read_bytes()
    try:
        for name, content in garbled(whole, path.name, count):
            path.write_bytes(content)
            read(name)
    finally:
        path.write_bytes(whole)
