"""One rank's process, from its start to its end."""

from __future__ import annotations

import ctypes
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import torch
import torch.distributed as dist

from paceline.algorithms.errors import PeerFailed
from paceline.algorithms.method import Me
from paceline.algorithms.values import Group, Rank, nbytes
from paceline.backend.accelerator import accelerator
from paceline.backend.board import Board, Doing
from paceline.backend.cells import Cells
from paceline.backend.collectives import Collectives
from paceline.backend.gather import Failure, stream_of
from paceline.backend.gpus import Devices, Movable
from paceline.backend.groups import LOOPBACK, Groups
from paceline.backend.interpreter import Interpreter
from paceline.backend.mail import Mail
from paceline.backend.pace import Clock
from paceline.backend.placement import Placement
from paceline.backend.recorder import Recorder
from paceline.backend.segment import Segment
from paceline.backend.shared import SharedMemory
from paceline.backend.station import Station

if TYPE_CHECKING:
    from paceline.backend.launch import Launch  # which forks what is here

EXIT_FAILED = 3
"""the exit status of a rank that has left its last words in its stream"""
PR_SET_PDEATHSIG = 1
START_IN_S = 0.01
ENVELOPE_BYTES = 4096
"""room in a receive buffer for everything of a message that is not a vector"""


@dataclass(frozen=True, slots=True)
class Place:
    """What a rank's process is given: through the fork, or made anew where it was spawned."""

    launcher: int
    """its process id"""
    launch: Launch
    board: Board
    folder: Path
    segments: Mapping[Group, Segment]
    """the memory of each node whose ranks share some"""
    placement: Placement
    devices: Devices


def maps(launch: Launch, folder: Path | None = None) -> tuple[Board, dict[Group, Segment]]:
    """The board of a run and the memory of its nodes: of this process and those that it forks, or in a folder."""
    job = launch.job
    keepers = [me.rank for me in job.team if me.role == job.method.keeper]
    board = Board(len(job.team), keepers, limit=job.limit, together=job.method.independent, folder=folder)
    nodes = dict.fromkeys(me.node for me in job.team if me.role == "worker") if launch.shared_memory else {}
    return board, {node: Segment(node, folder=folder) for node in nodes}


def work(place: Place, me: Me) -> NoReturn:
    """Performs the rank's program in a process that was forked."""
    live(place.launcher, place.folder, me.rank, me.role, lambda recorder: perform(place, me, recorder))


def live(launcher: int, folder: Path, rank: Rank, role: str, body: Callable[[Recorder], None]) -> NoReturn:
    """Does what a rank is for, leaves its record, and ends the process.

    Args:
        launcher: the process that started this one, and that this one does not outlive.
        folder: of the run.
        rank: who this is.
        role: what it does in its method.
        body: connects, runs and records.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the launcher, which ends its ranks
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a rank does not outlive its launcher
    if os.getppid() != launcher:  # which has died before the line above
        os._exit(EXIT_FAILED)
    recorder = Recorder(rank, stream_of(folder, rank))
    warnings.showwarning = lambda message, category, file, line, *_: recorder.add(
        "warning", (str(message), category, file, line)
    )
    status = EXIT_FAILED
    try:
        body(recorder)
        recorder.flush()
        status = 0
    except BaseException as error:
        recorder.add(
            "error",
            Failure(
                rank,
                role,
                type(error),
                str(error),
                traceback.format_exc(),
                time.monotonic(),
                isinstance(error, PeerFailed),
            ),
        )
    finally:
        try:
            recorder.flush()
        finally:  # not even a record that cannot be written lets this process out into the launcher's code
            os._exit(status)  # threads that wait in gloo cannot be ended otherwise


def perform(place: Place, me: Me, recorder: Recorder) -> None:
    """Connects, starts together with the others, runs, and stays until everything sent has been taken."""
    try:
        _perform(place, me, recorder)
    except BaseException:
        place.board.say(me.rank, Doing.FAILED)
        raise


def _perform(place: Place, me: Me, recorder: Recorder) -> None:
    place.placement.take(me.rank)  # before there are threads that would be somewhere else
    torch.set_num_threads(place.launch.threads)
    board, launch, job = place.board, place.launch, place.launch.job
    store = dist.FileStore(  # type: ignore[attr-defined]  # torch re-exports it without saying so
        str(place.folder / "store"), len(job.team)
    )
    interface = LOOPBACK if launch.hosts is None else launch.hosts.enter(me)  # before any thread has started
    own = accelerator(place.devices.name(me.rank))
    own.enter()
    if isinstance(job.learner, Movable):
        job.learner.to(own.device)
    initial = job.learner.initial()
    groups = Groups(me.rank, store, board.lost, interface, own, place.devices)
    mail = Mail(groups, me.everyone, capacity=nbytes(initial) + ENVELOPE_BYTES)
    collectives = Collectives(groups)
    memory = None
    if me.node in place.segments:
        memory = SharedMemory(place.segments[me.node], me.rank, board.lost)
    for group in dict.fromkeys((me.workers, me.node, me.leaders)):  # made now, so that no step pays for it
        if (
            me.rank in group
            and len(group) > 1
            and (groups.direct(group) or memory is None or memory.line(group) is None)
        ):
            collectives.connect(group)
    station = Station(me, board, recorder, meet(board, me), own)
    interpreter = Interpreter(
        station,
        job,
        mail=mail,
        collectives=collectives,
        memory=memory,
        cells=Cells(node_folder(place.folder, me.node)),
        pace=launch.pace,
        prefetch=launch.prefetch,
        schedule=launch.schedule(),
    )
    state = interpreter.run()
    recorder.add("end", station.clock.now())
    recorder.add("state", state)
    recorder.add("late", interpreter.device.late_s)
    recorder.add("device", (me.rank, own.facts()))
    if interpreter.loader.reads is not None:
        recorder.add("reads", interpreter.loader.reads)
    recorder.add("adds", (node_folder(place.folder, me.node), dict(interpreter.cells.adds)))
    if me.rank == job.keeper:
        recorder.add("weights", interpreter.keeper.learned.latest.vector)
    board.say(me.rank, Doing.ENDED)
    mail.flush()
    board.say(me.rank, Doing.DRAINED)
    while not board.all_drained and board.lost() is None:  # others may still send here
        time.sleep(0.002)


def meet(board: Board, me: Me) -> Clock:
    """Waits until every rank is ready; all clocks start at one moment."""
    board.say(me.rank, Doing.READY)
    while not board.all_ready:
        time.sleep(0.0005)
    if me.rank == 0:
        board.start(time.monotonic() + START_IN_S)
    while not board.start_s:
        time.sleep(0.0005)
    clock = Clock(board.start_s)
    board.say(me.rank, Doing.RUNNING)
    clock.wait_until(0.0)
    return clock


def node_folder(folder: Path, node: Group) -> Path:
    """Where the cells of a node lie."""
    path = folder / f"node{node.ranks[0]}"
    path.mkdir(exist_ok=True)
    return path
