"""docs/explain.md agrees with the code, and its example prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.reports.attribution.explain import Effect
from paceline.reports.attribution.rows import GROUPS, ExplainedRow
from tests.unit.test_docs import ROOT, blocks, table

PAGE = (ROOT / "docs/explain.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scenario,), (shown,) = blocks(PAGE, "yaml"), blocks(PAGE, "text")
    (tmp_path / "star.yaml").write_text(scenario, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "118")
    answer = CliRunner().invoke(app, ["explain", "star.yaml", "--quiet"])
    assert answer.exit_code == 0, answer.output
    assert [line.rstrip() for line in answer.stdout.rstrip().splitlines()] == shown.rstrip().splitlines()


def test_the_page_has_every_group_and_key() -> None:
    assert [row[0] for row in table(PAGE, "group | rows")] == list(GROUPS)
    keys = {row[0]: row[1].replace("`", "").split(", ") for row in table(PAGE, "list | keys")}
    row = ExplainedRow(group="gradient", name="ip1", seconds=1.0).record()
    assert keys == {"rows": list(row), "what_if": list(Effect("no jitter", 1.0, 2.0).record())}
