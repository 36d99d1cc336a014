"""Creates network namespaces for a block and always deletes them.

Rules of this file:

* The name of a namespace contains the process that created it. If that process is killed, another process that outlives
  it deletes them; any that remain are deleted when the next ones are created.
* iproute2 does the work; the calling process stays in its own namespace.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paceline.algorithms.core.errors import InputError
from paceline.backend.posix.processes import POLL_S, survivor, uninterrupted

NAMESPACES = Path("/run/netns")
"""where iproute2 stores the names of namespaces"""
NAME = re.compile(r"paceline-(?P<maker>(?P<process>\d+)-\d+)-")
"""a namespace's name: the id of the process that created it, and its start time, since ids are reused"""
LAST_S = 1.0
"""how long the namespaces of a killed process are searched for"""
CLONE_NEWNET = 0x40000000
_numbers = itertools.count()


class NoHosts(InputError):
    """This machine or this user cannot create network namespaces with shaped links."""


def enter(name: str) -> None:
    """Moves the calling thread, and the processes that it will start, into a namespace."""
    with (NAMESPACES / name).open("rb") as namespace:
        libc = ctypes.CDLL(None, use_errno=True)  # os.setns is of Python 3.12
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            error = os.strerror(ctypes.get_errno())
            raise NoHosts(f"process {os.getpid()} cannot enter the network namespace {name}: {error}")


@contextmanager
def namespaces(parts: Sequence[str]) -> Iterator[list[str]]:
    """Creates empty namespaces for the block, named after the process and these parts; raises `NoHosts`."""
    refuse()
    sweep()
    number = next(_numbers)
    names = [f"paceline-{_process(os.getpid())}-{number}-{part}" for part in parts]
    guards: list[int] = []
    try:
        with uninterrupted():
            guards.append(survivor(lambda: _delete_all(names)))
            for name in names:
                run_ip("ip", "netns", "add", name)
                run_ip("ip", "-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        with uninterrupted():
            for name in names:
                _delete(name)
            for pid in guards:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _delete_all(names: Sequence[str]) -> None:
    """Deletes them repeatedly: a command that the killed process had started may still create one."""
    for _ in range(round(LAST_S / POLL_S)):
        for name in names:
            _delete(name)
        time.sleep(POLL_S)


def sweep() -> None:
    """Deletes the namespaces of processes that have ended."""
    for path in NAMESPACES.glob("paceline-*"):
        match = NAME.match(path.name)
        if match is not None and match["maker"] != _process(int(match["process"])):
            _delete(path.name)


def _process(number: int) -> str | None:
    """Returns a process's id and the clock tick at which it started; None if there is no such process."""
    try:
        _, _, after_name = Path(f"/proc/{number}/stat").read_text().rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return f"{number}-{after_name.split()[19]}"


def _delete(name: str) -> None:
    if (NAMESPACES / name).exists():
        try:
            run_ip("ip", "netns", "delete", name)
        except NoHosts:
            if (NAMESPACES / name).exists():  # otherwise another process has deleted it
                raise


def refuse() -> None:
    """Raises `NoHosts` if the user is not root or iproute2 is missing."""
    if os.geteuid() != 0:
        raise NoHosts("hosts are network namespaces, and making them needs root: run this as root, or with sudo")
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if missing:
        raise NoHosts(f"found no program {' and no '.join(missing)}; hosts need iproute2 (apt install iproute2)")


def run_ip(*command: str) -> str:
    """Runs a command of iproute2 in a session of its own, since a Ctrl-C at the terminal reaches every child."""
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        raise NoHosts(f"cannot make hosts of this machine: `{' '.join(command)}` says: {said}")
    return done.stdout
