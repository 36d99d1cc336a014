"""The speed of the event-by-event simulator: worker steps and events per second of CPU time, and memory.

    python benchmarks/simulator_speed.py
    python benchmarks/simulator_speed.py --methods sync-sgd async-sgd --workers 64 --rounds 3 --json

* The cluster is that of `fat-tree-1024.yaml`: nodes of eight GPUs on a fat tree, ResNet-50, `learning: none`. `easgd`
  exchanges at every step, and `hbs-sgd` averages over its node every 2 steps and over all workers every 16.
* A worker step is one gradient of one worker. The CPU time is that of the run and of its record, without loading the
  scenario and without choosing the patterns of collectives, which a short run before does. The summary is timed
  separately.
* The floor is SimPy with as many events: one time-out after another, which as many processes wait for as there are
  workers. It runs in the same process directly after the run.
* Each case runs in a process of its own, so that its memory can be measured: the growth of the resident memory by the
  record of the run.
* `PYTHONPATH` chooses the version that is measured. To compare two versions on a busy machine, run them in turn and
  compare the medians.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import simpy
from rich.console import Console
from rich.table import Table

from paceline import load
from paceline.records import Run
from paceline.records.trace import Schedule
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.runs.run import perform, reusable_network

METHODS = ("sync-sgd", "async-sgd", "easgd", "layerwise-sgd", "hbs-sgd")
WORKERS = (64, 1000)
PER_NODE, BATCH = 8, 32
TOTAL_STEPS = {"layerwise-sgd": 1_000}
"""worker steps of a run, fewer for a method whose steps consist of a hundred operations"""
USUAL_STEPS = 16_000


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of one method at one size."""

    method: str
    workers: int
    steps: int
    """worker steps of the run"""
    events: int
    run_s: float
    """CPU seconds of the run"""
    summary_s: float
    """CPU seconds of its summary"""
    floor_s: float
    """CPU seconds of SimPy alone with as many events"""
    bytes_per_step: float
    """resident memory that the record of the run takes, for each worker step"""

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.run_s


def plan_of(method: str, workers: int, steps: int) -> Plan:
    """Returns a run of a method in which each worker computes so many gradients."""
    samples = workers * BATCH * steps
    settings = [f"cluster.nodes[0].count={workers // PER_NODE}", f"stop.samples={samples}"]
    (plan,) = load("fat-tree-1024", settings, algorithms=[method]).plans()
    return plan


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(method: str, workers: int, total_steps: int) -> Speed:
    """Measures one run, in a process that has not measured another one."""
    per_worker = max(1, total_steps // workers)
    plan = plan_of(method, workers, per_worker)
    network = reusable_network(plan)
    warm_up = max(2, plan.job.method.longest_period(workers))  # until every kind of step has happened
    perform(plan_of(method, workers, warm_up), Schedule(every=math.inf), network=network, engine="events")
    with collected_seldom():
        before_bytes, before_s = resident_bytes(), time.process_time()
        trace = perform(plan, Schedule(every=math.inf), network=network, engine="events")
        run_s, grown_bytes = time.process_time() - before_s, resident_bytes() - before_bytes
        before_s = time.process_time()
        run = Run.of(trace, job=plan.job, kind="simulated", scenario={}, name=method, algorithm=method)
        summary_s = time.process_time() - before_s
    steps, events = workers * per_worker, trace.notes["events"]
    assert run.summary, "a run has a summary"
    return Speed(
        method=method,
        workers=workers,
        steps=steps,
        events=events,
        run_s=run_s,
        summary_s=summary_s,
        floor_s=floor_s(events, workers),
        bytes_per_step=grown_bytes / steps,
    )


def floor_s(events: int, processes: int) -> float:
    """Returns the CPU seconds that SimPy alone takes for so many events, shared by so many processes."""
    env = simpy.Environment(0.0)

    def waits(count: int, seconds: float) -> Iterator[simpy.Event]:
        for _ in range(count):
            yield env.timeout(seconds)

    for number in range(processes):
        env.process(waits(max(1, events // processes), 1.0 + number / processes))
    before_s = time.process_time()
    env.run()
    return time.process_time() - before_s


def of_rounds(speeds: Sequence[Speed]) -> Speed:
    """Returns the median of the rounds of one case, by the CPU time of the run."""
    middle = median_low_by_time(speeds)
    return Speed(**{**asdict(middle), "floor_s": median(speed.floor_s for speed in speeds)})


def median_low_by_time(speeds: Sequence[Speed]) -> Speed:
    return sorted(speeds, key=lambda speed: speed.run_s)[(len(speeds) - 1) // 2]


def table_of(speeds: Sequence[Speed]) -> Table:
    table = Table(title="Event-by-event simulator, CPU time of one core")
    for name in ("method", "workers", "steps", "steps/s", "events/s", "events per step", "times SimPy's floor"):
        table.add_column(name, justify="left" if name == "method" else "right")
    table.add_column("summary", justify="right")
    table.add_column("bytes per step", justify="right")
    for speed in speeds:
        table.add_row(
            speed.method,
            f"{speed.workers:,}",
            f"{speed.steps:,}",
            f"{speed.steps_per_s:,.0f}",
            f"{speed.events / speed.run_s:,.0f}",
            f"{speed.events / speed.steps:.1f}",
            f"{speed.run_s / speed.floor_s:.1f}",
            f"{speed.summary_s / speed.run_s:.0%} of the run",
            f"{speed.bytes_per_step:,.0f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=METHODS, help="default: %(default)s")
    parser.add_argument("--workers", nargs="+", type=int, default=WORKERS, help="multiples of 8; default: %(default)s")
    parser.add_argument("--steps", type=int, help="worker steps of each run; default: 16,000, layerwise-sgd 1,000")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each case, of which the median counts")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    if wrong := [count for count in given.workers if count < PER_NODE or count % PER_NODE]:
        parser.error(f"--workers: found {wrong}, expected multiples of {PER_NODE}")
    cases = [(method, workers) for method in given.methods for workers in given.workers]
    rounds: dict[tuple[str, int], list[Speed]] = {case: [] for case in cases}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for _ in range(given.rounds):
            for method, workers in cases:
                steps = given.steps or TOTAL_STEPS.get(method, USUAL_STEPS)
                rounds[method, workers].append(pool.apply(measure, (method, workers, steps)))
    speeds = [of_rounds(found) for found in rounds.values()]
    if given.json:
        print(json.dumps([{**asdict(speed), "steps_per_s": speed.steps_per_s} for speed in speeds], indent=1))
    else:
        Console(width=150).print(table_of(speeds))


if __name__ == "__main__":
    main()
