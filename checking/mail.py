"""Messages between sending and receiving: under way in order per pair of ranks, then in the receiver's inbox."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from paceline.algorithms.core.operations import Send
from paceline.algorithms.core.values import Message, Rank
from paceline.algorithms.runtime.snapshots import Snapshots


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """A message and when it was sent. Letters are told apart by identity: two with the same content are two."""

    message: Message
    sent_s: float


class Mail:
    """All messages of a run. Between two ranks none overtakes another; between several, the chooser decides."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[Rank, Rank], deque[Letter]] = {}
        self._copies: dict[Rank, Snapshots] = {}
        self._inbox: dict[Rank, deque[Letter]] = {}

    def post(self, source: Rank, op: Send, time_s: float) -> None:
        """Puts a message under way, with the value as it is now: what its sender does to it later is not seen."""
        letter = Letter(Message(source, self._copies.setdefault(source, Snapshots()).of(op.value), op.tag), time_s)
        self._under_way.setdefault((source, op.to), deque()).append(letter)

    def channels(self) -> list[tuple[Rank, Rank]]:
        """The (source, receiver) pairs that have messages under way, in the order of receivers."""
        return sorted((pair for pair, queue in self._under_way.items() if queue), key=lambda pair: (pair[1], pair[0]))

    def deliver(self, source: Rank, to: Rank) -> None:
        """Moves the oldest message under way between the two into the inbox."""
        self._inbox.setdefault(to, deque()).append(self._under_way[source, to].popleft())

    def find(self, rank: Rank, source: Rank | None, tag: str) -> Letter | None:
        """The oldest letter of this tag from `source`, or from anyone, that has reached `rank`, if any."""
        for letter in self._inbox.get(rank, ()):
            if letter.message.tag == tag and source in (None, letter.message.source):
                return letter
        return None

    def take(self, rank: Rank, letter: Letter) -> Message:
        """Takes exactly this letter out of the inbox."""
        self._inbox[rank].remove(letter)
        return letter.message
