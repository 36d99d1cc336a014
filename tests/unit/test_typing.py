"""The type checker on programs: the mistakes that it must report, and answers with exact types."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
RIGHT = ROOT / "tests" / "typing" / "right.py"
WRONG = ROOT / "tests" / "typing" / "wrong.txt"  # no .py, or the checks of the whole project would report it
REPORT = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], str]:
    """The code of each error by file and line, from one run over both files under the project's own settings.

    It shares the cache of `make types`, so either is quick after the other.
    """
    wrong = tmp_path_factory.mktemp("typing") / WRONG.with_suffix(".py").name
    wrong.write_text(WRONG.read_text())
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    out, errors, _ = api.run([*settings, "--no-error-summary", str(RIGHT), str(wrong)])
    assert not errors, errors
    found = [REPORT.match(line) for line in out.splitlines() if ": error: " in line]
    assert all(found), out
    return {(Path(match["file"]).name, int(match["line"])): match["code"] for match in found if match}


def test_answers_are_typed_exactly(reports: dict[tuple[str, int], str]) -> None:
    """`right.py` asserts the type of every operation's answer."""
    assert [place for place in reports if place[0] == RIGHT.name] == []


def test_slips_are_reported_where_they_are(reports: dict[tuple[str, int], str]) -> None:
    """A forgotten operation, a forgotten sub-program, and wrong types, each on its line."""
    marked = {
        ("wrong.py", number): line.split("# wrong: ")[1]
        for number, line in enumerate(WRONG.read_text().splitlines(), start=1)
        if "# wrong: " in line
    }
    assert len(marked) == 7
    assert {place: code for place, code in reports.items() if place[0] == "wrong.py"} == marked
