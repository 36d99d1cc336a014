"""A disk whose head serves one reader at a time, in short turns.

Turns are short, so the model is processor sharing: each of k readers progresses at 1/k of the rate at which the disk
serves it. A reader that is alone is served faster, because the head does not move away and back (`alone_s`,
`beside_s`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import simpy

from paceline.simulator.flows.ports import FULL, Then
from paceline.simulator.kernel.simpy_events import after


@dataclass(eq=False, slots=True)
class _Request:
    """A request that is being served."""

    reader: object
    alone_s: float
    beside_s: float
    then: Then
    left: float = 1.0
    """the fraction of it that is left"""


@dataclass(eq=False, slots=True)
class DiskHead:
    """A disk that serves its readers in turn.

    >>> env = simpy.Environment(0.0)
    >>> head = DiskHead(env)
    >>> head.serve("a", 1.0, 2.0, lambda: print("a is done at", env.now))
    >>> head.serve("b", 1.0, 1.0, lambda: print("b is done at", env.now))
    >>> env.run()
    b is done at 2.0
    a is done at 2.5
    """

    env: simpy.Environment
    last: object = None
    """the last reader, if it was served alone since"""
    _requests: list[_Request] = field(default_factory=list)
    _since_s: float = 0.0
    """the time at which `left` was updated"""
    _timer: int = 0
    """number of the latest timer; earlier timers are ignored"""

    def serve(self, reader: object, alone_s: float, beside_s: float, then: Then) -> None:
        """Serves a request and calls `then` when it is done.

        Args:
            reader: the reader, for `last`.
            alone_s: seconds that the request takes if there are no other requests.
            beside_s: seconds of the disk's time that it takes if the head serves others in between.
            then: called when the request is done.
        """
        self._update()
        self._requests.append(_Request(reader, alone_s, beside_s, then))
        self.last = reader if len(self._requests) == 1 else None
        self._start_timer()

    def _left_s(self, request: _Request) -> float:
        """Returns the seconds until a request is done if no request is added or completed before."""
        return request.left * (request.alone_s if len(self._requests) == 1 else len(self._requests) * request.beside_s)

    def _update(self) -> None:
        """Updates `left` of all requests to the present time."""
        passed_s, self._since_s = self.env.now - self._since_s, self.env.now
        for request in self._requests:
            left_s = self._left_s(request)
            request.left = max(0.0, request.left * (1 - passed_s / left_s)) if left_s > 0 else 0.0

    def _start_timer(self) -> None:
        """Starts a timer for the requests that will be done first."""
        self._timer += 1
        if self._requests:
            number, soonest_s = self._timer, min(map(self._left_s, self._requests))
            first = [request for request in self._requests if self._left_s(request) <= soonest_s * FULL]
            after(self.env, soonest_s, lambda _: self._end(number, first))

    def _end(self, number: int, first: Sequence[_Request]) -> None:
        if number != self._timer:
            return
        self._update()
        self._requests = [request for request in self._requests if request not in first]
        if len(self._requests) == 1:
            self.last = self._requests[0].reader
        self._start_timer()
        for request in first:
            request.then()
