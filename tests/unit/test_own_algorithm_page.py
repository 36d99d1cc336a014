"""docs/test-your-own-algorithm.md: its files and commands are executed in order, and print what the page shows.

In the shown output, a line `...` stands for any lines, `...` in a line for any text, decimals for any decimals (they
are seconds), and the number of a sentence for any number, since the search ends after some time, not after a number of
schedules. The command that installs the package is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.thorough import cases

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/test-your-own-algorithm.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTH = "110"
"""columns of the terminal in which the output of the page was written"""
PROGRAMS = {"paceline": ["-m", "paceline"], "pytest": ["-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider"]}
SHORTER = ["--schedules", str(cases(60, 1000))]
"""for the searches whose page shows no number of schedules"""
EFFORT, FEWER = "effort = Effort(schedules=100)", f"effort = Effort(schedules={cases(20, 100)})"
"""of the test on the page"""
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs the repository")


def sessions(console: str) -> Iterator[tuple[str, str]]:
    """Yields each command of a block with the output that is shown for it."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def run(command: str, folder: Path) -> str:
    """Runs a command of the page with this checkout, and returns its output without spaces that only align it."""
    name, *words = command.split()
    environment = {**os.environ, "COLUMNS": WIDTH, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "NO_COLOR": "1"}
    words += SHORTER if words[0] == "check" and not {"--schedules", "--replay"} & set(words) else []
    arguments = [sys.executable, *PROGRAMS[name], *(["--rootdir", str(folder)] if name == "pytest" else []), *words]
    answer = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 1), answer.stderr
    return plain(answer.stdout)


def plain(text: str) -> str:
    """Returns text without decimals, numbers of sentences, lines of tables, repeated spaces and empty lines."""
    text = re.sub(r"\d+\.\d+", "#", re.sub(r"─{20,}", "", text))
    text = re.sub(r"^ *\d+(-\d+)?( rank|  [│○·])", r"#\2", text, flags=re.MULTILINE)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def pattern(shown: str) -> re.Pattern[str]:
    """Returns what an output must match to be what the page shows."""
    parts = []
    for line in plain(shown).splitlines():
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(re.escape(line).replace(re.escape("..."), ".*?") + r"\n")
    return re.compile("".join(parts))


@pytest.mark.slow
def test_the_page_is_true(tmp_path: Path) -> None:
    executed = 0
    for language, body in FENCE.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            found = re.match(r"# (\w+\.py)\n", body)
            assert found, "each Python block of the page is a file, and begins with its name"
            (tmp_path / found[1]).write_text(body.replace(EFFORT, FEWER), encoding="utf-8")
        elif language == "diff":
            change(tmp_path / "drop_stale.py", body)
        else:
            assert language == "console", language
            for command, shown in sessions(body):
                if command.startswith("pip install "):
                    continue
                output = run(command, tmp_path)
                assert pattern(shown).fullmatch(output), f"{command} prints:\n{output}\nand the page shows:\n{shown}"
                executed += 1
    assert executed == 5


def change(file: Path, difference: str) -> None:
    """Replaces the removed lines of a difference by the added ones."""
    lines = difference.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
    source = file.read_text(encoding="utf-8")
    assert source.count(old) == 1
    file.write_text(source.replace(old, new), encoding="utf-8")


def test_shown_output_is_compared() -> None:
    shown = "a   b\n...\n no-deadlock  holds  ...\nin 1.5 s\n"
    assert pattern(shown).fullmatch(plain("a b\nx\ny\n no-deadlock holds 7 2.0\nin 2.25 s\n"))
    assert not pattern(shown).fullmatch(plain("a b\nx\n no-deadlock violated 7 2.0\nin 2.25 s\n"))
    assert not pattern(shown).fullmatch(plain("a b\nno-deadlock holds 7\nin 2 s\nmore\n"))


def test_the_extra_of_the_page_exists() -> None:
    import tomllib

    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"hypothesis", "pytest"} <= set(options["checking"])
    assert "paceline[checking]" in PAGE.read_text(encoding="utf-8")
