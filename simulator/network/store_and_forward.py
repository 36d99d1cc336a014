"""An emulated network as the emulation carries it out: packets that cross lines one after the other.

    departure = max(arrival, the line's last departure) + bytes / rate;   at the next line: departure + latency

Rules of this file:

* A line is a first-in-first-out queue. What shares a line is not shared out fairly: whoever comes first goes first, as
  in the forwarder and before a token bucket.
* A message is cut into packets, which set out together: TCP's window is larger than what is under way, and a line's
  queue is larger than a window. Acknowledgements are left out: they take about 2 % of the other direction.
"""

from __future__ import annotations

from collections.abc import Callable

import simpy

from paceline.simulator.kernel.simpy_events import after
from paceline.topologies.packet_lines import HEADERS, Lines

Then = Callable[[], None]


class StoreAndForward:
    """The lines between hosts, for one run.

    Args:
        env: the run's clock.
        lines: their rates, their latencies, and the route from each host to each other.
        packet_bytes: of the largest packet, with its headers.
    """

    def __init__(self, env: simpy.Environment, lines: Lines, packet_bytes: int) -> None:
        self._env, self._lines = env, lines
        self._payload = packet_bytes - HEADERS
        share = packet_bytes / self._payload
        self._rate = [line.bytes_per_s * share for line in lines.lines]
        self._latency_s = [line.latency_s for line in lines.lines]
        self._free_s = [0.0] * len(lines.lines)
        self.carried_bytes = [0] * len(lines.lines)
        """bytes that each line has been given, in packets with their headers"""

    def send(self, source: int, to: int, nbytes: int, then: Then) -> None:
        """Sends so many bytes from a host to another, and calls `then` when the last of them is there."""
        route = self._lines.routes[source, to]
        for first in range(0, nbytes, self._payload):
            last = first + self._payload >= nbytes
            self._cross(route, 0, min(self._payload, nbytes - first) + HEADERS, then if last else None)

    def _cross(self, route: tuple[int, ...], hop: int, size: int, then: Then | None) -> None:
        """A packet has come to a line of its route."""
        line, now = route[hop], self._env.now
        self.carried_bytes[line] += size
        departure_s = self._free_s[line] = max(now, self._free_s[line]) + size / self._rate[line]
        there_s = departure_s + self._latency_s[line] - now
        if hop + 1 < len(route):
            after(self._env, there_s, lambda _: self._cross(route, hop + 1, size, then))
        elif then is not None:
            after(self._env, there_s, lambda _: then())
