"""Flows on a network of parts without common links, such as the copies inside nodes.

* The flows of a part share its links max-min fairly, whatever happens in other parts. Which of them are active
  determines their rates. So the rates of each such set are computed once, by `fair_rates`, for all parts with equal
  links. Playing the flows of a part is then a loop over their begins and ends.
* The arithmetic is that of `max_min.play`: bytes are subtracted when a rate changes, and ends that differ by rounding
  only are one instant.
* Rejected: `max_min.play` with the flows of all parts, which needs many times as long, since it solves rates anew and
  has one queue for all parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.simulator.flows.max_min import NONE, Times, compiled, fair_rates, finish_times, together, until

MOST_FLOWS = 12
"""flows of a part up to which their rates are stored, for 2ⁿ sets of flows; provenance: ours, 0.4 MB"""


class PartedFlows:
    """One flow of each route, on parts of a network that consist of consecutive routes.

    Args:
        capacity: bytes per second of each link.
        routes: the numbers of the links of each flow, at least one; links are numbered as the routes first pass them.
        firsts: the first flow of each part.

    >>> flows = PartedFlows([8.0, 8.0], [[0], [0], [1], [1]], [0, 2])
    >>> flows.ends_s(np.array([0.0, 0.0, 0.0, 1.0]), np.array([8.0, 8.0, 8.0, 8.0])).tolist()
    [2.0, 2.0, 1.0, 2.0]
    """

    def __init__(self, capacity: Sequence[float], routes: Sequence[Sequence[int]], firsts: Sequence[int]) -> None:
        self._capacity, self._routes = capacity, routes
        self._alike: list[AlikeParts] | None = None
        """the parts by their links; None if parts have links in common, or too many flows"""
        alike: defaultdict[tuple[Any, ...], list[range]] = defaultdict(list)
        before = 0
        for first, end in zip(firsts, [*firsts[1:], len(routes)], strict=True):
            numbers: dict[int, int] = {}
            own = tuple(
                [tuple([numbers.setdefault(link, len(numbers)) for link in route]) for route in routes[first:end]]
            )
            if min(numbers) < before or end - first > MOST_FLOWS:  # links of earlier parts have smaller numbers
                return
            before = max(before, max(numbers) + 1)
            alike[own, tuple([capacity[link] for link in numbers])].append(range(first, end))
        self._alike = [AlikeParts(np.array(flows), own, limits) for (own, limits), flows in alike.items()]

    def ends_s(self, starts_s: Times, nbytes: Times) -> Times:
        """Returns when each flow ends.

        Args:
            starts_s: when it begins.
            nbytes: its bytes.
        """
        if self._alike is None:
            return finish_times(self._capacity, self._routes, starts_s, nbytes)[0]
        ends_s = np.empty(len(starts_s))
        for parts in self._alike:
            ends_s[parts.flows] = parts.ends_s(starts_s, nbytes)
        return ends_s


class AlikeParts:
    """Parts with equal links.

    Args:
        flows: the numbers of the flows of each part, one row for each part.
        routes: the links of each flow of a part, numbered within the part.
        capacity: bytes per second of each link.
    """

    def __init__(self, flows: NDArray[np.int64], routes: Sequence[Sequence[int]], capacity: Sequence[float]) -> None:
        self.flows, self._routes, self._capacity = flows, routes, dict(enumerate(capacity))
        count = flows.shape[1]
        self._rates = np.full((2**count, count), float(NONE))
        """the rate of each flow, by the set of active flows: bit n is that of the n-th flow"""
        self._scratch = np.empty((4, count))

    def ends_s(self, starts_s: Times, nbytes: Times) -> Times:
        """Returns when the flows end, one row for each part.

        Args:
            starts_s: when each flow of the network begins.
            nbytes: its bytes.
        """
        begun_s, sizes = starts_s[self.flows], nbytes[self.flows]
        ends_s, wanted = np.empty(begun_s.shape), np.zeros(1, dtype=np.int64)
        part = 0
        while (part := machine_code()(begun_s, sizes, self._rates, self._scratch, ends_s, wanted, part)) < len(begun_s):
            active = int(wanted[0])
            places = [place for place in range(len(self._routes)) if active >> place & 1]
            self._rates[active] = 0.0
            self._rates[active, places] = fair_rates([self._routes[place] for place in places], self._capacity)
        return ends_s


@cache
def machine_code() -> Callable[..., Any]:
    """Returns `play`, which numba compiles at its first call."""
    return compiled(play)


# --- plain Python, or machine code ------------------------------------------------------------------------------------


def play(starts: Any, nbytes: Any, rates: Any, scratch: Any, ends: Any, wanted: Any, part: int) -> int:
    """Plays the flows of parts until a set of flows is active whose rates are not known.

    Args:
        starts: the start of each flow, one row for each part.
        nbytes: its bytes.
        rates: the rate of each flow, by the set of active flows; below 0 if they are not known.
        scratch: four rows of numbers.
        ends: receives the ends of the flows.
        wanted: receives the set whose rates are not known.
        part: the first part.

    Returns:
        The part whose flows could not be played; the number of parts if all could.
    """
    left, since, rate, due = scratch[0], scratch[1], scratch[2], scratch[3]
    count = starts.shape[1]
    while part < starts.shape[0]:
        now, active, waiting = 0.0, 0, (1 << count) - 1
        while active + waiting > 0:
            begin, soonest = np.inf, np.inf
            for at in range(count):
                if waiting >> at & 1:
                    begin = min(begin, starts[part, at])
                elif active >> at & 1:
                    soonest = min(soonest, due[at])
            latest = together(soonest, now)
            now = min(soonest, begin)
            for at in range(count):
                if waiting >> at & 1:
                    if starts[part, at] <= now:
                        waiting -= 1 << at
                        active += 1 << at
                        left[at], since[at], rate[at] = nbytes[part, at], now, NONE
                elif active >> at & 1 and now == soonest and due[at] <= latest:
                    active -= 1 << at
                    ends[part, at] = due[at]
            if rates[active, 0] < 0.0:
                wanted[0] = active
                return part
            for at in range(count):
                if active >> at & 1 and rates[active, at] != rate[at]:
                    if rate[at] > 0.0:
                        left[at] -= rate[at] * (now - since[at])
                    since[at], rate[at] = now, rates[active, at]
                    due[at] = now + until(left[at], rate[at])
        part += 1
    return part
