"""What has arrived at a rank, from whomever and by whatever way, and nobody has asked for yet.

Rules of this file:

* Whoever brings messages calls `Inbox.put` from a thread of its own; a program that asks takes the first sent of those
  that fit. So a `Send` completes whatever the receiver's program is doing, and a time-out harms nobody.
* What lies in memory is brought by those who ask, one of them at a time: to wake one thread by another takes longer
  than to copy a small message.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from paceline.algorithms.core.errors import PacelineError, PeerFailed, TimedOut
from paceline.algorithms.core.values import Rank
from paceline.backend.status.status_board import Lost

POLL_S = 0.05
"""how often a waiting thread looks whether a peer has died"""


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """A message as it travels."""

    source: Rank
    tag: str
    value: Any
    sent_s: float


class Cancelled(PacelineError):
    """The operation was given up by `Cancel`."""


@dataclass
class Claim:
    """A receive that has neither its message nor been given up, as long as it is open."""

    inbox: Inbox
    open: bool = True
    turn: int = 0
    """its place among the receives of this rank that have ended"""

    def give_up(self) -> bool:
        """Closes it; False if it has its message already."""
        return self.inbox.close(self)


class Fetcher(Protocol):
    """Brings messages when it is asked to."""

    def fetch(self, seconds: float) -> None:
        """Puts what is there into the inbox; waits so long for something if nothing is."""
        ...

    def call(self) -> None:
        """Ends a `fetch` that waits, or keeps the one that is about to from waiting."""
        ...


class Inbox:
    """What has arrived and nobody has asked for yet."""

    def __init__(self, lost: Lost, everyone: Iterable[Rank]) -> None:
        self.fetcher: Fetcher | None = None
        self._fetching = False
        self._living = set(everyone)
        """of whose death nobody who waits for anyone has heard"""
        self._gone = set[Rank]()
        """of whose death somebody has heard"""
        self._waiting: list[Envelope] = []
        """in the order of their sending"""
        self._changed = threading.Condition()
        self._lost = lost
        self._ended = count()

    def put(self, envelope: Envelope) -> None:
        """Takes in a message; what comes from a rank whose death has been heard comes too late."""
        with self._changed:
            if envelope.source not in self._gone:
                insort(self._waiting, envelope, key=lambda one: one.sent_s)
                self._tell()

    def _tell(self) -> None:
        """Lets those who wait look again."""
        self._changed.notify_all()
        if self._fetching and self.fetcher is not None:
            self.fetcher.call()

    def _pause(self, seconds: float) -> None:
        """Waits until something may have changed; the first of those who wait fetches."""
        if self.fetcher is None or self._fetching:
            if seconds:
                self._changed.wait(seconds)
            return
        self._fetching = True
        self._changed.release()
        try:
            self.fetcher.fetch(seconds)
        finally:
            self._changed.acquire()
            self._fetching = False
            self._changed.notify_all()  # somebody else may fetch now

    def _take(self, source: Rank | None, tag: str) -> Envelope | None:
        for envelope in self._waiting:
            if envelope.tag == tag and source in (None, envelope.source):
                self._waiting.remove(envelope)
                return envelope
        return None

    def drop(self, source: Rank, until_s: float) -> None:
        """Forgets what the rank had sent up to a moment of its clock."""
        with self._changed:
            self._waiting = [one for one in self._waiting if one.source != source or one.sent_s > until_s]

    def begin_again(self) -> None:
        """The program is entered again, and begins with everybody: it is to hear of each death anew."""
        with self._changed:
            self._living |= self._gone
            self._gone.clear()

    def close(self, claim: Claim) -> bool:
        """Gives up a `get`; False if it has its message already."""
        with self._changed:
            claim.open, in_time = False, claim.open
            self._tell()
        return in_time

    def get(self, source: Rank | None, tag: str, timeout_s: float | None, claim: Claim) -> Envelope:
        """The first sent of those that fit.

        Raises:
            TimedOut: none has come in time.
            PeerFailed: the source has died, or anybody where it is anyone's; that is said once of each.
        """
        due = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            self._pause(0.0)  # what is in memory may be older than what is here
            while True:
                if not claim.open:
                    raise Cancelled("a receive that was given up")
                dead = self._lost(self._living if source is None else (source,))
                if dead is not None:
                    self._pause(0.0)  # what it had sent before comes first
                if (found := self._take(source, tag)) is not None:
                    claim.open, claim.turn = False, next(self._ended)
                    return found
                if dead is not None:
                    self._gone.add(dead)
                    if source is None:
                        self._living.discard(dead)
                    raise PeerFailed(f"rank {dead} died", dead)
                left = POLL_S if due is None else min(POLL_S, due - time.monotonic())
                if left <= 0:
                    claim.open, claim.turn = False, next(self._ended)
                    raise TimedOut(f"no message within {timeout_s} s")
                self._pause(left)
