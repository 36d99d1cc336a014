"""One run in processes that others have started, as one of them takes part in it.

Rules of this file:

* Nothing is forked. The rank's program is performed by a thread; the main thread looks after it and its neighbours,
  hears signals, and goes on when gloo keeps the other one for ever.
* Everybody takes part in every run to its end, also who sits it out: so all begin the next one together.
* Whoever is lost ends the run: launchers end all processes when one has died. What was recorded is written by every
  process before it ends, and collected by the first of the first host, or by whoever is left there.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch.distributed.distributed_c10d import PrefixStore

from paceline.algorithms.core.errors import PacelineError, RunFailed
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Group, Rank
from paceline.backend.local.launch import LOOK_S, WATCH_S, Launch, Show
from paceline.backend.local.worker import START_IN_S, Place, attempt, failed, memory_of
from paceline.backend.multihost.external_record import JointRecord
from paceline.backend.multihost.host_sync import Mirror, lose, loss
from paceline.backend.multihost.neighbours import Neighbours
from paceline.backend.multihost.rank_mapping import seat
from paceline.backend.multihost.world import World
from paceline.backend.posix.interrupts import noted
from paceline.backend.posix.reserve import explaining
from paceline.backend.status.leases import Across, Lease, Shares
from paceline.backend.status.recorder import Recorder
from paceline.backend.status.status_board import Board, Doing, Over
from paceline.backend.supervision import failure_messages
from paceline.backend.supervision.clock_sync import Reading, answer, ask
from paceline.backend.supervision.gather import Failure, stream_of
from paceline.backend.supervision.liveness import silent
from paceline.backend.supervision.monitors import Scores, Stillness
from paceline.backend.supervision.supervisor import GRACE_S
from paceline.backend.transports.launch_environment import RANK_THREAD, FailedElsewhere
from paceline.backend.transports.shared_segment import Segment, fits
from paceline.records.trace import Trace

NEVER = 2**63 - 1
SETTLE_S = 0.3
"""within which a rank's program ends, if it does, once the run has failed"""
TOLD_S = 0.2
"""within which other hosts tell whom they have lost"""
IN_VAIN_S = 0.2
"""after a loss: when nobody has moved for so long, and all wait for each other, nothing more will come"""


def run_joint(launch: Launch, world: World) -> Trace | None:
    """Runs a job in the processes of a world, all of which call this; the one that leads answers its record.

    Raises:
        RankFailed, DeadlockError, ProgramError: as `run_job`, at the process that leads.
        FailedElsewhere: at the others.
        KeyboardInterrupt: this process was interrupted.
    """
    number = next(world.runs)
    folder = world.folder / f"run{number}"
    with explaining(world.folder):
        joint = Joint(launch, world, number, _entered(world, launch, folder))
    with noted(joint.heard):
        joint.supervise()
        trace = joint.conclude()
    if world.first:
        shutil.rmtree(folder, ignore_errors=True)
    return trace


class Joint:
    """One process's part in a run."""

    def __init__(self, launch: Launch, world: World, number: int, nodes: frozenset[int]) -> None:
        self.launch, self.world, self.job = launch, world, launch.job
        self.seats = seat(world.hosts, self.job.team)
        self.mine = self.seats.on(world.here)
        self.rank = self.seats.rank_of.get(world.joined.process)
        self.folder = world.folder / f"run{number}"
        self.name = f"run{number}"
        self.store = PrefixStore(self.name, world.store)
        keepers = [me.rank for me in self.job.team if me.role == self.job.method.weights_owner]
        self.board = Board(
            len(self.job.team),
            keepers,
            limit=self.job.limit,
            together=self.job.method.independent,
            folder=self.folder,
            across=self._across(keepers),
        )
        self.placement = world.placement(
            launch.cpu_affinity, [self.job.team[rank] for rank in self.mine], launch.torch_threads
        )
        self.devices = world.devices(launch)
        self.start = self._compare_clocks()
        ahead_s = 0.0 if self.start is None else self.start.offset_s
        self.mirror = Mirror(
            self.store, self.board, self.seats, world.here, ahead_s, closed=world.closed, gone=world.gone
        )
        self.neighbours = Neighbours(world, self.seats, self.board, self.job.team, launch.timeout_s)
        self.show = Show(launch, self.board, self.folder)
        self.heard: list[int] = []
        self.failure: PacelineError | None = None
        self.deadline = self._told_s = float("inf")
        self._stillness = Stillness(self.board, launch.patience_s)
        self._in_vain = Stillness(self.board, IN_VAIN_S)
        self._scores = Scores(self.job, self.board, self.folder)
        self._recorder: Recorder | None = None
        self._own_failure: Failure | None = None
        self._thread = threading.Thread(target=self._perform, args=(nodes,), daemon=True, name=RANK_THREAD)
        if self.rank is not None:
            stream = stream_of(self.folder, self.rank)
            if launch.start is not None:
                self.board.resume(launch.start.granted, [self.rank])
                launch.start.copy_record(self.rank, stream)
            self._recorder = Recorder(self.rank, stream)

    @property
    def several(self) -> bool:
        """Whether there are several hosts."""
        return len(self.seats.hosts) > 1

    def _across(self, keepers: list[Rank]) -> Across | None:
        """What hosts agree on about steps, where keepers are on several."""
        hosts = {self.seats.host_of(rank) for rank in keepers}
        if len(hosts) == 1 or self.rank is None:
            return None
        store = self.world.connect(f"{self.name}/steps")
        limit = NEVER if self.job.limit is None else self.job.limit
        return Shares(store, limit, len(hosts)) if self.job.method.independent else Lease(store, limit)

    def _compare_clocks(self) -> Reading | None:
        """Reads the first host's clock, at the first process of each host."""
        reading = None
        for connection in self.world.connections:
            if self.world.here == 0:
                answer(connection)
            else:
                reading = ask(connection)
        return reading

    def _perform(self, nodes: frozenset[int]) -> None:
        """The rank's program, in a thread of its own."""
        assert self.rank is not None and self._recorder is not None
        me = self.job.team[self.rank]
        try:
            place = self._place(me, nodes)
        except BaseException as error:  # else nobody would hear of it
            self._own_failure = failed(self.board, me, self._recorder, error)
        else:
            self._own_failure = attempt(place, me, self._recorder)

    def _place(self, me: RankContext, nodes: frozenset[int]) -> Place:
        """What the rank needs of its host, and of the store."""
        launch, host = self.launch, Group(tuple(self.mine))
        segments: dict[Group, Segment] = {}
        if me.role == "worker" and launch.shared_memory and int(me.node.ranks[0]) in nodes:
            segments[me.node] = Segment(me.node, folder=self.folder)
        return Place(
            os.getpid(),
            launch,
            self.board,
            self.folder,
            segments,
            {host: memory_of(host, self.folder)} if launch.shared_memory and len(host) > 1 else {},
            self.placement,
            store=self.world.connect(f"{self.name}/groups") if self.several else None,
            interface=self.world.interface,
            stays=True,
            devices=self.devices,
        )

    # --- while it lasts -------------------------------------------------------------------------------------------

    def supervise(self) -> None:
        """Looks after everything until the run is over."""
        shown = warnings.showwarning
        if self.rank is not None:
            self._thread.start()
        while self.board.common["over"][0] == Over.NO:
            self.neighbours.look()
            if self.several and self.world.first:
                self._tell_hosts()
            if self._told_to_end():
                words = f"was told to end by {signal.Signals(self.heard[0]).name}"
                lose(self.board, Rank(0) if self.rank is None else self.rank, words)
            if self.world.leads:
                self._lead()
            if self.rank == self.job.weights_owner:  # its record lies on its own host
                self._scores.look()
            time.sleep(WATCH_S)
        if self.several and self.world.leads:
            self._tell_hosts(at_once=True)
        if self.rank is not None:
            self._settle()
        warnings.showwarning = shown

    def _told_to_end(self) -> bool:
        """Whether this is what ends the run: a launcher tells all to end when one has died, perhaps on another host."""
        if not self.heard or self.board.lost() is not None:
            return False
        self._told_s = min(self._told_s, time.monotonic())
        return not self.several or time.monotonic() - self._told_s > TOLD_S

    def _tell_hosts(self, *, at_once: bool = False) -> None:
        try:
            self.mirror.turn(at_once=at_once)
        except RuntimeError as error:
            lose(self.board, Rank(0), f"the store is gone: {error}")
            self.world.gone.add(0)
            self.board.common["over"] = Over.FAILED

    def _settle(self) -> None:
        """The rank's program has ended, or its record is written without it."""
        self._thread.join(SETTLE_S if self.board.common["over"][0] == Over.FAILED else GRACE_S)
        assert self.rank is not None and self._recorder is not None
        if self._thread.is_alive():
            self._recorder.flush()
            self.board.fail(self.rank)
            if self.board.lost() == self.rank and not self.heard:
                sys.stderr.write(f"rank {self.rank} does not end; its threads stand at\n")
                faulthandler.dump_traceback(sys.stderr)
        else:
            self._recorder.close()

    # --- leading --------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        """Decides for all: when they start, and that it is over."""
        board, ranks = self.board, [me.rank for me in self.job.team]
        if self.several and not board.start_s and board.all_ready:
            since_s = 0.0 if self.launch.start is None else self.launch.start.time_s
            board.start(time.monotonic() + 20 * START_IN_S - since_s)  # others hear of it later
        if board.lost() is not None:
            self.deadline = min(self.deadline, time.monotonic() + GRACE_S)
            left = [rank for rank in ranks if not self._settled([rank])]
            if not left or self._in_vain.look(left) is not None or time.monotonic() > self.deadline:
                board.common["over"] = Over.FAILED
        elif board.all_drained:
            board.common["over"] = Over.DONE
        elif (deadlock := self._stillness.look(ranks, excused=self._may_be_stopped)) is not None:
            self.failure = deadlock
            board.common["over"] = Over.FAILED
        elif board.rows["quiet_s"].max() > self.launch.timeout_s and not self._may_be_stopped:
            self._look_for_silent(ranks)
        self.show.look(every_s=LOOK_S)

    @property
    def _may_be_stopped(self) -> bool:
        """Whether a rank is, or a host, of which nothing is heard then."""
        return bool(self.board.rows["stopped"].any()) or (self.several and self.mirror.late)

    def _look_for_silent(self, ranks: Sequence[Rank]) -> None:
        """Ends the run where a rank keeps others waiting and has shown no sign of life for too long."""
        board, timeout_s = self.board, self.launch.timeout_s
        quiet_s, doing = board.rows["quiet_s"], {int(rank): board.doing(rank) for rank in ranks}
        for late in map(Rank, silent(doing, dict(enumerate(quiet_s.tolist())), timeout_s)[:1]):
            what = failure_messages.kept_waiting(timeout_s)
            lose(board, late, failure_messages.sentence(board, self.job.team, late, ranks, what))

    def _settled(self, ranks: Iterable[int]) -> bool:
        """Whether each of these ranks has written what it had to."""
        return all(self.board.doing(rank) in (Doing.DRAINED, Doing.FAILED) for rank in ranks)

    # --- the end --------------------------------------------------------------------------------------------------

    def conclude(self) -> Trace | None:
        """Brings the record together, at the process that leads."""
        failed = self.board.common["over"][0] == Over.FAILED
        end = None if failed else self._compare_clocks()
        if self.world.first:
            self._wait_for_neighbours()
            record = JointRecord(self.job, self.world, self.seats, self.folder, self.board, self.store, self.devices)
            placed = self.placement.record()
            if self.world.here == 0:
                return record.gathered(placed, failed=failed, known=self.failure, gone=self.world.gone)
            if 0 not in self.world.gone:
                record.send(placed, self.start, end, failed=failed)
        if failed:
            self._say_own()
            if signal.SIGINT in self.heard:
                raise KeyboardInterrupt
            if self.world.first and 0 in self.world.gone:  # nobody else says so
                raise RunFailed(f"process {self.world.joined.process}: {loss(self.board)}")
            raise FailedElsewhere(f"process {self.world.joined.process}: the run has failed")
        return None

    def _wait_for_neighbours(self) -> None:
        until = time.monotonic() + GRACE_S
        while not self._settled(self.mine) and time.monotonic() < until:
            self.neighbours.look(at_once=True)
            time.sleep(WATCH_S)

    def _say_own(self) -> None:
        """A rank's own error, where another process tells of the run's."""
        failure = self._own_failure
        if failure is not None and not failure.follows:
            sys.stderr.write(f"rank {failure.rank}: {failure.kind.__name__}: {failure.message}\n")


def _entered(world: World, launch: Launch, folder: Path) -> frozenset[int]:
    """Makes or finds the run's folder on this host; answers which nodes, by their first ranks, share memory."""
    seats, made = seat(world.hosts, launch.job.team), folder / "made"
    if world.first:
        folder.mkdir()
        nodes = dict.fromkeys(me.node for me in seats.team if me.role == "worker" and me.rank in seats.on(world.here))
        inside = [str(node.ranks[0]) for node in nodes if seats.whole(node) and fits(folder, node)]
        made.with_suffix(".new").write_text(" ".join(inside))
        made.with_suffix(".new").rename(made)
    while not made.exists():
        if not world.lives(world.neighbours[0]):
            raise FailedElsewhere(f"process {world.neighbours[0]} is gone")
        time.sleep(0.002)
    return frozenset(map(int, made.read_text().split()))
