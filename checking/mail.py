"""Messages between ranks: first in flight, in order per pair of ranks, then in the receiver's inbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.algorithms.core.operations import Send
from paceline.algorithms.core.values import Message, Rank
from paceline.algorithms.runtime.snapshots import Snapshots


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """A message and the time when it was sent. Letters are compared by identity, not by content."""

    message: Message
    sent_s: float


class Mail:
    """All messages of a run. Messages between two ranks stay in order; the chooser decides the order between pairs."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[Rank, Rank], deque[Letter]] = {}
        self._copies: dict[Rank, Snapshots] = {}
        self._inbox: dict[Rank, deque[Letter]] = {}

    def post(self, source: Rank, op: Send, time_s: float) -> None:
        """Sends a message with a copy of its value, so that later changes by the sender have no effect on it."""
        letter = Letter(Message(source, self._copies.setdefault(source, Snapshots()).of(op.value), op.tag), time_s)
        self._under_way.setdefault((source, op.to), deque()).append(letter)

    def channels(self) -> list[tuple[Rank, Rank]]:
        """Lists the (source, receiver) pairs that have messages in flight, in the order of receivers."""
        return sorted((pair for pair, queue in self._under_way.items() if queue), key=lambda pair: (pair[1], pair[0]))

    def deliveries(self, to: Rank, source: Rank | None, tag: str) -> dict[Rank, int]:
        """Returns how many deliveries would bring a letter with this tag, for each source that has one in flight.

        Args:
            to: the receiver.
            source: the only source to consider; None: all.
            tag: the tag.
        """
        found = {}
        for sender, receiver in self.channels():
            if receiver == to and source in (None, sender):
                tags = [letter.message.tag for letter in self._under_way[sender, to]]
                if tag in tags:
                    found[sender] = tags.index(tag) + 1
        return found

    def latest(self, source: Rank, to: Rank) -> Letter | None:
        """Returns the newest letter in flight between the two ranks; None if there is none."""
        queue = self._under_way.get((source, to))
        return queue[-1] if queue else None

    def deliver(self, source: Rank, to: Rank) -> None:
        """Moves the oldest message in flight between the two ranks into the inbox."""
        self._inbox.setdefault(to, deque()).append(self._under_way[source, to].popleft())

    def unread(self) -> Iterator[tuple[Rank, Message, Rank]]:
        """Yields (source, message, receiver) of all messages that were sent and not received."""
        for (source, to), queue in self._under_way.items():
            yield from ((source, letter.message, to) for letter in queue)
        for to, inbox in self._inbox.items():
            yield from ((letter.message.source, letter.message, to) for letter in inbox)

    def find(self, rank: Rank, source: Rank | None, tag: str) -> Letter | None:
        """Returns the oldest letter with this tag in the inbox, from `source` or, for None, from any rank; or None."""
        for letter in self._inbox.get(rank, ()):
            if letter.message.tag == tag and source in (None, letter.message.source):
                return letter
        return None

    def take(self, rank: Rank, letter: Letter) -> Message:
        """Removes this letter from the inbox and returns its message."""
        self._inbox[rank].remove(letter)
        return letter.message
