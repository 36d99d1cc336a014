"""One run in processes that torchrun, mpirun or srun has started, as one of these processes takes part in it.

Rationale:

* Invariant: every process takes part in every run until its end, even if it has no rank in it, and all finish a run
  with the same outcome. So all begin the next run together.
* Rejected: forking ranks from the launcher's processes, as a local run does. The launcher would not have the ids of the
  processes that it has to end, and gloo and CUDA do not survive a fork. So the rank's program runs in a thread. The
  main thread supervises it and the other ranks of the host, handles signals, and continues if the other thread is
  blocked in gloo for ever.
* Rejected: continuing without a lost rank. Launchers end all processes when one has died (torchrun's agent, srun
  --kill-on-bad-exit, mpirun by default), so every loss ends the run. Each process writes its record before it ends; the
  first living process of host 0 collects them.
* Source: docs/launching.md has the measured behaviour of the launchers.
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
from functools import partial
from pathlib import Path

from torch.distributed.distributed_c10d import PrefixStore

from paceline.algorithms.core.errors import PacelineError, RunFailed
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Group, Rank
from paceline.backend.local.launch import REPORT_S, WATCH_S, Launch, ProgressReporter
from paceline.backend.local.worker import START_IN_S, RankEnvironment, attempt, failed, memory_of
from paceline.backend.multihost.external_record import ExternalRecord
from paceline.backend.multihost.host_sync import HostSync, Lease, Shares
from paceline.backend.multihost.rank_mapping import RankMapping, map_ranks
from paceline.backend.multihost.world import World
from paceline.backend.posix.processes import noted
from paceline.backend.posix.reserve import explaining
from paceline.backend.posix.waits import wait_until
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.recorder import FileRecorder
from paceline.backend.status.status_board import RunState, StatusBoard, StepGrants
from paceline.backend.supervision import failure_messages
from paceline.backend.supervision.clock_sync import ClockReading, answer, ask
from paceline.backend.supervision.gather import Failure, stream_of
from paceline.backend.supervision.monitors import DeadlockMonitor, GoalMonitor, Liveness, hung, stopped
from paceline.backend.supervision.supervisor import GRACE_S
from paceline.backend.transports.launchers import RANK_THREAD, FailedElsewhere
from paceline.backend.transports.shared_segment import Segment, fits
from paceline.records.trace import Trace

# * Every process checks which ranks of its host have died or failed, and, `CHECKS` times per timeout, which are
#   stopped and for how long. The first process that is not stopped itself kills those that have been stopped for the
#   timeout.
# * The first living process records how long each rank has been inactive. Host 0 decides whether that is too long,
#   because the ranks that wait for it may be on another host.
# * A process that has not checked for a while was stopped itself, or had no processor time. It has no information
#   about that time and measures anew.


CHECK_S = 0.1
"""seconds between two checks"""
ABSENT_S = 2.0
"""a process that has not checked for so long was stopped itself"""
DYING_S = 2.0
"""how long a process that was killed while stopped may take to end; until then it is alive and no longer stopped"""


class Neighbours:
    """The ranks of this host.

    Args:
        world: all processes.
        mapping: which process is which rank.
        board: the board of this host.
        team: all ranks.
        timeout_s: how long a rank may be stopped, in seconds.
    """

    def __init__(
        self, world: World, mapping: RankMapping, board: StatusBoard, team: Sequence[RankContext], timeout_s: float
    ) -> None:
        self._world, self._board, self._team, self._timeout_s = world, board, team, timeout_s
        ids = world.ids
        self._ranks = {
            neighbour: mapping.rank_of[neighbour] for neighbour in world.neighbours if neighbour in mapping.rank_of
        }
        self._pids = {ids[neighbour]: rank for neighbour, rank in self._ranks.items()}
        self._liveness = Liveness(board, self._pids, joined=True)
        self._stopped: dict[int, float] = {}
        """since when processes, by their ids, have been stopped"""
        self._kill_reasons: dict[Rank, tuple[str, float]] = {}
        """ranks that are killed, by any process, as stopped for too long: the reason and until when it is valid"""
        self._checked_s = time.monotonic()

    def check(self, *, at_once: bool = False) -> None:
        """Checks all ranks of the host, if it is time."""
        now = time.monotonic()
        if now - self._checked_s < CHECK_S and not at_once:
            return
        if now - self._checked_s > ABSENT_S:
            self._liveness.restart()
            self._stopped.clear()
        self._checked_s = now
        self._check_dead()
        if self._liveness.due(self._timeout_s):
            self._check_stopped(now)
            if self._world.first:
                for pid, seconds in self._liveness.quiet_s().items():
                    self._board.ranks[self._pids[pid]].quiet_s = seconds

    def _check_dead(self) -> None:
        """Records which ranks have died or failed."""
        for process, rank in self._ranks.items():
            row = self._board.ranks[rank]
            if row.state is RankState.DRAINED:
                continue
            if row.state is RankState.FAILED:
                self._board.lose_because(rank, row.failure or "failed")
            elif not self._world.lives(process):
                row.fail()
                reason, _ = self._kill_reasons.get(rank, ("its process is gone", 0.0))
                self._board.lose_because(rank, reason)

    def _check_stopped(self, now: float) -> None:
        """Records which ranks are stopped; the first process that is not kills those that have been for too long."""
        still = [pid for pid in self._pids if stopped(pid)]
        self._stopped = {pid: self._stopped.get(pid, now) for pid in still}
        for pid, rank in self._pids.items():
            self._board.ranks[rank].stopped = pid in self._stopped
        acts = next((pid for pid in self._pids if pid not in self._stopped), None) == os.getpid()
        long = {pid: now - since_s for pid, since_s in self._stopped.items() if now - since_s > self._timeout_s / 2}
        kept = {rank: (reason, until) for rank, (reason, until) in self._kill_reasons.items() if now < until}
        self._kill_reasons = kept | {self._pids[pid]: (self._reason(self._pids[pid]), now + DYING_S) for pid in long}
        for pid, seconds in long.items():
            if acts and seconds > self._timeout_s:  # lost only once it has ended: until then it may hold a lock
                os.kill(pid, signal.SIGKILL)

    def _reason(self, rank: Rank) -> str:
        everyone, what = [me.rank for me in self._team], failure_messages.stopped(self._timeout_s)
        return failure_messages.describe(self._board, self._team, rank, everyone, what)


NEVER = 2**63 - 1
SETTLE_S = 0.3
"""how long a rank's program has to end after the run has failed"""
TOLD_S = 0.2
"""how long other hosts may take to report which ranks they have lost"""
IN_VAIN_S = 0.2
"""after a loss: if no remaining rank makes progress for so long while all wait for each other, none will end"""


def run_external(launch: Launch, world: World) -> Trace | None:
    """Runs a job in the processes of a world; every process calls this.

    Args:
        launch: the job and its settings; equal in all processes.
        world: the processes.

    Returns:
        The record in the leading process, None in the others.

    Raises:
        RankFailed, DeadlockError, ProgramError: as `run_job`, in the leading process.
        FailedElsewhere: the run has failed; in the others.
        KeyboardInterrupt: this process was interrupted.
    """
    number = next(world.runs)
    folder = world.folder / f"run{number}"
    with explaining(world.folder):
        part = ExternalRun(launch, world, number, _entered(world, launch, folder))
    with noted(part.heard):
        part.supervise()
        trace = part.conclude()
    if world.first:
        shutil.rmtree(folder, ignore_errors=True)
    return trace


class ExternalRun:
    """The part of one process in a run."""

    def __init__(self, launch: Launch, world: World, number: int, nodes: frozenset[int]) -> None:
        self.launch, self.world, self.job = launch, world, launch.job
        self.mapping = map_ranks(world.hosts, self.job.team)
        self.local_ranks = self.mapping.on(world.here)
        self.rank = self.mapping.rank_of.get(world.joined.process)
        self.folder = world.folder / f"run{number}"
        self.name = f"run{number}"
        self.store = PrefixStore(self.name, world.store)
        owners = self.job.owners
        self.board = StatusBoard(
            len(self.job.team),
            owners,
            limit=self.job.limit,
            together=self.job.method.independent,
            folder=self.folder,
            grants=self._grants(owners),
        )
        self.placement = world.placement(
            launch.cpu_affinity, [self.job.team[rank] for rank in self.local_ranks], launch.torch_threads
        )
        self.devices = world.devices(launch)
        self.start = self._compare_clocks()
        ahead_s = 0.0 if self.start is None else self.start.offset_s
        self.host_sync = HostSync(
            self.store, self.board, self.mapping, world.here, ahead_s, closed=world.closed, gone=world.gone
        )
        self.neighbours = Neighbours(world, self.mapping, self.board, self.job.team, launch.timeout_s)
        self.progress = ProgressReporter(launch, self.board, self.folder)
        self.heard: list[int] = []
        self.failure: PacelineError | None = None
        self.deadline = self._told_s = float("inf")
        self._deadlocks = DeadlockMonitor(self.board, launch.deadlock_timeout_s)
        self._in_vain = DeadlockMonitor(self.board, IN_VAIN_S)
        self._goal = GoalMonitor(self.job, self.board, self.folder)
        self._recorder: FileRecorder | None = None
        self._own_failure: Failure | None = None
        self._thread = threading.Thread(target=self._perform, args=(nodes,), daemon=True, name=RANK_THREAD)
        if self.rank is not None:
            stream = stream_of(self.folder, self.rank)
            if launch.start is not None:
                self.board.resume(launch.start.granted, [self.rank])
                launch.start.copy_record(self.rank, stream)
            self._recorder = FileRecorder(self.rank, stream)

    @property
    def several(self) -> bool:
        """Whether there are several hosts."""
        return len(self.mapping.hosts) > 1

    def _grants(self, owners: Sequence[Rank]) -> StepGrants | None:
        """Returns the leases for steps if owners of weights are on several hosts; otherwise None."""
        hosts = {self.mapping.host_of(rank) for rank in owners}
        if len(hosts) == 1 or self.rank is None:
            return None
        store = self.world.connect(f"{self.name}/steps")
        limit = NEVER if self.job.limit is None else self.job.limit
        return Shares(store, limit, len(hosts)) if self.job.method.independent else Lease(store, limit)

    def _compare_clocks(self) -> ClockReading | None:
        """Reads host 0's clock, in the first process of each host."""
        reading = None
        for connection in self.world.connections:
            if self.world.here == 0:
                answer(connection)
            else:
                reading = ask(connection)
        return reading

    def _perform(self, nodes: frozenset[int]) -> None:
        """Runs the rank's program; the body of its thread."""
        assert self.rank is not None and self._recorder is not None
        me = self.job.team[self.rank]
        try:
            place = self._place(me, nodes)
        except BaseException as error:  # otherwise the failure would not be recorded
            self._own_failure = failed(self.board, me, self._recorder, error)
        else:
            self._own_failure = attempt(place, me, self._recorder)

    def _place(self, me: RankContext, nodes: frozenset[int]) -> RankEnvironment:
        """Returns the rank's environment: its host's shared memory, and a connection to the store."""
        launch, host = self.launch, Group(tuple(self.local_ranks))
        segments: dict[Group, Segment] = {}
        if me.role == "worker" and launch.shared_memory and int(me.node.ranks[0]) in nodes:
            segments[me.node] = Segment(me.node, folder=self.folder)
        return RankEnvironment(
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

    # --- during the run -------------------------------------------------------------------------------------------

    def supervise(self) -> None:
        """Supervises the rank and the others of its host until the run is over."""
        shown = warnings.showwarning
        if self.rank is not None:
            self._thread.start()
        while self.board.run_state is RunState.RUNNING:
            self.neighbours.check()
            if self.several and self.world.first:
                self._exchange()
            if self._asked_to_end():
                reason = f"was ended by {signal.Signals(self.heard[0]).name}"
                self.board.lose_because(Rank(0) if self.rank is None else self.rank, reason)
            if self.world.leads:
                self._lead()
            if self.rank == self.job.weights_owner:  # the snapshots are on its own host
                self._goal.check()
            time.sleep(WATCH_S)
        if self.several and self.world.leads:
            self._exchange(at_once=True)
        if self.rank is not None:
            self._settle()
        warnings.showwarning = shown

    def _asked_to_end(self) -> bool:
        """Whether a signal ends the run: not after the loss of a rank, when launchers send signals to all."""
        if not self.heard or self.board.lost() is not None:
            return False
        self._told_s = min(self._told_s, time.monotonic())
        return not self.several or time.monotonic() - self._told_s > TOLD_S

    def _exchange(self, *, at_once: bool = False) -> None:
        try:
            self.host_sync.exchange(at_once=at_once)
        except RuntimeError as error:
            self.board.lose_because(Rank(0), f"the store is gone: {error}")
            self.world.gone.add(0)
            self.board.run_state = RunState.FAILED

    def _settle(self) -> None:
        """Waits for the rank's program to end; writes its record in any case."""
        self._thread.join(SETTLE_S if self.board.run_state is RunState.FAILED else GRACE_S)
        assert self.rank is not None and self._recorder is not None
        if self._thread.is_alive():
            self._recorder.flush()
            self.board.ranks[self.rank].fail()
            if self.board.lost() == self.rank and not self.heard:
                sys.stderr.write(f"rank {self.rank} does not end; stacks of its threads:\n")
                faulthandler.dump_traceback(sys.stderr)
        else:
            self._recorder.close()

    # --- leading --------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        """Decides the start and the end for all processes."""
        board, ranks = self.board, [me.rank for me in self.job.team]
        if self.several and not board.start_s and board.all_ready:
            since_s = 0.0 if self.launch.start is None else self.launch.start.time_s
            board.start(time.monotonic() + 20 * START_IN_S - since_s)  # the other hosts read it later
        if board.lost() is not None:
            self.deadline = min(self.deadline, time.monotonic() + GRACE_S)
            left = [rank for rank in ranks if not self._settled([rank])]
            if not left or self._in_vain.check(left) is not None or time.monotonic() > self.deadline:
                board.run_state = RunState.FAILED
        elif board.all_drained:
            board.run_state = RunState.DONE
        elif (deadlock := self._deadlocks.check(ranks, excused=self._may_be_stopped)) is not None:
            self.failure = deadlock
            board.run_state = RunState.FAILED
        elif board.longest_quiet_s > self.launch.timeout_s and not self._may_be_stopped:
            self._check_hung(ranks)
        self.progress.report(every_s=REPORT_S)

    @property
    def _may_be_stopped(self) -> bool:
        """Whether a rank or a host may be stopped; a stopped host sends no heartbeats."""
        return self.board.any_stopped or (self.several and self.host_sync.late)

    def _check_hung(self, ranks: Sequence[Rank]) -> None:
        """Ends the run if a rank hangs while others wait for it."""
        board, timeout_s = self.board, self.launch.timeout_s
        states = {int(rank): board.ranks[rank].state for rank in ranks}
        quiet_s = {int(rank): board.ranks[rank].quiet_s for rank in ranks}
        for late in map(Rank, hung(states, quiet_s, timeout_s)[:1]):
            what = failure_messages.hung(timeout_s)
            board.lose_because(late, failure_messages.describe(board, self.job.team, late, ranks, what))

    def _settled(self, ranks: Iterable[int]) -> bool:
        """Whether each of these ranks has written its record."""
        return all(self.board.ranks[rank].state in (RankState.DRAINED, RankState.FAILED) for rank in ranks)

    # --- the end --------------------------------------------------------------------------------------------------

    def conclude(self) -> Trace | None:
        """Collects the record in the leading process; the others send their part, or raise."""
        failed = self.board.run_state is RunState.FAILED
        end = None if failed else self._compare_clocks()
        if self.world.first:
            self._wait_for_neighbours()
            record = ExternalRecord(
                self.job, self.world, self.mapping, self.folder, self.board, self.store, self.devices
            )
            placed = self.placement.record()
            if self.world.here == 0:
                return record.gathered(placed, failed=failed, known=self.failure, gone=self.world.gone)
            if 0 not in self.world.gone:
                record.send(placed, self.start, end, failed=failed)
        if failed:
            self._print_own_failure()
            if signal.SIGINT in self.heard:
                raise KeyboardInterrupt
            if self.world.first and 0 in self.world.gone:  # no other process reports it
                raise RunFailed(f"process {self.world.joined.process}: {self.board.loss_text}")
            raise FailedElsewhere(f"process {self.world.joined.process}: the run has failed")
        return None

    def _wait_for_neighbours(self) -> None:
        check = partial(self.neighbours.check, at_once=True)
        wait_until(lambda: self._settled(self.local_ranks), within_s=GRACE_S, every_s=WATCH_S, check=check)

    def _print_own_failure(self) -> None:
        """Prints this rank's own error; another process reports why the run has failed."""
        failure = self._own_failure
        if failure is not None and not failure.follows:
            sys.stderr.write(f"rank {failure.rank}: {failure.kind.__name__}: {failure.message}\n")


def _entered(world: World, launch: Launch, folder: Path) -> frozenset[int]:
    """Creates or finds the run's folder on this host; returns the nodes with shared memory, by their first ranks."""
    mapping, made = map_ranks(world.hosts, launch.job.team), folder / "made"
    if world.first:
        folder.mkdir()
        nodes = dict.fromkeys(
            me.node for me in mapping.team if me.role == "worker" and me.rank in mapping.on(world.here)
        )
        inside = [str(node.ranks[0]) for node in nodes if mapping.whole(node) and fits(folder, node)]
        made.with_suffix(".new").write_text(" ".join(inside))
        made.with_suffix(".new").rename(made)

    def check() -> None:
        if not world.lives(world.neighbours[0]):
            raise FailedElsewhere(f"process {world.neighbours[0]} is gone")

    wait_until(made.exists, every_s=0.002, check=check)
    return frozenset(map(int, made.read_text().split()))
