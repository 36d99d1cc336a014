"""Ranks that are started anew instead of forked, since CUDA does not survive a fork.

Rules of this file:

* A process that is started anew inherits nothing. It builds its job from the scenario, as anybody who runs it again
  would, and maps the board and its node's memory as files of the run's folder. So what is not of a scenario (a test's
  own method, a probe) is forked.
* What a `Launch` holds beside its job is plain, and travels as it is, so that nothing has to be named here.
* Until a rank can say what is wrong in its record, it says so on standard error, and its exit status ends the run.
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
    from paceline.backend.local.launch import Launch  # which spawns what is here

TOLD = "told"
"""the file in a run's folder with what its ranks are told"""
LIVE: dict[str, Any] = dict.fromkeys(("job", "schedule", "pace", "progress", "observe", "echo"))
"""what a launch holds that only its own process has"""
COMMAND = "from paceline.backend.local.spawning import main; main()"


@dataclass(frozen=True, slots=True)
class Told:
    """All that a rank is told; plain values."""

    launcher: int
    launch: Any
    """a `Launch` without what is `LIVE`"""
    paced: bool
    scenario: Mapping[str, Any]
    placement: Placement
    devices: Devices


def tell(place: Place) -> None:
    """Writes down what spawned ranks need, in the run's folder.

    Raises:
        InputError: the launch is not of a scenario.
    """
    launch = place.launch
    if launch.scenario is None:
        raise InputError("train.start_method: found spawn for a run that is not of a scenario; expected fork")
    told = Told(
        place.launcher,
        replace(launch, **LIVE),
        launch.pace is not None,
        launch.scenario,
        place.placement,
        place.devices,
    )
    (place.folder / TOLD).write_bytes(pickle.dumps(told))


def spawn(folder: Path, rank: Rank) -> int:
    """Starts a rank's process, which finds modules where this one does; answers its process id."""
    paths = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-c", COMMAND, str(folder), str(rank)],
        {**os.environ, "PYTHONPATH": paths},
        setsigmask=[signal.SIGINT],  # a Ctrl-C is the launcher's, also while this one is still importing
    )


def main() -> NoReturn:
    """A spawned rank's process."""
    folder, rank = Path(sys.argv[1]), Rank(int(sys.argv[2]))
    try:
        told: Told = pickle.loads((folder / TOLD).read_bytes())
    except FileNotFoundError:  # the launcher is gone, and the run's folder with it
        os._exit(EXIT_FAILED)
    launch = built(told)
    board, segments, mailboxes = maps(launch, folder, spawned=True)
    place = Place(told.launcher, launch, board, folder, segments, mailboxes, told.placement, devices=told.devices)
    work(place, launch.job.team[rank])


def built(told: Told) -> Launch:
    """The launch, with a job of this process's own."""
    from paceline.scenarios.resolution.load_scenario import load  # here: the launcher has no use for it

    (plan,) = load(told.scenario).plans(paced=told.paced)
    launch: Launch = told.launch
    return replace(launch, job=plan.measured_job, schedule=plan.schedule, pace=plan if told.paced else None)
