"""The process that sends runs to Weights & Biases or MLflow: ``python -m paceline.reports.export.services wandb DIR``.

* It reads messages from standard input, a JSON object a line: ``open`` with a title, ``point`` with step, seconds and
  values, ``summary`` with figures and settings, ``close``, ``end``. It answers its start and each ``close`` on standard
  output: ``place`` and ``hint``, or ``error``.
* A thread reads, so the launcher never waits for a service that is slow.
* After an error it ignores the rest of the run, and reports the error at its ``close``.
* Where runs go is decided by the variables of each service, such as ``WANDB_MODE`` and ``MLFLOW_TRACKING_URI``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, BinaryIO, Protocol

from paceline.records.document import flat

PROJECT = "paceline"
FLUSH_S, FLUSH_METRICS = 1.0, 500
"""MLflow gets a batch of values at least as often as this; it takes at most 1,000 in a batch (its REST API)"""
BATCH, LONGEST_VALUE = 100, 500
"""parameters in a batch, and letters of a value, that every version of MLflow takes (its REST API)"""


class Client(Protocol):
    """One service."""

    def open(self, title: Mapping[str, Any]) -> None:
        """Begins a run."""
        ...

    def point(self, step: int, elapsed_s: float, values: Mapping[str, float]) -> None:
        """Adds a value to each of these curves."""
        ...

    def summary(self, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """Takes the figures and the settings of the run."""
        ...

    def close(self, *, failed: bool) -> dict[str, str]:
        """Ends the run; returns where it is (``place``), and what a user does next (``hint``)."""
        ...


class Wandb:
    """Weights & Biases. Its axis is the time of the run's own clock, in which a prediction and a measurement agree.

    Args:
        folder: the folder for its files, unless ``WANDB_DIR`` is another.
    """

    def __init__(self, folder: Path) -> None:
        self._wandb: Any = import_module("wandb")
        self._folder = os.environ.get("WANDB_DIR", str(folder))
        self._run: Any = None
        if os.environ.get("WANDB_MODE", "online") in ("online", "run", "shared"):
            try:
                known = self._wandb.login(verify=False)
            except self._wandb.errors.UsageError:
                known = False
            if not known:
                raise PermissionError(
                    "found no API key of Weights & Biases; expected one from `wandb login` or in WANDB_API_KEY, or "
                    "WANDB_MODE=offline"
                )

    def open(self, title: Mapping[str, Any]) -> None:
        """Begins a run in the project `PROJECT` and the group of the scenario."""
        about = {key: title[key] for key in ("algorithm", "seed", "kind")}
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            group=os.environ.get("WANDB_RUN_GROUP", title["scenario"]),
            job_type=title["kind"],
            name=title["name"],
            dir=self._folder,
            config=about,
            settings=self._wandb.Settings(
                silent=True,
                console="off",
                save_code=False,
                disable_git=True,
                x_disable_stats=True,  # its samples of processors and GPUs would cost time in a measured run
            ),
        )
        self._run.define_metric("time_s")
        self._run.define_metric("*", step_metric="time_s")

    def point(self, step: int, elapsed_s: float, values: Mapping[str, float]) -> None:
        """Adds a value to each of these curves."""
        self._run.log({"time_s": elapsed_s, "updates": step, **values})

    def summary(self, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """Adds the figures to the run's summary, and the scenario to its configuration."""
        self._run.summary.update(figures)
        self._run.config.update({"scenario": settings}, allow_val_change=True)

    def close(self, *, failed: bool) -> dict[str, str]:
        """Ends the run."""
        run, self._run = self._run, None
        run.finish(exit_code=int(failed))
        if run.offline:
            folder = str(Path(run.dir).parent)
            return {"place": folder, "hint": f"; upload it with: wandb sync {folder}"}
        return {"place": str(run.url), "hint": ""}


class Mlflow:
    """MLflow: one experiment, with a run for each run.

    Args:
        folder: the folder of ``mlflow.db``, unless ``MLFLOW_TRACKING_URI`` is another place.
    """

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")  # 7 would say nothing for four minutes
        self._entities: Any = import_module("mlflow.entities")
        self._uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute()}/mlflow.db"
        self._client: Any = import_module("mlflow").MlflowClient(tracking_uri=self._uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        self._experiment = self._client.create_experiment(name) if known is None else known.experiment_id
        self._run = ""
        self._started_s = self._flushed_s = 0.0
        self._elapsed_s, self._step = 0.0, 0
        self._metrics: list[Any] = []

    def open(self, title: Mapping[str, Any]) -> None:
        """Begins a run."""
        self._started_s, self._elapsed_s, self._step, self._metrics = title["started_s"], 0.0, 0, []
        about = {f"paceline.{key}": str(title[key]) for key in ("scenario", "algorithm", "seed", "kind")}
        started = self._client.create_run(
            self._experiment, start_time=self._milliseconds(0.0), run_name=title["name"], tags=about
        )
        self._run = started.info.run_id

    def point(self, step: int, elapsed_s: float, values: Mapping[str, float]) -> None:
        """Adds a value to each of these curves."""
        at = self._milliseconds(elapsed_s)
        self._metrics += [self._entities.Metric(name, value, at, step) for name, value in values.items()]
        self._step, self._elapsed_s = max(self._step, step), max(self._elapsed_s, elapsed_s)
        if len(self._metrics) >= FLUSH_METRICS or time.monotonic() - self._flushed_s >= FLUSH_S:
            self._flush()

    def summary(self, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """Adds the figures as metrics of one value, and the scenario as parameters."""
        self.point(self._step, self._elapsed_s, figures)
        self._flush()
        parameters = [
            # a name may have letters, digits and _-./ : only
            self._entities.Param(re.sub(r"[^\w\-./ :]", "_", name), str(value)[:LONGEST_VALUE])
            for name, value in flat(settings, "scenario")
            if value is not None
        ]
        for first in range(0, len(parameters), BATCH):
            self._client.log_batch(self._run, params=parameters[first : first + BATCH])

    def close(self, *, failed: bool) -> dict[str, str]:
        """Ends the run."""
        self._flush()
        status = "FAILED" if failed else "FINISHED"
        self._client.set_terminated(self._run, status=status, end_time=self._milliseconds(self._elapsed_s))
        return {
            "place": f"{self._uri}, run {self._run}",
            "hint": f"; show it with: mlflow ui --backend-store-uri {self._uri}" if "sqlite" in self._uri else "",
        }

    def _flush(self) -> None:
        if self._metrics:
            self._client.log_batch(self._run, metrics=self._metrics)
        self._metrics, self._flushed_s = [], time.monotonic()

    def _milliseconds(self, elapsed_s: float) -> int:
        return round((self._started_s + elapsed_s) * 1e3)


CLIENTS: Mapping[str, Callable[[Path], Client]] = {"mlflow": Mlflow, "wandb": Wandb}


def serve(connect: Callable[[], Client], requests: BinaryIO, answers: BinaryIO) -> None:
    """Performs requests until the last one.

    Args:
        connect: connects to the service.
        requests: messages, one a line.
        answers: gets the answers, one a line.
    """

    def answer(said: Mapping[str, Any]) -> None:
        answers.write((json.dumps(said) + "\n").encode())
        answers.flush()

    try:
        client = connect()
    except Exception as error:  # of any class: the packages of services raise their own
        answer({"error": _words(error)})
        return
    answer({"ready": True})
    waiting: Queue[dict[str, Any]] = Queue()
    Thread(target=_read, args=(requests, waiting), daemon=True).start()
    failure: str | None = None
    running = False
    while (message := waiting.get()) != {"end": None}:
        ((kind, content),) = message.items()
        try:
            if kind == "open":
                failure = None
                client.open(content)
                running = True
            elif kind == "close":
                running = False
                answer({"error": failure} if failure is not None else client.close(**content))
            elif failure is None and kind == "point":
                client.point(*content)
            elif failure is None:
                client.summary(*content)
        except Exception as error:
            failure = _words(error)
            if kind == "close":
                answer({"error": failure})
    if running:
        with suppress(Exception):  # nobody is left who could be told
            client.close(failed=True)


def _read(requests: BinaryIO, waiting: Queue[dict[str, Any]]) -> None:
    """Puts all messages into the queue; where they end without an ``end``, the launcher was killed."""
    for line in requests:
        waiting.put(json.loads(line))
    waiting.put({"end": None})


def _words(error: Exception) -> str:
    """Returns the first line of an error's message, with its class unless it is a sentence of ours."""
    said = (str(error).splitlines() or [""])[0]
    return said if isinstance(error, PermissionError) else f"{type(error).__name__}: {said}"


def main() -> None:
    """Serves the launcher; what packages print goes to standard error, and they read nothing."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    name, folder = sys.argv[1:]
    serve(lambda: CLIENTS[name](Path(folder)), requests, answers)


if __name__ == "__main__":
    main()
