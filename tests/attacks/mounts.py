"""Runs commands with a small file system in place of a large one, and examines what they leave there.

A separate mount namespace shows the file system to one command only; a process namespace counts the processes that
remain.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]


def _can_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not _can_mount(), reason="needs root, to mount a private file system")


@dataclass(frozen=True)
class Ended:
    """The result of a command."""

    status: int
    said: str
    """on standard error"""
    left: tuple[str, ...]
    """entries of the small file system, including hidden names"""
    processes: int
    """processes that still run"""


def within(place: Path, size: str, script: str, *, within_s: float = 100.0) -> Ended:
    """Runs a shell script with a small file system at a place.

    Args:
        place: a folder, such as /dev/shm.
        size: of the file system, as `mount` takes it.
        script: is run by bash from the repository's root; `paceline` and `python` are those of this environment.
        within_s: it has to end.
    """
    around = f"""
mount -t tmpfs -o size={size} tmpfs {place} || exit 99
python() {{ {sys.executable} "$@"; }}
paceline() {{ python -c "from paceline.cli import main; main()" "$@"; }}
export -f python paceline
( {script} )
status=$?
echo "ended $status"
for _ in {{1..50}}; do set -- /proc/[0-9]*; [ $# -le 1 ] && break; sleep 0.1; done
echo "processes $#"
ls -A {place}
"""
    found = subprocess.run(
        [*UNSHARE, "bash", "-c", around],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=within_s,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    said = found.stdout.splitlines()
    at = max(index for index, line in enumerate(said) if line.startswith("ended "))
    processes = int(said[at + 1].split()[1]) - 1  # the shell itself
    return Ended(int(said[at].split()[1]), found.stderr, tuple(said[at + 2 :]), processes)
