"""Fingerprints of the source code of a method, to say which functions have changed since a counterexample was saved.

Rules of this file:

* A file is divided into units: functions, methods, the rest of each class, and the rest of the file. A unit's
  fingerprint is a checksum of its syntax tree, so comments, empty lines and the places of units have no effect.
* The files are those of the method's classes and those with lines that a run has executed. Neither Paceline's own
  operations nor its helpers in `paceline.algorithms.core` belong to the method.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from paceline.algorithms.core.checksums import checksum
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.program import ROOT
from paceline.checking.counterexamples.recording import Record

CORE = Path("algorithms/core")
REST = "other statements"
"""the unit of what is in no function and no class"""
Fingerprint = dict[str, dict[str, str]]
"""for each file the checksum of each unit"""


def fingerprint_of(method: Method, record: Record) -> Fingerprint:
    """Returns the fingerprints of the files of a method.

    Args:
        method: the method.
        record: the operations of a run of it.
    """
    paths = {path.resolve() for path in (*_of_classes(type(method)), *_executed(record)) if path.is_file()}
    return {name_of(path): units(path.read_text(encoding="utf-8")) for path in sorted(paths) if not _is_core(path)}


def _of_classes(kind: type[Method]) -> Iterator[Path]:
    for base in kind.__mro__:
        try:
            yield Path(inspect.getfile(base))
        except (TypeError, OSError):  # a class without a file, such as `object`
            continue


def _executed(record: Record) -> Iterator[Path]:
    places = {moment.request.place for moment in record.moments if moment.request is not None}
    for path in {place.rpartition(":")[0] for place in places} - {""}:
        yield ROOT / path  # an absolute path stays as it is


def _is_core(path: Path) -> bool:
    """Whether a file is part of Python or of Paceline's operations and helpers."""
    if path.is_relative_to(ROOT):
        return path.relative_to(ROOT).is_relative_to(CORE)
    return path.is_relative_to(Path(inspect.getfile(ast)).parent)


def name_of(path: Path) -> str:
    """Returns the name of a file in messages: relative to Paceline's folder, or without its folder."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def units(source: str) -> dict[str, str]:
    """Returns the checksum of each unit of a source file.

    >>> one = units("def f():\\n    return 1\\n\\nclass A:\\n    def g(self):\\n        return 2\\n")
    >>> two = units("def f():  # one\\n    return 1\\n\\nclass A:\\n    def g(self):\\n        return 3\\n")
    >>> sorted(one), [name for name in one if one[name] != two[name]]
    (['A', 'A.g', 'f'], ['A.g'])
    """
    found: dict[str, str] = {}
    rest: list[str] = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            found[statement.name] = _sum([ast.dump(statement)])
        elif isinstance(statement, ast.ClassDef):
            found.update(_units_of_class(statement))
        else:
            rest.append(ast.dump(statement))
    return found | ({REST: _sum(rest)} if rest else {})


def _units_of_class(kind: ast.ClassDef) -> dict[str, str]:
    functions = [part for part in kind.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    own = [ast.dump(part) for part in (*kind.decorator_list, *kind.bases, *kind.body) if part not in functions]
    return {kind.name: _sum(own)} | {f"{kind.name}.{part.name}": _sum([ast.dump(part)]) for part in functions}


def _sum(trees: Iterable[str]) -> str:
    return checksum("\n".join(trees).encode())


def changes(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Lists the differences of two fingerprints, one for each file.

    Args:
        before: the stored fingerprint.
        now: the present one.

    >>> changes({"a.py": {"worker": "1", "server": "2"}}, {"a.py": {"worker": "3", "server": "2"}})
    ('a.py, worker',)
    >>> changes({"a.py": {"worker": "1"}}, {"b.py": {"worker": "1"}})
    ('a.py is not used any more', 'b.py is used and was not')
    """
    said = []
    for name in (*before, *(name for name in now if name not in before)):
        if name not in now:
            said.append(f"{name} is not used any more")
        elif name not in before:
            said.append(f"{name} is used and was not")
        else:
            old, new = before[name], now[name]
            changed = [unit for unit in (*old, *(u for u in new if u not in old)) if old.get(unit) != new.get(unit)]
            if changed:
                said.append(f"{name}, {', '.join(changed)}")
    return tuple(said)
