"""One killed and resumed run: which rank or launcher is killed and when, and whether the result is the undisturbed one.

The killed run must end soon, with its ranks and its folder in shared memory. Then it is resumed from its last complete
checkpoint, or started again if there is none, and compared with the same run without a fault: the weights, the state of
every rank, every update. The moment is drawn as a number of checkpoints and a delay after the last of them, so some
runs are killed before the first checkpoint, some during a checkpoint, and some after their end.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import psutil

from paceline.algorithms import METHODS
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.posix import run_folders
from paceline.backend.rank.checkpoint import Checkpoint, Saving, find_last, steps_in
from paceline.records.trace import Schedule, Trace
from paceline.workloads import build

STEPS = 60
LATE_S = 0.1
"""the longest delay between a checkpoint and the moment"""
WITHIN_S = 30.0
"""how long a killed run may take to end; longer is an error"""
PLACEMENTS = ([[0, 1], [2]], [[0, 1], [2, 3]], [[0, 1, 2, 3]])
Outcome = Literal["exact", "exact, from the start", "had ended", "NOT EXACT", "HANGS", "LEFT BEHIND"]
WRONG: tuple[Outcome, ...] = ("NOT EXACT", "HANGS", "LEFT BEHIND")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run, and how it is killed."""

    method: str
    every: int
    """steps between two checkpoints"""
    victim: int | None
    """the rank that is killed; None: the launcher"""
    how: str
    """name of the signal"""
    made: int
    """number of checkpoints that exist at the moment"""
    late_s: float
    """delay after the last of these checkpoints"""

    def __str__(self) -> str:
        victim = "the launcher" if self.victim is None else f"rank {self.victim}"
        moment = f"{self.late_s:.2f} s after checkpoint {self.made}"
        return f"{self.method}, every {self.every}: {self.how} to {victim}, {moment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of a case."""

    case: Case
    outcome: Outcome
    checkpoint: int | None
    """the step from which the run was resumed"""
    gone_s: float
    """time until the killed run had ended"""


def draw(number: int, seed: int) -> Case:
    """Returns case `number` of a campaign. It depends only on the seed and the number."""
    chance = random.Random(f"{seed}/{number}")
    name = chance.choice([name for name in METHODS if METHODS[name]().deterministic])
    team, every = job_of(METHODS[name]()).team, chance.randint(2, 20)
    return Case(
        method=name,
        every=every,
        victim=chance.choice([None, *(int(me.rank) for me in team)]),
        how=chance.choice(["SIGKILL", "SIGTERM"]),
        made=chance.randint(0, STEPS // every - 1),
        late_s=chance.uniform(0, LATE_S),
    )


@cache
def job_of(method: Method) -> Job:
    """Returns a scenario with a few workers on the digits."""
    learner = build("digits-mlp", dataset="digits", learning="train", seed=3)
    nodes = [[[Rank(rank) for rank in node] for node in nodes] for nodes in PLACEMENTS]
    placed = next(nodes for nodes in nodes if not method.problems(nodes))
    job = Job.of(method, placed, learner, batch=8, budget=Budget(), seed=3)
    return replace(job, budget=Budget(samples=job.samples_in(STEPS)))


def launch_of(job: Job, saving: Saving | None = None, start: Checkpoint | None = None) -> Launch:
    return Launch(job=job, schedule=lambda: Schedule(every=10), saving=saving, start=start)


@cache
def meant(method: Method) -> Trace:
    """Runs the method without a fault and without checkpoints."""
    return run_job(launch_of(job_of(method)))


def same(resumed: Trace, expected: Trace) -> bool:
    """Tells whether two runs are equal bit for bit, except for times."""
    rows = [
        Counter((u.rank, u.step, u.version_applied, u.staleness) for u in run.updates) for run in (resumed, expected)
    ]
    vectors = [(resumed.weights, expected.weights)]
    vectors += [(resumed.states[rank].weights.vector, state.weights.vector) for rank, state in expected.states.items()]
    return rows[0] == rows[1] and all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in vectors)


def check(case: Case) -> Finding:
    """Kills a run as the case says, resumes it, and compares."""
    method = METHODS[case.method]()
    job, expected = job_of(method), meant(method)
    with tempfile.TemporaryDirectory(prefix="paceline-faults-") as place, shared_in(Path(place) / "shared"):
        folder = Path(place) / "run"
        about = {"scenario": {}, "algorithm": case.method, "seed": job.seed}
        saving = Saving(folder=folder / "checkpoints", every=case.every, keep=2, about=about)
        outcome, gone_s = killed(launch_of(job, saving), case)
        if outcome is not None:
            return Finding(case=case, outcome=outcome, checkpoint=None, gone_s=gone_s)
        start = find_last(folder) if steps_in(saving.folder) else None
        again = run_job(launch_of(job, replace(saving, folder=Path(place) / "again"), start))
    step = None if start is None else start.step
    good: Outcome = "exact" if start is not None else "exact, from the start"
    outcome = good if same(again, expected) else "NOT EXACT"
    return Finding(case=case, outcome=outcome, checkpoint=step, gone_s=gone_s)


@contextmanager
def shared_in(folder: Path) -> Iterator[None]:
    """Places the shared files of runs in this folder during the block, so that other runs are not examined."""
    folder.mkdir()
    before, run_folders.SHARED = run_folders.SHARED, folder
    try:
        yield
    finally:
        run_folders.SHARED = before


def killed(launch: Launch, case: Case) -> tuple[Outcome | None, float]:
    """Runs it in a new process and kills it at its moment.

    Returns:
        The failed check (None if the run was killed and ended), and the seconds that it took to end.
    """
    if (launcher := os.fork()) == 0:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as the command does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            run_job(launch)
        finally:
            os._exit(0)
    ranks = ranks_of(launcher, len(launch.job.team))
    assert launch.saving is not None
    step, until_s = case.made * case.every, time.monotonic() + WITHIN_S
    while step and not list(launch.saving.folder.glob(f"step-{step}")) and time.monotonic() < until_s:
        time.sleep(0.001)
    time.sleep(case.late_s)
    rank = None if case.victim is None else ranks.get(case.victim)
    gone = case.victim is not None and (rank is None or not rank.is_running())
    ended = os.waitpid(launcher, os.WNOHANG)[0] != 0 or gone
    began = time.monotonic()
    if not ended:
        os.kill(launcher if rank is None else rank.pid, signal.Signals[case.how])
    if not wait_for(launcher, began + WITHIN_S):
        os.kill(launcher, signal.SIGKILL)
        return "HANGS", time.monotonic() - began
    _, alive = psutil.wait_procs(list(ranks.values()), timeout=5.0)
    while any(run_folders.SHARED.iterdir()) and time.monotonic() < began + WITHIN_S:  # the guard removes it
        time.sleep(0.02)
    gone_s = time.monotonic() - began
    if alive or any(run_folders.SHARED.iterdir()):
        return "LEFT BEHIND", gone_s
    return ("had ended" if ended else None), gone_s


def wait_for(pid: int, until_s: float) -> bool:
    """Tells whether a child ends by then."""
    while time.monotonic() < until_s:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] != 0:
                return True
        except ChildProcessError:  # another call has collected its status
            return True
        time.sleep(0.005)
    return False


def ranks_of(launcher: int, count: int) -> dict[int, psutil.Process]:
    """Returns the ranks of the launcher once all exist. They are recognised by the records that they keep open."""
    children: dict[int, psutil.Process] = {}
    until_s = time.monotonic() + WITHIN_S
    while len(children) < count and time.monotonic() < until_s:
        time.sleep(0.005)
        try:
            for child in psutil.Process(launcher).children():
                for file in child.open_files():
                    if file.path.endswith(".stream"):
                        children[int(Path(file.path).stem.removeprefix("rank"))] = child
        except psutil.Error:
            continue
    return children
