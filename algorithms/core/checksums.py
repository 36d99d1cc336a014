"""Checksums of stored files, and one kind of error for every failure to read them.

Checksums are XXH3 with 128 bits. It runs at the speed of memory (20 GB/s here, where BLAKE2b does 0.9 and SHA-256 1.6),
so storing and reading cost no more than before. It finds accidental damage: a bad disk, a copy that was cut off, an
editor. It does not protect against manipulation; therefore pickles are read with a list of permitted types
(`backend.posix.restricted_pickle`). A JSON document contains a checksum of all its other values. It is computed from
the values and not from the text, so indentation may change. A parser of damaged bytes may raise anything, from
UnicodeDecodeError to MemoryError. `reading` turns all of it into an `InputError` that names the file. Stored JSON is
read by `read_json`, and JSON from elsewhere by `parsed`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from paceline.algorithms.core.errors import InputError, PacelineError

CHECKSUM = "checksum"
"""the key of the checksum in a document"""
PIECE_BYTES = 1 << 20
MOST_NESTED = 100
"""brackets inside each other in a stored document; our own have at most about 15"""


def checksum(data: bytes | bytearray | memoryview) -> str:
    """Returns the checksum of some bytes.

    >>> checksum(b"")
    '99aa06d3014798d86001c324468d497f'
    """
    return xxhash.xxh3_128_hexdigest(data)


def checksum_of(path: Path) -> str:
    """Returns the checksum of a file, which is read in pieces."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def checksums_in(folder: Path) -> dict[str, str]:
    """Returns the checksums of all files in a folder and its subfolders, by their relative paths."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): checksum_of(path) for path in files}


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turns every error of the block into an `InputError`.

    Args:
        path: the file or folder that is read.
        what: the expected kind of file, for the message, such as "a run".
    """
    try:
        yield
    except PacelineError:
        raise
    except OSError as error:
        raise InputError(
            f"{error.filename or path}: cannot be read ({error.strerror or error}); expected {what}"
        ) from error
    except Exception as error:  # parsers raise any type
        raise InputError(f"{path}: cannot be read ({type(error).__name__}: {error}); expected {what}") from error


def verify(path: Path, actual: str, expected: str) -> None:
    """Raises `InputError` if the checksum of a file is not as expected.

    Args:
        path: the file, for the message.
        actual: its checksum.
        expected: the checksum when it was written.
    """
    if actual != expected:
        raise InputError(
            f"{path}: is damaged: found checksum {actual}, expected {expected}, that of the file when it was written; "
            "restore the file from a copy"
        )


def verified(path: Path, expected: str, what: str) -> bytes:
    """Reads a file and checks its content.

    Args:
        path: the file.
        expected: its checksum.
        what: the expected kind of file, for messages.

    Raises:
        InputError: the file cannot be read or has another checksum.
    """
    with reading(path, what):
        content = path.read_bytes()
    verify(path, checksum(content), expected)
    return content


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the document with a checksum of its values, which must be JSON types.

    >>> unsealed(Path("manifest.json"), sealed({"step": 1}), "a manifest")
    {'step': 1}
    """
    return {**document, CHECKSUM: _of_values(document)}


def parsed(text: str, where: str, what: str) -> Any:
    """Returns the values of JSON text.

    Args:
        text: the text.
        where: its file, for messages.
        what: the expected kind of document, for messages.

    Raises:
        InputError: it is no JSON, or its brackets are nested more than `MOST_NESTED` deep, which no document of ours is
            and code that walks through it may not bear.

    >>> parsed('{"step": 1', "run.json", "a run")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline...InputError: run.json: not valid JSON: line 1, column 11: Expecting ',' delimiter; expected a run
    """
    nested = f"{where}: has more than {MOST_NESTED} brackets inside each other; expected {what}"
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}; expected {what}"
        ) from error
    except RecursionError:
        raise InputError(nested) from None
    except ValueError as error:  # a number with more digits than Python converts
        raise InputError(f"{where}: {error}; expected {what}") from error
    level = [document]
    for _ in range(MOST_NESTED):
        level = [value for container in level if isinstance(container, dict | list) for value in _within(container)]
        if not level:
            return document
    raise InputError(nested)


def _within(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def read_json(path: Path, what: str) -> Any:
    """Returns the values in a stored JSON file; raises `InputError` like `reading` and `parsed`.

    Args:
        path: the file.
        what: the expected kind of document, for messages.
    """
    with reading(path, what):
        return parsed(path.read_text(encoding="utf-8"), str(path), what)


def unsealed(path: Path, document: Any, what: str) -> dict[str, Any]:
    """Checks a sealed document and returns it without its checksum.

    Args:
        path: its file, for messages.
        document: the parsed document.
        what: the expected kind of document, for messages.

    Raises:
        InputError: it has no checksum, or the checksum does not match the values.
    """
    if not isinstance(document, dict):
        raise InputError(f"{path}: found {type(document).__name__}, expected {what}")
    values = dict(document)
    expected = values.pop(CHECKSUM, None)
    if expected is None:
        raise InputError(f"{path}: found no {CHECKSUM!r}, expected {what} as Paceline writes it, with a checksum")
    verify(path, _of_values(values), expected)
    return values


def read_sealed(path: Path, what: str) -> dict[str, Any]:
    """Reads a sealed document; raises `InputError` like `reading` and `unsealed`."""
    with reading(path, what):
        return unsealed(path, read_json(path, what), what)


def _of_values(document: Mapping[str, Any]) -> str:
    return checksum(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
