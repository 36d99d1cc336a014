"""The torch.distributed interpreter: performs one rank's program in a process of its own.

Rules of this file:

* `perform` has one case per operation. What a program starts becomes a `Pending`: a collective is issued at its `Start`,
  in program order, since gloo matches by order; everything else runs in a thread of its own.
* A paced run computes every gradient truly and then waits out the rest of its device's modelled time.
* Before a rank waits for others it says so on the board: that is what a deadlock report is made of.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, count
from typing import Any, Protocol

from paceline.algorithms import operations as ops
from paceline.algorithms.errors import PeerFailed, ProgramError
from paceline.algorithms.job import Job
from paceline.algorithms.ledger import Ledger
from paceline.algorithms.meeting import (
    COLLECTIVES,
    Collective,
    describe,
    sent_bytes,
    signature,
)
from paceline.algorithms.method import Me
from paceline.algorithms.operations import Handle, Op
from paceline.algorithms.program import Lane, Routine
from paceline.algorithms.values import (
    Batch,
    GradientResult,
    Message,
    Rank,
    Samples,
    Step,
    nbytes,
)
from paceline.backend.board import Board, Doing
from paceline.backend.cells import Cells
from paceline.backend.pace import Clock
from paceline.backend.recorder import Recorder
from paceline.backend.transport import Claim, Envelope, Transport
from paceline.records.trace import Activity, Schedule, Snapshot, Span

POLL_S = 0.0002


class Pace(Protocol):
    """How long a device is to take; the simulator draws from the same."""

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        """Seconds of one gradient."""
        ...

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        """Each layer's share of that time, forward and backward, first layer first; together they are 1."""
        ...


@dataclass
class Pending:
    """Something started: how to see whether it is done, and how to have its answer."""

    done: Callable[[], bool]
    finish: Callable[[], Any]
    what: str = ""
    claim: Claim | None = None
    """of a receive: what a `Cancel` takes away"""
    heard: bool = False
    """the program has had the answer or the failure, or has given it up"""


@dataclass
class Thread:
    """One lane of the program in this process, and where it stands."""

    name: str
    stream: str = ""
    lane: Lane | None = None
    step: int = 0
    claim: Claim | None = None
    """of a lane that is one started receive"""


class Interpreter:
    """Performs the program of one rank."""

    def __init__(
        self,
        me: Me,
        job: Job,
        *,
        board: Board,
        transport: Transport,
        recorder: Recorder,
        cells: Cells,
        clock: Clock,
        pace: Pace | None,
        schedule: Schedule,
    ) -> None:
        self.me, self.job, self.board, self.transport, self.recorder = me, job, board, transport, recorder
        self.cells, self.clock, self.pace, self.schedule = cells, clock, pace, schedule
        self.ledger = Ledger(job.method.notion)
        self.pending: dict[int, Pending] = {}
        self.device = threading.Lock()
        self.late_s = 0.0
        self.samples = 0
        self.learned: Any = None
        """the weights being learned, as last applied; the keeper's to report"""
        self.version = self.shown = 0
        self._numbers = count()
        self._routines: dict[str, int] = {}

    # --- driving --------------------------------------------------------------------------------------------------

    def run(self) -> Any:
        """Drives the rank's program to its end; answers its last state. What is in flight is completed."""
        self.learned = self.job.learner.initial()
        if self.me.rank == self.job.keeper:
            self._snapshot()
        state = self.job.method.begin(self.me, self.learned)
        answer = self.drive(Thread("main", lane=Lane(self.job.method.enter(self.me, state))))
        for pending in list(self.pending.values()):
            if not pending.heard:
                pending.finish()
        if self.me.rank == self.job.keeper and self.shown != self.version:
            self._snapshot()
        return answer

    def drive(self, thread: Thread) -> Any:
        """Performs a lane's operations until it ends."""
        lane = thread.lane
        assert lane is not None, "drive is for routines"
        op = lane.advance()
        while op is not None:
            failure, answer = None, None
            try:
                answer = self.perform(thread, op)
            except Exception as error:
                failure = error
            updating = self.clock.now() if isinstance(op, ops.Work) and failure is None else None
            op = lane.advance(answer, failure)
            if updating is not None:
                self.span(thread, "update", updating)
        return lane.answer

    def span(self, thread: Thread, activity: Activity, start_s: float, **more: Any) -> None:
        """Records an activity that ends now."""
        self.recorder.add(
            "span",
            Span(
                self.me.rank, thread.name, activity, more.pop("layer", None), more.pop("step", thread.step), start_s, self.clock.now(), **more
            ),
        )

    def waiting(self, thread: Thread, what: str) -> None:
        """Says on the board that this rank waits, at which line, for what."""
        if thread.name == "main":
            place = thread.lane.where() if thread.lane else thread.name
            self.board.say(self.me.rank, Doing.BLOCKED, f"rank {self.me.rank} ({self.me.role}) at {place}, step {thread.step}: waits {what}")

    def moving(self, thread: Thread) -> None:
        if thread.name == "main":
            self.board.say(self.me.rank, Doing.RUNNING)

    # --- operations -----------------------------------------------------------------------------------------------

    def perform(self, thread: Thread, op: Op[Any]) -> Any:
        """Answers one operation."""
        match op:
            case ops.Next(state):
                return self.next(thread, state)
            case ops.Load(samples):
                return self.load(thread, samples)
            case ops.Gradient(weights, batch):
                return self.gradient(thread, weights, batch)
            case ops.LayerGradients(weights, batch):
                return self.layer_gradients(thread, weights, batch)
            case ops.Work():
                return None  # the program computes it itself; `drive` records how long that takes
            case ops.AllReduce() | ops.Reduce() | ops.Broadcast() | ops.AllGather() | ops.Barrier():
                return self.issue(thread, op).finish()
            case ops.Send(to, value, tag):
                return self.send(thread, to, value, tag)
            case ops.Receive(source, tag, timeout_s):
                return self.receive(thread, source, tag, timeout_s)
            case ops.Start(what):
                return self.start(thread, what)
            case ops.Wait(handle):
                return self.wait(thread, [handle], 1)[0][1]
            case ops.WaitFor(handles, need):
                return self.wait(thread, handles, {"all": len(handles), "any": 1}[need] if isinstance(need, str) else need)
            case ops.Cancel(handle):
                return self.cancel(handle)
            case ops.Now():
                now = self.clock.now()
                self.recorder.add("now", now)
                return now
            case ops.Access(cell, action, value):
                return self.cells.access(cell, action, value)
            case ops.Lock(cell):
                self.waiting(thread, f"for the lock of {cell.name!r}")
                self.cells.lock(cell)
                return self.moving(thread)
            case ops.Unlock(cell):
                return self.cells.unlock(cell)
            case ops.Applied():
                return self.applied(op)
            case _:
                place = thread.lane.where() if thread.lane else thread.name
                raise ProgramError(
                    f"rank {self.me.rank} ({self.me.role}) at {place}, step {thread.step}: asked for {describe(op)}, "
                    "which the torch.distributed interpreter does not know"
                )

    def next(self, thread: Thread, state: ops.State) -> Step | None:
        step = thread.step = state.step
        self.recorder.breathe(self.clock.now())
        self.board.rows["step"][self.me.rank] = step
        if self.me.role == self.job.method.keeper:
            if (limit := self.job.limit) is not None and step >= limit:
                return None
            if (seconds := self.job.budget.seconds) is not None and self.clock.now() >= seconds:
                self.board.stop()
            if not self.board.grant(self.me.rank, step):
                return None
        return Step(step, self.job.samples(self.me, step))

    def load(self, thread: Thread, samples: Samples) -> Batch:
        start = self.clock.now()
        data = self.job.learner.load(samples)
        self.span(thread, "load", start, step=samples.index)
        return Batch(samples, data)

    def gradient(self, thread: Thread, weights: Any, batch: Batch) -> GradientResult:
        step, size = batch.samples.index, batch.samples.count
        with self.computing():
            start = self.clock.now()
            vector, loss = self.job.learner.gradient(weights.vector, batch.data)
            if self.pace is not None:
                self.hold(start + self.pace.compute_s(self.me.rank, step, size))
            self.span(thread, "compute", start, step=step)
        return GradientResult(vector, weights.version, loss, size, self.me.rank, step, self.clock.now() - start)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """A device computes one gradient at a time, and is not waiting while it does."""
        with self.device:
            self.board.busy(self.me.rank, +1)
            try:
                yield
            finally:
                self.board.busy(self.me.rank, -1)

    def hold(self, due_s: float) -> None:
        """Waits out a paced device's time; keeps by how much it was ever late."""
        self.late_s = max(self.late_s, self.clock.wait_until(due_s))

    def layer_gradients(self, thread: Thread, weights: Any, batch: Batch) -> tuple[Handle[GradientResult], ...]:
        layers = self.me.layout.layers[::-1]
        ready: list[Future[GradientResult]] = [Future() for _ in layers]
        worker = Thread(f"compute {next(self._numbers)}", step=thread.step)

        def compute() -> None:
            try:
                self._compute_layers(worker, weights, batch, ready)
            except BaseException as error:
                for future in ready:
                    if not future.done():
                        future.set_exception(error)

        threading.Thread(target=compute, daemon=True).start()
        return tuple(self.keep(Pending(f.done, f.result, f"the gradient of {la.name}")) for f, la in zip(ready, layers, strict=True))

    def _compute_layers(self, thread: Thread, weights: Any, batch: Batch, ready: list[Future[GradientResult]]) -> None:
        """Backward, layer by layer: each layer's gradient is handed out at its moment, true or paced."""
        from paceline.algorithms.values import Weights, join

        step, size = batch.samples.index, batch.samples.count
        if isinstance(weights, tuple):
            # a forward pass that waits layer by layer is timed as one that waits for all: the true graph needs every layer
            parts = [self.wait(thread, [handle], 1)[0][1] for handle in weights]
            weights = Weights(join([part.vector for part in parts]), min(part.version for part in parts))
        with self.computing():
            start = begun = self.clock.now()
            due = self.layers_due(step, size)
            names = [layer.name for layer in self.me.layout.layers[::-1]]
            parts_done: list[Any] = []

            def hand_out(name: str, gradient: Any) -> None:
                nonlocal begun
                at = len(parts_done)
                assert name == names[at], f"backward is last layer first: {names[at]} is due, {name} came"
                if due is not None:
                    self.hold(start + due[at])
                self.span(thread, "compute", begun, step=step, layer=name)
                begun = self.clock.now()
                parts_done.append(gradient)
                busy = begun - start
                ready[at].set_result(GradientResult(gradient, weights.version, float("nan"), size, self.me.rank, step, busy))

            self.job.learner.layer_gradients(weights.vector, batch.data, hand_out)

    def layers_due(self, step: int, size: int) -> list[float] | None:
        """When a paced device has each layer's gradient, last layer first, in seconds from the start of the step."""
        if self.pace is None:
            return None
        forward, backward = self.pace.layer_shares()
        whole_s = self.pace.compute_s(self.me.rank, step, size)
        return [whole_s * (sum(forward) + share) for share in accumulate(reversed(backward))]

    def issue(self, thread: Thread, op: Collective) -> Pending:
        """Begins a collective, after checking on the board that the others have begun the same one there."""
        place = thread.lane.where() if thread.lane else thread.name
        if self.me.rank not in op.group:
            raise ProgramError(f"rank {self.me.rank} at {place}: enters {describe(op)}, but is no member of {op.group}")
        start = self.clock.now()
        position = self.transport.position(op.group, thread.stream)
        self.board.enter(self.me.rank, op.group.ranks, f"{op.group}{thread.stream}", position, signature(op), place)
        what, step = f"in {describe(op)}", thread.step
        self.waiting(thread, what)
        flying = self.transport.issue(op, thread.stream)
        self.moving(thread)
        key = f"{op.group}{thread.stream}/{position} {op.key}"

        @cache  # a handle may be waited for again
        def finish() -> Any:
            self.waiting(thread, what)
            answer = flying.finish()
            self.moving(thread)
            self.span(thread, "collective", start, step=step, bytes=sent_bytes(op, self.me.rank), key=key)
            return answer

        return Pending(flying.done, finish, what)

    def send(self, thread: Thread, to: Rank, value: Any, tag: str) -> None:
        start = self.clock.now()
        self.transport.send(to, Envelope(self.me.rank, tag, value, start))
        self.span(thread, "send", start, bytes=nbytes(value))

    def receive(self, thread: Thread, source: Rank | None, tag: str, timeout_s: float | None) -> Message:
        start = self.clock.now()
        if timeout_s is None:
            self.waiting(thread, f"to receive from {'anyone' if source is None else f'rank {source}'}" + (f" with tag {tag!r}" if tag else ""))
        envelope = self.transport.inbox.get(source, tag, timeout_s, thread.claim or Claim())
        self.moving(thread)
        self.span(thread, "receive", start, bytes=nbytes(envelope.value), ready_s=envelope.sent_s)
        self.recorder.add("heard", (self.me.rank, envelope.source))
        return Message(envelope.source, envelope.value, envelope.tag)

    # --- what is started ------------------------------------------------------------------------------------------

    def keep(self, pending: Pending) -> Handle[Any]:
        number = next(self._numbers)
        self.pending[number] = pending
        return Handle(self.me.rank, number)

    def start(self, thread: Thread, what: Op[Any] | Routine[Any]) -> Handle[Any]:
        if isinstance(what, COLLECTIVES):
            return self.keep(self.issue(thread, what))
        name = f"{thread.name}.{next(self._numbers)}"
        routine = isinstance(what, Routine)
        # collectives of a sub-program are a stream of their own, named by its place among this rank's starts
        child = Thread(name, f"{thread.stream}/{self._started(thread)}" if routine else thread.stream, step=thread.step)
        child.lane = Lane(what) if isinstance(what, Routine) else None
        child.claim = Claim() if isinstance(what, ops.Receive) else None
        future: Future[Any] = Future()

        def body() -> None:
            try:
                future.set_result(self.drive(child) if child.lane else self.perform(child, what))  # type: ignore[arg-type]
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=body, daemon=True, name=name).start()
        return self.keep(Pending(future.done, future.result, describe(what) if isinstance(what, Op) else repr(what), child.claim))

    def _started(self, thread: Thread) -> int:
        """Counts the sub-programs that a lane has started: the same count on every rank that runs the same program."""
        before = self._routines.get(thread.stream, 0)
        self._routines[thread.stream] = before + 1
        return before

    def wait(self, thread: Thread, handles: Any, need: int) -> tuple[tuple[int, Any], ...]:
        """Waits until `need` are done; answers all that are."""
        pendings = [self._known(handle) for handle in handles]
        if need < len(pendings):
            self.waiting(thread, f"for {need} of {len(pendings)} started: " + ", ".join(p.what for p in pendings))
            while sum(p.done() for p in pendings) < need:
                if (dead := self.board.lost) is not None:
                    raise PeerFailed(f"rank {dead} died")
                time.sleep(POLL_S)
            self.moving(thread)
        answers = []
        for index, (handle, pending) in enumerate(zip(handles, pendings, strict=True)):
            if need == len(pendings) or pending.done():
                self.waiting(thread, f"for {pending.what}")
                pending.heard = True
                answers.append((index, pending.finish()))
                self.moving(thread)
        return tuple(answers)

    def _known(self, handle: Handle[Any]) -> Pending:
        if handle.number not in self.pending:
            raise ProgramError(f"rank {self.me.rank}: {handle} was started by nobody here")
        return self.pending[handle.number]

    def cancel(self, handle: Handle[Any]) -> bool:
        pending = self._known(handle)
        in_time = self.transport.inbox.give_up(pending.claim) if pending.claim else not pending.done()
        pending.heard |= in_time
        return in_time

    # --- learning -------------------------------------------------------------------------------------------------

    def applied(self, op: ops.Applied) -> int:
        now = self.clock.now()
        version, rows = self.ledger.enter(op, now)
        for row in rows:
            self.recorder.add("update", row)
        if self.me.rank == self.job.keeper:
            self.samples += sum(row.samples for row in rows) * (1 if self.job.method.has_server else self.job.workers)
            if op.advance:
                self.learned, self.version = op.weights.vector, version
                if self.schedule.due(updates=version, samples=self.samples, time_s=now):
                    self._snapshot()
        return version

    def _snapshot(self) -> None:
        """Keeps the weights for evaluation after the run; programs never change a vector in place, so no copy is made."""
        self.shown = self.version
        self.recorder.add("snapshot", Snapshot(self.clock.now(), self.version, self.samples, self.learned))
