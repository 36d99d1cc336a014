"""One run with a fault: which fault hits which rank and when, how the run is started, and the checks after it.

Rules of this file:

* A case follows from the campaign's seed and its own number, so a failed case can be run alone.
* The run is that of a user: `train` on a scenario, stored and read back. The fault is injected by another process,
  which recognises the ranks by the order in which they were started.
* Each check is a function in `CHECKS`, which gets what happened and returns what is wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import psutil

from paceline.algorithms import METHODS
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.backend.posix import run_folders
from paceline.backend.supervision.supervisor import GRACE_S
from paceline.backend.training import train
from paceline.records import RunsFailed, store
from paceline.scenarios import load

Fault = Literal["SIGKILL", "SIGTERM", "SIGSTOP", "SIGSTOP, SIGCONT"]
FAULTS: tuple[Fault, ...] = ("SIGKILL", "SIGTERM", "SIGSTOP", "SIGSTOP, SIGCONT")
WORKERS, RUN_S, TIMEOUT_S, PAUSE_S = 4, 1.0, 2.0, 0.5
"""of each run: workers, its budget, `train.timeout`, and the seconds for which a rank that is continued is stopped"""
STARTING, STARTING_S, RUNNING_S = 0.2, 0.4, 1.1
"""the share of faults before the common start, and the time after a rank's own start, or the common one, in which they
occur
"""
LIMIT_S = TIMEOUT_S + GRACE_S + 20.0
"""time from a fault to the end of its run: the promised time, the rest of the run with its evaluation, and an allowance
for other programs on the machine; the figures show the real time
"""
START_S = 60.0
"""seconds for a run to start; only an overloaded machine needs that long"""
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Case:
    """A fault."""

    number: int
    method: str
    fault: Fault
    rank: int
    starting: bool
    """whether the time counts from the start of the rank's process, not from the common start"""
    after_s: float

    def __str__(self) -> str:
        since = "its own start" if self.starting else "the common start"
        return f"case {self.number}: {self.method}, {self.fault} to rank {self.rank} {self.after_s:.3f} s after {since}"


@dataclass(frozen=True, slots=True)
class Happened:
    """The outcome of a case."""

    case: Case
    hit_s: float | None
    """when the signal was sent, by the host's clock; None if the rank had ended before"""
    ended_s: float
    """when the process of the run had ended"""
    reported: dict[str, Any] | None
    """the result that this process reported; None if it reported none"""
    orphans: tuple[str, ...]
    left: tuple[str, ...]
    """names of files in shared memory, and of namespaces"""
    folder: Path


def draw(number: int, seed: int) -> Case:
    """Returns case `number` of a campaign: the methods take turns, everything else is random."""
    chance = np.random.default_rng([seed, number])
    method = list(METHODS)[number % len(METHODS)]
    starting = bool(chance.random() < STARTING)
    return Case(
        number,
        method,
        FAULTS[int(chance.choice(len(FAULTS), p=[0.35, 0.2, 0.25, 0.2]))],
        int(chance.integers(ranks_of(METHODS[method]))),
        starting,
        float(chance.uniform(0.0, STARTING_S if starting else RUNNING_S)),
    )


def ranks_of(method: type[Method]) -> int:
    return (1 if method.alone else WORKERS) + method.has_server


def spare(case: Case) -> bool:
    """Whether the method promises to continue without the rank."""
    method = METHODS[case.method]()
    left = method.bounds(WORKERS).get(Guarantee.SURVIVES_WORKERS, 0)
    return Guarantee.SURVIVES_WORKERS in method.guarantees and left > 0 and case.rank < WORKERS


# --- running it ------------------------------------------------------------------------------------------------------


def scenario_of(method: type[Method]) -> dict[str, Any]:
    """Returns a scenario with four workers, on two nodes if the method allows it, for a second of steps of some
    milliseconds.
    """
    device = {"name": "device", "overhead": "4 ms", "per_sample": "0.1 ms"}
    two = [[Rank(0), Rank(1)], [Rank(2), Rank(3)]]
    apart = not method().problems(two)
    nodes = [{"device": device, "count": 2 if apart else 1, "workers_per_node": 2 if apart else WORKERS}]
    return {
        "name": "faults",
        "algorithms": [method.name],
        "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 8},
        "cluster": {"nodes": nodes, "network": {"topology": "star", "link": "eth-10g"}},
        "train": {"timeout": f"{TIMEOUT_S} s"},
        "evaluate": {"every": "1 s"},
        "stop": {"seconds": f"{RUN_S} s"},
    }


def run(case: Case, folder: Path, result: Path, started: int) -> NoReturn:
    """Runs the scenario in a new process and writes its result to a file."""
    answer: dict[str, Any] = {"error": None}
    try:
        (folder / "memory").mkdir()
        run_folders.SHARED = folder / "memory"

        def say_started(_: str, __: float) -> None:
            os.write(started, b".")

        try:
            runs = train(
                load(scenario_of(METHODS[case.method])), progress=say_started, keep=lambda run: store.save(run, folder)
            )
        except RunsFailed as failure:
            runs, answer["error"] = failure.runs, str(failure)
        trace = runs[-1].trace
        assert trace is not None
        answer["reached"] = sorted(map(int, trace.states))
        answer["end_s"] = trace.notes["started_monotonic_s"] + trace.wall_s
        result.write_text(json.dumps(answer))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def happened(case: Case, folder: Path) -> Happened:
    """Runs a case, then finds and removes what it left behind."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans become children of this process
    result = folder / "result.json"
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    if (runner := os.fork()) == 0:
        run(case, folder, result, writing)
    os.close(writing)
    process, hit_s, fault = psutil.Process(runner), None, strike(case, runner, reading)
    until = time.monotonic() + START_S
    while os.waitpid(runner, os.WNOHANG)[0] == 0:
        hit_s = next(fault, None) if hit_s is None else (next(fault, None), hit_s)[1]
        if hit_s is not None:
            until = min(until, hit_s + LIMIT_S)
        if time.monotonic() > until:
            process.kill()
        time.sleep(0.002)
    ended_s = time.monotonic()
    os.close(reading)
    orphans = tuple(map(str, leftovers()))
    left = [str(path) for path in (folder / "memory").iterdir()] + namespaces(runner)
    reported = json.loads(result.read_text()) if result.exists() else None
    return Happened(case, hit_s, ended_s, reported, orphans, tuple(left), folder)


def strike(case: Case, runner: int, started: int) -> Iterator[float | None]:
    """Polled: injects the fault of the case at its time and returns when that was."""
    since_s: float | None = None
    while since_s is None:
        victim = victim_of(case, runner)
        if victim is not None and (case.starting or has_started(started)):
            since_s = time.monotonic()
        yield None
    while time.monotonic() < since_s + case.after_s:
        yield None
    assert victim is not None
    first, *then = (getattr(signal, name) for name in case.fault.split(", "))
    try:
        victim.send_signal(first)
        hit_s = time.monotonic()
        yield hit_s
        while time.monotonic() < hit_s + PAUSE_S:
            yield hit_s
        for number in then:
            victim.send_signal(number)
    except psutil.NoSuchProcess:
        return


def victim_of(case: Case, runner: int) -> psutil.Process | None:
    """Returns the process of the rank once it exists: the launcher first starts a guard, and then the ranks in their
    order.
    """
    try:
        children = sorted(psutil.Process(runner).children(), key=lambda child: child.pid)
    except psutil.NoSuchProcess:
        return None
    return children[1 + case.rank] if len(children) > 1 + case.rank else None


def has_started(started: int) -> bool:
    try:
        return bool(os.read(started, 1))
    except BlockingIOError:
        return False


def leftovers() -> list[psutil.Process]:
    """Ends processes that the run left behind after a grace period, and returns them."""
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=1.0)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=5.0)
    return alive


def namespaces(maker: int) -> list[str]:
    """Returns the network namespaces that a process made and did not remove."""
    return sorted(map(str, Path("/var/run/netns").glob(f"paceline-{maker}-*")))


# --- looking at it ---------------------------------------------------------------------------------------------------


def in_time(what: Happened) -> Iterator[str]:
    """The run ends, and does so soon after the fault."""
    if what.reported is None:
        yield "the run said nothing: it crashed, or was ended when its time was over"
    elif what.hit_s is not None and what.ended_s - what.hit_s > LIMIT_S:
        yield f"it ended {what.ended_s - what.hit_s:.1f} s after the fault, expected {LIMIT_S:g} s at most"


def as_promised(what: Happened) -> Iterator[str]:
    """The run continues without a rank that its method tolerates to lose; any other death is reported with the rank's
    name.
    """
    if what.reported is None:
        return
    case, error, lost = what.case, what.reported["error"], failed_ranks(what)
    harmless = what.hit_s is None or case.fault == "SIGSTOP, SIGCONT"
    if harmless and (error or lost):
        yield f"no rank died, but the run reported {error or lost!r}"
    elif error is not None and not re.search(rf"\brank {case.rank} \(", error):
        yield f"the error does not name rank {case.rank}: {error}"
    elif error is not None and spare(case) and "before the start" not in error and not harmless:
        yield f"it should have gone on without rank {case.rank}: {error}"
    elif error is None and lost and (lost != [case.rank] or not spare(case)):
        yield f"it went on without ranks {lost}"
    elif error is None and not lost and not harmless and (what.hit_s or 0.0) < what.reported["end_s"] - 0.1:
        yield f"the fault of rank {case.rank} was not noticed"


def nothing_left(what: Happened) -> Iterator[str]:
    """No process, no file in shared memory and no namespace remains."""
    if what.orphans:
        yield f"it left processes: {', '.join(what.orphans)}"
    if what.left:
        yield f"it left {', '.join(what.left)}"


def record_readable(what: Happened) -> Iterator[str]:
    """The record is complete and says how the run ended."""
    if what.reported is None:
        return
    records = list(what.folder.glob("faults-*"))
    if len(records) != 1:
        yield f"there are {len(records)} records, expected 1"
        return
    summary, right = store.read_run(records[0]).summary, "failure" if what.reported["error"] else "seconds"
    if summary["stop_reason"] != right:
        yield f"its record says that it ended by {summary['ended']}, expected {right}"


def survivors_reach_the_end(what: Happened) -> Iterator[str]:
    """The programs of all other ranks end normally."""
    if what.reported is not None and what.reported["error"] is None:
        expected = set(range(ranks_of(METHODS[what.case.method]))) - set(failed_ranks(what))
        if missing := expected - set(what.reported["reached"]):
            yield f"ranks {sorted(missing)} have not reached the end"


def failed_ranks(what: Happened) -> list[int]:
    """Returns the ranks that the run lost and continued without, by its record."""
    (folder,) = what.folder.glob("faults-*")
    return [failed["rank"] for failed in store.read_run(folder).summary.get("failed_ranks", [])]


CHECKS: tuple[Callable[[Happened], Iterator[str]], ...] = (
    in_time,
    record_readable,
    as_promised,
    nothing_left,
    survivors_reach_the_end,
)
"""the checks after every run"""
