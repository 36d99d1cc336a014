"""Jobs, paces and process checks shared by the tests of real runs.

Ranks are forked, so everything that they run is defined at module level.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from paceline.algorithms.core.job import Budget, Job, Learner
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.posix.waits import wait_until
from paceline.backend.rank.pacing import OnNonfinite
from paceline.records.trace import Schedule, Trace
from tests import warm
from tests.support import nodes_for


@dataclass(frozen=True)
class Steps:
    """A pace defined by a test: seconds of every step of each rank."""

    seconds: Sequence[float] = (0.002, 0.002, 0.002, 0.002)

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return self.seconds[rank]

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [1 / 6, 1 / 6], [1 / 3, 1 / 3]


NEVER_S = 3600.0
"""a timeout that no test reaches: a run that waits for it instead of ending at once fails by the time of its test"""
UNLIKE = Steps((0.002, 0.003, 0.005, 0.007))


def job_with(method: Method, learner: Learner, *, steps: int, batch: int | Sequence[int] = 16, seed: int = 3) -> Job:
    """Returns a job of four workers on two nodes, or one if necessary; the weights' owner takes `steps` steps."""
    placed = [[Rank(rank) for rank in node] for node in nodes_for(method)]
    job = Job.of(method, placed, learner, batch=batch, budget=Budget(), seed=seed)
    return replace(job, budget=Budget(samples=job.samples_in(steps)))


def run_for_real(
    job: Job,
    *,
    pace: Steps | None = UNLIKE,
    deadlock_timeout_s: float = 10.0,
    timeout_s: float = NEVER_S,
    on_nonfinite: OnNonfinite = "warn",
    progress: Callable[[int, float], None] | None = None,
    every: float = 1,
    prefetch: int | None = None,
) -> Trace:
    """Runs the job in real processes and stores the weights every so many updates."""
    schedule = Schedule(every=every)
    launch = Launch(
        job=job,
        schedule=lambda: schedule,
        pace=pace,
        prefetch=prefetch,
        deadlock_timeout_s=deadlock_timeout_s,
        timeout_s=timeout_s,
        on_nonfinite=on_nonfinite,
        progress=progress,
    )
    return run_job(launch)


# --- looking at processes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """The ranks of a launcher, once all of them run."""

    ranks: dict[int, psutil.Process]
    folder: Path
    """the folder of the run in the host's memory"""

    def gone(self, within_s: float) -> bool:
        """Whether every rank ends within this many seconds."""
        return not psutil.wait_procs(list(self.ranks.values()), timeout=within_s)[1]

    def removed(self, within_s: float = 30.0) -> bool:
        """Whether the folder is removed within so many seconds; after a killed launcher the guard process does that."""
        return wait_until(lambda: not self.folder.exists(), within_s=within_s)


def ranks_of(launcher: int) -> Started | None:
    """Returns the running ranks of a launcher, recognised by the records they keep open; None before there are any."""
    found: dict[int, psutil.Process] = {}
    folder = None
    for child in psutil.Process(launcher).children(recursive=True):
        try:
            streams = [Path(file.path) for file in child.open_files() if file.path.endswith(".stream")]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        for stream in streams:
            found[int(stream.stem.removeprefix("rank"))] = child
            folder = stream.parent
    return None if folder is None else Started(found, folder)


def wait_for_ranks(launcher: int, count: int, *, within_s: float = 60.0) -> Started:
    """Waits until `count` ranks run and have written something, so that a record of them can be stored."""
    until = time.monotonic() + within_s
    while time.monotonic() < until and psutil.Process(launcher).status() != psutil.STATUS_ZOMBIE:
        started = ranks_of(launcher)
        if started is not None and len(started.ranks) == count and _written(started):
            return started
        time.sleep(0.05)
    raise AssertionError(f"found no {count} ranks at work: after {within_s:g} s, or when the launcher had ended")


def _written(started: Started) -> bool:
    try:
        return all((started.folder / f"rank{rank}.stream").stat().st_size > 0 for rank in started.ranks)
    except OSError:
        return False


def no_children() -> bool:
    """Whether this process has no child left, not even an unreaped one, except for the servers of the tests."""
    return not [one for one in psutil.Process().children(recursive=True) if one.pid not in warm.servers()]


def plain(vector: Any) -> Any:
    """A vector as an array of float64."""
    import numpy as np

    return np.asarray(vector, dtype=np.float64)
