"""TensorBoard event files of real runs: written while a run lasts, finished and kept with it when it ends.

Rules of this file:

* While a run lasts its events lie in a folder of their own in ``--out``, named ``…-live-<n>``; when it has ended they
  stand in ``tensorboard/`` of the run's folder, and the live one is gone. What watches ``--out`` sees both.
* What is written live is what the progress sees: means since the point before, every `EVERY_S`. Scores of snapshots,
  which are made after the run, follow at its end with the times that the snapshots had.
* The launcher writes, and no rank does; nothing here runs in a thread, since the launcher forks.
* Steps are those of the weights' keeper; times are of the wall clock.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.backend.status.progress_counters import Recent, Totals
from paceline.records import Run
from paceline.records.store import naming, place, slug
from paceline.scenarios.resolution.plan import Plan

EVERY_S = 0.5
"""between two points of a curve"""
START = Totals(0.0, 0, 0, 0, 0, 0, 0)
SCALARS = {
    "train/loss": "loss",
    "train/samples_per_s": "samples_per_s",
    "train/staleness": "staleness",
    "train/step_s": "step_s",
    "train/samples": "samples",
}
"""the curves that are written live, and what of `Recent` they show"""
SCORES = {"evaluation/loss": "loss", "evaluation/accuracy": "accuracy"}
"""the curves of the evaluations, and their columns"""


class Events:
    """The event file of one run."""

    def __init__(self, folder: Path, workers: int) -> None:
        folder.mkdir()
        self.folder = folder
        self._workers = workers
        self._started_s = time.time()
        # not by the library's own name, which has the host's in it; absolute, or it might be taken for a URI
        self._path = folder.absolute() / f"events.out.tfevents.{int(self._started_s)}.paceline"
        self._event = import_module("tensorboardX.proto.event_pb2").Event
        self._file = import_module("tensorboardX.record_writer").RecordWriter(str(self._path))
        self._write(self._event(wall_time=self._started_s, file_version="brain.Event:2"))
        self._shown = self._latest = START

    def look(self, now: Totals) -> None:
        """Writes a point of each curve, if the last one is a while ago."""
        if self._latest is START:
            self._started_s = time.time() - now.elapsed_s
        self._latest = now
        if now.elapsed_s - self._shown.elapsed_s >= EVERY_S:
            self._show()

    def _show(self) -> None:
        recent = Recent.between(self._shown, self._latest, workers=self._workers)
        self._shown = self._latest
        values = {tag: getattr(recent, name) for tag, name in SCALARS.items()}
        self._point(recent.step, recent.elapsed_s, values)
        with naming(self._path):
            self._file.flush()

    def finish(self, run: Run) -> tuple[str, bytes]:
        """Adds the run's scores; answers the file's name and all that stands in it."""
        # what came after the last point, as far as the run lasted: its ranks took a while to end
        self._latest = self._latest._replace(elapsed_s=min(self._latest.elapsed_s, run.summary["wall_s"]))
        if self._latest.elapsed_s > self._shown.elapsed_s and self._latest.gradients > self._shown.gradients:
            self._show()
        samples, steps = self._latest.samples, self._latest.step
        for row in run.tables.evaluations.to_dict("records"):
            # of how many of the keeper's steps a snapshot had the samples
            step = round(steps * row["samples"] / samples) if samples else 0
            self._point(step, row["time_s"], {tag: row[column] for tag, column in SCORES.items()})
        self.close()
        return self._path.name, self._path.read_bytes()

    def close(self) -> None:
        """Ends the file; to do so twice does no harm."""
        self._file.close()

    def _point(self, step: int, elapsed_s: float, values: Mapping[str, Any]) -> None:
        """A value for each of these curves, where there is one."""
        event = self._event(wall_time=self._started_s + elapsed_s, step=step)
        for tag, value in values.items():
            if value is not None and math.isfinite(value):
                event.summary.value.add(tag=tag, simple_value=value)
        self._write(event)

    def _write(self, event: Any) -> None:
        with naming(self._path):
            self._file.write(event.SerializeToString())


class TensorBoard:
    """The event files of one command's runs, of which one lasts at a time."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._plan: Plan | None = None
        self._events: Events | None = None

    def watch(self, plan: Plan, now: Totals) -> None:
        """Shows a run while it lasts."""
        if self._events is None or plan is not self._plan:
            stem = f"{slug(plan.scenario.name)}-{slug(plan.name)}-{plan.seed}-live"
            self._plan, self._events = plan, Events(place(self._out, stem), plan.job.workers)
        self._events.look(now)

    def finish(self, run: Run) -> Run:
        """The run that has ended, with its event file among its files."""
        if self._events is None:
            return run
        name, content = self._events.finish(run)
        return replace(run, files={**run.files, f"tensorboard/{name}": content})

    def clear(self) -> None:
        """Removes the live folder: its run is stored, or nothing of it is."""
        if self._events is not None:
            self._events.close()
            shutil.rmtree(self._events.folder, ignore_errors=True)
            self._events = None


@contextmanager
def tensorboard(out: Path) -> Iterator[TensorBoard]:
    """Event files for the runs that are made while this lasts; nothing of them is left in `out` itself afterwards.

    Raises:
        InputError: the package that writes them is not installed.
    """
    try:
        import_module("tensorboardX.record_writer")
    except ModuleNotFoundError as error:
        raise InputError(
            f"--tensorboard: found no package {error.name}; expected tensorboardX: pip install 'paceline[tensorboard]'"
        ) from error
    board = TensorBoard(out)
    try:
        yield board
    finally:
        board.clear()
