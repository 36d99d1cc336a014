"""Shell completion: a script that can be installed, and names that it completes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli import options
from paceline.cli.app import app


def paceline(*arguments: str, **environment: str) -> str:
    """Returns what the command prints, called as a shell calls it."""
    result = CliRunner().invoke(app, arguments, prog_name="paceline", env=environment)
    assert "Traceback" not in result.output
    return result.stdout


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".bash_completions/paceline.sh"),
        ("zsh", ".zfunc/_paceline"),
        ("fish", ".config/fish/completions/paceline.fish"),
    ],
)
def test_the_script_is_installed_in_the_home_folder(
    shell: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: (shell, shell))  # looks at the parent processes
    paceline("--install-completion", HOME=str(tmp_path))
    assert "_PACELINE_COMPLETE" in (tmp_path / file).read_text()


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("sim", "simulate"),
        ("list dev", "devices"),
        ("simulate fat-tree-102", "fat-tree-1024"),
        ("simulate quickstart --algorithms agd,layerwise-sgd-l", "agd,layerwise-sgd-lazy"),
        ("topology dgx1-p", "dgx1-p100"),
        ("convert mn", "mnist"),
    ],
)
def test_words_are_completed(words: str, completed: str) -> None:
    line = f"paceline {words}"
    said = paceline(COMP_WORDS=line, COMP_CWORD=str(len(words.split())), _PACELINE_COMPLETE="complete_bash")
    assert completed in said.split()


@pytest.mark.parametrize(
    ("shell", "environment"),
    [("zsh", {}), ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"})],
)
def test_zsh_and_fish_get_the_same_words(shell: str, environment: dict[str, str]) -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "paceline export some-run --format ", **environment}
    said = paceline(_PACELINE_COMPLETE=f"complete_{shell}", **asked)
    for name in ("chrome", "csv", "mlflow", "tensorboard", "wandb"):
        assert name in said


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    program = tmp_path / "paceline"
    code = "import sys; sys.argv[0] = 'paceline'; from paceline.cli import main; main()"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "script").write_text(paceline(_PACELINE_COMPLETE="source_bash"))
    words = (
        'source "$1/script"; COMP_WORDS=(paceline do); COMP_CWORD=1; '
        '_paceline_completion paceline do paceline; echo "${COMPREPLY[@]}"'
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", words, "bash", tmp_path], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["doctor"]


def test_stored_runs_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert options.complete_stored_runs("") == []
    for name in ("runs/tiny-agd-1-simulated-1", "runs/tiny-ssp-1-simulated-1", "old/other"):
        Path(name).mkdir(parents=True)
        (Path(name) / "run.json").write_text("{}")
    Path("runs/no-run").mkdir()
    assert options.complete_stored_runs("") == ["runs/tiny-agd-1-simulated-1", "runs/tiny-ssp-1-simulated-1"]
    assert options.complete_stored_runs("tiny-s") == ["runs/tiny-ssp-1-simulated-1"]
    assert options.complete_stored_runs("runs/tiny-a") == ["runs/tiny-agd-1-simulated-1"]
    assert options.complete_stored_runs("old/") == ["old/other"]
