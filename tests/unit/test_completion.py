"""Shell completion: a script that can be installed, and names that it completes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "from paceline.cli import main; main()"


def paceline(*arguments: str, **environment: str) -> str:
    command = [sys.executable, "-c", f"import sys; sys.argv[0] = 'paceline'; {PROGRAM}", *arguments]
    found = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in found.stderr
    return found.stdout


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".bash_completions/paceline.sh"),
        ("zsh", ".zfunc/_paceline"),
        ("fish", ".config/fish/completions/paceline.fish"),
    ],
)
def test_the_script_is_installed_in_the_home_folder(shell: str, file: str, tmp_path: Path) -> None:
    # the shell is found among the parent processes: here the answer is fixed
    code = (
        "import shellingham, sys; sys.argv[0] = 'paceline'\n"
        f"shellingham.detect_shell = lambda *_: ({shell!r}, {shell!r})\n{PROGRAM}"
    )
    subprocess.run(
        [sys.executable, "-c", code, "--install-completion"],
        env=os.environ | {"HOME": str(tmp_path)},
        check=True,
        capture_output=True,
    )
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
