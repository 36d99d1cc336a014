"""Messages between ranks: in flight, in the receiver's inbox, and the receive requests that wait for them."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

import simpy

from paceline.algorithms.core.operations import Receive, Send
from paceline.algorithms.core.values import Message, Rank, nbytes
from paceline.algorithms.runtime.program_errors import check_peer, message_wanted, timed_out
from paceline.algorithms.runtime.snapshots import Snapshots
from paceline.records.trace import Span, Trace
from paceline.simulator.interpreter.cpu_overheads import NO_HANDLING, Handling
from paceline.simulator.kernel.lanes import Steps, Task
from paceline.simulator.kernel.simpy_events import upon
from paceline.simulator.network.network import Network


@dataclass(eq=False, slots=True)
class Envelope:
    """A message, with the facts that its receiver records."""

    source: Rank
    to: Rank
    tag: str
    value: Any
    sent_s: float
    bytes: int
    arrived: bool = False

    def suits(self, op: Receive) -> bool:
        return self.tag == op.tag and (op.source is None or op.source == self.source)


@dataclass(eq=False, slots=True)
class Request:
    """A receive that waits for a message."""

    op: Receive
    turn: simpy.Event
    envelope: Envelope | None = None
    """the message that it received"""


class Mail:
    """Delivers messages in order for each pair of ranks; requests are served first come, first served.

    Args:
        env: the run's clock.
        network: times messages.
        trace: the run's record.
        ranks: all ranks.
        handling: the processor time of ranks for messages.
    """

    def __init__(
        self,
        env: simpy.Environment,
        network: Network,
        trace: Trace,
        ranks: tuple[Rank, ...],
        handling: Handling = NO_HANDLING,
    ) -> None:
        self._env, self._network, self._trace, self._handling = env, network, trace, handling
        self._inboxes: dict[Rank, list[Envelope]] = {rank: [] for rank in ranks}
        self._requests: dict[Rank, list[Request]] = {rank: [] for rank in ranks}
        self._copies = {rank: Snapshots() for rank in ranks}
        self._under_way: dict[tuple[Rank, Rank], deque[Envelope]] = defaultdict(deque)

    def send(self, task: Task, op: Send) -> Steps | None:
        """Sends the present value; the sender waits only for its own processor."""
        source, to, now = task.me.rank, op.to, self._env.now
        check_peer(op, task.me.world)
        size = nbytes(op.value)
        envelope = Envelope(source, to, op.tag, self._copies[source].of(op.value), now, size)
        self._under_way[source, to].append(envelope)
        upon(self._network.message(source, to, size), lambda _: self._arrive(envelope))
        if (seconds := self._handling.send_s(source, to, size)) > 0:
            return self._busy(task, envelope, seconds)
        self._note_sent(task, envelope)
        return None

    def _busy(self, task: Task, envelope: Envelope, seconds: float) -> Steps:
        """Lets the processor time of a send pass; the message is in flight during this time."""
        try:
            yield self._env.timeout(seconds)
        finally:
            self._note_sent(task, envelope)

    def _note_sent(self, task: Task, envelope: Envelope) -> None:
        step, now = task.step, self._env.now
        span = Span(envelope.source, task.name, "send", None, step, envelope.sent_s, now, envelope.bytes)
        self._trace.spans.append(span)

    def receive(self, task: Task, op: Receive) -> Message | Steps:
        """Returns the oldest message that matches; waits for one, for at most `timeout_s`."""
        check_peer(op, task.me.world)
        inbox = self._inboxes[task.me.rank]
        for envelope in inbox:
            if envelope.suits(op):
                inbox.remove(envelope)
                if self._taking_s(envelope) > 0:
                    return self._taken(task, envelope, self._env.now)
                return self._heard(task, envelope, self._env.now)
        return self._waited(task, op)

    def _waited(self, task: Task, op: Receive) -> Steps:
        start = self._env.now
        task.blocked = lambda: f"waits to receive from {message_wanted(op)}"
        envelope = yield from self._await(task.me.rank, Request(op, self._env.event()))
        if envelope is None:
            self._trace.hear(task.me.rank, None, task.line)
            raise timed_out(op, task.standing())
        return (yield from self._taken(task, envelope, start))

    def _taking_s(self, envelope: Envelope) -> float:
        return self._handling.receive_s(envelope.source, envelope.to, envelope.bytes)

    def _taken(self, task: Task, envelope: Envelope, start: float) -> Steps:
        """Returns the message after the processor time, which runs from `start`: a wait for the message includes it."""
        if (left_s := start + self._taking_s(envelope) - self._env.now) > 0:
            try:
                yield self._env.timeout(left_s)
            except simpy.Interrupt:  # cancelled: another request may receive it
                self._deliver(envelope, oldest=True)
                raise
        return self._heard(task, envelope, start)

    def _heard(self, task: Task, envelope: Envelope, start: float) -> Message:
        """Records the receive and returns the message."""
        rank, now = task.me.rank, self._env.now
        self._trace.spans.append(
            Span(rank, task.name, "receive", None, task.step, start, now, envelope.bytes, envelope.sent_s)
        )
        self._trace.hear(rank, envelope.source, task.line)
        return Message(envelope.source, envelope.value, envelope.tag)

    def _await(self, rank: Rank, request: Request) -> Steps:
        """Waits for the message of a request; returns None after its timeout."""
        timeout_s = request.op.timeout_s
        self._requests[rank].append(request)
        try:
            if timeout_s is None:
                yield request.turn
            else:
                yield request.turn | self._env.timeout(timeout_s)
        except simpy.Interrupt:  # cancelled: a message received at this instant is put back as the oldest
            if request.envelope is not None:
                self._deliver(request.envelope, oldest=True)
            else:
                self._requests[rank].remove(request)
            raise
        if request.envelope is None:
            self._requests[rank].remove(request)
        return request.envelope

    def _arrive(self, envelope: Envelope) -> None:
        """Delivers a message, and waits if an earlier one of the same pair is still in flight."""
        envelope.arrived = True
        queue = self._under_way[envelope.source, envelope.to]
        while queue and queue[0].arrived:
            self._deliver(queue.popleft())

    def _deliver(self, envelope: Envelope, *, oldest: bool = False) -> None:
        requests = self._requests[envelope.to]
        for request in requests:
            if envelope.suits(request.op):
                requests.remove(request)
                request.envelope = envelope
                request.turn.succeed()
                return
        inbox = self._inboxes[envelope.to]
        inbox.insert(0 if oldest else len(inbox), envelope)
