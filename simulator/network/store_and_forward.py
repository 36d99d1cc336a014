"""Simulates an emulated network: packets that are stored and forwarded from line to line.

    departure = max(arrival, the line's last departure) + bytes / rate;   at the next line: departure + latency

* A line is a first-in-first-out queue. Messages do not share it fairly: packets are served in the order of arrival, as
  in the forwarder and before a token bucket.
* A message is cut into packets that are sent at once, because TCP's window is larger than the bytes in flight, and the
  queue of a line is larger than a window. Acknowledgements are left out; they take about 2 % of the other direction.
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
        lines: the rates and latencies of lines, and the route between each two hosts.
        packet_bytes: bytes of the largest packet, with its headers.
    """

    def __init__(self, env: simpy.Environment, lines: Lines, packet_bytes: int) -> None:
        self._env, self._lines = env, lines
        self._payload = packet_bytes - HEADERS
        share = packet_bytes / self._payload
        self._rate = [line.bytes_per_s * share for line in lines.lines]
        self._latency_s = [line.latency_s for line in lines.lines]
        self._free_s = [0.0] * len(lines.lines)
        self.carried_bytes = [0] * len(lines.lines)
        """bytes that each line has received, with the headers of packets"""

    def send(self, source: int, to: int, nbytes: int, then: Then) -> None:
        """Sends bytes from one host to another.

        Args:
            source: the sending host.
            to: the receiving host.
            nbytes: the bytes.
            then: called when the last of them has arrived.
        """
        route = self._lines.routes[source, to]
        for first in range(0, nbytes, self._payload):
            last = first + self._payload >= nbytes
            self._cross(route, 0, min(self._payload, nbytes - first) + HEADERS, then if last else None)

    def _cross(self, route: tuple[int, ...], hop: int, size: int, then: Then | None) -> None:
        """Processes the arrival of a packet at a line of its route."""
        line, now = route[hop], self._env.now
        self.carried_bytes[line] += size
        departure_s = self._free_s[line] = max(now, self._free_s[line]) + size / self._rate[line]
        there_s = departure_s + self._latency_s[line] - now
        if hop + 1 < len(route):
            after(self._env, there_s, lambda _: self._cross(route, hop + 1, size, then))
        elif then is not None:
            after(self._env, there_s, lambda _: then())
