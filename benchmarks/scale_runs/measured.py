"""Measures a case in a process of its own, so that its peak of memory is its own."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TypedDict

import psutil

from scale_runs.cases import Case


class Figures(TypedDict):
    """What one case cost."""

    case: str
    algorithm: str
    engine: str
    """the engine that simulated it: events or cohort"""
    reason: str
    """why this engine"""
    workers: int
    steps: int
    load_s: float
    """CPU time of reading the scenario and building the cluster"""
    simulate_s: float
    """CPU time of the simulation, records and summary included"""
    wall_s: float
    """wall time of both"""
    peak_bytes: int
    """largest resident memory"""
    started_bytes: int
    """resident memory after the imports"""
    steps_per_s: float
    """gradients of all workers per second of `simulate_s`"""
    updates_per_s: float
    bytes_per_worker: float
    virtual_s: float
    """length of the run on its own clock"""


def measure(case: Case, engine: str = "auto") -> Figures:
    """Runs a case once in a new process.

    Args:
        case: the run.
        engine: the engine of the simulator.

    Returns:
        Its figures.

    Raises:
        RuntimeError: the simulation failed, with its message.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, case, engine).result()


def _measured(case: Case, engine: str) -> Figures:
    os.environ["OMP_NUM_THREADS"] = "1"
    import paceline.simulator.flows.flow_engine  # imports are not part of the figures  # noqa: F401
    from paceline import load, simulate

    started = psutil.Process().memory_info().rss
    wall_s, start_s = time.monotonic(), time.process_time()
    scenario = load(case.scenario())
    loaded_s = time.process_time()
    (run,) = simulate(scenario, engine=engine)
    end_s, wall_s = time.process_time(), time.monotonic() - wall_s
    simulate_s = end_s - loaded_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Figures(
        case=case.name,
        algorithm=case.algorithm,
        engine=run.machine["engine"]["name"],
        reason=run.machine["engine"]["reason"],
        workers=case.workers,
        steps=run.summary["steps"],
        load_s=loaded_s - start_s,
        simulate_s=simulate_s,
        wall_s=wall_s,
        peak_bytes=peak,
        started_bytes=started,
        steps_per_s=run.summary["steps"] / simulate_s,
        updates_per_s=run.summary["updates"] / simulate_s,
        bytes_per_worker=(peak - started) / case.workers,
        virtual_s=run.summary["wall_s"],
    )
