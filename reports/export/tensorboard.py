"""TensorBoard event files: of real runs, written while they run, and of stored runs, simulated or measured.

* During a run the events are in a separate folder in ``--out``, named ``…-live-<n>``; after it they are in
  ``tensorboard/`` of the run's folder, and the live folder is removed. TensorBoard on ``--out`` shows both.
* The live values are those of the progress display: means since the previous point, every `EVERY_S`. Evaluations of
  snapshots are made after the run and follow at its end, with the times of the snapshots. Steps are those of the rank
  that owns the weights; times are wall-clock times.
* Only the launcher writes, and without threads, since it forks.
* The curves of a stored run have the same names, so that a simulated and a measured run are shown in one diagram. A run
  is divided into at most `INTERVALS` equal intervals; each has a point of each curve at its end. Steps are numbers of
  updates. Wall-clock times are those of the run's own clock, after the time when it was stored. ``train/loss`` is
  missing, because stored runs do not hold the losses of batches.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.backend.status.progress_counters import Recent, Totals
from paceline.records import Run
from paceline.records.store import naming, place, slug
from paceline.scenarios.resolution.plan import Plan

EVERY_S = 0.5
"""seconds between two points of a curve"""
START = Totals(0.0, 0, 0, 0, 0, 0, 0)
SCALARS = {
    "train/loss": "loss",
    "train/samples_per_s": "samples_per_s",
    "train/staleness": "staleness",
    "train/step_s": "step_s",
    "train/samples": "samples",
}
"""the curves that are written live, with their fields of `Recent`"""
SCORES = {"evaluation/loss": "loss", "evaluation/accuracy": "accuracy"}
"""the curves of the evaluations, and their columns"""
INTERVALS = 200
"""INFERENCE: points of a curve that a diagram of the usual width can show apart from each other"""
Point = tuple[int, float, dict[str, Any]]


def check_tensorboard(option: str) -> None:
    """Raises `InputError`, which names the option, if the package that writes the files is not installed."""
    try:
        import_module("tensorboardX.record_writer")
    except ModuleNotFoundError as error:
        raise InputError(
            f"{option}: found no package {error.name}; expected tensorboardX: pip install 'paceline[tensorboard]'"
        ) from error


class EventFile:
    """An event file, open for writing.

    Args:
        folder: an existing folder.
        started_s: the wall-clock time of the start of the run, in seconds since the epoch.
    """

    def __init__(self, folder: Path, started_s: float) -> None:
        self.started_s = started_s
        # a name of our own, since the library's contains the host name; absolute, since it might be read as a URI
        self.path = folder.absolute() / f"events.out.tfevents.{int(started_s)}.paceline"
        self._event = import_module("tensorboardX.proto.event_pb2").Event
        self._file = import_module("tensorboardX.record_writer").RecordWriter(str(self.path))
        self._write(self._event(wall_time=started_s, file_version="brain.Event:2"))

    def point(self, step: int, elapsed_s: float, values: Mapping[str, Any]) -> None:
        """Writes a value for each of these curves that has one."""
        event = self._event(wall_time=self.started_s + elapsed_s, step=step)
        for tag, value in values.items():
            if value is not None and math.isfinite(value):
                event.summary.value.add(tag=tag, simple_value=value)
        self._write(event)

    def flush(self) -> None:
        """Writes everything to the disk."""
        with naming(self.path):
            self._file.flush()

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._file.close()

    def _write(self, event: Any) -> None:
        with naming(self.path):
            self._file.write(event.SerializeToString())


class LiveEvents:
    """The event file of a run that is in progress."""

    def __init__(self, folder: Path, workers: int) -> None:
        folder.mkdir()
        self.folder = folder
        self._workers = workers
        self.file = EventFile(folder, time.time())
        self._shown = self._latest = START

    def look(self, now: Totals) -> None:
        """Writes a point of each curve, if `EVERY_S` seconds have passed since the last one."""
        if self._latest is START:
            self.file.started_s = time.time() - now.elapsed_s
        self._latest = now
        if now.elapsed_s - self._shown.elapsed_s >= EVERY_S:
            self._show()

    def _show(self) -> None:
        recent = Recent.between(self._shown, self._latest, workers=self._workers)
        self._shown = self._latest
        self.file.point(recent.step, recent.elapsed_s, {tag: getattr(recent, name) for tag, name in SCALARS.items()})
        self.file.flush()

    def finish(self, run: Run) -> tuple[str, bytes]:
        """Adds the run's evaluations; returns the file's name and content."""
        # the end of the run after the last point, without the time that the ranks took to exit
        self._latest = self._latest._replace(elapsed_s=min(self._latest.elapsed_s, run.summary["wall_s"]))
        if self._latest.elapsed_s > self._shown.elapsed_s and self._latest.gradients > self._shown.gradients:
            self._show()
        samples, steps = self._latest.samples, self._latest.step
        for row in run.tables.evaluations.to_dict("records"):
            # converts the snapshot's samples to steps
            step = round(steps * row["samples"] / samples) if samples else 0
            self.file.point(step, row["time_s"], {tag: row[column] for tag, column in SCORES.items()})
        self.file.close()
        return self.file.path.name, self.file.path.read_bytes()


class TensorBoard:
    """The event files of one command's runs, which run one after the other."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._plan: Plan | None = None
        self._events: LiveEvents | None = None

    def watch(self, plan: Plan, now: Totals) -> None:
        """Writes the progress of a run."""
        if self._events is None or plan is not self._plan:
            stem = f"{slug(plan.scenario_name)}-{slug(plan.name)}-{plan.seed}-live"
            self._plan, self._events = plan, LiveEvents(place(self._out, stem), plan.job.workers)
        self._events.look(now)

    def finish(self, run: Run) -> Run:
        """Returns the run that has ended, with its event file among its files."""
        if self._events is None:
            return run
        name, content = self._events.finish(run)
        return replace(run, files={**run.files, f"tensorboard/{name}": content})

    def clear(self) -> None:
        """Removes the live folder, when the run is stored or abandoned."""
        if self._events is not None:
            self._events.file.close()
            shutil.rmtree(self._events.folder, ignore_errors=True)
            self._events = None


@contextmanager
def tensorboard(out: Path) -> Iterator[TensorBoard]:
    """Writes event files for the runs during the block, and leaves no live folders in `out`.

    Raises:
        InputError: the package that writes the files is not installed.
    """
    check_tensorboard("--tensorboard")
    board = TensorBoard(out)
    try:
        yield board
    finally:
        board.clear()


def write_tensorboard(run: Run, folder: Path, started: datetime) -> None:
    """Writes an event file of a stored run into a folder.

    Args:
        run: the run.
        folder: an empty folder.
        started: the wall-clock time that is shown for the start of the run.

    Raises:
        InputError: the package that writes the files is not installed.
    """
    check_tensorboard("--format tensorboard")
    file = EventFile(folder, started.timestamp())
    for step, time_s, values in sorted(points(run), key=lambda point: point[1]):
        file.point(step, time_s, values)
    file.close()


def points(run: Run) -> Iterator[Point]:
    """Yields step, time in seconds and values of the curves of a run.

    Args:
        run: the run.
    """
    updates = run.tables.updates
    times_s, versions = updates["time_s"].to_numpy(), updates["version_applied"].to_numpy()
    for row in run.tables.evaluations.to_dict("records"):
        done = np.searchsorted(times_s, row["time_s"], side="right")
        yield _updates(versions[:done]), row["time_s"], {tag: row[column] for tag, column in SCORES.items()}
    if len(updates):
        yield from _training(run)


def _training(run: Run) -> Iterator[Point]:
    updates, wall_s = run.tables.updates, run.summary["wall_s"]
    times_s, versions = updates["time_s"].to_numpy(), updates["version_applied"].to_numpy()
    ends_s = np.linspace(0.0, wall_s, min(INTERVALS, len(updates)) + 1)[1:]
    samples, staleness = updates["samples"].to_numpy().cumsum(), updates["staleness"].to_numpy()
    before, begun_s = 0, 0.0
    for end_s, done in zip(ends_s.tolist(), np.searchsorted(times_s, ends_s, side="right").tolist(), strict=True):
        if done == before:
            continue
        new = int(samples[done - 1] - (samples[before - 1] if before else 0))
        values = {
            "train/samples": float(samples[done - 1]),
            "train/samples_per_s": new / (end_s - begun_s),
            "train/staleness": float(staleness[before:done].mean()),
        }
        yield _updates(versions[:done]), end_s, values
        before, begun_s = done, end_s


def _updates(versions: Any) -> int:
    """Returns the number of updates after the last of these."""
    return int(versions.max()) + 1 if len(versions) else 0
