"""When collectives end, for all groups of a set at once.

A collective begins when its last member has entered, or when the one before it in its group and stream has ended. It
takes the time that the network states for it alone. `port_use` checks that it is alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from paceline.simulator.cohort.classes import Places, Times
from paceline.simulator.cohort.group_sets import GroupSet
from paceline.simulator.cohort.varying import NotACohort
from paceline.simulator.collectives.contention import Alone, LinkTraffic, add, bytes_of_plan
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.path_tables import AlikeGroups
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork, Network, NoCost

# The time of a collective alone is its time only then. Collectives are not priced in the order of their times, so
# those are kept that may overlap with later ones: of sets that have ports in common with others, or within
# themselves.


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
        self._intervals: dict[tuple[int, str], list[tuple[Times, Times]]] = {}

    def add(self, groups: int, ports: Sequence[Collection[Port]]) -> None:
        """Adds the ports of a collective.

        Args:
            groups: the number of the set.
            ports: those of each group.
        """
        known = self._ports.setdefault(groups, [set() for _ in ports])
        before = sum(map(len, known))
        for mine, more in zip(known, ports, strict=True):
            mine.update(more)
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
        own = self._together(groups, groups)
        different = own[0] != own[1]
        _check((own[0][different], own[1][different]), begun_s, done_s, begun_s, done_s)
        for (other, other_stream), kept in self._intervals.items():
            one, two = self._together(groups, other)
            if (other, other_stream) == (groups, stream):
                one, two = one[different], two[different]
            for other_begun_s, other_done_s in kept:
                _check((one, two), begun_s, done_s, other_begun_s, other_done_s)
        mine = self._intervals.setdefault((groups, stream), [])
        mine.append((begun_s, done_s))
        if len(mine) > KEPT:
            self._forget(mine)

    def _forget(self, mine: list[tuple[Times, Times]]) -> None:
        """Joins the older half of the kept collectives of a set and stream, from the first begin to the last end."""
        half = len(mine) // 2
        begun_s = np.min([begun for begun, _ in mine[:half]], axis=0)
        done_s = np.max([done for _, done in mine[:half]], axis=0)
        mine[:half] = [(begun_s, done_s)]

    def _together(self, one: int, other: int) -> Pairs:
        """Returns the pairs of groups of two sets that have ports in common."""
        key = one, other
        if key not in self._pairs:
            ports, groups = self._columns(one)
            others, other_groups = self._columns(other)
            first, last = (np.searchsorted(others, ports, side=side) for side in ("left", "right"))
            times = last - first
            rows = np.arange(times.sum()) + np.repeat(first - (np.cumsum(times) - times), times)
            count = len(self._ports[other])
            pairs = np.unique(np.repeat(groups, times) * count + other_groups[rows])
            self._pairs[key] = pairs // count, pairs % count
        return self._pairs[key]

    def _columns(self, groups: int) -> Pairs:
        """Returns the numbers of the ports of a set, in ascending order, and the group that uses each."""
        each = self._ports[groups]
        numbers = self._numbers
        ports = np.array([numbers.setdefault(port, len(numbers)) for mine in each for port in mine], dtype=np.int64)
        users = np.repeat(np.arange(len(each)), [len(mine) for mine in each])
        order = np.argsort(ports, kind="stable")
        return ports[order], users[order]


def _check(pairs: Pairs, begun_s: Times, done_s: Times, other_begun_s: Times, other_done_s: Times) -> None:
    one, two = pairs
    if not len(one):
        return
    early, late = np.minimum(done_s[one], other_done_s[two]), np.maximum(begun_s[one], other_begun_s[two])
    if (late < early * (1 - SAME)).any():
        raise NotACohort("two of its collectives, or a collective and a copy, use the same links at the same time")


@dataclass(frozen=True, slots=True)
class Entered:
    """A collective that all members of all groups of a set have entered.

    Args:
        groups: the groups.
        kind: the name of the operation.
        nbytes: the n of the closed forms.
        roots: the place of the root in each group; None without roots.
        stream: the program in whose order it is counted.
    """

    groups: GroupSet
    kind: Any
    nbytes: int
    roots: Places | None
    stream: str


class Prices(Protocol):
    """The time that collectives take on a network."""

    def ends_s(self, one: Entered, last_s: Times) -> Times:
        """Returns when a collective ends in each group.

        Args:
            one: the collective.
            last_s: when the last member of each group entered.
        """
        ...


class Free:
    """The prices of `NoCost`."""

    def ends_s(self, one: Entered, last_s: Times) -> Times:
        return last_s


class Measured:
    """The prices of a measured machine, whose collectives do not disturb each other.

    Args:
        network: the machine's network.
    """

    def __init__(self, network: MeasuredNetwork) -> None:
        self._network = network
        self._seconds: dict[tuple[int, str, int], Times] = {}
        self._free_s: dict[tuple[int, str], Times] = {}

    def ends_s(self, one: Entered, last_s: Times) -> Times:
        key = one.groups.number, one.kind, one.nbytes
        if key not in self._seconds:
            costs = [self._network.collective_cost_s(one.kind, group, one.nbytes) for group in one.groups.groups]
            self._seconds[key] = np.array(costs, dtype=np.float64)
        queue = one.groups.number, one.stream
        free_s = np.maximum(last_s, self._free_s.get(queue, 0.0)) + self._seconds[key]
        self._free_s[queue] = free_s
        return last_s + (free_s - last_s)  # as the clock computes it: now + delay


Key = tuple[int, str, int, bytes]
"""a set of groups, the name of an operation, its bytes and its roots"""


@dataclass(frozen=True, slots=True)
class Performed:
    """The plans of a collective in all groups of a set.

    Args:
        plans: the plan of each group; if groups are alike, that of the first of them.
        alike: which groups are alike; None: each has its own plan.
        own: the groups with their own plans.
    """

    plans: list[CollectivePlan]
    alike: AlikeGroups | None
    own: frozenset[int]

    def by_port(self) -> dict[Port, float]:
        """Returns the bytes that each port carries if every group performs its plan once."""
        known: dict[CollectivePlan, dict[Port, float]] = {}
        found: defaultdict[Port, float] = defaultdict(float)
        for group, plan in enumerate(self.plans):
            if plan not in known:
                known[plan] = bytes_of_plan(plan)
            carried = known[plan]
            if group not in self.own:
                assert self.alike is not None, "only the plans of alike groups are shared"
                names = self.alike.names(group)
                carried = {names[port]: nbytes for port, nbytes in carried.items()}
            add(found, carried)
        return dict(found)


class Modelled:
    """The prices of a cluster's graph.

    Args:
        network: the cluster's network, whose `traffic` is replaced.
    """

    def __init__(self, network: ClusterNetwork) -> None:
        self._network, self.use, self.traffic = network, PortUse(), LinkTraffic()
        network.traffic = self.traffic
        self.traffic.add_at_end(self._carried)
        self._seconds: dict[Key, Times] = {}
        self._performed: dict[Key, Performed] = {}
        self._times: Counter[Key] = Counter()
        """how often each collective was performed in every group of its set"""
        self._done_s: dict[tuple[int, str], Times] = {}

    def _carried(self) -> dict[Port, float]:
        """Returns the bytes of all collectives by port."""
        found: defaultdict[Port, float] = defaultdict(float)
        for key, times in self._times.items():
            add(found, self._performed[key].by_port(), times)
        return dict(found)

    def ends_s(self, one: Entered, last_s: Times) -> Times:
        key = one.groups.number, one.kind, one.nbytes, b"" if one.roots is None else one.roots.tobytes()
        if key not in self._seconds:
            self._seconds[key], self._performed[key] = self._priced(one)
        self._times[key] += 1
        queue = one.groups.number, one.stream
        begun_s = np.maximum(last_s, self._done_s.get(queue, 0.0))
        done_s = self._done_s[queue] = begun_s + self._seconds[key]
        self.use.used(one.groups.number, one.stream, begun_s, done_s)
        return done_s

    def _priced(self, one: Entered) -> tuple[Times, Performed]:
        """Returns the seconds of a collective alone in each group and its plans, and notes its ports."""
        roots = [0] * len(one.groups.groups) if one.roots is None else one.roots.tolist()
        groups = one.groups.groups
        alike = self._network.fabric.alike([group.ranks for group in groups]) if len(groups) > 1 else None
        known: dict[tuple[int, int], tuple[int, Alone, CollectivePlan]] = {}
        """the first group of each kind and root, and what was found for it"""
        seconds, ports, plans, own = [], [], [], set()
        for number, (group, root) in enumerate(zip(groups, roots, strict=True)):
            kind = number if alike is None else alike.like[number], root
            if alike is None or kind not in known or known[kind][0] != kind[0]:
                on, alone_s = self._network.alone(one.kind, group, one.nbytes, root)
                plan = self._network.tuner.plan(one.kind, group, one.nbytes, root)
                known[kind] = number, (on, alone_s), plan
                own.add(number)
            else:
                first, (found, alone_s), plan = known[kind]
                on = alike.renamed(number, found)
                self._network.tuner.copy_choice(one.kind, groups[first], group, one.nbytes)
            if not np.isfinite(alone_s):
                raise NotACohort("a link is broken")
            seconds.append(alone_s)
            ports.append(on)
            plans.append(plan)
        self.use.add(one.groups.number, ports)
        return np.array(seconds), Performed(plans, alike, frozenset(own))


def prices_of(network: Network) -> Prices:
    """Returns the prices of a network; raises `NotACohort` if they depend on what else happens."""
    if type(network) is NoCost:
        return Free()
    if type(network) is MeasuredNetwork:
        return Measured(network)
    if type(network) is ClusterNetwork:
        if network.cluster.link_faults:
            raise NotACohort("links fail during it")
        if network.cluster.graph.varying:
            raise NotACohort("the bandwidths of links vary during it")
        return Modelled(network)
    raise NotACohort(
        f"its network is a {type(network).__name__}, whose members enter and leave one by one or which "
        "observes each message"
    )
