"""Runs that are killed at a random moment and gone on with: is what comes out bit for bit what was meant?

    python benchmarks/faults_resume.py
    python benchmarks/faults_resume.py --cases 100 --seed 7 --json

Each case draws a deterministic method, how often it makes checkpoints, and who is killed, how and when: one of the
ranks or the launcher itself. The killed run must be gone soon, with its ranks and its folder in shared memory. Then it
is gone on with from its last whole checkpoint, or begun again where there was none yet, and compared with the same run
that nobody killed: weights, every rank's state, every update. The moment is drawn: so many checkpoints have been made,
and so long ago. So some cases are killed before there is one, some while one is being made, and some after their end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
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
"""the longest time between a checkpoint and the moment"""
WITHIN_S = 30.0
"""how long a killed run may take to be gone: it is an error if it takes longer"""
PLACEMENTS = ([[0, 1], [2]], [[0, 1], [2, 3]], [[0, 1, 2, 3]])
Found = Literal["exact", "exact, from the start", "had ended", "NOT EXACT", "HANGS", "LEFT BEHIND"]
WRONG: tuple[Found, ...] = ("NOT EXACT", "HANGS", "LEFT BEHIND")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run, and how it is killed."""

    method: str
    every: int
    """steps between two checkpoints"""
    victim: int | None
    """the rank that is killed; None: the launcher"""
    how: str
    """the signal's name"""
    made: int
    """checkpoints that there are by the moment"""
    late_s: float
    """how much later it is"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of a case."""

    case: Case
    found: Found
    checkpoint: int | None
    """the step that the run went on from"""
    gone_s: float
    """after which the killed run had gone"""


def draw(number: int, seed: int) -> Case:
    """Case `number` of a campaign: it follows from both."""
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
    """A few workers on digits."""
    learner = build("digits-mlp", dataset="digits", learning="train", seed=3)
    nodes = [[[Rank(rank) for rank in node] for node in nodes] for nodes in PLACEMENTS]
    placed = next(nodes for nodes in nodes if not method.problems(nodes))
    job = Job.of(method, placed, learner, batch=8, budget=Budget(), seed=3)
    return replace(job, budget=Budget(samples=STEPS * job.samples_per_step))


def launch_of(job: Job, saving: Saving | None = None, start: Checkpoint | None = None) -> Launch:
    return Launch(job=job, schedule=lambda: Schedule(every=10), saving=saving, start=start)


@cache
def meant(method: Method) -> Trace:
    """The run that nobody kills, and that makes no checkpoints."""
    return run_job(launch_of(job_of(method)))


def same(found: Trace, expected: Trace) -> bool:
    """Bit for bit, but for the times."""
    rows = [Counter((u.rank, u.step, u.version_applied, u.staleness) for u in one.updates) for one in (found, expected)]
    vectors = [(found.weights, expected.weights)]
    vectors += [(found.states[rank].weights.vector, state.weights.vector) for rank, state in expected.states.items()]
    return rows[0] == rows[1] and all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in vectors)


def check(case: Case) -> Finding:
    """Kills a run as the case says, goes on with it, and compares."""
    method = METHODS[case.method]()
    job, expected = job_of(method), meant(method)
    with tempfile.TemporaryDirectory(prefix="paceline-faults-") as place, shared_in(Path(place) / "shared"):
        folder = Path(place) / "run"
        about = {"scenario": {}, "algorithm": case.method, "seed": job.seed}
        saving = Saving(folder=folder / "checkpoints", every=case.every, keep=2, about=about)
        found, gone_s = killed(launch_of(job, saving), case)
        if found is not None:
            return Finding(case=case, found=found, checkpoint=None, gone_s=gone_s)
        start = find_last(folder) if steps_in(saving.folder) else None
        again = run_job(launch_of(job, replace(saving, folder=Path(place) / "again"), start))
    step = None if start is None else start.step
    good: Found = "exact" if start is not None else "exact, from the start"
    return Finding(case=case, found=good if same(again, expected) else "NOT EXACT", checkpoint=step, gone_s=gone_s)


@contextmanager
def shared_in(folder: Path) -> Iterator[None]:
    """Runs keep what they share in this folder meanwhile, so that nobody else's is looked at."""
    folder.mkdir()
    before, run_folders.SHARED = run_folders.SHARED, folder
    try:
        yield
    finally:
        run_folders.SHARED = before


def killed(launch: Launch, case: Case) -> tuple[Found | None, float]:
    """Runs it in a process of its own and kills it at its moment.

    Returns:
        what is wrong or that it had ended before, None if it was killed and has gone; and the seconds that took.
    """
    if (launcher := os.fork()) == 0:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as the command has it
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
    """Whether a child ends by then."""
    while time.monotonic() < until_s:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] != 0:
                return True
        except ChildProcessError:  # it had been waited for
            return True
        time.sleep(0.005)
    return False


def ranks_of(launcher: int, count: int) -> dict[int, psutil.Process]:
    """The launcher's ranks, once all are there, told by the records that they keep open."""
    found: dict[int, psutil.Process] = {}
    until_s = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < until_s:
        time.sleep(0.005)
        try:
            for child in psutil.Process(launcher).children():
                for file in child.open_files():
                    if file.path.endswith(".stream"):
                        found[int(Path(file.path).stem.removeprefix("rank"))] = child
        except psutil.Error:
            continue
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the campaign; answers the exit status: 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    findings = []
    for number in range(asked.cases):
        findings.append(one := check(draw(number, asked.seed)))
        if not asked.json or one.found in WRONG:
            who = "the launcher" if one.case.victim is None else f"rank {one.case.victim}"
            words = f"{one.case.method}, every {one.case.every}: {one.case.how} to {who}, "
            words += f"{one.case.late_s:.2f} s after checkpoint {one.case.made}"
            out = sys.stderr if asked.json else sys.stdout
            print(f"{number:4} {words}: {one.found}, step {one.checkpoint}, gone in {one.gone_s:.1f} s", file=out)
    counts = Counter(one.found for one in findings)
    if asked.json:
        print(json.dumps({"counts": counts, "findings": [asdict(one) for one in findings]}, indent=2))
    else:
        print(", ".join(f"{count} {found}" for found, count in counts.most_common()))
    return int(any(counts[wrong] for wrong in WRONG))


if __name__ == "__main__":
    sys.exit(main())
