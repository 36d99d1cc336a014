"""The torch.distributed interpreter: runs the program of one rank in a process of its own.

Rules of this file:

* A table maps each operation to the function that performs it; the semantics are in the modules that are called.
* A collective is issued at its `Start`, in program order, since gloo matches by order. Gradients by layer are computed
  by the lane's own thread (`Drive`), or by one worker thread if the device works in parallel. Every other started
  operation runs in a thread of its own.
* Before a rank waits for others it reports that on the board.
* After a death that ends the run, `NextStep` raises, although it waits for no other rank.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import Handle, Op, RecordUpdate, State
from paceline.algorithms.core.parts import together
from paceline.algorithms.core.program import Branches, Lane, Routine
from paceline.algorithms.core.values import GradientResult, Rank, Step, Weights, may_diverge, nbytes
from paceline.algorithms.runtime.cells import check_access, check_unlock
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, describe
from paceline.algorithms.runtime.handles import answered, named
from paceline.algorithms.runtime.program_errors import (
    InvalidOperation,
    check_start,
    unknown_operation,
)
from paceline.algorithms.runtime.stop_rule import NEVER, next_step
from paceline.algorithms.runtime.weights_owner import Update, WeightsOwner, followed
from paceline.backend.posix.processes import WorkerThread
from paceline.backend.rank.checkpoint import RankPart
from paceline.backend.rank.communication import Communication, Fetched, RankHandles
from paceline.backend.rank.loading import Loader
from paceline.backend.rank.pacing import Answers, OnNonfinite, Pace, RankDevice
from paceline.backend.rank.rank_context import Behind, RankStation, SpeedReference, Thread
from paceline.backend.status.rank_logs import life
from paceline.backend.transports.cells import LINE_BYTES, SharedCells
from paceline.backend.transports.collectives import TorchCollectives
from paceline.backend.transports.mail import RankMail
from paceline.backend.transports.messages import ReceiveClaim
from paceline.backend.transports.shared_collectives import MemoryCollectives
from paceline.records.learned import Kept, Learned
from paceline.records.trace import Schedule, Snapshot

if TYPE_CHECKING:
    from paceline.backend.rank.checkpointing import (
        Checkpointer,  # imports torch's checkpoints, so only when some are made
    )


class RankWeightsOwner(WeightsOwner[Learned]):
    """The updates of one real rank, and the weights being learned if it owns them or may come to own them."""

    def __init__(self, station: RankStation, job: Job, schedule: Schedule) -> None:
        me, shard = station.me.rank, station.me.shard
        self.follows = shard is not None or me in followed(job, station.board.spare)
        """whether it records its weights as those being learned, or as a shard of them"""
        learned = {me: Learned(job, schedule, shard)} if self.follows else {}
        super().__init__(job, learned, station.recorder.update, self._store)
        self.station = station
        self.until = NEVER
        """the step before which all ranks pause"""
        self._speed = SpeedReference()
        self._stepped = False

    def next(self, thread: Thread, state: State) -> Step | None:
        """Returns the next step, or None if the run ends. The weights' owners decide; other ranks follow the board."""
        me, board, now = self.station.me, self.station.board, self.station.clock.now()
        thread.step = state.step
        self.station.status.step = state.step
        self.station.recorder.breathe(now)
        if self.job.deaths and self.job.dies_at(me.rank, state.step):
            self.station.recorder.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if (dead := board.lost()) is not None:
            raise PeerFailed(f"rank {dead} died", dead)
        step = next_step(self.job, me, state.step, now, partial(board.grant, until=self.until), board.stop)
        if (sample := self._speed.sample(now, last=step is None)) is not None:
            self.station.recorder.add("speed", sample)
        if step is not None and not self._stepped:
            self._stepped = True
            life.info("first step: number %d, %.3f s from the start", state.step, now)
        return step

    def learn(self, rank: Rank, op: RecordUpdate, version: int, rows: Sequence[Update], now_s: float) -> None:
        super().learn(rank, op, version, rows, now_s)
        self.station.status.counters.applied(rows, self.learned.samples if self.follows else 0)

    def learn_shard(self, rank: Rank, op: RecordUpdate, version: int, rows: Sequence[Update], now_s: float) -> None:
        """Notes the update of the own shard; the shards are joined after the run."""
        self.learn(rank, op, version, rows if rank == self.job.weights_owner else [], now_s)

    def kept(self) -> Kept | None:
        """Returns the state of the weights being learned for a checkpoint; None at other ranks than their owner."""
        return self.learned.kept() if self.follows else None

    def restore(self, kept: Kept | None, age: int) -> None:
        """Restores the state of a checkpoint."""
        self.logs[self.station.me.rank].age = age
        if kept is not None:
            self.learned.restore(kept)

    def _store(self, shot: Snapshot) -> None:
        """Stores weights for evaluation after the run; without a copy, since programs change no vector in place."""
        if self.station.me.shard is not None or self.station.board.weights_owner == self.station.me.rank:
            self.station.recorder.evaluation(shot)
            if self.job.budget.scored:  # the launcher is waiting for it
                self.station.recorder.flush()


# Rationale:
# * Invariant: a program receives its answers in its own order, and operations that it starts during a backward pass
#   overlap with the rest of that pass.
# * How: an operation may leave a computation behind (a gradient layer by layer), which this same thread performs. The
#   computation begins when the program has reached its next operation. After each layer the program runs as far as it
#   can without waiting; this is its turn.
# * Rejected: computing in a second thread. Each layer would then need a switch between threads, and both would
#   contend for the interpreter's lock, at every step of every rank. GPUs and paced devices work in parallel with the
#   process, so the worker thread `backward` computes for them.
# * An error that the program raises in its turn is raised after the computation, because the computation has not
#   failed.
# * Source: backward hooks as in PyTorch's DistributedDataParallel (Li et al. 2020, arXiv:2006.15704, section 3.2.3),
#   which start a bucket's all-reduce while autograd continues.


AT_ONCE = (ops.RecordUpdate, ops.Now, ops.Send, ops.Start, ops.Charge)
"""operations that wait neither for another rank nor for the device"""


def no_turn() -> None:
    """Does nothing: the turn of a computation in another thread than the program's."""


class Drive:
    """Runs one lane.

    Args:
        station: the rank's context.
        thread: the lane's thread.
        handles: the started operations.
        perform: performs an operation and returns its answer.
    """

    def __init__(
        self, station: RankStation, thread: Thread, handles: RankHandles, perform: Callable[[Thread, Op[Any]], Any]
    ) -> None:
        assert thread.lane is not None, "only routines are driven"
        self._station, self._thread, self._lane = station, thread, thread.lane
        self._handles, self._perform = handles, perform
        thread.leave = self._leave
        self._op: Op[Any] | None = None
        self._behind: Behind | None = None
        self._raised: BaseException | None = None

    def to_its_end(self) -> Any:
        """Performs the program's operations until it ends; returns its return value."""
        self._op = self._lane.advance()
        while self._op is not None:
            self._one(self._op)
            if (behind := self._behind) is not None:
                self._behind = None
                behind(self._turn)
                if self._raised is not None:
                    raise self._raised
        return self._lane.answer

    def _leave(self, behind: Behind) -> None:
        """Schedules a computation for after the answer of the current operation."""
        self._behind = behind

    def _one(self, op: Op[Any]) -> None:
        """Performs an operation, and advances the program to its next one."""
        answer, failure = None, None
        try:
            answer = self._perform(self._thread, op)
        except Exception as error:
            failure = error
        began = self._station.clock.now()
        self._op = self._lane.advance(answer, failure)
        if isinstance(op, ops.Charge) and failure is None:  # the program computes before its next operation
            self._station.accelerator.synchronize()
            self._station.span(self._thread, "update", began)

    def _turn(self) -> None:
        """Runs the program until it would have to wait."""
        try:
            while self._raised is None and self._op is not None and self._returns_at_once(self._op):
                self._one(self._op)
        except BaseException as error:
            self._raised = error

    def _returns_at_once(self, op: Op[Any]) -> bool:
        if isinstance(op, ops.Wait):
            return self._handles.is_over([op.handle], 1)
        if isinstance(op, ops.WaitFor) and op.need == "all":
            return self._handles.is_over(op.handles, len(op.handles))
        return isinstance(op, AT_ONCE)


class Interpreter:
    """Runs the program of one rank."""

    def __init__(
        self,
        station: RankStation,
        job: Job,
        *,
        mail: RankMail,
        collectives: TorchCollectives,
        memory: MemoryCollectives | None,
        cells: SharedCells,
        pace: Pace | None,
        on_nonfinite: OnNonfinite,
        prefetch: int | None,
        schedule: Schedule,
    ) -> None:
        self.station, self.job, self.cells = station, job, cells
        self.device = RankDevice(station, job.learner, pace, on_nonfinite)
        self.loader = Loader(station, job.learner, prefetch)
        self.communication = Communication(station, mail, collectives, memory)
        self.weights_owner = RankWeightsOwner(station, job, schedule)
        self.handles = RankHandles(station)
        self.checkpointer: Checkpointer | None = None
        """makes checkpoints; None if there are none"""
        self._state: Any = None
        """the state with which the program is entered; None at its beginning"""
        self._lanes = count(1)
        self._branches = Branches()
        self._backward = WorkerThread("backward")
        self._meanings = self._table()

    def resume(self, part: RankPart, answers: Mapping[Handle[Any], Any]) -> None:
        """Restores the rank's part of a checkpoint, and the answers of the handles in it."""
        self._state = part.state
        self.weights_owner.restore(part.learned, part.age)
        self.handles.restore(answered(answers))
        self.device.late_s, self.loader.before = part.late_s, part.reads

    # --- driving --------------------------------------------------------------------------------------------------

    def run(self) -> Any:
        """Runs the rank's program to its end, completes operations in flight, and returns its last state.

        When a checkpoint is due, the program ends too, and is entered again with its state.
        """
        method, me = self.job.method, self.station.me
        if self._state is None:
            self.weights_owner.show()
            owner = self.weights_owner
            whole = owner.follows and me.shard is None
            initial = owner.learned.latest.vector if whole else self.job.learner.initial()
            self._state = method.begin(me, initial)
        while True:
            if self.checkpointer is not None:
                self.weights_owner.until = self.checkpointer.until
            main = Thread("main", lane=Lane(method.enter(me, self._state)))
            self._state = self.drive(main)
            self.handles.complete(main)
            if self.checkpointer is None or self.station.board.ends_before(self.checkpointer.until):
                break
            self.checkpointer.make(main, self._part(), lambda handle: self.handles.promise(handle).result())
        self.loader.close()
        self._backward.close()
        self.weights_owner.show()
        return self._state

    def _part(self) -> RankPart:
        """Returns this rank's part of a checkpoint."""
        keeper = self.weights_owner
        return RankPart(
            self._state, keeper.kept(), keeper.logs[self.station.me.rank].age, self.device.late_s, self.loader.reads
        )

    @may_diverge
    def drive(self, thread: Thread) -> Any:
        """Performs a routine's operations until it ends."""
        return Drive(self.station, thread, self.handles, self.perform).to_its_end()

    def perform(self, thread: Thread, op: Op[Any]) -> Any:
        """Performs one operation and returns its answer."""
        try:
            if (meaning := self._meanings.get(type(op))) is None:
                raise unknown_operation(describe(op))
            return meaning(thread, op)
        except InvalidOperation as error:
            raise error.at(self.station.standing(thread)) from None

    def _table(self) -> dict[type[Op[Any]], Callable[[Thread, Any], Any]]:
        """Returns the functions of all operations by type: a lookup is faster than a chain of type tests."""
        me = self.station.me.rank
        return {
            ops.NextStep: lambda thread, op: self.weights_owner.next(thread, op.state),
            ops.Load: lambda thread, op: self.loader.load(thread, op.samples),
            ops.Gradient: lambda thread, op: self.device.gradient(thread, op.weights, op.batch),
            ops.LayerGradients: self._layers,
            ops.Charge: lambda *_: None,
            **dict.fromkeys(COLLECTIVES, self.communication.perform),
            ops.Send: self.communication.send,
            ops.Receive: self.communication.receive,
            ops.Start: lambda thread, op: self._start(thread, op.what),
            ops.Wait: lambda thread, op: self.handles.wait(thread, [op.handle], 1)[0][1],
            ops.WaitFor: lambda thread, op: self.handles.wait(thread, op.handles, op.least),
            ops.Cancel: lambda thread, op: self.handles.cancel(thread.line, op.handle),
            ops.Now: self._now,
            ops.Access: self._access,
            ops.Lock: self._lock,
            ops.Unlock: self._unlock,
            ops.RecordUpdate: lambda _, op: self.weights_owner.applied(me, op, self.station.clock.now()),
        }

    def _now(self, thread: Thread, op: ops.Now) -> float:
        return self.station.recorder.looked(self.station.me.rank, self.station.clock.now())

    def _access(self, thread: Thread, op: ops.Access) -> Any:
        check_access(op, 0 if op.action == "read" else self.cells.nbytes(op.cell))
        began = self.station.clock.now()
        device = self.station.accelerator  # cells are in host memory
        before = device.into(self.cells.access(op.cell, op.action, device.out(op.value)))
        if nbytes(before) > LINE_BYTES:  # a counter is too small for a line in the record
            self.station.span(thread, "update", began)
        return before

    def _lock(self, thread: Thread, op: ops.Lock) -> None:
        self.station.waiting(thread, f"for the lock of {op.cell.name!r}")
        self.cells.lock(op.cell)
        self.station.moving(thread)

    def _unlock(self, thread: Thread, op: ops.Unlock) -> None:
        me = self.station.me.rank
        check_unlock(op.cell, me if self.cells.unlock(op.cell) else None, me)

    # --- what is started ------------------------------------------------------------------------------------------

    def _start(self, thread: Thread, what: Op[Any] | Routine[Any]) -> Handle[Any]:
        check_start(what)
        line = self._branches.name(thread.line, what)
        if isinstance(what, COLLECTIVES):
            return self.handles.give(self.communication.issue(thread, what, started=True))
        child, place = self._beside(thread), thread.place
        child.stream, child.line = thread.stream, line
        give_up: Callable[[], object] | None = None
        if isinstance(what, Routine):
            # its collectives are a stream of their own, named by its index among the sub-programs of its parent: the
            # same on every rank that runs the same program
            child.stream, child.lane = line, Lane(what)
        elif isinstance(what, ops.Receive):
            child.claim = ReceiveClaim(self.communication.mail.inbox)
            give_up = child.claim.give_up
        elif isinstance(what, ops.Gradient):
            child.given_up = threading.Event()
            give_up = child.given_up.set
        future: Future[Any] = Future()

        def body() -> None:
            try:
                future.set_result(self.perform(child, what) if isinstance(what, Op) else self.drive(child))
            except BaseException as error:
                future.set_exception(error)
            finally:
                if isinstance(what, Routine):
                    self.communication.leave(child.stream)

        # added before it starts: it precedes the operations that it starts itself
        handle = self.handles.give(Fetched(lambda: named(what, place), give_up, done=future.done, finish=future.result))
        threading.Thread(target=body, daemon=True, name=child.name).start()
        return handle

    def _beside(self, thread: Thread) -> Thread:
        """Returns a new lane, started at the current line of the thread."""
        return Thread(f"{thread.name}.{next(self._lanes)}", step=thread.step, started_at=thread.place)

    def _layers(self, thread: Thread, op: ops.LayerGradients) -> tuple[Handle[GradientResult], ...]:
        """Starts a gradient that is delivered layer by layer."""
        weights, child = op.weights, self._beside(thread)
        buckets = op.parts(self.station.me.layout)
        answers = Answers()

        def whole() -> Weights:
            if isinstance(weights, Weights):
                return weights
            # torch's graph needs every layer before it begins, so the forward pass waits for all of them
            return together([part for _, part in self.perform(child, ops.WaitFor(weights))])

        compute = partial(self.device.layers, child, whole, op.batch, buckets, answers)
        if self.device.works_beside or thread.leave is None:
            self._backward.put(partial(compute, no_turn))
        else:
            thread.leave(compute)
        return tuple(
            self.handles.give(
                Fetched(
                    partial("the gradient of {}".format, bucket.name),
                    done=partial(answers.done, place),
                    finish=partial(answers.get, place),
                )
            )
            for place, bucket in enumerate(buckets)
        )
