"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a hidden file beside `path`, which takes its place when the block ends.

    Until then, and if the block fails or the process is killed, a file that was there stays as it is: a full disk or
    Ctrl-C leaves no half-written file. The hidden file has the same ending, from which writers infer the format.

    Args:
        path: the file to write or to replace, in a folder that exists. Of a symbolic link, the file it points to.

    Raises:
        OSError: the file cannot be written; the error has its path, and a note if an older file is still there.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "words.txt"
    >>> for words in ("old", "new"):
    ...     with replacing(path) as hidden:
    ...         _ = hidden.write_text(words)
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('new', 1)
    """
    target = path.resolve()
    hidden: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
        os.close(handle)
        hidden = Path(name)
        yield hidden
        hidden.chmod(0o644)  # mkstemp creates files that other users of a shared folder cannot read
        hidden.replace(target)
    except OSError as error:
        failed = OSError(error.errno, error.strerror or str(error), str(path))
        if path.exists():
            failed.add_note(f"{path} is unchanged")
        raise failed from error
    finally:
        if hidden is not None:
            hidden.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Writes a text file whole or not at all; see `replacing`.

    Args:
        path: the file to write or to replace.
        text: its content.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(path) as hidden:
        hidden.write_text(text, encoding="utf-8")
