"""Each rank's log: what its process writes, and its life.

Rules of this file:

* Whatever a rank's process writes to standard output or standard error goes to its log, and nothing of it to the
  terminal: prints and warnings of a user's code, words of a C++ library that aborts, the stack of a fault.
* `life` is a rank's logger, for what happens to it: it started, where it runs, its first step, checkpoints, its end.
  Outside a rank's process nobody listens to it.
* A rank that is sent SIGUSR1 writes down where each of its threads stands, whatever keeps it.
* A log lies in the run's shared folder while the run lasts, and in ``logs/`` of what is kept of it.
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
"""has a rank write into its log where its threads stand, and go on"""
Echo = Callable[[Rank, str], None]
"""told every line that a rank has written"""


def log_of(folder: Path, rank: Rank) -> Path:
    """The file of a rank's log while the run lasts."""
    return folder / f"rank{rank}.log"


def kept_as(rank: Rank) -> str:
    """Where a rank's log stands in the folder of a run that is kept."""
    return f"logs/rank{rank}.log"


def take_over(path: Path) -> None:
    """Sends everything that this process writes from now on into the log, line by line."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(opened, stream)
    os.close(opened)
    # by number: what the launcher's objects were bound to need not be these streams
    sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115  # for as long as there is
    sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    faulthandler.enable(2)
    faulthandler.register(STACKS, 2)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    life.addHandler(handler)


def warned(message: Warning | str, category: type[Warning], file: str, line: int) -> None:
    """Writes a warning into the log, as Python would have shown it."""
    sys.stderr.write(warnings.formatwarning(message, category, file, line))


def logs(folder: Path, team: Sequence[RankContext]) -> dict[str, bytes]:
    """The logs that there are, by where they are kept."""
    paths = {me.rank: log_of(folder, me.rank) for me in team}
    return {kept_as(rank): path.read_bytes() for rank, path in paths.items() if path.exists()}


class Following:
    """Reads what ranks write to their logs, line by line, while they write."""

    def __init__(self, folder: Path, team: Sequence[RankContext]) -> None:
        self._paths = {me.rank: log_of(folder, me.rank) for me in team}
        self._at = dict.fromkeys(self._paths, 0)

    def lines(self) -> Iterator[tuple[Rank, str]]:
        """Every whole line since the last call, with its rank."""
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
