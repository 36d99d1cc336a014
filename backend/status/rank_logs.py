"""Each rank's log: the output of its process and the events of the rank.

Rules of this file:

* Everything that a rank's process writes to standard output or standard error goes to its log, not to the terminal:
  prints and warnings of user code, messages of a C++ library that aborts, the stacks of a crash.
* `life` is a rank's logger for events: start, placement, first step, checkpoints, end. Outside a rank's process it has
  no handler.
* A rank that receives SIGUSR1 writes the stacks of its threads, whatever they are waiting for.
* A log is in the run's shared folder during the run, and in ``logs/`` of a stored run.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank

life = logging.getLogger("paceline.rank")
life.setLevel(logging.INFO)
life.propagate = False
life.addHandler(logging.NullHandler())

STACKS = signal.SIGUSR1
"""the signal at which a rank writes its threads' stacks to its log and continues"""
Echo = Callable[[Rank, str], None]
"""called with every line that a rank has written"""


def log_of(folder: Path, rank: Rank) -> Path:
    """Returns the path of a rank's log during the run."""
    return folder / f"rank{rank}.log"


def kept_as(rank: Rank) -> str:
    """Returns the path of a rank's log in the folder of a stored run."""
    return f"logs/rank{rank}.log"


def take_over(path: Path) -> None:
    """Redirects standard output and standard error to the log, line by line."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(opened, stream)
    os.close(opened)
    # by number: the launcher's objects may be bound to other streams
    sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115  # open until the process ends
    sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    faulthandler.enable(2)
    faulthandler.register(STACKS, 2)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    life.addHandler(handler)


def warned(message: Warning | str, category: type[Warning], file: str, line: int) -> None:
    """Writes a warning to the log, in Python's format."""
    sys.stderr.write(warnings.formatwarning(message, category, file, line))


def logs(folder: Path, team: Sequence[RankContext]) -> dict[str, bytes]:
    """Returns the logs that exist, by their paths in a stored run."""
    paths = {me.rank: log_of(folder, me.rank) for me in team}
    return {kept_as(rank): path.read_bytes() for rank, path in paths.items() if path.exists()}


class Following:
    """Reads the lines that ranks write to their logs, during the run."""

    def __init__(self, folder: Path, team: Sequence[RankContext]) -> None:
        self._paths = {me.rank: log_of(folder, me.rank) for me in team}
        self._at = dict.fromkeys(self._paths, 0)

    def lines(self) -> Iterator[tuple[Rank, str]]:
        """Yields every complete line since the last call, with its rank."""
        for rank, path in self._paths.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._at[rank])
                written = file.read()
            whole = written[: written.rfind(b"\n") + 1]
            self._at[rank] += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                yield rank, line
