"""Counterexamples as files: one JSON document with the case, the violated guarantee, the story and a fingerprint.

Rules of this file:

* The case alone determines the run. The story is stored so that a reader of the file needs neither Paceline nor the
  method.
* A file may be edited by hand, so it has no checksum. All mistakes are reported together, each with its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from paceline.algorithms.core.checksums import read_json
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.checking.cases.case import Case, from_json, to_json
from paceline.checking.cases.violations import Violation
from paceline.checking.counterexamples.fingerprints import Fingerprint, fingerprint_of
from paceline.checking.counterexamples.stories import recorded, story_of
from paceline.checking.counterexamples.story_model import Story
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
        found = shown(document.get("version"))
        raise InputError(f"{path}: version: found {found}, expected {VERSION}; was it written by a later Paceline?")
    return document


def _texts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, f"found {shown(document.get(name))}, expected text")
        for name in TEXTS
        if not isinstance(document.get(name), str)
    ]


def _story(found: Any) -> tuple[Story | None, list[str]]:
    """Returns the story in a document, or its mistakes."""
    try:
        return TypeAdapter(Story).validate_json(json.dumps(found), strict=True), []
    except ValidationError as error:
        return None, [_words(one) for one in error.errors()]


def _words(error: Any) -> str:
    """Says where a mistake in a story is, what was found and what would be right."""
    place = path_of(("story", *error["loc"]))
    if error["type"] == "missing":
        return f"{place}: missing"
    return f"{place}: found {shown(error['input'])}, expected {error['msg'].removeprefix('Input should be ')}"


def _fingerprint(found: Any) -> tuple[Fingerprint, list[str]]:
    right = isinstance(found, dict) and all(
        isinstance(units, dict) and all(isinstance(one, str) for one in units.values()) for units in found.values()
    )
    words = f"fingerprint: found {shown(found)}, expected an object with the checksums of functions, for each file"
    return (found, []) if right else ({}, [words])
