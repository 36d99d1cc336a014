"""A server with several threads, each of which handles one message at a time.

The server's program remains the only definition of what a server does, and it runs in the order in which it takes
messages. Handling a message lasts from its receive to the next receive: copying it, the charges that follow, and
replies. With one thread, the program itself takes this time. With more threads, the program continues at once and the
time passes in a thread:

* A receive begins when fewer messages than threads are being handled.
* Copies and charges extend the handling of the message. Its replies leave, and its updates are recorded, when the
  operations before them are over.
* Messages are finished in the order in which they were taken, because each one is handled with the weights that include
  all earlier updates.
* Before any other operation that takes time, the program waits until the handling up to there is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import GeneratorType
from typing import Any

import simpy

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.operations import Op
from paceline.records.recorder import Recorder
from paceline.simulator.interpreter.mail import SimulatedMail
from paceline.simulator.interpreter.weights_owner import SimulatedWeightsOwner
from paceline.simulator.kernel.lanes import SimulatedTask, Steps
from paceline.simulator.kernel.simpy_events import after
from paceline.simulator.kernel.timing import Timing


class Threads:
    """The threads of one server.

    Args:
        env: the run's clock.
        count: their number, two or more.
        timing: the seconds of charges.
        mail: the messages of the run.
        weights_owner: records updates.
        recorder: writes the run's record.
        perform: performs an operation as in a program without threads.
    """

    def __init__(
        self,
        env: simpy.Environment,
        count: int,
        timing: Timing,
        mail: SimulatedMail,
        weights_owner: SimulatedWeightsOwner,
        recorder: Recorder,
        perform: Callable[[SimulatedTask, Op[Any]], Any],
    ) -> None:
        self._env, self._count, self._timing, self._mail = env, count, timing, mail
        self._weights_owner, self._recorder, self._perform = weights_owner, recorder, perform
        self._ends_s: deque[float] = deque()
        """when each message that is being handled will be finished, in order; without the latest one"""
        self._handled_s = self._before_s = env.now
        """until when the latest message has been handled so far; when all messages before it are finished"""

    @property
    def _until_s(self) -> float:
        """When the effects of all operations up to here are visible."""
        return max(self._handled_s, self._before_s)

    def perform(self, task: SimulatedTask, op: Op[Any]) -> Any:
        """Performs an operation of the server's program: returns its answer, or a generator that does."""
        if isinstance(op, ops.Receive):
            return self._receive(task, op)
        if isinstance(op, ops.Charge):
            return self._charge(task, op)
        if isinstance(op, ops.Send):
            return self._send(task, op)
        if isinstance(op, ops.RecordUpdate):
            return self._weights_owner.applied(task.me.rank, op, max(self._until_s, self._env.now))
        if isinstance(op, ops.NextStep) or self._until_s <= self._env.now:
            return self._perform(task, op)
        return self._later(task, op)

    def finish(self) -> Steps:
        """Waits until all messages have been handled."""
        if (left_s := self._until_s - self._env.now) > 0:
            yield self._env.timeout(left_s)

    def _later(self, task: SimulatedTask, op: Op[Any]) -> Steps:
        yield from self.finish()
        answer = self._perform(task, op)
        return (yield from answer) if isinstance(answer, GeneratorType) else answer

    def _receive(self, task: SimulatedTask, op: ops.Receive) -> Steps:
        """Waits for a free thread, then for a message."""
        now_s = self._env.now
        if self._until_s > now_s:
            self._ends_s.append(self._until_s)
        while self._ends_s and (self._ends_s[0] <= self._env.now or len(self._ends_s) >= self._count):
            if (left_s := self._ends_s.popleft() - self._env.now) > 0:
                task.blocked = lambda: "waits for a free thread"
                yield self._env.timeout(left_s)
        message, copy_s = yield from self._mail.take(task, op)
        self._before_s, self._handled_s = self._until_s, self._env.now + copy_s
        return message

    def _charge(self, task: SimulatedTask, op: ops.Charge) -> None:
        start_s = max(self._handled_s, self._env.now)
        self._handled_s = start_s + self._timing.work_s(task.me.rank, op)
        self._recorder.span(task.me.rank, task.name, "update", None, task.step, start_s, self._handled_s)

    def _send(self, task: SimulatedTask, op: ops.Send) -> None:
        """Sends the present value when the handling up to here is over."""
        envelope = self._mail.enclosed(task, op, max(self._until_s, self._env.now))
        if self._until_s <= self._env.now:
            self._mail.post(envelope)
        else:
            after(self._env, self._until_s - self._env.now, lambda _: self._mail.post(envelope))
        self._mail.note_sent(task, envelope)
