"""Measured steps of several workers, from tables, stored runs, and traces of torch.profiler or Chrome.

The steps of a stored run are its gradients. In a trace of torch.profiler they are the annotations ``ProfilerStep#N`` of
one worker; several traces are the workers of one series. Other traces in Chrome's format, which Perfetto opens, have a
process for each worker, whose steps are its events named ``compute``, as in those that `paceline export` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline.algorithms.core.errors import InputError, Mistakes
from paceline.records.store import read_run
from paceline.scenarios import load
from paceline.topologies.importing import step_series, torch_profile
from paceline.topologies.importing.step_series import FEWEST_STEPS, StepSeries

COMPUTE = "compute"
Times = list[tuple[float, float]]
"""when steps of a worker begin and end, in seconds"""


def read_all(paths: Sequence[Path]) -> list[StepSeries]:
    """Returns the series in some files and folders.

    Args:
        paths: tables, folders of stored runs, and traces.

    Raises:
        InputError: a file is wrong; with the mistakes of all of them.
    """
    found: list[StepSeries] = []
    profiled: list[tuple[Path, Times]] = []
    with Mistakes() as mistakes:
        for path in paths:
            with mistakes.noted():
                if path.is_dir():
                    found.append(_of_run(path))
                elif path.suffixes[-2:] == [".json", ".gz"] or path.suffix == ".json":
                    workers = _of_trace(path)
                    if len(workers) == 1:
                        profiled.append((path, workers[0]))
                    else:
                        found.append(_aligned(path.name, workers))
                else:
                    found += step_series.read(path)
        if profiled and not mistakes:
            with mistakes.noted():
                found.append(_aligned(profiled[0][0].name, [times for _, times in profiled]))
    return found


def _of_run(path: Path) -> StepSeries:
    run = read_run(path)
    spans = run.tables.spans
    computed = spans[spans["activity"] == COMPUTE].assign(seconds=lambda rows: rows["end_s"] - rows["start_s"])
    steps = computed.groupby(["rank", "step"], sort=True).agg(start_s=("start_s", "min"), seconds=("seconds", "sum"))
    workers = [
        list(zip(own["start_s"], own["start_s"] + own["seconds"], strict=True)) for _, own in steps.groupby("rank")
    ]
    placement = load(run.scenario).cluster.placement
    nodes = [node for node, ranks in enumerate(placement) for _ in ranks]
    series = _aligned(path.name, workers)
    return StepSeries(series.name, series.seconds, series.begins_s, tuple(nodes[: len(workers)]), assumed=False)


def _of_trace(path: Path) -> list[Times]:
    events = torch_profile.read(path).events
    steps = [(event.start, event.end) for event in events if torch_profile.STEP.fullmatch(event.name)]
    if steps:
        return [sorted(set(steps))]
    workers: dict[str, Times] = {}
    for event in events:
        if event.name == COMPUTE:
            workers.setdefault(event.lane[0], []).append((event.start, event.end))
    if not workers:
        raise InputError(f"{path}: found no events named ProfilerStep#N or {COMPUTE}; expected the steps of workers")
    return [sorted(times) for _, times in sorted(workers.items())]


def _aligned(name: str, workers: Sequence[Times]) -> StepSeries:
    """Returns the steps that all workers have, the first with the first."""
    steps = min(map(len, workers))
    if steps < FEWEST_STEPS:
        raise InputError(f"{name}: found {steps} steps of a worker, expected {FEWEST_STEPS} or more")
    times = np.array([own[:steps] for own in workers])
    begins_s = times[..., 0] - times[..., 0].min()
    return StepSeries(name, times[..., 1] - times[..., 0], begins_s, assumed=False)
