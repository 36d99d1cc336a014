"""One rank, from its beginning to its end: a process that was forked, or a thread of one that others have started."""

from __future__ import annotations

import ctypes
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from paceline.algorithms.errors import PeerFailed
from paceline.algorithms.method import Me
from paceline.algorithms.values import Group, nbytes
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
    """What a rank is given.

    Args:
        launcher: the process id of whoever forks it; its own where nobody does.
        launch: what is to be run.
        board: of its host.
        folder: of the run on its host.
        segments: the memory of each node whose ranks share some.
        placement: where ranks run.
        store: where ranks of several hosts find each other; None: a file of the folder.
        interface: what messages cross; None: as `launch` says.
        stays: whether the process goes on after this run.
        devices: what ranks compute on.
    """

    launcher: int
    launch: Launch
    board: Board
    folder: Path
    segments: Mapping[Group, Segment]
    placement: Placement
    store: Store | None = None
    interface: str | None = None
    stays: bool = False
    devices: Devices = field(default_factory=lambda: Devices("nobody has asked"))


def maps(launch: Launch, folder: Path, *, spawned: bool) -> tuple[Board, dict[Group, Segment]]:
    """The board of a run and the memory of its nodes: where ranks are spawned, both in files of the run's folder."""
    job = launch.job
    keepers = [me.rank for me in job.team if me.role == job.method.keeper]
    board = Board(len(job.team), keepers, limit=job.limit, together=job.method.independent, folder=folder)
    nodes = dict.fromkeys(me.node for me in job.team if me.role == "worker") if launch.shared_memory else {}
    return board, {node: Segment(node, folder=folder if spawned else None) for node in nodes}


def work(place: Place, me: Me) -> NoReturn:
    """Performs the rank's program, leaves its record, and ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the launcher, which ends its ranks
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a rank does not outlive its launcher
    if os.getppid() != place.launcher:  # which has died before the line above
        os._exit(EXIT_FAILED)
    recorder = Recorder(me.rank, stream_of(place.folder, me.rank))
    status = EXIT_FAILED
    try:
        if attempt(place, me, recorder) is None:
            status = 0
    finally:  # not even a record that cannot be written lets this process out into the launcher's code
        os._exit(status)  # threads that wait in gloo cannot be ended otherwise


def attempt(place: Place, me: Me, recorder: Recorder) -> Failure | None:
    """Performs the rank's program and writes down what came of it; answers how it failed, if it did."""
    warnings.showwarning = lambda message, category, file, line, *_: recorder.add(
        "warning", (str(message), category, file, line)
    )
    failure: Failure | None = None
    try:
        place.placement.take(me.rank)  # before there are threads that would be somewhere else
        torch.set_num_threads(place.launch.threads)
        perform(place, me, recorder)
        recorder.flush()
    except BaseException as error:
        follows = isinstance(error, PeerFailed)
        words = traceback.format_exc()
        failure = Failure(me.rank, me.role, type(error), str(error), words, time.monotonic(), follows)
        recorder.add("error", failure)
        try:
            recorder.flush()
        finally:
            place.board.say(me.rank, Doing.FAILED)
    return failure


def perform(place: Place, me: Me, recorder: Recorder) -> None:
    """Connects, starts together with the others, runs, and stays until everything sent has been taken."""
    board, launch, job = place.board, place.launch, place.launch.job
    store = place.store
    if store is None:
        store = dist.FileStore(  # type: ignore[attr-defined]  # torch re-exports it without saying so
            str(place.folder / "store"), len(job.team)
        )
    interface = place.interface or LOOPBACK
    if launch.hosts is not None:
        interface = launch.hosts.enter(me)  # before any thread has started
    own = accelerator(place.devices.name(me.rank))
    own.enter()
    if me.rank in place.devices.gpus and isinstance(job.learner, Movable):
        job = replace(job, learner=job.learner.on(own.device))
    initial = job.learner.initial()
    groups = Groups(me.rank, store, board.lost, interface, own, place.devices)
    mail = Mail(groups, me.everyone, capacity=nbytes(initial) + ENVELOPE_BYTES)
    collectives = Collectives(groups)
    memory = None
    if me.node in place.segments:
        memory = SharedMemory(place.segments[me.node], me.rank, board.lost)
    for group in dict.fromkeys((me.workers, me.node, me.leaders)):  # made now, so that no step pays for it
        if me.rank not in group or len(group) == 1:
            continue
        if groups.direct(group) or memory is None or memory.line(group) is None:
            collectives.connect(group)
    station = Station(me, board, recorder, meet(board, me, starts=place.store is None), own)
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
    recorder.add("adds", (node_folder(place.folder, me.node).name, dict(interpreter.cells.adds)))
    if me.rank == job.keeper:
        recorder.add("weights", interpreter.keeper.learned.latest.vector)
    board.say(me.rank, Doing.ENDED)
    mail.flush()
    recorder.flush()
    board.say(me.rank, Doing.DRAINED)
    while not board.all_drained and board.lost() is None:  # others may still send here
        time.sleep(0.002)
    if place.stays and board.lost() is None:
        mail.close()
        collectives.close()
        if memory is not None:
            memory.close()


def meet(board: Board, me: Me, *, starts: bool = True) -> Clock:
    """Waits until every rank is ready; all clocks start at one moment.

    Args:
        board: of the rank's host.
        me: the rank.
        starts: whether rank 0 says when; between hosts somebody else does.
    """
    board.say(me.rank, Doing.READY)
    if starts and me.rank == 0:
        _wait_until(board, lambda: board.all_ready)
        board.start(time.monotonic() + START_IN_S)
    _wait_until(board, lambda: board.start_s > 0)
    clock = Clock(board.start_s)
    board.say(me.rank, Doing.RUNNING)
    clock.wait_until(0.0)
    return clock


def _wait_until(board: Board, there: Callable[[], bool]) -> None:
    while not there():
        if (dead := board.lost()) is not None:
            raise PeerFailed(f"rank {dead} died before the start")
        time.sleep(0.0005)


def node_folder(folder: Path, node: Group) -> Path:
    """Where the cells of a node lie."""
    path = folder / f"node{node.ranks[0]}"
    path.mkdir(exist_ok=True)
    return path
