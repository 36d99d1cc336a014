"""Interrupts before a command begins, after it has ended, and between its runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.records import Run
from paceline.records.store import read_run, save
from paceline.simulator.runs.run import simulate

IMPORTING = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{sent})
sys.meta_path.insert(0, Interrupting())
from paceline.cli import main
main()
"""
ENDED = """
import atexit, os, signal, sys
from paceline.cli import main
for sent in (signal.SIGINT, signal.SIGTERM):
    atexit.register(os.kill, os.getpid(), sent)
sys.argv = ["paceline", "--version"]
main()
"""
EVERY_COMMAND = pytest.mark.parametrize(
    ("verb", "where"),
    [
        ("simulate", "paceline.simulator.runs.run.simulate"),
        ("train", "paceline.backend.training.train"),
        ("compare", "paceline.reports.comparison.compare.compare"),
    ],
)


def called(code: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("module", "sent"), [("paceline.cli.app", "SIGINT"), ("typer", "SIGTERM")])
def test_during_the_first_imports(module: str, sent: str) -> None:
    assert called(IMPORTING.format(module=module, sent=sent)) == (130, "interrupted\n")


def test_after_the_command_has_ended() -> None:
    assert called(ENDED) == (0, "")


@EVERY_COMMAND
@pytest.mark.parametrize("ended", [0, 2])
def test_between_runs_what_is_stored_is_said(
    verb: str, where: str, ended: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(scenario: Any, *, keep: Any, **_: Any) -> Any:
        for run in simulate(scenario)[:ended]:
            keep(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    change = ["--set", "stop={updates: 2}", "--algorithms", "sync-sgd,agd", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [verb, "quickstart", *change])
    assert result.exit_code == 130
    first, *lines = result.stderr.splitlines()
    assert first == "interrupted; nothing is left running"
    if not ended:
        assert lines == ["no run had ended"] and list(tmp_path.iterdir()) == []
        return
    folders = [Path(line.removeprefix("stored before: ")) for line in lines]
    assert sorted(folders) == sorted(tmp_path.iterdir())
    assert [read_run(folder).algorithm for folder in folders] == ["sync-sgd", "agd"]


@EVERY_COMMAND
def test_a_run_that_is_stored_when_the_interrupt_comes_is_said(
    verb: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_run(scenario: Any, *, keep: Any, **_: Any) -> Any:
        return [keep(run) for run in simulate(scenario)]

    def saved_and_interrupted(run: Run, out: Path) -> Run:
        stored = save(run, out)
        signal.raise_signal(signal.SIGINT)
        return stored

    monkeypatch.setattr(where, one_run)
    monkeypatch.setattr("paceline.records.store.save", saved_and_interrupted)
    change = ["--set", "stop={updates: 2}", "--algorithms", "sync-sgd", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [verb, "quickstart", *change])
    assert result.exit_code == 130
    (folder,) = tmp_path.iterdir()
    assert result.stderr.splitlines()[1:] == [f"stored before: {folder}"]
