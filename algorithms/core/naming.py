"""Imports user-defined objects that a scenario names as ``module:name`` or ``path/to/file.py:name``.

A module is searched on Python's path and then in the current folder, which is not on the path of a command.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
import traceback
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.algorithms.core.errors import InputError


def closest(name: object, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Returns the known name that is most similar to a misspelled one.

    Args:
        name: the given name.
        known: the valid names.
        cutoff: minimum similarity, from 0 to 1, as difflib defines it.

    Returns:
        The name; None if none is similar enough.

    >>> closest("sync-sdg", ["sync-sgd", "agd"])
    'sync-sgd'
    """
    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def near_miss(name: object, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """Returns a suggestion in parentheses, for the end of a message.

    Args:
        name: the given name.
        known: the valid names.
        otherwise: the text in parentheses if no name is similar; if empty, the result is empty.
        cutoff: see `closest`.

    >>> near_miss("sync-sdg", ["sync-sgd", "agd"]), near_miss("x", ["sync-sgd", "agd"], "there are 2")
    (' (did you mean sync-sgd?)', ' (there are 2)')
    """
    if (near := closest(name, known, cutoff=cutoff)) is not None:
        return f" (did you mean {near}?)"
    return f" ({otherwise})" if otherwise else ""


def whole(reference: str, folder: Path) -> str:
    """Resolves the file path of a reference, if it has one.

    Args:
        reference: ``module:name`` or ``path/to/file.py:name``.
        folder: the folder to which the path is relative.

    >>> whole("mine/methods.py:Lazy", Path("/home")), whole("methods:Lazy", Path("/home"))
    ('/home/mine/methods.py:Lazy', 'methods:Lazy')
    """
    place, colon, name = reference.rpartition(":")
    return f"{folder / place}{colon}{name}" if place.endswith(".py") else reference


def imported(reference: str) -> Any:
    """Imports the object that a reference names.

    Raises:
        InputError: the module, the file or the name does not exist, or the import fails.

    >>> imported("math:pi")
    3.141592653589793
    >>> imported("math:pie")
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: found no pie in math (did you mean pi?)
    """
    place, _, name = reference.rpartition(":")
    try:
        module = _of_file(Path(place)) if place.endswith(".py") else _module(place)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise InputError(f"{place} cannot be imported: {describe_error(error)}") from error
    if not hasattr(module, name):
        public = [other for other in vars(module) if not other.startswith("_")]
        raise InputError(f"found no {name or 'name'} in {place}{near_miss(name, public)}")
    return getattr(module, name)


def _module(place: str) -> ModuleType:
    if not all(part.isidentifier() for part in place.split(".")):
        raise InputError(f"found no module {place!r}")
    importlib.invalidate_caches()  # the file may be new
    try:
        with _looking_in(Path.cwd()):
            return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # the module exists, but one that it imports does not
        beside = [path.stem for path in Path.cwd().glob("*.py")]
        where = "neither where Python looks nor in the current folder"
        raise InputError(f"found no module {error.name}{near_miss(error.name, beside)}, {where}") from error


def _of_file(path: Path) -> ModuleType:
    """Imports the module in a file once, under a name that is unique to the file."""
    path = path.resolve()
    if not path.is_file():
        beside = [str(other) for other in path.parent.glob("*.py")]
        raise InputError(f"found no file {path}{near_miss(path, beside)}")
    name = re.sub(r"\W", "_", path.stem) + f"_{zlib.crc32(str(path).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = sys.modules[name] = module_from_spec(spec)  # registered before it runs: dataclasses resolve types there
    try:
        with _looking_in(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _looking_in(folder: Path) -> Iterator[None]:
    """Appends a folder to Python's path."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def describe_error(error: BaseException) -> str:
    """Formats an error of the user's code in one line: type, message and place."""
    return f"{type(error).__name__}: {error}{_line(error)}"


def _line(error: BaseException) -> str:
    """Formats the place of an error."""
    if isinstance(error, SyntaxError):
        return ""  # its message contains the place
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f" (line {frame.lineno} of {frame.filename})"
