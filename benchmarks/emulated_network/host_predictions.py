"""Step times of unpaced runs on two hosts: calibrated, predicted and measured under one launcher.

Rules of this file:

* The three steps are commands, as a user gives them: `paceline calibrate` and `paceline train` in the processes of the
  launcher, and `paceline compare --measured` with the machine file for the prediction. It sees the scenario and
  the machine file only.
* The hosts are namespaces of one machine, so they share its cores. With one worker on each host and two cores or more,
  each worker has a core; with more, hosts slow each other down, which real hosts do not.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from emulated_network.launchers import COMMAND, launched
from paceline.algorithms.core.errors import RunFailed
from paceline.backend.emulation.emulated_hosts import Hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The step time of a method on two hosts.

    Args:
        algorithm: its name.
        predicted_s: the mean step time by the prediction.
        measured_s: the mean step time of the run.
        error: the difference over the measured time.
        alpha_beta: the error of the α–β model.
    """

    algorithm: str
    predicted_s: float
    measured_s: float
    error: float
    alpha_beta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """The methods under one launcher, and the quality of the calibration."""

    launcher: str
    verdict: str
    other_load: float
    """share of the cores that other programs used while the runs were measured"""
    rows: tuple[Predicted, ...]

    @property
    def mean_error(self) -> float:
        """The mean of the absolute errors."""
        return sum(abs(row.error) for row in self.rows) / len(self.rows)


def predictions(
    launcher: str, made: Hosts, scenario: Mapping[str, Any], processes: int, folder: Path, seconds: float
) -> Predictions:
    """Calibrates two hosts, measures a scenario on them, and predicts it.

    Args:
        launcher: the launcher's name.
        made: the hosts.
        scenario: the scenario, not paced.
        processes: processes on each host, one of them for a server.
        folder: for the machine file and the records.
        seconds: the time after which no further round of the calibration begins.

    Raises:
        RunFailed: a command failed.
    """
    path, machine, runs = folder / "scenario.json", folder / "machine.yaml", folder / "runs"
    path.write_text(json.dumps(scenario))  # JSON is valid YAML
    batch = str(scenario["workload"]["batch_per_worker"])
    calibrating = ["calibrate", str(path), "--batches", batch, "--seconds", str(seconds), "--out", str(machine)]
    launched(launcher, made, processes, calibrating)
    launched(launcher, made, processes, ["train", str(path), "--out", str(runs)])
    answer = compared(sorted(run.parent for run in runs.glob("*/run.json")), machine, runs)
    rows = tuple(
        Predicted(
            algorithm=one["name"],
            predicted_s=one["simulated"]["step_s"]["mean"],
            measured_s=one["measured"]["step_s"]["mean"],
            error=one["error"]["step_s"]["mean"],
            alpha_beta=one["wrong_models"]["alpha_beta"]["step_s"]["mean"],
        )
        for one in answer["algorithms"]
    )
    verdict = yaml.safe_load(machine.read_text())["made"]["verdict"]
    return Predictions(launcher=launcher, verdict=verdict, other_load=answer["other_load"], rows=rows)


def compared(runs: Sequence[Path], machine: Path, out: Path) -> dict[str, Any]:
    """Returns the answer of `paceline compare --measured` for these runs.

    Raises:
        RunFailed: it failed; the message is its output.
    """
    named = [text for run in runs for text in ("--measured", str(run))]
    command = [*COMMAND, "compare", *named, "--machine", str(machine), "--out", str(out), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(done.stdout + done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
