"""Loggers: curves and figures of runs for TensorBoard, Weights & Biases and MLflow, during a run and of stored runs.

* A `Logger` takes points of curves (a value by name, at a step and a second), and at the end figures and settings. All
  three get the same names, so that a simulated and a measured run are in one chart.
* During a real run the values are those of the progress display: means since the previous point, every `EVERY_S`.
  Evaluations of snapshots are made after the run and follow at its end, with the times of the snapshots.
* A simulated or stored run is divided into at most `INTERVALS` equal intervals; each has a point of each curve at its
  end. ``train/loss`` and ``train/step_s`` are missing, because stored runs do not hold them over time.
* Seconds are those of the run's own clock. Steps are updates; in a real run, steps of the rank that owns the weights.
* The launcher forks and supervises, so it must have no threads and never wait for a network. It writes event files
  itself; the packages of services have both, so they are in a process of their own (`services`).
* Event files are in ``…-live-<n>`` in ``--out`` until the run is stored, and then in ``tensorboard/`` of its folder.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np

from paceline.algorithms.core.checksums import read_sealed
from paceline.algorithms.core.errors import InputError, Mistakes, PacelineError
from paceline.backend.status.progress_counters import Recent, Totals
from paceline.records import Run
from paceline.records.document import plain
from paceline.records.figures import IN_SUMMARY
from paceline.records.store import RUN_JSON, WHOLE, naming, place, slug
from paceline.scenarios.resolution.plan import Plan

LoggerName = Literal["mlflow", "tensorboard", "wandb"]
PACKAGES: Mapping[LoggerName, str] = {"mlflow": "mlflow", "tensorboard": "tensorboardX", "wandb": "wandb"}
"""the package that each logger needs; the extra of paceline that installs it has the logger's name"""
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


@dataclass(frozen=True, slots=True)
class Title:
    """What a logger is told about a run before its first point."""

    scenario: str
    algorithm: str
    seed: int
    kind: str
    started_s: float
    """wall-clock time that is shown for the start of the run, in seconds since the epoch"""

    @staticmethod
    def of(run: Run, started_s: float) -> Title:
        """Returns the title of a run."""
        return Title(run.name, run.algorithm, run.seed, run.kind, started_s)

    @property
    def name(self) -> str:
        """The name of the run: that of its folder, without the number.

        >>> Title("my scenario", "agd", 1, "simulated", 0.0).name
        'my-scenario-agd-1-simulated'
        """
        return f"{slug(self.scenario)}-{slug(self.algorithm)}-{self.seed}-{self.kind}"


class Curves(Protocol):
    """Takes the curves and the figures of a run."""

    def point(self, step: int, elapsed_s: float, values: Mapping[str, float]) -> None:
        """Adds a value to each of these curves.

        Args:
            step: number of updates.
            elapsed_s: seconds since the start of the run.
            values: finite values by the name of their curve.
        """
        ...

    def summary(self, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """Takes the figures of the whole run by name, and its scenario, after its last point."""
        ...


class Logger(Curves, Protocol):
    """Takes the curves and figures of several runs, which follow one after the other."""

    def open(self, title: Title) -> None:
        """Begins a run."""
        ...

    def close(self, *, failed: bool = False) -> Mapping[str, bytes]:
        """Ends the run, if there is one; returns files to store with it, by path in its folder."""
        ...

    def clear(self) -> None:
        """Ends the run as a failed one if it has not ended, and removes what must not be left beside the stored run."""
        ...


def check_package(logger: LoggerName, option: str) -> None:
    """Raises `InputError`, which names the option, if the package that a logger needs is not installed.

    Args:
        logger: the logger.
        option: the option and its value that ask for it.

    Raises:
        InputError: the package is missing; the message has the command that installs it.
    """
    package = PACKAGES[logger]
    spec = find_spec(package)
    if spec is None or spec.origin is None:  # without an origin it is a folder of this name, such as W&B's own wandb/
        raise InputError(f"{option}: found no package {package}; expected it: pip install 'paceline[{logger}]'")


@contextmanager
def loggers(names: Sequence[LoggerName], out: Path, note: Callable[[str], None]) -> Iterator[RunLogs]:
    """Yields the logs of the runs of a command.

    Args:
        names: the loggers.
        out: folder for what is written on this machine.
        note: prints where a run is, or why it could not be written.

    Raises:
        InputError: packages are missing, or a service refuses.
    """
    with Mistakes() as mistakes:
        for name in names:
            with mistakes.noted():
                check_package(name, f"--log {name}")
    with ExitStack() as stack:
        opened: list[Logger] = []
        for name in dict.fromkeys(names):
            logger = EventFolder(out) if name == "tensorboard" else stack.enter_context(service(name, out, note))
            if name == "tensorboard":
                note(f"tensorboard: watch the runs with: tensorboard --logdir {out}")
            stack.callback(logger.clear)
            opened.append(logger)
        yield RunLogs(opened)


class RunLogs:
    """The logs of one command's runs, which run one after the other.

    Args:
        opened: the loggers.
    """

    def __init__(self, opened: Sequence[Logger]) -> None:
        self._loggers = opened
        self._plan: Plan | None = None
        self._live: LiveCurves | None = None

    def watch(self, plan: Plan, now: Totals) -> None:
        """Writes the progress of a real run."""
        if self._live is None or plan is not self._plan:
            title = Title(plan.scenario_name, plan.name, plan.seed, "measured", time.time() - now.elapsed_s)
            for logger in self._loggers:
                logger.open(title)
            self._plan, self._live = plan, LiveCurves(self._loggers, plan.job.workers)
        self._live.look(now)

    def finish(self, run: Run) -> Run:
        """Writes what is left of a run that has ended, or all of a run that was not watched.

        Args:
            run: the run, not stored yet.

        Returns:
            The run with the loggers' files among its files.
        """
        if self._live is None:
            title = Title.of(run, time.time())
            for logger in self._loggers:
                logger.open(title)
                _write_curves(logger, run)
        else:
            self._live.finish(run)
            self._live = None
        files = dict(run.files)
        for logger in self._loggers:
            files |= _close(logger, run)
        return replace(run, files=files)

    def clear(self) -> None:
        """Removes what belongs to a run, when it is stored or abandoned."""
        self._live = None
        for logger in self._loggers:
            logger.clear()


def _write_curves(logger: Curves, run: Run) -> None:
    for step, time_s, values in sorted(points(run), key=lambda point: point[1]):
        if finite := _finite(values):
            logger.point(step, time_s, finite)


def _close(logger: Logger, run: Run) -> Mapping[str, bytes]:
    logger.summary(_figures(run), run.scenario)
    return logger.close(failed=run.summary["stop_reason"] == "failure")


def _figures(run: Run) -> dict[str, float]:
    return _finite({f"summary/{figure.key}": figure.of(run.summary) for figure in IN_SUMMARY})


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the values that are finite numbers."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float, np.number)) and math.isfinite(value)
    }


class LiveCurves:
    """The curves of a run that is in progress."""

    def __init__(self, opened: Sequence[Logger], workers: int) -> None:
        self._loggers, self._workers = opened, workers
        self._shown = self._latest = START

    def look(self, now: Totals) -> None:
        """Writes a point of each curve, if `EVERY_S` seconds have passed since the last one."""
        self._latest = now
        if now.elapsed_s - self._shown.elapsed_s >= EVERY_S:
            self._show()

    def _show(self) -> None:
        recent = Recent.between(self._shown, self._latest, workers=self._workers)
        self._shown = self._latest
        values = _finite({name: getattr(recent, field) for name, field in SCALARS.items()})
        self._point(recent.step, recent.elapsed_s, values)

    def finish(self, run: Run) -> None:
        """Writes the last point and the run's evaluations."""
        # the end of the run after the last point, without the time that the ranks took to exit
        self._latest = self._latest._replace(elapsed_s=min(self._latest.elapsed_s, run.summary["wall_s"]))
        if self._latest.elapsed_s > self._shown.elapsed_s and self._latest.gradients > self._shown.gradients:
            self._show()
        samples, steps = self._latest.samples, self._latest.step
        for row in run.tables.evaluations.to_dict("records"):
            # converts the snapshot's samples to steps
            step = round(steps * row["samples"] / samples) if samples else 0
            self._point(step, row["time_s"], _finite({name: row[column] for name, column in SCORES.items()}))

    def _point(self, step: int, elapsed_s: float, values: Mapping[str, float]) -> None:
        for logger in self._loggers:
            logger.point(step, elapsed_s, values)


class EventFile:
    """An event file of TensorBoard, open for writing.

    Args:
        folder: an existing folder.
        started_s: the wall-clock time of the start of the run, in seconds since the epoch.
    """

    def __init__(self, folder: Path, started_s: float) -> None:
        self._started_s, self._last = started_s, (0, 0.0)
        # a name of our own, since the library's contains the host name; absolute, since it might be read as a URI
        self.path = folder.absolute() / f"events.out.tfevents.{int(started_s)}.paceline"
        self._event = import_module("tensorboardX.proto.event_pb2").Event
        self._file = import_module("tensorboardX.record_writer").RecordWriter(str(self.path))
        self._write(self._event(wall_time=started_s, file_version="brain.Event:2"))

    def point(self, step: int, elapsed_s: float, values: Mapping[str, float]) -> None:
        """Writes a value of each of these curves to the disk."""
        event = self._event(wall_time=self._started_s + elapsed_s, step=step)
        for name, value in values.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._write(event)
        with naming(self.path):
            self._file.flush()
        self._last = max(self._last, (step, elapsed_s))

    def summary(self, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """Writes the figures as curves of one point, at the end of the run; TensorBoard has no place for settings."""
        self.point(*self._last, figures)

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._file.close()

    def _write(self, event: Any) -> None:
        with naming(self.path):
            self._file.write(event.SerializeToString())


class EventFolder:
    """TensorBoard: an event file for each run, in a folder of its own until the run is stored.

    Args:
        out: the parent folder.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._file: EventFile | None = None

    def open(self, title: Title) -> None:
        """Creates the folder and the file."""
        stem = f"{slug(title.scenario)}-{slug(title.algorithm)}-{title.seed}-live"
        folder = place(self._out, stem)
        folder.mkdir(parents=True)
        self._file = EventFile(folder, title.started_s)

    def point(self, step: int, elapsed_s: float, values: Mapping[str, float]) -> None:
        """Writes a value of each of these curves."""
        if self._file is not None:
            self._file.point(step, elapsed_s, values)

    def summary(self, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """Writes the figures."""
        if self._file is not None:
            self._file.summary(figures, settings)

    def close(self, *, failed: bool = False) -> Mapping[str, bytes]:
        """Closes the file; returns its content."""
        if self._file is None:
            return {}
        self._file.close()
        return {f"tensorboard/{self._file.path.name}": self._file.path.read_bytes()}

    def clear(self) -> None:
        """Removes the folder."""
        if self._file is not None:
            self._file.close()
            shutil.rmtree(self._file.path.parent, ignore_errors=True)
            self._file = None


class Service:
    """Weights & Biases or MLflow: sends runs to the process of the service; a fault of it never ends a run.

    Args:
        name: the service.
        process: its process (`services`), with pipes as standard input and output.
        errors: the file that has what the process prints.
        note: prints where a run is, or why it could not be written.
    """

    def __init__(
        self, name: LoggerName, process: subprocess.Popen[bytes], errors: BinaryIO, note: Callable[[str], None]
    ) -> None:
        self._name, self._process, self._errors, self._note = name, process, errors, note
        self.place: str | None = None
        """where the last run is; None if it could not be written"""
        self._running = False

    def open(self, title: Title) -> None:
        """Begins a run."""
        self._running = True
        self.send({"open": {**asdict(title), "name": title.name}})

    def point(self, step: int, elapsed_s: float, values: Mapping[str, float]) -> None:
        """Sends a value of each of these curves."""
        self.send({"point": [step, elapsed_s, values]})

    def summary(self, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """Sends figures and settings."""
        self.send({"summary": [figures, settings]})

    def close(self, *, failed: bool = False) -> Mapping[str, bytes]:
        """Waits until everything is sent, and prints where the run is."""
        if not self._running:
            return {}
        self._running = False
        self.send({"close": {"failed": failed}})
        answer = self.answer()
        if (error := answer.get("error")) is not None:
            self.place = None
            self._note(f"{self._name}: the run could not be written: {error}")
        else:
            self.place = answer["place"]
            self._note(f"{self._name}: {answer['place']}{answer['hint']}")
        return {}

    def clear(self) -> None:
        """Ends the run as a failed one, if it has not ended."""
        self.close(failed=True)

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message to the process; `close` reports if it has ended by itself."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write((json.dumps(message, default=plain) + "\n").encode())

    def answer(self) -> Mapping[str, Any]:
        """Waits for the next message of the process; returns one with an error if it has ended."""
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            answer: Mapping[str, Any] = json.loads(line)
            return answer
        self._errors.seek(0)
        printed = self._errors.read().decode(errors="replace").strip().splitlines()
        return {"error": f"its process has ended: {printed[-1] if printed else 'it printed nothing'}"}


@contextmanager
def service(name: LoggerName, out: Path, note: Callable[[str], None], option: str = "--log") -> Iterator[Service]:
    """Yields a service whose process runs during the block.

    Args:
        name: ``"wandb"`` or ``"mlflow"``.
        out: folder for what the service writes on this machine.
        note: prints where a run is, or why it could not be written.
        option: the option that asks for the service.

    Raises:
        InputError: the service refuses, such as without an API key.
    """
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            # -P: a folder wandb/ here is no package; the process imports what this one can import
            [sys.executable, "-P", "-m", "paceline.reports.export.services", name, str(out.absolute())],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C reaches the launcher, which says how the run has ended
        ) as process,
    ):
        started = Service(name, process, errors, note)
        # its packages take seconds of processor time to import, which must not fall into a measured run
        if (error := started.answer().get("error")) is not None:
            raise InputError(f"{option} {name}: {error}")
        try:
            yield started
        finally:
            started.clear()
            started.send({"end": None})  # ranks may still hold the pipe, so closing it is not enough


def send_run(run: Run, name: LoggerName, out: Path, note: Callable[[str], None]) -> str:
    """Sends a stored run to a service.

    Args:
        run: the run, read from a folder.
        name: ``"wandb"`` or ``"mlflow"``.
        out: folder for what the service writes on this machine.
        note: prints where the run is, or why it could not be written.

    Returns:
        Where the run is: a URL or a folder.

    Raises:
        InputError: the package is missing, or the service refuses.
        PacelineError: the run could not be written.
    """
    check_package(name, f"--format {name}")
    with service(name, out, note, "--format") as logger:
        logger.open(Title.of(run, _stored_s(run)))
        _write_curves(logger, run)
        _close(logger, run)
    if logger.place is None:
        raise PacelineError(f"--format {name}: the run is not exported")
    return logger.place


def write_tensorboard(run: Run, folder: Path) -> None:
    """Writes an event file of a stored run into a folder.

    Args:
        run: the run, read from a folder.
        folder: an empty folder.

    Raises:
        InputError: the package that writes the files is not installed.
    """
    check_package("tensorboard", "--format tensorboard")
    file = EventFile(folder, _stored_s(run))
    _write_curves(file, run)
    file.summary(_figures(run), run.scenario)
    file.close()


def _stored_s(run: Run) -> float:
    """Returns when a run was stored, in seconds since the epoch."""
    assert run.path is not None
    return datetime.fromisoformat(read_sealed(run.path / RUN_JSON, WHOLE)["written"]).timestamp()


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
