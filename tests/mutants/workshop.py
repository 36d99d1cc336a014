"""Copies of the checkout, in which mutants are planted and tests are run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.mutants.mutant import Mutant

FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
"""the line of pytest's short summary about a failing test"""
PASSED, TESTS_FAILED, INTERRUPTED = 0, 1, 2
"""pytest's exit statuses; it calls an error while collecting an interruption"""
MARK = "TMPDIR"
"""the variable by which processes that tests leave behind are known; it names a folder that no other process has"""
LEAVING_S = 15.0
"""how long tests have to clean up after an interrupt, before they are killed"""


class Stopped(Exception):
    """The command is about to end."""


class NotRun(Exception):
    """Tests could not be run, or were ended from outside."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of some tests.

    Args:
        passed: whether all passed.
        seconds: how long they took.
        failed: the tests that failed, in their order; none where all passed or time ran out.
    """

    passed: bool
    seconds: float
    failed: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """The first test that failed, or why there is none; empty where all passed."""
        if self.passed:
            return ""
        return self.failed[0] if self.failed else "no end in time"


class Workshop:
    """One copy of the checkout. Only one thread at a time may use it.

    Args:
        folder: where the copy is made; it must not exist.
        root: the checkout, which is only read.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._root, self._copy, self._temporary = root, folder / "checkout", folder / "tmp"
        self._temporary.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._stopped = False
        for name in tracked(root):
            (self._copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, self._copy / name, follow_symlinks=False)

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The copy has this mutant while the block runs."""
        file = self._copy / mutant.file
        original = file.read_text(encoding="utf-8")
        self._write(file, mutant.mutated(self._copy))
        try:
            yield
        finally:
            self._write(file, original)

    def _write(self, file: Path, text: str) -> None:
        """Replaces a source file and removes what Python and numba have compiled from it.

        Both compare times and sizes, which two versions of one second may have in common.
        """
        file.write_text(text, encoding="utf-8")
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()

    def test(self, tests: Sequence[str], timeout_s: float, arguments: Sequence[str] = ()) -> Outcome:
        """Runs tests in the copy, up to the first failure unless `arguments` say otherwise.

        Args:
            tests: files, folders or single tests, relative to the checkout.
            timeout_s: after which tests that still run count as failed.
            arguments: more arguments of pytest.

        Raises:
            Stopped: the tests were interrupted by `stop`.
            NotRun: pytest could not run them.
        """
        plugins = ["-p", "no:cacheprovider", "-p", "tests.mutants.no_shrinking"]
        options = ["-x", "-q", "--color=no", *plugins, f"--basetemp={self._temporary / 'pytest'}"]
        command = [sys.executable, "-m", "pytest", *options, *arguments, *tests]
        environment = os.environ | {"PYTHONPATH": str(self._copy), MARK: str(self._temporary)}
        began_s = time.monotonic()
        with (self._temporary / "output").open("w+", errors="replace") as file:
            with self._starting:
                if self._stopped:
                    raise Stopped
                self._process = process = subprocess.Popen(
                    command, cwd=self._copy, env=environment, stdout=file, stderr=file, start_new_session=True
                )
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                interrupt(process)
                return Outcome(False, time.monotonic() - began_s)
            finally:
                self._clear()
            file.seek(0)
            output = file.read()
        if self._stopped:
            raise Stopped
        seconds = time.monotonic() - began_s
        if process.returncode == PASSED:
            return Outcome(True, seconds)
        if process.returncode in (TESTS_FAILED, INTERRUPTED) and (failed := FAILED.findall(output)):
            return Outcome(False, seconds, tuple(failed))
        raise NotRun(f"pytest ended with status {process.returncode}: {' '.join(tests)}\n{output[-2000:]}")

    def _clear(self) -> None:
        """Kills what tests have left running: orphans in sessions of their own, where a rank hangs."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(self._temporary):
                    process.kill()

    def stop(self) -> None:
        """Interrupts the tests that run here, from another thread; no more are started."""
        with self._starting:
            self._stopped = True
        if self._process is not None:
            interrupt(self._process)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Interrupts tests as Ctrl-C does, so that they clean up; kills them where they do not end."""
    for sent, patience_s in ((signal.SIGINT, LEAVING_S), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, sent)
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue


def tracked(root: Path) -> list[str]:
    """The files of a checkout that git knows or would add, relative to it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [name for name in dict.fromkeys(listed.stdout.split("\0")) if name and os.path.lexists(root / name)]
