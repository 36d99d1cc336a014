"""What a page of the documentation shows: tables, blocks of code, files, and Python sessions that can be run."""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^```(?:yaml|python)\n(# ([\w.-]+)\n.*?)^```$", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    """Returns the text of a page under docs/."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text) if kind == language]


def table(text: str, header: str) -> list[list[str]]:
    """Returns the rows of the table whose header begins like this, as cells without backquotes."""
    lines = text[text.index(f"\n| {header}") :].strip().splitlines()[2:]
    rows = lines[: next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [[cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def files_of(text: str) -> dict[str, str]:
    """Returns the files that a page shows: blocks that begin with a comment of a file's name."""
    return {name: body for body, name in NAMED.findall(text)}


def write_files(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes the files that a page shows to a folder, which becomes the current one; modules are imported anew."""
    for name, body in files_of(text).items():
        (folder / name).write_text(body, encoding="utf-8")
        monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
    monkeypatch.chdir(folder)


def run_session(text: str, *, more_than: int, options: int = 0) -> None:
    """Runs Python sessions, in order and in one namespace, and compares what they print.

    Raises:
        AssertionError: an answer is another, or there are no more than so many examples.
    """
    session = doctest.DocTestParser().get_doctest(text, {}, "page", "page", 0)
    result = doctest.DocTestRunner(optionflags=options).run(session)
    assert result.attempted > more_than
    assert result.failed == 0
