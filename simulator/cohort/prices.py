"""When collectives end, for all groups of a set at once.

A collective begins when its last member has entered, or when the one before it in its group and stream has ended. It
takes the time that the network states for it alone, and `PortUse` checks that it is alone. Collectives are not priced
in the order of their times, so those are kept that may overlap with later ones: of sets that have ports in common with
others, or within themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from paceline.simulator.cohort.values import NotACohort, Places, Times
from paceline.simulator.collectives.contention import LinkTraffic, add
from paceline.simulator.collectives.patterns import Kind
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.network.network import Priced, PricesAhead

if TYPE_CHECKING:
    from paceline.simulator.cohort.collectives import GroupSet

SAME = 1e-12
"""relative tolerance for equal times, because sums differ in their last bits"""
KEPT = 8
"""collectives of a set and stream that are kept"""

Pairs = tuple[Places, Places]
"""groups of two sets that have ports in common, in pairs"""


class PortUse:
    """The ports that collectives use, and when."""

    def __init__(self) -> None:
        self._ports: dict[int, list[set[Port]]] = {}
        """of each group of each set"""
        self._numbers: dict[Port, int] = {}
        self._pairs: dict[tuple[int, int], Pairs] = {}
        self._intervals: defaultdict[tuple[int, str], list[tuple[Times, Times]]] = defaultdict(list)

    def add(self, groups: int, ports: Sequence[Collection[Port]]) -> None:
        """Adds the ports of a collective.

        Args:
            groups: the number of the set.
            ports: those of each group.
        """
        known = self._ports.setdefault(groups, [set() for _ in ports])
        before = sum(map(len, known))
        for own, more in zip(known, ports, strict=True):
            own.update(more)
        if sum(map(len, known)) > before:
            self._pairs = {key: pairs for key, pairs in self._pairs.items() if groups not in key}

    def used(self, groups: int, stream: str, begun_s: Times, done_s: Times) -> None:
        """Notes a collective of each group of a set; raises `NotACohort` if it meets another one.

        Args:
            groups: the number of the set.
            stream: its stream; within it, collectives of a group follow each other.
            begun_s: when it begins in each group.
            done_s: when it ends.
        """
        if not any(self._ports[groups]):
            return
        kept = self._intervals[groups, stream]
        kept.append((begun_s, done_s))
        for (other, other_stream), intervals in self._intervals.items():
            own, met = self._together(groups, other)
            if (other, other_stream) == (groups, stream):
                different = own != met
                own, met = own[different], met[different]
            for other_begun_s, other_done_s in intervals if len(own) else ():
                early, late = np.minimum(done_s[own], other_done_s[met]), np.maximum(begun_s[own], other_begun_s[met])
                if (late < early * (1 - SAME)).any():
                    raise NotACohort(
                        "two of its collectives, or a collective and a copy, use the same links at the same time"
                    )
        if len(kept) > KEPT:  # joins the older half, from the first begin to the last end
            begins_s, ends_s = zip(*kept[: KEPT // 2], strict=True)
            kept[: KEPT // 2] = [(np.min(begins_s, axis=0), np.max(ends_s, axis=0))]

    def _together(self, groups: int, other: int) -> Pairs:
        """Returns the pairs of groups of two sets that have ports in common."""
        key = groups, other
        if key not in self._pairs:
            ports, users = self._columns(groups)
            others, other_users = self._columns(other)
            first, last = (np.searchsorted(others, ports, side=side) for side in ("left", "right"))
            times = last - first
            rows = np.arange(times.sum()) + np.repeat(first - (np.cumsum(times) - times), times)
            count = len(self._ports[other])
            pairs = np.unique(np.repeat(users, times) * count + other_users[rows])
            self._pairs[key] = pairs // count, pairs % count
        return self._pairs[key]

    def _columns(self, groups: int) -> Pairs:
        """Returns the numbers of the ports of a set, in ascending order, and the group that uses each."""
        each, numbers = self._ports[groups], self._numbers
        ports = np.array([numbers.setdefault(port, len(numbers)) for own in each for port in own], dtype=np.int64)
        users = np.repeat(np.arange(len(each)), list(map(len, each)))
        order = np.argsort(ports, kind="stable")
        return ports[order], users[order]


class Prices:
    """The time that collectives take on a network.

    Args:
        network: the network.

    Raises:
        NotACohort: the times depend on what else happens.
    """

    def __init__(self, network: PricesAhead) -> None:
        self._network, self.use, self.traffic = network, PortUse(), LinkTraffic()
        if (reason := network.price_ahead(self.traffic)) is not None:
            raise NotACohort(reason)
        self.traffic.add_at_end(self._carried)
        self._priced: dict[tuple[int, str, int, bytes], Priced] = {}
        """by the set of groups, the name of the operation, its bytes and its roots"""
        self._times: Counter[tuple[int, str, int, bytes]] = Counter()
        """how often each collective was performed in every group of its set"""
        self._done_s: dict[tuple[int, str], Times] = {}

    def _carried(self) -> dict[Port, float]:
        """Returns the bytes of all collectives by port."""
        carried: defaultdict[Port, float] = defaultdict(float)
        for key, times in self._times.items():
            add(carried, self._priced[key].by_port(), times)
        return dict(carried)

    def ends_s(
        self, groups: GroupSet, kind: Kind, nbytes: int, roots: Places | None, stream: str, last_s: Times
    ) -> Times:
        """Returns when a collective ends in each group.

        Args:
            groups: the groups.
            kind: the name of the operation.
            nbytes: the n of the closed forms.
            roots: the place of the root in each group; None without roots.
            stream: the program in whose order it is counted.
            last_s: when the last member of each group entered.
        """
        key, number = (groups.number, kind, nbytes, b"" if roots is None else roots.tobytes()), groups.number
        if (priced := self._priced.get(key)) is None:
            places = [0] * len(groups.groups) if roots is None else roots.tolist()
            priced = self._priced[key] = self._network.priced(kind, groups.groups, nbytes, places)
            if not np.isfinite(priced.seconds).all():
                raise NotACohort("a link is broken")
            self.use.add(number, priced.ports)
        self._times[key] += 1
        begun_s = np.maximum(last_s, self._done_s.get((number, stream), 0.0))
        done_s = self._done_s[number, stream] = begun_s + priced.seconds
        self.use.used(number, stream, begun_s, done_s)
        return last_s + (done_s - last_s) if priced.from_entry else done_s
