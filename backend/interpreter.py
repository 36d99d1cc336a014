"""The torch.distributed interpreter: performs one rank's program in a process of its own.

Rules of this file:

* `perform` has one case per operation; what an operation means is in the module that its case calls.
* A collective is issued at its `Start`, in program order, since gloo matches by order; everything else that is started
  runs in a thread of its own.
* Before a rank waits for others it says so on the board.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any

from paceline.algorithms import operations as ops
from paceline.algorithms.errors import ProgramError
from paceline.algorithms.job import Job
from paceline.algorithms.meeting import COLLECTIVES, describe
from paceline.algorithms.operations import Cell, Handle, Op
from paceline.algorithms.program import Branches, Lane, Routine
from paceline.algorithms.values import Batch, GradientResult, Weights, join, may_diverge, nbytes
from paceline.backend.cells import LINE_BYTES, Cells
from paceline.backend.collectives import Collectives
from paceline.backend.communication import Communication
from paceline.backend.device import Device, Pace
from paceline.backend.inbox import Claim
from paceline.backend.keeper import Keeper
from paceline.backend.loading import Loader
from paceline.backend.mail import Mail
from paceline.backend.shared import SharedMemory
from paceline.backend.started import Pending, Started
from paceline.backend.station import Station, Thread
from paceline.records.trace import Schedule


class Interpreter:
    """Performs the program of one rank."""

    def __init__(
        self,
        station: Station,
        job: Job,
        *,
        mail: Mail,
        collectives: Collectives,
        memory: SharedMemory | None,
        cells: Cells,
        pace: Pace | None,
        prefetch: int | None,
        schedule: Schedule,
    ) -> None:
        self.station, self.job, self.cells = station, job, cells
        self.device = Device(station, job.learner, pace)
        self.loader = Loader(station, job.learner, prefetch)
        self.communication = Communication(station, mail, collectives, memory)
        self.keeper = Keeper(station, job, schedule)
        self.started = Started(station)
        self._lanes = count(1)
        self._branches = Branches()

    # --- driving --------------------------------------------------------------------------------------------------

    def run(self) -> Any:
        """Drives the rank's program to its end; answers its last state. What is in flight is completed."""
        me = self.station.me
        self.keeper.show()
        state = self.job.method.begin(me, self.keeper.learned.latest.vector)
        main = Thread("main", lane=Lane(self.job.method.enter(me, state)))
        answer = self.drive(main)
        self.started.complete(main)
        self.loader.close()
        self.keeper.show()
        return answer

    @may_diverge
    def drive(self, thread: Thread) -> Any:
        """Performs a routine's operations until it ends."""
        assert thread.lane is not None, "only routines are driven"
        op = thread.lane.advance()
        while op is not None:
            answer, failure = None, None
            try:
                answer = self.perform(thread, op)
            except Exception as error:
                failure = error
            began = self.station.clock.now()
            following = thread.lane.advance(answer, failure)
            if isinstance(op, ops.Work) and failure is None:  # the program does it itself, before it asks again
                self.station.accelerator.synchronize()
                self.station.span(thread, "update", began)
            op = following
        return thread.lane.answer

    def perform(self, thread: Thread, op: Op[Any]) -> Any:
        """Answers one operation."""
        match op:
            case ops.Next(state):
                return self.keeper.next(thread, state)
            case ops.Load(samples):
                return self.loader.load(thread, samples)
            case ops.Gradient(weights, batch):
                return self.device.gradient(thread, weights, batch)
            case ops.LayerGradients(weights, batch):
                return self._layers(thread, weights, batch)
            case ops.Work():
                return None
            case ops.AllReduce() | ops.Reduce() | ops.Broadcast() | ops.AllGather() | ops.Barrier():
                return self.communication.issue(thread, op).finish()
            case ops.Send():
                return self.communication.send(thread, op)
            case ops.Receive():
                return self.communication.receive(thread, op)
            case ops.Start(what):
                return self._start(thread, what)
            case ops.Wait(handle):
                return self.started.wait(thread, [handle], 1)[0][1]
            case ops.WaitFor(handles):
                return self.started.wait(thread, handles, op.least)
            case ops.Cancel(handle):
                return self.started.cancel(thread, handle)
            case ops.Now():
                self.station.recorder.add("now", now := self.station.clock.now())
                return now
            case ops.Access():
                return self._access(thread, op)
            case ops.Lock(cell):
                self.station.waiting(thread, f"for the lock of {cell.name!r}")
                self.cells.lock(cell)
                return self.station.moving(thread)
            case ops.Unlock(cell):
                return self._unlock(thread, cell)
            case ops.Applied():
                return self.keeper.applied(op)
            case _:
                unknown = f"asked for {describe(op)}, which the torch.distributed interpreter does not know"
                raise ProgramError(f"{self.station.standing(thread)}: {unknown}")

    def _access(self, thread: Thread, op: ops.Access) -> Any:
        began = self.station.clock.now()
        device = self.station.accelerator  # cells lie in the host's memory
        before = device.into(self.cells.access(op.cell, op.action, device.out(op.value)))
        if nbytes(before) > LINE_BYTES:  # a count is no work worth a line in the record
            self.station.span(thread, "update", began)
        return before

    def _unlock(self, thread: Thread, cell: Cell) -> None:
        if not self.cells.unlock(cell):
            wrong = f"unlocks cell {cell.name!r}, which nobody here holds; Lock it first"
            raise ProgramError(f"{self.station.standing(thread)}: {wrong}")

    # --- what is started ------------------------------------------------------------------------------------------

    def _start(self, thread: Thread, what: Op[Any] | Routine[Any]) -> Handle[Any]:
        if not isinstance(what, Op | Routine):
            raise ProgramError(
                f"{self.station.standing(thread)}: starts {what!r}; only an operation or a program can be started"
            )
        line = self._branches.name(thread.line, what)
        if isinstance(what, COLLECTIVES):
            return self.started.keep(self.communication.issue(thread, what, started=True))
        child = Thread(f"{thread.name}.{next(self._lanes)}", thread.stream, step=thread.step, line=line)
        give_up: Callable[[], object] | None = None
        if isinstance(what, Routine):
            # its collectives are a stream of their own, named by its place among the sub-programs of its starter:
            # the same on every rank that runs the same program
            child.stream, child.lane = line, Lane(what)
        elif isinstance(what, ops.Receive):
            child.claim = Claim(self.communication.mail.inbox)
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

        words = describe(what) if isinstance(what, Op) else repr(what)
        # kept before it begins: it stands in front of what it starts itself
        handle = self.started.keep(Pending(future.done, future.result, words, give_up))
        threading.Thread(target=body, daemon=True, name=child.name).start()
        return handle

    def _layers(
        self, thread: Thread, weights: Weights | tuple[Handle[Weights], ...], batch: Batch
    ) -> tuple[Handle[GradientResult], ...]:
        """Starts a gradient that comes layer by layer."""
        child = Thread(f"{thread.name}.{next(self._lanes)}", step=thread.step)
        layers = self.station.me.layout.layers[::-1]
        ready: list[Future[GradientResult]] = [Future() for _ in layers]

        def whole() -> Weights:
            if isinstance(weights, Weights):
                return weights
            # torch's graph needs every layer before it begins, so the forward pass waits for all of them
            parts = [part for _, part in self.started.wait(child, weights, len(weights))]
            return Weights(join([part.vector for part in parts]), min(part.version for part in parts))

        threading.Thread(target=self.device.layers, args=(child, whole, batch, ready), daemon=True).start()
        return tuple(
            self.started.keep(Pending(future.done, future.result, f"the gradient of {layer.name}"))
            for future, layer in zip(ready, layers, strict=True)
        )
