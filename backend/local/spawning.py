"""Ranks that are spawned instead of forked, since CUDA does not survive a fork.

Rules of this file:

* A spawned process inherits nothing. It builds its job from the scenario, and maps the board and its node's memory as
  files of the run's folder. So a run without a scenario (a test's own method, a probe) must be forked.
* The other fields of a `Launch` are plain values and are pickled without change, so this file lists only those that are
  not.
* Until a rank can write an error to its record, it writes it to standard error, and its exit status ends the run.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.backend.devices.cpu_affinity import Placement
from paceline.backend.devices.gpus import Devices
from paceline.backend.local.worker import Place, maps, work
from paceline.backend.status.recorder import EXIT_FAILED

if TYPE_CHECKING:
    from paceline.backend.local.launch import Launch  # launch imports this module

VALUES_FILE = "spawn-values"
"""the file in a run's folder with the values for spawned ranks"""
LIVE: dict[str, Any] = dict.fromkeys(("job", "schedule", "pace", "progress", "observe", "echo"))
"""fields of a launch that exist in the launcher's process only"""
COMMAND = "from paceline.backend.local.spawning import main; main()"


@dataclass(frozen=True, slots=True)
class SpawnValues:
    """The values that a spawned rank needs, all of them plain."""

    launcher: int
    launch: Any
    """a `Launch` without the fields of `LIVE`"""
    paced: bool
    scenario: Mapping[str, Any]
    placement: Placement
    devices: Devices


def write_values(place: Place) -> None:
    """Writes the values that spawned ranks need to a file of the run's folder.

    Raises:
        InputError: the launch has no scenario.
    """
    launch = place.launch
    if launch.scenario is None:
        raise InputError("train.start_method: found spawn for a run that is not of a scenario; expected fork")
    values = SpawnValues(
        place.launcher,
        replace(launch, **LIVE),
        launch.pace is not None,
        launch.scenario,
        place.placement,
        place.devices,
    )
    (place.folder / VALUES_FILE).write_bytes(pickle.dumps(values))


def spawn(folder: Path, rank: Rank) -> int:
    """Starts the process of a rank, with this process's module search path; returns its process id."""
    paths = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-c", COMMAND, str(folder), str(rank)],
        {**os.environ, "PYTHONPATH": paths},
        setsigmask=[signal.SIGINT],  # only the launcher handles Ctrl-C, also while the rank imports modules
    )


def main() -> NoReturn:
    """Runs a spawned rank; the entry point of its process."""
    folder, rank = Path(sys.argv[1]), Rank(int(sys.argv[2]))
    try:
        values: SpawnValues = pickle.loads((folder / VALUES_FILE).read_bytes())
    except FileNotFoundError:  # the launcher has ended and removed the run's folder
        os._exit(EXIT_FAILED)
    launch = build_launch(values)
    board, segments, mailboxes = maps(launch, folder, spawned=True)
    place = Place(values.launcher, launch, board, folder, segments, mailboxes, values.placement, devices=values.devices)
    work(place, launch.job.team[rank])


def build_launch(values: SpawnValues) -> Launch:
    """Returns the launch, with a job built in this process."""
    from paceline.scenarios.resolution.load_scenario import load  # here: the launcher does not need it

    (plan,) = load(values.scenario).plans(paced=values.paced)
    launch: Launch = values.launch
    return replace(launch, job=plan.measured_job, schedule=plan.schedule, pace=plan if values.paced else None)
