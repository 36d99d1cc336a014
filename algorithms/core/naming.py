"""Things of the user's own that a scenario names: ``module:name``, or ``path/to/file.py:name``.

Rules of this file:

* A module is looked for where Python looks, and then in the current folder, which a command does not look into.
* Whatever importing does, who asked gets an `InputError` that says what was found.
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
    """The known name that is most similar to a misspelled one.

    Args:
        name: as it was given.
        known: the right names.
        cutoff: least similarity, from 0 to 1, as difflib measures it.

    Returns:
        The name; None if none is similar enough.

    >>> closest("sync-sdg", ["sync-sgd", "agd"])
    'sync-sgd'
    """
    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def near_miss(name: object, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """A suggestion in parentheses, for the end of a message.

    Args:
        name: as it was given.
        known: the right names.
        otherwise: stands in the parentheses if no name is similar; empty: the answer is empty then.
        cutoff: as for `closest`.

    >>> near_miss("sync-sdg", ["sync-sgd", "agd"]), near_miss("x", ["sync-sgd", "agd"], "there are 2")
    (' (did you mean sync-sgd?)', ' (there are 2)')
    """
    if (near := closest(name, known, cutoff=cutoff)) is not None:
        return f" (did you mean {near}?)"
    return f" ({otherwise})" if otherwise else ""


def whole(reference: str, folder: Path) -> str:
    """The reference with the path of its file, if it has one, seen from this folder.

    >>> whole("mine/methods.py:Lazy", Path("/home")), whole("methods:Lazy", Path("/home"))
    ('/home/mine/methods.py:Lazy', 'methods:Lazy')
    """
    place, colon, name = reference.rpartition(":")
    return f"{folder / place}{colon}{name}" if place.endswith(".py") else reference


def imported(reference: str) -> Any:
    """What the reference names.

    Raises:
        InputError: there is no such module or file, nothing of this name in it, or it cannot be imported.

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
    except (Exception, SystemExit) as error:  # the user's own code: anything may happen
        raise InputError(f"{place} cannot be imported: {told(error)}") from error
    if not hasattr(module, name):
        public = [other for other in vars(module) if not other.startswith("_")]
        raise InputError(f"found no {name or 'name'} in {place}{near_miss(name, public)}")
    return getattr(module, name)


def _module(place: str) -> ModuleType:
    if not all(part.isidentifier() for part in place.split(".")):
        raise InputError(f"found no module {place!r}")
    importlib.invalidate_caches()  # it may have been written a moment ago
    try:
        with _looking_in(Path.cwd()):
            return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # it is there, and imports something that is not
        beside = [path.stem for path in Path.cwd().glob("*.py")]
        where = "neither where Python looks nor in the current folder"
        raise InputError(f"found no module {error.name}{near_miss(error.name, beside)}, {where}") from error


def _of_file(path: Path) -> ModuleType:
    """The module in a file, imported once, under a name that no other file has."""
    path = path.resolve()
    if not path.is_file():
        beside = [str(other) for other in path.parent.glob("*.py")]
        raise InputError(f"found no file {path}{near_miss(path, beside)}")
    name = re.sub(r"\W", "_", path.stem) + f"_{zlib.crc32(str(path).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = sys.modules[name] = module_from_spec(spec)  # known before it runs: dataclasses look there for types
    try:
        with _looking_in(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _looking_in(folder: Path) -> Iterator[None]:
    """Python looks into this folder too, after all others."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def told(error: BaseException) -> str:
    """An error of the user's own code in a line: its kind, what it says, and where it happened."""
    return f"{type(error).__name__}: {error}{_line(error)}"


def _line(error: BaseException) -> str:
    """Where it happened."""
    if isinstance(error, SyntaxError):
        return ""  # says so itself
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f" (line {frame.lineno} of {frame.filename})"
