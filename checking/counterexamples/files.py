"""Counterexamples as files: one JSON document with the case, the violated guarantee, the story and a fingerprint.

Rules of this file:

* The case alone determines the run. The story is stored so that a reader of the file needs neither Paceline nor the
  method.
* A file may be edited by hand, so it has no checksum. All mistakes are reported together, each with its place.
* The fingerprint says which functions have changed since. A file of source code is divided into units: functions,
  methods, the rest of each class, and the rest of the file. A unit's fingerprint is a checksum of its syntax tree, so
  comments, empty lines and the places of units have no effect.
* The fingerprinted files are those of the method's classes and those with lines that a run has executed. Neither
  Paceline's own operations nor its helpers in `paceline.algorithms.core` belong to the method.
* A replay runs in this process and without threads, so that a debugger can follow it.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from paceline.algorithms.core.checksums import checksum, read_json
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.program import ROOT
from paceline.checking.cases.case import Case, from_json, to_json
from paceline.checking.cases.invariants import INVARIANTS, Violation, violations
from paceline.checking.counterexamples.recording import OperationRecord
from paceline.checking.counterexamples.sentences import recorded, story_of
from paceline.checking.counterexamples.story import Story
from paceline.records.document import to_json as as_text
from paceline.scenarios.values.mistakes import path_of, shown

FORMAT, VERSION = "paceline counterexample", 1
WHAT = "a counterexample, as `paceline check` writes it"
TEXTS = ("paceline", "guarantee", "words")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """A stored violation.

    Args:
        path: the file.
        paceline: the version of Paceline that wrote it.
        violation: the violated guarantee and the case.
        story: what happened.
        fingerprint: of the source code at that time.
    """

    path: Path
    paceline: str
    violation: Violation
    story: Story
    fingerprint: Fingerprint

    @property
    def case(self) -> Case:
        """The case that violates the guarantee."""
        return self.violation.case


def save(violation: Violation, path: Path) -> Story:
    """Writes a violation to a JSON file; runs its case once for the story.

    Args:
        violation: the violated guarantee and its case.
        path: the file. Its folder is created.

    Returns:
        The story in the file.
    """
    outcome, record = recorded(violation.case)
    story = story_of(violation, outcome, record)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "paceline": metadata.version("paceline"),
        "guarantee": violation.guarantee,
        "words": violation.words,
        "case": to_json(violation.case),
        "fingerprint": fingerprint_of(violation.case.method, record),
        "story": asdict(story),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, as_text(document) + "\n")
    return story


def load_counterexample(path: Path) -> Counterexample:
    """Reads a counterexample.

    Args:
        path: the file.

    Raises:
        InputError: it is no counterexample, of a later version, or damaged; the message lists all mistakes.
    """
    document = _document(path)
    said = [f"{name}: {words}" for name, words in _texts(document)]
    fingerprint, words = _fingerprint(document.get("fingerprint"))
    said += words
    story, words = _story(document.get("story"))
    said += words
    case: Case | None = None
    try:
        case = from_json(document.get("case"))
    except InputError as error:
        said += str(error).splitlines()
    if said or case is None or story is None:
        raise InputError("\n".join(f"{path}: {words}" for words in said))
    violation = Violation(guarantee=document["guarantee"], words=document["words"], case=case)
    return Counterexample(
        path=path, paceline=document["paceline"], violation=violation, story=story, fingerprint=fingerprint
    )


def _document(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file, if its format is right."""
    document = read_json(path, WHAT)
    if not isinstance(document, dict):
        raise InputError(f"{path}: found {shown(document)}, expected {WHAT}")
    if document.get("format") != FORMAT:
        raise InputError(f"{path}: format: found {shown(document.get('format'))}, expected {FORMAT!r}: {WHAT}")
    if document.get("version") != VERSION:
        version = shown(document.get("version"))
        raise InputError(f"{path}: version: found {version}, expected {VERSION}; was it written by a later Paceline?")
    return document


def _texts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, f"found {shown(document.get(name))}, expected text")
        for name in TEXTS
        if not isinstance(document.get(name), str)
    ]


def _story(content: Any) -> tuple[Story | None, list[str]]:
    """Returns the story in a document, or its mistakes."""
    try:
        return TypeAdapter(Story).validate_json(json.dumps(content), strict=True), []
    except ValidationError as error:
        return None, [_words(mistake) for mistake in error.errors()]


def _words(error: Any) -> str:
    """Says where a mistake in a story is, what was found and what would be right."""
    place = path_of(("story", *error["loc"]))
    if error["type"] == "missing":
        return f"{place}: missing"
    return f"{place}: found {shown(error['input'])}, expected {error['msg'].removeprefix('Input should be ')}"


def _fingerprint(content: Any) -> tuple[Fingerprint, list[str]]:
    right = isinstance(content, dict) and all(
        isinstance(units, dict) and all(isinstance(unit, str) for unit in units.values()) for units in content.values()
    )
    words = f"fingerprint: found {shown(content)}, expected an object with the checksums of functions, for each file"
    return (content, []) if right else ({}, [words])


CORE = Path("algorithms/core")
REST = "other statements"
"""the unit of what is in no function and no class"""
Fingerprint = dict[str, dict[str, str]]
"""for each file the checksum of each unit"""


def fingerprint_of(method: Method, record: OperationRecord) -> Fingerprint:
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


def _executed(record: OperationRecord) -> Iterator[Path]:
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
    values: dict[str, str] = {}
    rest: list[str] = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            values[statement.name] = _sum([ast.dump(statement)])
        elif isinstance(statement, ast.ClassDef):
            values.update(_units_of_class(statement))
        else:
            rest.append(ast.dump(statement))
    return values | ({REST: _sum(rest)} if rest else {})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCase:
    """The result of a replay.

    Args:
        counterexample: what was replayed.
        violation: the violation of the same guarantee; None if the guarantee is kept now.
        story: what happened now; None if the guarantee is kept.
        others: violations of other guarantees.
        changed: the functions whose source code has changed, by file.
    """

    counterexample: Counterexample
    violation: Violation | None
    story: Story | None
    others: tuple[Violation, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the same guarantee is violated, with the same words."""
        return self.violation is not None and self.violation.words == self.counterexample.violation.words

    @property
    def words(self) -> str:
        """The result in sentences."""
        stored, said = self.counterexample.violation, []
        if self.violation is None:
            said.append(f"{stored.guarantee} is kept now; it was violated: {stored.words}")
        elif self.same:
            said.append(f"{stored.guarantee} is violated again: {stored.words}")
        else:
            said.append(f"{stored.guarantee} is violated again: {self.violation.words}; it was: {stored.words}")
        said += [f"also violated: {other.guarantee}: {other.words}" for other in self.others]
        said.append(
            f"the program has changed: {'; '.join(self.changed)}" if self.changed else "the program is the same"
        )
        if self.counterexample.paceline != (now := metadata.version("paceline")):
            said.append(f"the file was written by Paceline {self.counterexample.paceline}, and this is {now}")
        return "\n".join(said)


def replay(counterexample: Counterexample) -> ReplayedCase:
    """Runs the case of a counterexample again.

    Args:
        counterexample: as `load_counterexample` returned it.
    """
    stored = counterexample.violation
    outcome, record = recorded(stored.case)
    costly = stored.guarantee in INVARIANTS and INVARIANTS[stored.guarantee].costly
    now = violations(outcome, costly=costly)
    same = [repeated for repeated in now if repeated.guarantee == stored.guarantee]
    violation = next((candidate for candidate in same if candidate.words == stored.words), same[0] if same else None)
    return ReplayedCase(
        counterexample=counterexample,
        violation=violation,
        story=None if violation is None else story_of(violation, outcome, record),
        others=tuple(other for other in now if other.guarantee != stored.guarantee),
        changed=changes(counterexample.fingerprint, fingerprint_of(stored.case.method, record)),
    )
