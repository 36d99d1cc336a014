"""Messages between ranks: in flight, in the receiver's inbox, and the receive requests that wait for them.

A message that waits for its receive (rendezvous) is announced by a message without bytes, which is in the inbox in its
place. When a receive has matched it, an answer goes to the sender, and the bytes flow: three latencies in all. The
timeout of a receive applies until it has matched.
"""

from __future__ import annotations

from dataclasses import dataclass

import simpy

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.operations import Receive, Send
from paceline.algorithms.core.values import Message, Rank, nbytes
from paceline.algorithms.runtime.mail import Envelope, Mailroom, PendingReceive
from paceline.algorithms.runtime.program_errors import check_peer, message_wanted, timed_out
from paceline.records.recorder import Recorder
from paceline.simulator.interpreter.device_copies import DeviceCopies
from paceline.simulator.interpreter.host_costs import NO_HANDLING, Handling
from paceline.simulator.kernel.lanes import SimulatedTask, Steps
from paceline.simulator.kernel.simpy_events import upon
from paceline.simulator.network.network import NetworkModel


@dataclass(eq=False, slots=True)
class Transfer(Envelope):
    """A message with what the network and the record need."""

    bytes: int = 0
    step: int = 0
    """the sender's step"""
    waits: bool = False
    """whether its bytes flow only when a receive has matched it; until then its announcement stands for it"""
    flow: simpy.Event | None = None
    """the transfer of a message that waits, once a receive has matched it"""


class SimulatedMail:
    """Delivers messages in order for each pair of ranks; requests are served first come, first served.

    Args:
        env: the run's clock.
        network: times messages.
        recorder: writes the run's record.
        ranks: all ranks.
        handling: the processor time of ranks for messages.
        copies: copies values between hosts and devices; None: no library needs copies.
    """

    def __init__(
        self,
        env: simpy.Environment,
        network: NetworkModel,
        recorder: Recorder,
        ranks: tuple[Rank, ...],
        handling: Handling = NO_HANDLING,
        copies: DeviceCopies | None = None,
    ) -> None:
        self._env, self._network, self._recorder, self._handling = env, network, recorder, handling
        self._device_copies = copies
        self._room = room = Mailroom[Transfer](ranks)
        self._inboxes = room.inboxes
        self._flows: dict[Rank, simpy.Event] = {}
        """the last transfer to each rank of a message that waited for its receive"""

    def send(self, task: SimulatedTask, op: Send) -> Steps | None:
        """Sends the present value; the sender waits only for its own processor."""
        envelope = self.enclosed(task, op, self._env.now)
        source, to, size = envelope.source, envelope.to, envelope.bytes
        self.post(envelope)
        if (seconds := self._handling.send_s(source, to, size)) > 0:
            return self._busy(task, envelope, seconds)
        self.note_sent(task, envelope)
        return None

    def enclosed(self, task: SimulatedTask, op: Send, sent_s: float) -> Transfer:
        """Returns a message with the present value, which is not on its way yet.

        Args:
            task: the sender.
            op: the operation.
            sent_s: when it will be sent.
        """
        source, to, size = task.me.rank, op.to, nbytes(op.value)
        check_peer(op, task.me.world)
        waits = self._handling.waits(to, size)
        value = self._room.snapshot(source, op.value)
        return Transfer(source, to, op.tag, value, sent_s, bytes=size, step=task.step, waits=waits)

    def post(self, envelope: Transfer) -> None:
        """Puts a message, or its announcement, on its way, after the copy of its value to the host."""
        self._room.post(envelope)
        copies, copy = self._device_copies, None
        if copies is not None:
            copy = copies.before(envelope.source, envelope.step, envelope.bytes)
        if copy is None:
            self._depart(envelope)
        else:
            upon(copy, lambda _: self._depart(envelope))

    def _depart(self, envelope: Transfer) -> None:
        sent = self._network.message(envelope.source, envelope.to, 0 if envelope.waits else envelope.bytes)
        upon(sent, lambda _: self._land(envelope))

    def _land(self, envelope: Transfer) -> None:
        """Copies the value of a message from the host to the receiver's device."""
        copies, copy = self._device_copies, None
        if copies is not None and not envelope.waits:  # only servers let messages wait, and they are on hosts
            copy = copies.after(envelope.to, envelope.step, envelope.bytes)
        if copy is None:
            self._room.arrive(envelope)
        else:
            upon(copy, lambda _: self._room.arrive(envelope))

    def _busy(self, task: SimulatedTask, envelope: Transfer, seconds: float) -> Steps:
        """Lets the processor time of a send pass; the message is in flight during this time."""
        try:
            yield self._env.timeout(seconds)
        finally:
            self.note_sent(task, envelope)

    def note_sent(self, task: SimulatedTask, envelope: Transfer) -> None:
        """Records a send that is over."""
        step, sent_s, end_s = task.step, envelope.sent_s, max(self._env.now, envelope.sent_s)
        self._recorder.span(envelope.source, task.name, "send", None, step, sent_s, end_s, envelope.bytes)

    def receive(self, task: SimulatedTask, op: Receive) -> Message | Steps:
        """Returns the oldest message that matches; waits for one, for at most `timeout_s`."""
        check_peer(op, task.me.world)
        if (envelope := self._inboxes[task.me.rank].take(op.source, op.tag)) is None:
            return self._waited(task, op)
        if envelope.waits or self._taking_s(envelope) > 0 or self._copy_s(envelope) > 0:
            return self._taken(task, envelope, self._env.now)
        return self._heard(task, envelope, self._env.now)

    def take(self, task: SimulatedTask, op: Receive) -> Steps:
        """Like `receive`, for a server with threads; returns the message, and the processor time that is left."""
        check_peer(op, task.me.world)
        start_s = self._env.now
        if (envelope := self._inboxes[task.me.rank].take(op.source, op.tag)) is None:
            envelope = yield from self._next(task, op)
        left_s = yield from self._arrived(task, envelope, start_s)
        return self._heard(task, envelope, start_s), left_s

    def _waited(self, task: SimulatedTask, op: Receive) -> Steps:
        start = self._env.now
        envelope = yield from self._next(task, op)
        return (yield from self._taken(task, envelope, start))

    def _next(self, task: SimulatedTask, op: Receive) -> Steps:
        """Waits for the next message that matches."""
        task.blocked = lambda: f"waits to receive from {message_wanted(op)}"
        turn = self._env.event()
        rank = task.me.rank
        request: PendingReceive[Transfer] = PendingReceive(op.source, op.tag, turn.succeed)
        self._room.wait(rank, request)
        if request.dead is None:
            try:
                yield turn if op.timeout_s is None else turn | self._env.timeout(op.timeout_s)
            except simpy.Interrupt:  # cancelled
                self._inboxes[rank].withdraw(request)
                raise
        if request.dead is not None:
            words = f"waits to receive from {message_wanted(op)}, and rank {request.dead} sends nothing more"
            task.blocked = lambda: words
            raise PeerFailed(f"rank {request.dead} died", request.dead)
        if request.envelope is None:
            self._inboxes[rank].withdraw(request)
            self._recorder.heard(rank, None, task.line)
            raise timed_out(op, task.standing())
        return request.envelope

    def _taking_s(self, envelope: Transfer) -> float:
        return self._handling.receive_s(envelope.source, envelope.to, envelope.bytes)

    def _copy_s(self, envelope: Transfer) -> float:
        return self._handling.copy_s(envelope.source, envelope.to, envelope.bytes)

    def _taken(self, task: SimulatedTask, envelope: Transfer, start: float) -> Steps:
        """Returns the message after its transfer, if it waited for this receive, and the processor time."""
        left_s = yield from self._arrived(task, envelope, start)
        if left_s > 0:
            try:
                yield self._env.timeout(left_s)
            except simpy.Interrupt:  # cancelled: another request may receive it
                self._inboxes[envelope.to].put(envelope, oldest=True)
                raise
        return self._heard(task, envelope, start)

    def _arrived(self, task: SimulatedTask, envelope: Transfer, start: float) -> Steps:
        """Waits for the transfer of a message that waited for this receive; returns the processor time that is left.

        The processor time `receive_s` runs from `start`, or from the send if it is later: a wait for the message
        includes it. The copy of a message that waited for its receive runs during the transfer.
        """
        taken_s = max(start, envelope.sent_s) + self._taking_s(envelope)
        processed_s = max(taken_s, self._env.now + self._copy_s(envelope))
        if envelope.waits:
            task.blocked = lambda: f"receives a message from rank {envelope.source}"
            try:
                yield from self._transferred(envelope)
            except simpy.Interrupt:
                self._inboxes[envelope.to].put(envelope, oldest=True)
                raise
        return max(0.0, processed_s - self._env.now)

    def _transferred(self, envelope: Transfer) -> Steps:
        """Waits until a message that has matched has arrived; the first call starts its transfer."""
        if envelope.flow is None:
            before, to = self._flows.get(envelope.to), envelope.to
            envelope.flow = self._flows[to] = self._env.process(self._transfer(envelope, before))
        if not envelope.flow.processed:
            yield envelope.flow

    def _transfer(self, envelope: Transfer, before: simpy.Event | None) -> Steps:
        """Answers the announcement and transfers the bytes, after the transfer before to the same rank."""
        if before is not None and not before.processed:
            yield before
        yield self._network.message(envelope.to, envelope.source, 0)
        yield self._network.message(envelope.source, envelope.to, envelope.bytes)

    def _heard(self, task: SimulatedTask, envelope: Transfer, start: float) -> Message:
        """Records the receive and returns the message."""
        rank, now, size = task.me.rank, self._env.now, envelope.bytes
        self._recorder.span(rank, task.name, "receive", None, task.step, start, now, size, envelope.sent_s)
        self._recorder.heard(rank, envelope.source, task.line)
        return Message(envelope.source, envelope.value, envelope.tag)

    def lose(self, rank: Rank) -> None:
        """Tells the receivers that wait for a dead rank, each after the last message that it has sent them."""
        self._room.lose(rank)
