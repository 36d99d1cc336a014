"""docs/reading.md agrees with the code, and its examples run."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
import yaml
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.scenarios.sections.reading import Reading
from paceline.workloads.convert_dataset import convertible
from paceline.workloads.reading import Strategy
from paceline.workloads.reading.file import INPUTS
from paceline.workloads.reading.folder import ABOUT, TEST, TRAIN, checksums_beside
from tests.unit.test_docs import ROOT, blocks, table

PAGE = (ROOT / "docs/reading.md").read_text(encoding="utf-8")
REAL = pytest.param("train", marks=pytest.mark.backend)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page's scenario, in which its first command was run."""
    whole = tmp_path_factory.mktemp("page")
    (source,) = (block for block in blocks(PAGE, "yaml") if block.startswith("# records.yaml\n"))
    (whole / "records.yaml").write_text(source, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(whole)
        assert CliRunner().invoke(app, ["convert", "digits"]).exit_code == 0
    return whole


@pytest.mark.parametrize("name", ["simulate", REAL])
def test_the_commands_run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (shown,) = blocks(PAGE, "console")
    asked = {words[1]: words[1:] for words in map(shlex.split, re.findall(r"^\$ (.+)$", shown, re.MULTILINE))}
    assert list(asked) == ["convert", "simulate", "train"]
    answer = CliRunner().invoke(app, asked[name])
    assert (answer.exit_code, "sync-sgd" in answer.stdout) == (0, True), answer.output


def test_the_sessions_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    session = doctest.DocTestParser().get_doctest("".join(blocks(PAGE, "pycon")), {}, "reading", "docs/reading.md", 0)
    result = doctest.DocTestRunner().run(session)
    assert result.attempted > 8
    assert result.failed == 0


def test_the_keys_are_the_sections() -> None:
    rows = {row[0]: row[1] for row in table(PAGE, "key | default")}
    fields = Reading.model_fields.items()
    assert {key: None if said == "none" else yaml.safe_load(said) for key, said in rows.items()} == {
        name: field.default for name, field in fields
    }


def test_strategies_files_and_data_sets_are_those_known() -> None:
    assert [row[0] for row in table(PAGE, "strategy | worker")] == list(get_args(Strategy))
    sums = [checksums_beside(Path(name)).name for name in (TRAIN, TEST)]
    assert [row[0] for row in table(PAGE, "file | holds")] == [TRAIN, TEST, f"{sums[0]}`, `{sums[1]}", ABOUT]
    (line,) = re.findall(r"`paceline convert DATA` takes (.+?), from", " ".join(PAGE.split()))
    assert set(re.findall(r"`([\w-]+)`", line)) == set(convertible())
    assert all(f"`{name}`" in PAGE for name in INPUTS)
