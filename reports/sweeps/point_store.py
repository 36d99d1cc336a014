"""Stored results of points: a point is identified by the content of its scenario, not by its place in a sweep.

* The key of a point is a checksum of its resolved scenario, algorithm and seed, of the files that the scenario refers
  to, and of the version of the model. Whatever changes the result changes the key, so a stored result is never stale.
* The version of the model is that of Python, the package and its numerical libraries, with a checksum of the
  package's files that compute results: an edit of the source gives other keys although the version number stays.
* A file is written under a temporary name and then renamed. A killed process leaves a complete file or none, and
  several processes and hosts may share a folder. Two processes that store the same point write the same content.
* A file that cannot be read counts as missing: the point is simulated again.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from paceline.algorithms.core.checksums import checksum, checksum_of, read_json
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.records.document import plain
from paceline.records.machine import package_versions

FORMAT = 1
"""version of the files; a different one counts as missing"""
ABANDONED_S = 3600.0
"""age in seconds after which a temporary file was left by a killed process: no write takes this long; INFERENCE"""
COMPUTING = ("algorithms", "records", "scenarios", "simulator", "topologies", "workloads")
"""the package's folders that compute a result; the others import these, and only start runs and present them"""
SOURCES = (".py", ".yaml", ".csv")
"""endings of the package's files that a result depends on"""
OWN = re.compile(r"(?P<module>[\w.]+):\w[\w.]*")
"""an object of the user's own module: ``module:Name``"""


class PointStore:
    """A folder of results by key.

    Args:
        folder: the folder, which is created with the first result.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = PointStore(Path(folder) / "points")
    ...     before = store.get("0ab1")
    ...     store.put("0ab1", {"summary": {"wall_s": 2.5}})
    ...     before, store.get("0ab1")
    (None, {'summary': {'wall_s': 2.5}})
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._remove_abandoned()

    def get(self, key: str) -> dict[str, Any] | None:
        """Returns the stored result of a point; None if there is none."""
        try:
            document = read_json(self._path(key), "a point of a sweep")
            row = document["row"] if (document["format"], document["key"]) == (FORMAT, key) else None
        except (InputError, TypeError, KeyError):
            return None
        return row if isinstance(row, dict) else None

    def put(self, key: str, row: Mapping[str, Any]) -> None:
        """Stores the result of a point, atomically.

        Args:
            key: the point's key, of `key_of`.
            row: the result: data that JSON can represent; numbers of NumPy and paths are converted.

        Raises:
            OSError: the folder cannot be written.
        """
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"format": FORMAT, "key": key, "row": row}, default=plain))

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"  # folders of at most a few hundred files

    def _remove_abandoned(self) -> None:
        """Removes temporary files of processes that were killed while they wrote."""
        for path in self.folder.glob("*/.*-*"):
            with suppress(OSError):  # another process has removed it
                if time.time() - path.stat().st_mtime > ABANDONED_S:
                    path.unlink()


def key_of(dump: Mapping[str, Any], algorithm: str) -> str:
    """Returns the key of a point from the dump of a scenario with one algorithm and one seed.

    Args:
        dump: the dump.
        algorithm: the name of its algorithm, as `names_of` returns it.

    Returns:
        32 hexadecimal digits.

    >>> from paceline.scenarios import load
    >>> key_of(load("quickstart").dump(), "agd") == key_of(load("quickstart", ["seed=9"]).dump(), "agd")
    False
    """
    files = {text: state for text in dict.fromkeys(_texts(dump)) if (state := _content(text)) is not None}
    content = {"scenario": dump, "algorithm": algorithm, "files": files, "model": model_version()}
    return checksum(json.dumps(content, sort_keys=True, separators=(",", ":"), default=plain).encode())


@cache
def model_version() -> str:
    """Returns the version of everything that computes a result, as 32 hexadecimal digits.

    Two hosts have the same one if they have the same files and the same versions of Python and of the libraries. It is
    computed once in a process.
    """
    files = [
        (path.relative_to(folder.parent).as_posix(), checksum_of(path))
        for folder in _package_folders()
        for path in sorted(folder.rglob("*"))
        if path.suffix in SOURCES
    ]
    return checksum(json.dumps([package_versions(), sorted(files)], sort_keys=True).encode())


def _package_folders() -> list[Path]:
    """Returns the folders that compute results; in a working copy they are links, which `rglob` does not follow."""
    (root,) = sys.modules["paceline"].__path__
    return [folder for name in COMPUTING if (folder := Path(root) / name).is_dir()]


def _texts(value: Any) -> Iterator[str]:
    """Yields all texts in plain data, without the keys of mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _content(text: str) -> str | None:
    """Returns a checksum of the file or folder that a text of a scenario names; None if it names none."""
    name = text.rpartition(":")[0] if ".py:" in text else text
    if name.startswith("/"):  # a loaded scenario has absolute paths
        return _of_path(Path(name))
    if (own := OWN.fullmatch(text)) is not None:
        with suppress(ImportError, ValueError, AttributeError):
            if (spec := find_spec(own["module"])) is not None and spec.origin:
                return _of_path(Path(spec.origin))
    return None


def _of_path(path: Path) -> str | None:
    try:
        state = path.stat()
        if path.is_dir():  # of a data set: names, sizes and times, because reading all of it could take minutes
            files = [(str(file), file.stat()) for file in sorted(path.rglob("*")) if file.is_file()]
            return checksum(json.dumps([(name, status.st_size, status.st_mtime_ns) for name, status in files]).encode())
        return _of_file(path, state.st_mtime_ns, state.st_size)
    except OSError:
        return None


@lru_cache(maxsize=256)
def _of_file(path: Path, _time_ns: int, _size: int) -> str:
    return checksum_of(path)
