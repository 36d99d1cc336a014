"""The code of README.md, the tutorial and the studies runs: every file that they show, and every command."""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import Path

import matplotlib as mpl
import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from tests.folded import check_all
from tests.pages import ROOT, blocks, files_of, write_files
from tests.thorough import THOROUGH

README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
STUDIES = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
REAL = ("train", "compare", "calibrate")
"""commands that start processes; those of the tutorial run in `make test-all`, and everywhere they are parsed"""


def commands_of(text: str) -> list[list[str]]:
    lines = "".join(blocks(text, "console")).splitlines()
    return [shlex.split(line.removeprefix("$ paceline ")) for line in lines if line.startswith("$ paceline ")]


def runs(words: list[str]) -> None:
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output


def shortened(words: list[str], stop: str) -> list[str]:
    """Returns a command that does the same for a shorter time."""
    match words[0]:
        case "simulate" | "explain":
            return [*words, "--set", stop]
        case "sweep":
            return [*words, "--set", stop, "--jobs", "1"]
        case "check":
            return [*words[: words.index("--seconds")], "--schedules", "20"]
        case _:
            return words


def test_readme_shows_the_scenario_of_the_tutorial() -> None:
    shown = files_of(README)
    assert set(shown) == {"mine.yaml"}
    assert shown == {name: files_of(TUTORIAL)[name] for name in shown}


def test_the_method_of_the_tutorial_is_as_short_as_the_readme_says() -> None:
    assert len(files_of(TUTORIAL)["averaging.py"].partition("@dataclass")[2].splitlines()) <= 20


def test_the_tutorial_has_the_commands_of_readme() -> None:
    shown = commands_of(README)
    assert len(shown) == 2
    assert not [words for words in shown if words not in commands_of(TUTORIAL)]


def test_readme_shows_what_its_first_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares the columns before the target; what is learned differs in its last digits between processors."""
    write_files(README, tmp_path, monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    answer = CliRunner().invoke(app, [*commands_of(README)[0], "--no-report"])
    shown, printed = ([line.rstrip() for line in text.splitlines()] for text in (table_of(README), answer.stdout))
    end = shown[1].index("target") - 1
    rows = printed[printed.index(shown[0]) :][: len(shown)]
    assert [line[:end] for line in shown] == [line[:end] for line in rows]


def table_of(text: str) -> str:
    [shown] = blocks(text, "text")
    return shown.partition("\n\n")[0]


def test_the_commands_of_the_tutorial_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(TUTORIAL, tmp_path, monkeypatch)
    every = [words for words in commands_of(TUTORIAL) if words[0] not in REAL]
    assert len(every) == 8
    check_all({" ".join(words): partial(runs, shortened(words, "stop.epochs=0.05")) for words in every})


@pytest.mark.thorough
@pytest.mark.backend
def test_the_real_commands_of_the_tutorial_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(TUTORIAL, tmp_path, monkeypatch)
    for words in commands_of(TUTORIAL):
        if words[0] in REAL:
            runs(words if words[0] == "calibrate" else [*words, "--set", "stop.epochs=1"])


def shorter_files(folder: Path) -> None:
    """Lets the scenarios of a study stop early; `make test-all` runs them as they are."""
    for scenario in folder.glob("*.yaml"):
        text = scenario.read_text(encoding="utf-8")
        scenario.write_text(re.sub(r"^stop: .*$", "stop: {updates: 20}", text, flags=re.MULTILINE), encoding="utf-8")


def executed(script: Path, picture: Path) -> None:
    exec(compile(script.read_text(encoding="utf-8"), script.name, "exec"), {"__name__": "__main__"})
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_studies_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their scripts, which simulate and draw the figures, and the explanation of the scenario without a script."""
    write_files(STUDIES, tmp_path, monkeypatch)
    monkeypatch.setattr(mpl, "get_backend", mpl.get_backend)  # restored with the next line's change
    mpl.use("Agg")
    if not THOROUGH:
        shorter_files(tmp_path)
    files = files_of(STUDIES)
    scripts = [name for name in files if name.endswith(".py") and "savefig" in files[name]]
    assert len(scripts) == 2
    for script in scripts:
        (picture,) = re.findall(r'savefig\("([\w.-]+)"', files[script])
        assert (ROOT / "docs" / picture).exists() and f"]({picture})" in STUDIES
        executed(tmp_path / script, tmp_path / picture)
    for words in commands_of(STUDIES):
        if THOROUGH:
            runs(words)
        elif words[0] == "explain":  # the tutorial has a sweep
            runs([*shortened(words, "stop.samples=1024"), "--set", "cluster.nodes=2"])
