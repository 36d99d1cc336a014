"""Messages between ranks: on their way, in the receiver's inbox, and the requests that wait for them."""

from __future__ import annotations

import copy
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

import simpy

from paceline.algorithms.errors import ProgramError, TimedOut
from paceline.algorithms.operations import Receive, Send
from paceline.algorithms.values import Message, Rank, nbytes
from paceline.records.trace import Span, Trace
from paceline.simulator.network import Network
from paceline.simulator.strands import Steps, Strand


@dataclass(eq=False, slots=True)
class Letter:
    """A message, and what its receiver's record says of it."""

    source: Rank
    to: Rank
    tag: str
    value: Any
    sent_s: float
    bytes: int
    arrived: bool = False


@dataclass(eq=False, slots=True)
class Request:
    """Somebody who waits for a letter."""

    source: Rank | None
    tag: str
    turn: simpy.Event
    letter: Letter | None = None
    """what it has been given"""

    def takes(self, letter: Letter) -> bool:
        return letter.tag == self.tag and self.source in (None, letter.source)


class Mail:
    """Delivers in order for each pair of ranks; serves requests first come first served, from the oldest arrival on."""

    def __init__(self, env: simpy.Environment, network: Network, trace: Trace, ranks: tuple[Rank, ...]) -> None:
        self._env, self._network, self._trace = env, network, trace
        self._inboxes: dict[Rank, list[Letter]] = {rank: [] for rank in ranks}
        self._requests: dict[Rank, list[Request]] = {rank: [] for rank in ranks}
        self._under_way: dict[tuple[Rank, Rank], deque[Letter]] = defaultdict(deque)

    def send(self, strand: Strand, op: Send) -> None:
        """Hands over the value as it is now; the sender does not wait."""
        source, now = strand.me.rank, self._env.now
        if op.to not in self._inboxes:
            raise ProgramError(f"{strand.standing()}: sends to rank {op.to}; there are {strand.me.everyone}")
        letter = Letter(source, op.to, op.tag, copy.deepcopy(op.value), now, nbytes(op.value))
        self._trace.spans.append(Span(source, strand.name, "send", None, strand.step, now, now, letter.bytes))
        self._under_way[source, op.to].append(letter)
        arrival = self._network.message(source, op.to, letter.bytes)
        assert arrival.callbacks is not None, "a network answers with an event that is still to come"
        arrival.callbacks.append(lambda _: self._arrive(letter))

    def receive(self, strand: Strand, op: Receive) -> Steps:
        """The oldest message that matches; waits for one, for `timeout_s` at most."""
        rank, start = strand.me.rank, self._env.now
        request = Request(op.source, op.tag, self._env.event())
        letter = next((letter for letter in self._inboxes[rank] if request.takes(letter)), None)
        if letter is not None:
            self._inboxes[rank].remove(letter)
        else:
            whom = "anyone" if op.source is None else f"rank {op.source}"
            whom += f" with tag {op.tag!r}" if op.tag else ""
            strand.blocked = lambda: f"waits to receive from {whom}"
            letter = yield from self._await(rank, request, op.timeout_s)
            if letter is None:
                self._trace.hear(rank, None, strand.line)
                raise TimedOut(f"{strand.standing()}: no message from {whom} within {op.timeout_s} s")
        step, now = strand.step, self._env.now
        self._trace.spans.append(
            Span(rank, strand.name, "receive", None, step, start, now, letter.bytes, letter.sent_s)
        )
        self._trace.hear(rank, letter.source, strand.line)
        return Message(letter.source, letter.value, letter.tag)

    def _await(self, rank: Rank, request: Request, timeout_s: float | None) -> Steps:
        """The letter handed to the request, or None when the time is up."""
        self._requests[rank].append(request)
        try:
            if timeout_s is None:
                yield request.turn
            else:
                yield request.turn | self._env.timeout(timeout_s)
        except simpy.Interrupt:  # cancelled: what was handed over in this very moment is put back, as the oldest
            if request.letter is not None:
                self._deliver(request.letter, oldest=True)
            else:
                self._requests[rank].remove(request)
            raise
        if request.letter is None:
            self._requests[rank].remove(request)
        return request.letter

    def _arrive(self, letter: Letter) -> None:
        """Delivers it, unless an earlier one of the same pair is still under way; then it waits for that."""
        letter.arrived = True
        queue = self._under_way[letter.source, letter.to]
        while queue and queue[0].arrived:
            self._deliver(queue.popleft())

    def _deliver(self, letter: Letter, *, oldest: bool = False) -> None:
        requests = self._requests[letter.to]
        for request in requests:
            if request.takes(letter):
                requests.remove(request)
                request.letter = letter
                request.turn.succeed()
                return
        inbox = self._inboxes[letter.to]
        inbox.insert(0 if oldest else len(inbox), letter)
