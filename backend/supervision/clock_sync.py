"""Aligns the clocks of several hosts: CLOCK_MONOTONIC counts from each host's own start, at its own speed.

Rules of this file:

* A clock is read over the network: the other host answers between the request and the arrival of the answer. So the
  midpoint of these two times is wrong by at most half the round trip, however long each direction took, and the
  shortest of many round trips gives the best estimate (Cristian 1989).
* Clocks drift by some microseconds per second. They are read before and after a run, and a constant drift in between
  is assumed. If a run fails before the second reading, the first one is used for all of it.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

ROUNDS = 64
"""requests per reading; chosen by us: the minimum of so many is stable on loopback and on shaped links"""
ANSWER = struct.Struct("d")
ASK, DONE = b"?", b"."


class ClockRound(NamedTuple):
    """One request and its answer: times of the own clock, the other clock, the own clock."""

    asked_s: float
    said_s: float
    heard_s: float


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The offset of another clock from the own one.

    Args:
        at_s: the time of the reading, on the own clock.
        offset_s: the other clock minus the own one, in seconds.
        error_s: the largest possible error of the offset: half the shortest round trip.
    """

    at_s: float
    offset_s: float
    error_s: float


def read(rounds: Iterable[ClockRound]) -> ClockReading:
    """Returns the best estimate from several round trips.

    >>> read([ClockRound(0.0, 105.0, 4.0), ClockRound(10.0, 111.0, 11.0)])
    ClockReading(at_s=10.5, offset_s=100.5, error_s=0.5)
    """
    best = min(rounds, key=lambda exchange: exchange.heard_s - exchange.asked_s)
    middle = (best.asked_s + best.heard_s) / 2
    return ClockReading(middle, best.said_s - middle, (best.heard_s - best.asked_s) / 2)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Converts times of one run from a host's clock to host 0's.

    Args:
        start: the reading before the run.
        end: the reading after it; None if there was none.
        start_s: the common start on this host's clock, as it was set from the first reading.

    >>> slow = Alignment(ClockReading(100.0, 5.0, 1e-4), ClockReading(200.0, 6.0, 2e-4), start_s=100.0)
    >>> slow.shift_s(50.0), slow.drift, slow.error_s
    (0.5, 0.01, 0.0002)
    """

    start: ClockReading
    end: ClockReading | None
    start_s: float

    @property
    def drift(self) -> float:
        """Seconds per second by which host 0's clock gains on this one."""
        if self.end is None or self.end.at_s <= self.start.at_s:
            return 0.0
        return (self.end.offset_s - self.start.offset_s) / (self.end.at_s - self.start.at_s)

    @property
    def error_s(self) -> float:
        """The largest possible error of an aligned time for a constant drift: the larger error of both readings."""
        return max(self.start.error_s, 0.0 if self.end is None else self.end.error_s)

    def shift_s(self, time_s: float) -> float:
        """Returns the correction of a time since the common start, in seconds."""
        return self.drift * (self.start_s + time_s - self.start.at_s)

    def aligned(self, time_s: float) -> float:
        """Converts a time since the common start to host 0's clock."""
        return time_s + self.shift_s(time_s) if math.isfinite(time_s) else time_s

    def record(self) -> dict[str, Any]:
        """Returns the entries of a run's record."""
        return {
            "offset_s": self.start.offset_s,
            "drift": self.drift,
            "error_s": self.error_s,
            "start_error_s": self.start.error_s,
            "end_error_s": None if self.end is None else self.end.error_s,
        }


def ask(
    connection: socket.socket, *, rounds: int = ROUNDS, clock: Callable[[], float] = time.monotonic
) -> ClockReading:
    """Reads the clock at the other end of a connection, which calls `answer`."""
    answered = []
    connection.sendall(ASK)
    _receive(connection, ANSWER.size)  # warm-up: the other end has started and its code is in the cache
    for _ in range(rounds):
        asked_s = clock()
        connection.sendall(ASK)
        (said_s,) = ANSWER.unpack(_receive(connection, ANSWER.size))
        answered.append(ClockRound(asked_s, said_s, clock()))
    connection.sendall(DONE)
    return read(answered)


def answer(connection: socket.socket, *, clock: Callable[[], float] = time.monotonic) -> None:
    """Sends the time of this clock whenever the other end asks."""
    while _receive(connection, 1) == ASK:
        connection.sendall(ANSWER.pack(clock()))


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (more := connection.recv(count - len(data))):
            raise ConnectionError("the other host has closed the connection on which clocks are compared")
        data += more
    return data
