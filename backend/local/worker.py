"""One rank from start to end: in a forked or spawned process, or in a thread of a process started by a launcher."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from paceline.algorithms.core.errors import PeerFailed, RunFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Group, Rank, nbytes
from paceline.backend.devices.accelerator import Accelerator, Devices, Movable, accelerator
from paceline.backend.devices.cpu_affinity import Placement
from paceline.backend.posix.reserve import explained
from paceline.backend.posix.waits import RunClock, wake_on_time
from paceline.backend.rank.interpreter import Interpreter
from paceline.backend.rank.rank_context import RankStation
from paceline.backend.status.rank_logs import life, log_of, take_over, warned
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.recorder import EXIT_FAILED, FileRecorder
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.supervision.gather import Failure, stream_of
from paceline.backend.transports import mailbox
from paceline.backend.transports.cells import SharedCells
from paceline.backend.transports.collectives import LOOPBACK, Groups, TorchCollectives, interface_of
from paceline.backend.transports.mail import GlooMail, RankMail
from paceline.backend.transports.mailbox import Mailbox
from paceline.backend.transports.messages import ThreadedInbox
from paceline.backend.transports.shared_collectives import MemoryCollectives
from paceline.backend.transports.shared_segment import Segment

if TYPE_CHECKING:
    from paceline.backend.local.launch import Launch  # launch imports this module


PR_SET_PDEATHSIG = 1
START_IN_S = 0.01
ENVELOPE_BYTES = 4096
"""bytes of a receive buffer for the parts of a message that are not vectors"""


@dataclass(frozen=True, slots=True)
class RankEnvironment:
    """The environment of a rank.

    Args:
        launcher: the process id of the parent that forked it; its own if it was not forked.
        launch: the job and its settings.
        board: the status board of its host.
        folder: the run's folder on its host.
        segments: the shared memory of each node whose ranks have some.
        mailboxes: the memory for messages of each host whose ranks have some.
        placement: the cores of the ranks.
        store: where ranks of several hosts find each other; None: a file of the folder.
        interface: the network interface of messages; None: as `launch` defines.
        stays: whether the process continues after this run.
        devices: the devices of the ranks.
    """

    launcher: int
    launch: Launch
    board: StatusBoard
    folder: Path
    segments: Mapping[Group, Segment]
    mailboxes: Mapping[Group, mmap.mmap]
    placement: Placement
    store: Store | None = None
    interface: str | None = None
    stays: bool = False
    devices: Devices = field(default_factory=lambda: Devices("not requested"))


def maps(
    launch: Launch, folder: Path, *, spawned: bool
) -> tuple[StatusBoard, dict[Group, Segment], dict[Group, mmap.mmap]]:
    """Returns the board of a run, the shared memory of its nodes, and the memory for messages of its hosts.

    If ranks are spawned, all are in files of the run's folder.
    """
    job = launch.job
    owners = job.owners
    board = StatusBoard(
        len(job.team), owners, limit=job.limit, together=job.method.independent, spare=job.spare, folder=folder
    )
    if not launch.shared_memory:
        return board, {}, {}
    nodes = dict.fromkeys(me.node for me in job.team if me.role == "worker")
    segments = {node: Segment(node, folder=folder if spawned else None) for node in nodes}
    hosts = [host for host in hosts_of(launch) if len(host) > 1]
    return board, segments, {host: memory_of(host, folder if spawned else None) for host in hosts}


def memory_of(host: Group, folder: Path | None) -> mmap.mmap:
    """Maps the memory for messages of a host: in a file of this folder, or anonymously."""
    if folder is None:
        return mailbox.anonymous(len(host))
    return mailbox.in_file(folder / f"host{host.ranks[0]}.messages", len(host))


def hosts_of(launch: Launch) -> list[Group]:
    """Returns the ranks of each host."""
    by_host: dict[int, list[Rank]] = {}
    for me in launch.job.team:
        by_host.setdefault(me.host if launch.hosts is None else launch.hosts.place(me), []).append(me.rank)
    return [Group(tuple(ranks)) for ranks in by_host.values()]


def work(place: RankEnvironment, me: RankContext) -> NoReturn:
    """Runs the rank's program, writes its record, and ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the launcher, which ends its ranks
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a rank does not outlive its launcher
    if os.getppid() != place.launcher:  # the launcher died before the line above
        os._exit(EXIT_FAILED)
    recorder = FileRecorder(me.rank, stream_of(place.folder, me.rank))
    status = EXIT_FAILED
    try:
        begin_log(place, me)
        if attempt(place, me, recorder) is None:
            status = 0
    finally:  # even if the record cannot be written, this process must not return into the launcher's code
        os._exit(status)  # threads that wait in gloo cannot be ended otherwise


def attempt(place: RankEnvironment, me: RankContext, recorder: FileRecorder) -> Failure | None:
    """Runs the rank's program and records its outcome; returns the failure, if there was one."""
    failure: Failure | None = None
    try:
        tell_warnings(recorder, log=not place.stays)  # a process that continues has no log of its own
        wake_on_time()
        place.placement.take(me.rank)  # first, since threads inherit the affinity of their creator
        keep_freed()
        torch.set_num_threads(place.launch.torch_threads)
        perform(place, me, recorder)
        recorder.flush()
    except BaseException as error:
        failure = failed(place.board, me, recorder, error)
    return failure


def failed(board: StatusBoard, me: RankContext, recorder: FileRecorder, error: BaseException) -> Failure:
    """Records how the rank has failed, and reports it on the board."""
    words = "".join(traceback.format_exception(error))
    error = explained(error, recorder.path.parent)
    status, follows = board.ranks[me.rank], isinstance(error, PeerFailed)
    message = status.text if follows and status.state is RankState.BLOCKED else str(error)
    failure = Failure(me.rank, me.role, type(error), message, words, time.monotonic(), follows)
    life.info("failed", exc_info=error)
    recorder.add("error", failure)
    unwritten = ""
    try:
        recorder.flush()
    except RunFailed as full:  # the record has no space: the board takes a short message
        unwritten = str(full)
    finally:
        board.ranks[me.rank].fail(unwritten)
    return failure


def begin_log(place: RankEnvironment, me: RankContext) -> None:
    """Redirects the process's output to its own log."""
    take_over(log_of(place.folder, me.rank))
    job, cores = place.launch.job, place.placement.cores.get(me.rank)
    where = f"pinned to cores {','.join(map(str, cores))}" if cores else "not pinned"
    life.info(
        "started: %s, rank %d of %d (%s), process %d, %s, torch threads: %d",
        job.method.name, me.rank, len(job.team), me.role, os.getpid(), where, place.launch.torch_threads,
    )  # fmt: skip


def tell_warnings(recorder: FileRecorder, *, log: bool) -> None:
    """Redirects warnings to the record, from which they are reported for all ranks, and to the log if there is one."""

    def show(message: Warning | str, category: type[Warning], file: str, line: int, *_: Any) -> None:
        if log:
            warned(message, category, file, line)
        recorder.add("warning", (str(message), category, file, line))

    warnings.showwarning = show  # type: ignore[assignment]  # Python passes these arguments by position


@dataclass(frozen=True, slots=True)
class Connections:
    """The connections of a rank with the others."""

    mail: RankMail
    collectives: TorchCollectives
    memory: MemoryCollectives | None
    """shared memory of its node; None if its ranks share none"""

    def close(self) -> None:
        """Releases the resources, if the process continues."""
        self.mail.close()
        self.collectives.close()
        if self.memory is not None:
            self.memory.close()


def perform(place: RankEnvironment, me: RankContext, recorder: FileRecorder) -> None:
    """Connects, starts together with the other ranks, runs, and waits until all its messages have been received."""
    own, job = accelerator(place.devices.name(me.rank)), place.launch.job
    own.enter()
    if me.rank in place.devices.gpus and isinstance(job.learner, Movable):
        job = replace(job, learner=job.learner.on(own.device))
    connections = connect(place, me, own, nbytes(job.learner.initial()))
    interpreter = build_interpreter(place, me, recorder, own, job, connections)
    state = interpreter.run()
    finish(place, interpreter, connections, state)


def connect(place: RankEnvironment, me: RankContext, own: Accelerator, weights_bytes: int) -> Connections:
    """Connects a rank to the others.

    Args:
        place: the rank's environment.
        me: the rank.
        own: its device.
        weights_bytes: size of the weights; no message contains more vector data than this.
    """
    board, store = place.board, place.store
    if store is None:
        store = dist.FileStore(  # type: ignore[attr-defined]  # torch does not export it explicitly
            str(place.folder / "store"), len(place.launch.job.team)
        )
    groups = Groups(me.rank, store, board.lost, interface_at(place, me), board.spare > 0, own, place.devices)
    board.ranks[me.rank].report(RankState.CONNECTING)
    mail = mail_of(place, me, groups, capacity=weights_bytes + ENVELOPE_BYTES)
    collectives = TorchCollectives(groups)
    memory = None
    if me.node in place.segments:
        memory = MemoryCollectives(place.segments[me.node], me.rank, board.lost)
    for group in dict.fromkeys((me.workers, me.node, me.leaders)):  # created here, so that no step includes this time
        if me.rank not in group or len(group) == 1:
            continue
        if groups.direct(group) or memory is None or memory.line(group) is None:
            collectives.connect(group)
    return Connections(mail, collectives, memory)


def build_interpreter(
    place: RankEnvironment,
    me: RankContext,
    recorder: FileRecorder,
    own: Accelerator,
    job: Job,
    connections: Connections,
) -> Interpreter:
    """Returns the interpreter of a rank once all ranks are ready, with its state from a checkpoint if there is one."""
    launch = place.launch
    start = None if launch.start is None else launch.start.read(me.rank)
    since_s = 0.0 if launch.start is None else launch.start.time_s
    station = RankStation(me, place.board, recorder, meet(place.board, me, since_s, starts=place.store is None), own)
    schedule_death(job, station)
    interpreter = Interpreter(
        station,
        job,
        mail=connections.mail,
        collectives=connections.collectives,
        memory=connections.memory,
        cells=SharedCells(node_folder(place.folder, me.node)),
        pace=launch.pace,
        on_nonfinite=launch.on_nonfinite,
        prefetch=launch.prefetch,
        schedule=launch.schedule(),
    )
    if start is not None:
        interpreter.resume(*start)
    if launch.saving is not None:
        from paceline.backend.rank.checkpointing import (
            Checkpointer,  # the launcher has already imported it if checkpoints are made
        )

        first = 0 if launch.start is None else launch.start.step
        interpreter.checkpointer = Checkpointer(station, connections.mail, launch.saving, first)
    return interpreter


def schedule_death(job: Job, station: RankStation) -> None:
    """Lets the process of a rank be killed at the time at which the job lets it die, if it has not ended by then."""
    status = station.status

    def die() -> None:
        if status.state < RankState.ENDED:
            os.kill(os.getpid(), signal.SIGKILL)

    for death in job.deaths:
        if death.rank == station.me.rank and death.at_s is not None:
            left_s = death.at_s - station.clock.now()
            if left_s >= 0:  # a run that is resumed after this time had the rank
                timer = threading.Timer(left_s, die)
                timer.daemon = True
                timer.start()


def finish(place: RankEnvironment, interpreter: Interpreter, connections: Connections, state: Any) -> None:
    """Completes the record of a rank whose program has ended, and waits until all its messages have been received."""
    station, board = interpreter.station, place.board
    me, recorder = station.me, station.recorder
    recorder.add("end", station.clock.now())
    life.info("ended after %d steps, %.3f s from the start", state.step, station.clock.now())
    recorder.add("state", state)
    recorder.add("late", interpreter.device.late_s)
    recorder.add("transports", interpreter.communication.transports())
    recorder.add("device", (me.rank, station.accelerator.facts()))
    if interpreter.loader.reads is not None:
        recorder.add("reads", interpreter.loader.reads)
    recorder.add("adds", (node_folder(place.folder, me.node).name, dict(interpreter.cells.adds)))
    if interpreter.weights_owner.follows:
        recorder.add("weights", interpreter.weights_owner.learned.latest.vector)
    recorder.flush()  # the record is complete, whatever happens to this rank from here on
    board.ranks[me.rank].report(RankState.ENDED)
    connections.mail.flush()
    board.ranks[me.rank].report(RankState.DRAINED)
    while not board.all_drained and board.lost() is None:  # other ranks may still send messages
        time.sleep(0.002)
    if place.stays and board.lost() is None:
        connections.close()


def mail_of(place: RankEnvironment, me: RankContext, groups: Groups, *, capacity: int) -> RankMail:
    """Returns the rank's messages: by shared memory on its host if there is some, by gloo to other hosts."""
    inbox, memory, gloo = ThreadedInbox(place.board.lost, me.world), None, None
    host = next((host for host in place.mailboxes if me.rank in host), None)
    if host is not None:
        memory = Mailbox(place.mailboxes[host], host, me.rank, place.folder, inbox, place.board.lost)
    if (host or Group((me.rank,))) != me.world:
        gloo = GlooMail(groups, me.world, capacity=capacity, deliver=inbox.put)
    return RankMail(inbox, memory, gloo, groups)


def interface_at(place: RankEnvironment, me: RankContext) -> str:
    """Returns the network interface of the rank's messages; must be called before any thread has started."""
    launch = place.launch
    if launch.hosts is not None:
        return launch.hosts.enter(me)
    if launch.interfaces:
        return interface_of(me, launch.job.team, launch.interfaces)
    return place.interface or LOOPBACK


def meet(board: StatusBoard, me: RankContext, since_s: float = 0.0, *, starts: bool = True) -> RunClock:
    """Waits until every rank is ready; all clocks start at the same moment.

    Args:
        board: the status board of the rank's host.
        me: the rank.
        since_s: the time that the clocks show at the start.
        starts: whether rank 0 sets the start; with several hosts, another process does.
    """
    board.ranks[me.rank].report(RankState.READY)
    if starts and me.rank == 0:
        until(board, lambda: board.all_ready)
        board.start(time.monotonic() + START_IN_S - since_s)
    until(board, lambda: bool(board.start_s))
    clock = RunClock(board.start_s)
    board.ranks[me.rank].report(RankState.RUNNING)
    clock.wait_until(since_s)
    return clock


def until(board: StatusBoard, done: Callable[[], bool]) -> None:
    """Waits for the other ranks before the start, when the run cannot lose any."""
    while not done():
        if (dead := board.lost()) is not None:
            raise PeerFailed(f"rank {dead} died", dead)
        time.sleep(0.0005)


def node_folder(folder: Path, node: Group) -> Path:
    """Returns the folder of the cells of a node."""
    path = folder / f"node{node.ranks[0]}"
    path.mkdir(exist_ok=True)
    return path


# Programs change no vector in place, so every step allocates new vectors and frees old ones. By default glibc returns
# large blocks to the kernel, and each new one then costs a page fault for every 4 KiB: writing 39 MB takes 18 ms into
# fresh pages and 2 ms into pages that the process has used before. So ranks retain freed memory, and the next vector
# of the same size reuses it. A process holds its peak memory until it ends.


M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
"""constants of glibc's malloc.h"""
NEVER = 2**31 - 1


def keep_freed() -> bool:
    """Configures malloc to retain freed memory; returns False if the C library is not glibc.

    All threads share one heap afterwards, so that one can reuse what another has freed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(*option) == 1 for option in ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, NEVER)))
