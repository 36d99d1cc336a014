"""Python programs in processes that have imported Paceline already: a fresh interpreter takes seconds to do that.

A server imports the modules for training once and forks for every program, so nothing of this process gets into them:
no threads, no warnings that are errors. The behaviour of a fresh interpreter has separate tests.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
CONTEXT = multiprocessing.get_context("forkserver")


SERVER = forkserver.ForkServer()
"""a separate fork server: sweeps use that of the standard library, which must not import anything before"""


def _serve() -> None:
    """Starts the server unless it runs, with one thread for arithmetic, like the commands of these tests."""
    SERVER.set_forkserver_preload(["tests.preload"])
    with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}):
        SERVER.ensure_running()


def servers() -> set[int | None]:
    """Returns the processes that `multiprocessing` runs until this one ends."""
    kept: list[Any] = [SERVER, forkserver._forkserver]
    return {resource_tracker._resource_tracker._pid, *(server._forkserver_pid for server in kept)}  # type: ignore[attr-defined]


class Program:
    """A Python program, with the methods of `subprocess.Popen` that tests use.

    Args:
        code: The source.
        arguments: `sys.argv[1:]`.
        env: Its environment; by default, that of this process.
        start_new_session: Whether it leads a separate session, as if started by a terminal.
    """

    def __init__(
        self,
        code: str,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        start_new_session: bool = False,
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="program-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self._files = [folder / name for name in ("out", "err")]
        for file in self._files:
            file.touch()
        environment = dict(os.environ if env is None else env)
        _serve()
        self._process = CONTEXT.Process(
            target=_perform, args=(code, list(arguments), environment, self._files, start_new_session)
        )
        with mock.patch.object(forkserver, "connect_to_new_process", SERVER.connect_to_new_process):
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def printed(self, text: str) -> bool:
        """Whether this text is in its standard output, while it may still run; waits for it, or for the end."""
        while text not in self._files[0].read_text():
            if self.poll() is not None:
                return text in self._files[0].read_text()
            time.sleep(0.02)
        return True

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Returns its standard output and standard error, once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a program", timeout or 0.0)
        out, err = (file.read_text() for file in self._files)
        return out, err


def _perform(code: str, arguments: list[str], environment: dict[str, str], files: list[Path], session: bool) -> None:
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files, start=1):
        opened = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["-c", *arguments]
    os.chdir(ROOT)
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
