"""What simulations cost: CPU time and memory of runs, loading, records and learning, next to unavoidable parts.

    python benchmarks/simulator.py                          # everything: 15 minutes
    python benchmarks/simulator.py --only speed,learning --short
    python benchmarks/simulator.py --only loading --library nccl --json

Groups (--only; --short takes smaller runs):

    speed     steps and events per second of the event-by-event engine, and its time over that of SimPy with as many
              time-outs, which as many processes wait for as there are workers
    large     runs of 1,024 to 100,000 workers, with the aims of the project, and their CPU time over that of NumPy
              drawing as many lognormal numbers; a missed aim depends on the machine and fails nothing
    methods   every method that the vectorised engine can run, and why it cannot run the others
    growth    CPU time of growing clusters of GPUs by both engines, and the exponent of a power law
    loading   time to load a cluster of thousands of workers, to plan a run, to build its network, to choose an
              all-reduce, to price it, and to route to a server
    records   memory of full, sampled and summary records: base + a · workers + b · workers · steps, solved for a and b
              from three runs (workers, steps), (workers, 2 steps), (2 workers, steps)
    learning  time of a gradient in a run that learns (whole), in the same run without learning (overhead), and in plain
              torch, each worker with a module of its own (bare); in turn, in one process with one thread
    together  time of gradients that are computed together over their time one by one, for 16 in one block and for 64
              in blocks of 32

Each run has a process of its own, and times are CPU times of one core. Exits with 1 if a run failed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import simpy

from common.harness import (
    Answer,
    Stages,
    alone,
    at_least,
    in_turn,
    names_of,
    numbers,
    of_groups,
    run_command,
    say,
    table,
)
from paceline import load, simulate
from paceline.algorithms import METHODS
from paceline.algorithms.core.values import Rank
from paceline.records import Run
from paceline.records.trace import Schedule
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.runs.cost_model import cluster_network
from paceline.simulator.runs.run import perform, reusable_network
from simulator_runs.cases import LARGE, WITHOUT_COPIES, Case, shortened

Row = dict[str, Any]
SPEED = ("sync-sgd", "async-sgd", "easgd", "layerwise-sgd", "hbs-sgd")
SPEED_STEPS = {"layerwise-sgd": 1_000}
"""worker steps of a run, fewer for a method whose steps consist of a hundred operations; of the others 16,000"""
RECORDED = ("sync-sgd", "async-sgd", "k-avg")
SLOW = 1e-4
"""a learning rate with which no method diverges, which would end its run"""


# --- runs -------------------------------------------------------------------------------------------------------------


def run_of(case: Case) -> Row:
    """Simulates a case in this process, as `paceline simulate` does."""
    simulate(replace(case, workers=8, steps=1).scenario())  # imports everything
    stages = Stages()
    with stages.stage("load"):
        scenario = load(case.scenario())
    with stages.stage("simulate"):
        (run,) = simulate(scenario, engine=case.engine)
    steps, simulate_s = run.summary["steps"], stages.cpu_s["simulate"]
    return {
        "case": case.name, "engine": run.machine["engine"]["name"], "reason": run.machine["engine"]["reason"],
        "workers": case.workers, "steps": steps, "load_s": stages.cpu_s["load"], "simulate_s": simulate_s,
        "wall_s": stages.wall_s, "added_bytes": stages.added_bytes, "steps_per_s": steps / simulate_s,
        "virtual_s": run.summary["wall_s"],
    }  # fmt: skip


def attempt(case: Case, work: Callable[[Case], Row] = run_of) -> Row:
    """Runs a case in a process of its own; a failure is a row, too."""
    say(case.name)
    try:
        return alone(work, case)
    except Exception as error:
        return {"case": case.name, "failed": str(error).splitlines()[0]}


def failed(rows: Sequence[Row]) -> bool:
    return any("failed" in row for row in rows)


RUNS = {
    "case": "case", "engine": "engine", "load s": "load_s*1:.2f", "simulate s": "simulate_s*1:.2f",
    "wall s": "wall_s*1:.2f", "× floor": "times_floor*1:.1f", "MB": "added_bytes*1e-6:,.0f",
    "steps/s": "steps_per_s*1:,.0f", "note": "note",
}  # fmt: skip


def large(options: argparse.Namespace) -> Answer:
    rows = []
    for case in map(shortened, LARGE) if options.short else LARGE:
        row = attempt(case)
        if "failed" not in row:
            row["times_floor"] = row["simulate_s"] / lognormals_s(case.worker_steps)
            aims = ("wall_s", case.aim_s, "s"), ("added_bytes", case.aim_bytes, "bytes")
            checks = (*aims, ("times_floor", case.aim_floor, "× the floor"))
            row["missed"] = [f"aim: below {aim:g} {unit}" for key, aim, unit in checks if aim and row[key] > aim]
        rows.append({**row, "note": "; ".join(row.get("missed", ())) or row.get("failed", "")})
    return Answer({"rows": rows}, [table("Large clusters", rows, RUNS)], not failed(rows))


def lognormals_s(number: int) -> float:
    """Returns the CPU seconds in which NumPy draws so many lognormal numbers, a million at once."""
    random, start_s = np.random.default_rng(1), time.process_time()
    for first in range(0, number, 10**6):
        random.lognormal(0.0, 0.1, min(10**6, number - first))
    return time.process_time() - start_s


def methods(options: argparse.Namespace) -> Answer:
    workers, steps = (64, 50) if options.short else (1000, 1000)
    rows = []
    for name in sorted(METHODS):
        row = attempt(Case(algorithm=name, workers=64, steps=2))
        if row.get("engine") == "cohort":
            row = attempt(Case(algorithm=name, workers=workers, steps=steps))
            rows.append({**row, "note": ""})
        else:
            rows.append({"case": row["case"], "note": row.get("failed") or f"event by event: {row['reason']}"})
    return Answer({"rows": rows}, [table("Methods by the vectorised engine", rows, RUNS)])


def growth(options: argparse.Namespace) -> Answer:
    sizes = (1000, 3160) if options.short else (1000, 3160, 10_000, 31_600, 100_000)
    most = {"sync-sgd": sizes[-1], "async-sgd": 10_000}
    figures: dict[str, Any] = {}
    shown: list[Any] = []
    for name, limit in most.items():
        nodes = WITHOUT_COPIES if name == "async-sgd" else {}
        cases = [Case(algorithm=name, workers=size, steps=10, **nodes) for size in sizes if size <= limit]
        rows = [attempt(case) for case in cases]
        power = exponent(
            [row["steps"] for row in rows if "steps" in row],
            [row["load_s"] + row["simulate_s"] for row in rows if "steps" in row],
        )
        figures[name] = {"exponent": power, "rows": rows}
        shown += [table(f"Growth of {name}", rows, RUNS), f"CPU time grows with worker steps to the power {power:.2f}."]
    return Answer(figures, shown, not any(failed(figure["rows"]) for figure in figures.values()))


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Returns b of the least-squares fit of a · nᵇ; NaN for a single size.

    >>> round(exponent([10, 100], [2.0, 20.0]), 6)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]) if len(set(sizes)) > 1 else math.nan


# --- the event-by-event engine ----------------------------------------------------------------------------------------


def speed_of(case: Case) -> Row:
    """Measures one run without choosing patterns of collectives, which a short run before does; then its summary."""
    plan = plan_of(case)
    warm_up = replace(case, steps=max(2, plan.job.method.longest_period(case.workers)))
    network, never = reusable_network(plan), Schedule(every=math.inf)
    perform(plan_of(warm_up), never, network=network, engine="events")
    stages = Stages()
    with collected_seldom():
        with stages.stage("run"):
            trace = perform(plan, never, network=network, engine="events")
        added_bytes = stages.added_bytes
        with stages.stage("summary"):
            Run.of(trace, job=plan.job, kind="simulated", scenario={}, name=case.name, algorithm=case.algorithm)
    events, run_s = trace.notes["events"], stages.cpu_s["run"]
    return {
        "case": case.name, "steps": case.worker_steps, "events": events, "run_s": run_s,
        "summary_share": stages.cpu_s["summary"] / run_s, "bytes_per_step": added_bytes / case.worker_steps,
        "steps_per_s": case.worker_steps / run_s, "events_per_s": events / run_s,
        "events_per_step": events / case.worker_steps, "times_floor": run_s / simpy_s(events, case.workers),
    }  # fmt: skip


def plan_of(case: Case) -> Plan:
    """Returns the plan of the scenario fat-tree-1024 with another size."""
    samples = case.worker_steps * case.batch
    changes = [f"cluster.nodes[0].count={case.workers // 8}", f"stop.samples={samples}"]
    (plan,) = load("fat-tree-1024", changes, algorithms=[case.algorithm]).plans()
    return plan


def simpy_s(events: int, processes: int) -> float:
    """Returns the CPU seconds in which SimPy alone processes so many time-outs of so many processes."""
    env = simpy.Environment()

    def waits(count: int, seconds: float) -> Generator[simpy.Event, Any, None]:
        for _ in range(count):
            yield env.timeout(seconds)

    for number in range(processes):
        env.process(waits(max(1, events // processes), 1.0 + number / processes))
    start_s = time.process_time()
    env.run()
    return time.process_time() - start_s


def speed(options: argparse.Namespace) -> Answer:
    steps = 4_000 if options.short else 16_000
    cases = [
        Case(algorithm=name, workers=workers, steps=max(1, SPEED_STEPS.get(name, steps) // workers))
        for name in (SPEED[:2] if options.short else SPEED)
        for workers in options.workers or ((64,) if options.short else (64, 1000))
    ]
    rounds = in_turn({case.name: partial(attempt, case, speed_of) for case in cases}, options.rounds)
    rows = [
        sorted(rows_of_case, key=lambda row: row.get("run_s", 0.0))[(len(rows_of_case) - 1) // 2]
        for rows_of_case in rounds.values()
    ]
    cells = {
        "case": "case", "steps": "steps:,", "steps/s": "steps_per_s:,.0f", "events/s": "events_per_s:,.0f",
        "events per step": "events_per_step:.1f", "× SimPy's floor": "times_floor:.1f",
        "summary, share of the run": "summary_share:.0%", "bytes per step": "bytes_per_step:,.0f",
    }  # fmt: skip
    return Answer({"rows": rows}, [table("Event-by-event engine", rows, cells)], not failed(rows))


# --- loading and records ----------------------------------------------------------------------------------------------


def loading_of(workers: int, algorithm: str, library: str) -> Row:
    """Runs all stages of the scenario fat-tree-100k with another size."""
    stages = Stages()
    wires = f"cluster.network.allreduce_algorithm={algorithm}", f"cluster.network.library={library}"
    with stages.stage("load"):
        scenario = load("fat-tree-100k", [f"cluster.nodes[0].count={workers // 8}", *wires])
    with stages.stage("plan"):
        (plan,) = scenario.plans()
    with stages.stage("network"):
        network = cluster_network(plan)
    group, nbytes = plan.job.team[0].workers, 4 * plan.job.learner.layout.size
    with stages.stage("choice"):
        chosen = network.tuner.plan("AllReduce", group, nbytes)
    with stages.stage("price"):
        seconds = float(alone_s(chosen, network.fabric).max())
    with stages.stage("server"):
        for rank in group.ranks:
            network.fabric.path(rank, Rank(workers), nbytes)
            network.fabric.path(Rank(workers), rank, nbytes)
    (choice,) = network.tuner.choices.values()
    row = {"workers": workers, "algorithm": algorithm, "chosen": choice.algorithm, "virtual_s": seconds}
    return {**row, **stages.cpu_s, "added_bytes": stages.added_bytes}


def loading(options: argparse.Namespace) -> Answer:
    sizes = options.workers or ((1000,) if options.short else (1000, 10_000, 16_384, 100_000))
    stages = ("load", "plan", "network", "choice", "price", "server")
    figures: dict[str, Any] = {}
    shown: list[Any] = []
    for algorithm in options.allreduce.split(","):
        rows = [alone(loading_of, size, algorithm, options.library) for size in sizes]
        powers = {name: exponent(sizes, [row[name] for row in rows]) for name in stages} if len(sizes) > 1 else {}
        figures[algorithm] = {"rows": rows, "exponents": powers}
        cells = {"workers": "workers:,", **{f"{name} s": f"{name}:.2f" for name in stages}}
        outcome = {"MB": "added_bytes*1e-6:,.0f", "chosen": "chosen", "virtual s": "virtual_s:.6g"}
        last = [{"workers": None, **powers}] if powers else []
        shown.append(table(f"All-reduce: {algorithm}; last row: exponents", [*rows, *last], cells | outcome))
    return Answer(figures, shown)


def records(options: argparse.Namespace) -> Answer:
    workers, steps = (16, 100) if options.short else (64, 400)
    rows = []
    for name in RECORDED[:1] if options.short else RECORDED:
        for kind in ("full", "sampled", "summary"):
            settings = {"settings": {"learning_rate": SLOW}, "learning": options.learning, "engine": "events"}
            base = Case(algorithm=name, workers=workers, steps=steps, records=kind, **WITHOUT_COPIES, **settings)
            cases = base, replace(base, steps=2 * steps), replace(base, workers=2 * workers)
            first, longer, wider = (attempt(case) for case in cases)
            row = {"method": name, "records": kind, "learning": options.learning, "workers": workers, "steps": steps}
            if failed([first, longer, wider]):
                rows.append({**row, "failed": first.get("failed") or longer.get("failed") or wider["failed"]})
                continue
            each = (longer["added_bytes"] - first["added_bytes"]) / (longer["steps"] - first["steps"])
            extra = wider["added_bytes"] - first["added_bytes"] - each * (wider["steps"] - first["steps"])
            bytes_of = {"bytes": first["added_bytes"], "bytes_per_worker": extra / workers, "bytes_per_step": each}
            rows.append({**row, **bytes_of})
    cells = {
        "method": "method", "records": "records", "MB": "bytes*1e-6:,.0f",
        "bytes per worker": "bytes_per_worker:,.0f", "bytes per worker step": "bytes_per_step:,.0f",
    }  # fmt: skip
    title = f"Memory of records: {workers} workers, {steps} steps of each"
    return Answer({"rows": rows}, [table(title, rows, cells)], not failed(rows))


# --- the command ------------------------------------------------------------------------------------------------------


def learns(options: argparse.Namespace) -> Answer:
    from simulator_runs.learning import LEARNING, learning  # torch, which no process of the other groups needs

    rows = alone(learning, options.short, options.rounds, options.workers)
    return Answer({"rows": rows}, [table("Time of one gradient, µs", rows, LEARNING)])


def computes_together(options: argparse.Namespace) -> Answer:
    from simulator_runs.learning import TOGETHER, together

    rows = alone(together, options.short, options.rounds)
    return Answer({"rows": rows}, [table("Time together over time one by one", rows, TOGETHER)])


GROUPS: dict[str, Callable[[argparse.Namespace], Answer]] = {
    "speed": speed, "large": large, "methods": methods, "growth": growth, "loading": loading, "records": records,
    "learning": learns, "together": computes_together,
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=names_of(GROUPS), default=list(GROUPS), metavar="A,B,…", help="groups")
    parser.add_argument("--short", action="store_true", help="smaller and fewer runs")
    parser.add_argument("--rounds", type=at_least(1), default=1, help="of speed, learning and together; medians count")
    parser.add_argument("--workers", type=numbers, metavar="N,N,…", help="of speed (multiples of 8), loading, learning")
    parser.add_argument("--allreduce", default="ring,binomial-tree", help="of loading (default: %(default)s)")
    parser.add_argument("--library", default="plain", help="library of loading: plain, nccl, mpi, gloo")
    parser.add_argument("--learning", choices=("none", "quadratic"), default="none", help="of records")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, partial(of_groups, GROUPS), add_options))
