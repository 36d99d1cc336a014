"""Starts local ranks, supervises them, and collects their records.

Rules of this file:

* The launcher forks one process per rank (torch is imported once: eight ranks start in 0.4 s), or spawns it if it
  computes on a GPU, since CUDA does not survive a fork. The launcher itself computes only the evaluation of snapshots,
  on the processor, if an accuracy, a loss or divergence can end the run.
* The launcher runs no thread of its own, and ranks find each other through a file. The thread of a TCP store may hold
  the resolver's lock at the moment of a fork, and the child then waits for it for ever (once in some ten launches).
* In all cases (a rank dies or fails, a deadlock, Ctrl-C, the launcher itself is killed) no process remains, and
  everything recorded until then is stored.
* A spawned process inherits nothing. It builds its job from the scenario, and maps the board and its node's memory as
  files of the run's folder. So a run without a scenario (a test's own method, a probe) must be forked. The other fields
  of a `Launch` are plain values and are pickled without change; `LIVE` lists those that are not.
* Until a spawned rank can write an error to its record, it writes it to standard error, and its exit status ends the
  run.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import torch

from paceline.algorithms.core.errors import InputError, PacelineError, RunFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.devices.accelerator import Asked, Devices, Start, devices
from paceline.backend.devices.cpu_affinity import Pin, Placement, placement
from paceline.backend.emulation.emulated_hosts import Hosts
from paceline.backend.local.worker import RankEnvironment, maps, work
from paceline.backend.posix.processes import fork, uninterrupted
from paceline.backend.posix.reserve import explaining
from paceline.backend.posix.run_folders import run_folder
from paceline.backend.rank.checkpoint import Checkpoint, Saving
from paceline.backend.rank.pacing import OnNonfinite, Pace
from paceline.backend.status.progress_counters import Totals
from paceline.backend.status.rank_logs import Echo, Following, logs
from paceline.backend.status.recorder import EXIT_FAILED
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.supervision.gather import gather, stream_of
from paceline.backend.supervision.supervisor import Supervisor
from paceline.backend.transports.collectives import check_interfaces
from paceline.records.trace import Schedule, Trace

WATCH_S = 0.02
"""seconds between two checks of the ranks"""
REPORT_S = 0.1
"""seconds between two progress reports"""
DEADLOCK_TIMEOUT_S = 10.0
"""seconds without progress, while all ranks wait for each other, after which it is a deadlock"""
TIMEOUT_S = 60.0
"""seconds for which a rank may be stopped, or make no progress while others wait for it; chosen by us"""


class RankFailed(RunFailed):
    """A rank died or failed."""

    @staticmethod
    def of(failure: RunFailed) -> RankFailed:
        """Returns the same failure, with its rank and its trace."""
        made = RankFailed(str(failure))
        made.rank = failure.rank
        for note in getattr(failure, "__notes__", ()):
            made.add_note(note)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A job and the settings of its real run."""

    job: Job
    schedule: Callable[[], Schedule]
    pace: Pace | None = None
    """the device times of a paced run; None: no pacing"""
    prefetch: int | None = None
    """batches that each rank prefetches; None: all are in memory"""
    torch_threads: int = 1
    """torch threads of each rank"""
    device: Asked = "cpu"
    """the devices of the ranks; see `gpus.devices`"""
    share_gpus: bool = False
    """whether ranks may share a GPU"""
    cpu_affinity: Pin = "auto"
    """CPU affinity of the ranks; see `cpu_affinity`"""
    shared_memory: bool = True
    """whether ranks of one node use shared memory for collectives, and ranks of one host for messages"""
    interfaces: Sequence[str] = ()
    """network interfaces, which the ranks of a host use in turn; none: loopback"""
    deadlock_timeout_s: float = DEADLOCK_TIMEOUT_S
    timeout_s: float = TIMEOUT_S
    """seconds without progress, or stopped, after which a rank that others wait for is declared failed"""
    on_nonfinite: OnNonfinite = "warn"
    """whether a loss or a gradient that is not finite ends the run"""
    hosts: Hosts | None = None
    """the network namespace of each node, between which the network is emulated; None: no emulation"""
    saving: Saving | None = None
    """how checkpoints are made; None: there are none"""
    start: Checkpoint | None = None
    """the checkpoint from which the run is resumed; None: it starts at the beginning"""
    processes: Start = "auto"
    """how the processes of ranks are started; see `Devices.start`"""
    scenario: Mapping[str, Any] | None = None
    """the scenario of this run alone, resolved, from which a spawned rank builds its job"""
    progress: Callable[[int, float], None] | None = None
    """called regularly with the completed steps of the weights' owner and the seconds since the start"""
    observe: Callable[[Totals], None] | None = None
    """called every `REPORT_S` and at the end with the progress of all ranks"""
    echo: Echo | None = None
    """called with each line that a rank writes, which is also in its log"""

    def devices(self) -> Devices:
        """Returns the devices of the ranks; raises `InputError` if they are not available."""
        ranks = [me.rank for me in self.job.team]
        return devices(
            self.device, [ranks], learner=self.job.learner, share=self.share_gpus, apart=self.hosts is not None
        )


def run_job(launch: Launch) -> Trace:
    """Runs a job with one process per rank and returns its record.

    Raises:
        RankFailed: a rank died or failed; the message names it.
        DeadlockError, ProgramError: the programs are wrong; the message names rank, program line and step.
            All have the record until then as their `trace`.
    """
    begun_s = time.monotonic()
    # before the fork: a child inherits torch's state but not the threads of its pool
    torch.set_num_threads(launch.torch_threads)
    team = launch.job.team
    if launch.hosts is not None:
        launch.hosts.check(team)
    check_interfaces(launch.interfaces)
    places = placement(launch.cpu_affinity, team, launch.torch_threads)
    if launch.saving is not None or launch.start is not None:
        import_module("paceline.backend.rank.checkpointing")  # once here instead of in every rank: it takes a second
    placed = launch.devices()
    spawned = placed.start(launch.processes) == "spawn"
    with run_folder() as folder:
        trace, failure = _supervised(launch, folder, places, placed, begun_s, spawned=spawned)
    if failure is None:
        return trace
    if isinstance(failure, RunFailed):
        failure = RankFailed.of(failure)
    failure.trace = trace
    raise failure


def _supervised(
    launch: Launch, folder: Path, places: Placement, placed: Devices, begun_s: float, *, spawned: bool
) -> tuple[Trace, PacelineError | None]:
    """Starts the ranks and waits for them; returns the record, and the failure if there was one."""
    team = launch.job.team
    children: dict[int, Rank] = {}
    try:
        with explaining(folder):
            board, segments, mailboxes = maps(launch, folder, spawned=spawned)
            place = RankEnvironment(os.getpid(), launch, board, folder, segments, mailboxes, places, devices=placed)
            if spawned:
                write_values(place)
            if launch.start is not None:
                continue_from(launch.start, board, folder)
        sys.stdout.flush()
        sys.stderr.flush()
        with uninterrupted():  # ranks ignore Ctrl-C, and none is left out of `children`
            for me in team:
                if (pid := spawn(folder, me.rank) if spawned else fork()) == 0:
                    work(place, me)
                children[pid] = me.rank
        supervisor = Supervisor(
            launch.job,
            board,
            children,
            folder,
            deadlock_timeout_s=launch.deadlock_timeout_s,
            timeout_s=launch.timeout_s,
        )
        progress = ProgressReporter(launch, board, folder)
        while supervisor.check():
            progress.report(every_s=REPORT_S)
            time.sleep(WATCH_S)
        progress.report()
        failure = supervisor.failure
        trace = gather(launch.job, folder, start_s=board.start_s)
        trace.failed_ranks = supervisor.failed_ranks
        if (ended := supervisor.ended()) is not None:
            failure, trace.ended = RunFailed(ended), ended
        trace.stop_reason = "failure" if failure is not None else board.stop_reason or launch.job.budget.usual_end
        trace.notes["startup_s"] = max(0.0, board.start_s - begun_s)
        trace.notes["placement"] = places.record()
        trace.files = logs(folder, team)
        trace.notes["devices"] = placed.record(trace.notes.pop("devices", []))
        for warning in trace.notes.pop("warnings", []):
            warnings.warn_explicit(*warning)
    finally:
        with uninterrupted():  # a second Ctrl-C does not interrupt the cleanup
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return trace, failure


def continue_from(start: Checkpoint, board: StatusBoard, folder: Path) -> None:
    """Restores the state that ranks resume from: their records and their granted steps."""
    board.resume(start.granted, [Rank(rank) for rank in range(start.ranks)])
    for rank in range(start.ranks):
        start.copy_record(Rank(rank), stream_of(folder, Rank(rank)))


class ProgressReporter:
    """Reports progress to the launch's callbacks, and passes on the lines of the ranks' logs."""

    def __init__(self, launch: Launch, board: StatusBoard, folder: Path) -> None:
        self.launch, self.board = launch, board
        self.following = Following(folder, launch.job.team)
        self.shown_s = 0.0

    def report(self, every_s: float = 0.0) -> None:
        """Reports at most once in `every_s` seconds."""
        launch, board, now_s = self.launch, self.board, time.monotonic()
        elapsed_s, started = now_s - board.start_s, bool(board.start_s)
        if launch.progress is not None and started:
            launch.progress(board.ranks[board.weights_owner].step, elapsed_s)
        if now_s - self.shown_s < every_s:
            return
        self.shown_s = now_s
        if launch.echo is not None:
            for rank, line in self.following.lines():
                launch.echo(rank, line)
        if launch.observe is not None and started:
            launch.observe(board.totals(board.weights_owner, elapsed_s))


# --- spawned ranks ----------------------------------------------------------------------------------------------------

VALUES_FILE = "spawn-values"
"""the file in a run's folder with the values for spawned ranks"""
LIVE: dict[str, Any] = dict.fromkeys(("job", "schedule", "pace", "progress", "observe", "echo"))
"""fields of a launch that exist in the launcher's process only"""
COMMAND = "from paceline.backend.local.launch import spawned_rank; spawned_rank()"


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


def write_values(place: RankEnvironment) -> None:
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


def spawned_rank() -> NoReturn:
    """Runs a spawned rank; the entry point of its process."""
    folder, rank = Path(sys.argv[1]), Rank(int(sys.argv[2]))
    try:
        values: SpawnValues = pickle.loads((folder / VALUES_FILE).read_bytes())
    except FileNotFoundError:  # the launcher has ended and removed the run's folder
        os._exit(EXIT_FAILED)
    launch = build_launch(values)
    board, segments, mailboxes = maps(launch, folder, spawned=True)
    place = RankEnvironment(
        values.launcher, launch, board, folder, segments, mailboxes, values.placement, devices=values.devices
    )
    work(place, launch.job.team[rank])


def build_launch(values: SpawnValues) -> Launch:
    """Returns the launch, with a job built in this process."""
    from paceline.scenarios.resolution.load_scenario import load  # here: the launcher does not need it

    (plan,) = load(values.scenario).plans(paced=values.paced)
    launch: Launch = values.launch
    return replace(launch, job=plan.measured_job, schedule=plan.schedule, pace=plan if values.paced else None)
