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
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from paceline.algorithms.errors import PacelineError, PeerFailed, TimedOut
from paceline.algorithms.values import Rank
from paceline.backend.board import Lost

LOOK_S = 0.05
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

    def __init__(self, lost: Lost) -> None:
        self.fetcher: Fetcher | None = None
        self._fetching = False
        self._waiting: list[Envelope] = []
        """in the order of their sending"""
        self._changed = threading.Condition()
        self._lost = lost
        self._ended = count()

    def put(self, envelope: Envelope) -> None:
        with self._changed:
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

    def close(self, claim: Claim) -> bool:
        """Gives up a `get`; False if it has its message already."""
        with self._changed:
            claim.open, in_time = False, claim.open
            self._tell()
        return in_time

    def get(self, source: Rank | None, tag: str, timeout_s: float | None, claim: Claim) -> Envelope:
        """The first sent of those that fit; raises `TimedOut`, or `PeerFailed` when a rank has died without one."""
        due = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            self._pause(0.0)  # what is in memory may be older than what is here
            while True:
                if not claim.open:
                    raise Cancelled("a receive that was given up")
                if (found := self._take(source, tag)) is not None:
                    claim.open, claim.turn = False, next(self._ended)
                    return found
                if (dead := self._lost(() if source is None else (source,))) is not None:
                    raise PeerFailed(f"rank {dead} died")
                left = LOOK_S if due is None else min(LOOK_S, due - time.monotonic())
                if left <= 0:
                    claim.open, claim.turn = False, next(self._ended)
                    raise TimedOut(f"no message within {timeout_s} s")
                self._pause(left)
