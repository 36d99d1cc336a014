"""The copies of batches to devices, of all ranks together.

* With a depth of 1, the copy of the next batch begins when the program takes a batch; with 0, the program waits for the
  copy of its batch. The copies of the n-th batches of all ranks form a round.
* The copies of a round share the links and the memory of their nodes max-min fairly. `node_copies` plays them node by
  node; if nodes share links, `max_min.finish_times` plays them all together.
* Rounds that overlap in a node would have to be simulated together; such runs are given up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from paceline.algorithms.core.values import Rank, Samples
from paceline.records.trace import COPY_TO_DEVICE
from paceline.simulator.cohort.classes import Places, RankClass, TimedPromise, Times
from paceline.simulator.cohort.prices import SAME, PortUse
from paceline.simulator.cohort.recorder import ClassRecorder
from paceline.simulator.cohort.tasks import CohortTask, Steps
from paceline.simulator.cohort.varying import NotACohort, of_ranks
from paceline.simulator.collectives.contention import LinkTraffic
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.max_min import NONE, compiled, fair_rates, finish_times, together, until
from paceline.simulator.flows.path_tables import Path
from paceline.simulator.network.node_memory import MOST_SLOWED, NodeMemory
from paceline.topologies.catalogue.staging import Staging
from paceline.workloads.reading import following

# * Which copies are in progress determines their max-min fair rates. So the rates of each such set are computed once,
#   by `fair_rates`, for all nodes with equal links. Playing the copies of a node is then a loop over their begins
#   and ends.
# * The arithmetic is that of `max_min.play`: bytes are subtracted when a rate changes, and ends that differ by
#   rounding only are one instant.
# * Rejected: `max_min.play` with the flows of all nodes, which needs many times as long, since it solves rates anew
#   and has one queue for all nodes.


MOST_COPIES = 12
"""copies of a node up to which their rates are stored, for 2ⁿ sets of copies; provenance: ours, 0.4 MB"""


class NodeCopies:
    """The copies of nodes with equal links.

    Args:
        ranks: the ranks of each node, one row for each node.
        routes: the links that the copy of each rank of a node passes, numbered within the node.
        capacity: bytes per second of each link.

    >>> copies = NodeCopies(np.array([[0, 1], [2, 3]]), [[0], [0]], [8.0])  # two copies share a link
    >>> copies.ends_s(np.array([0.0, 0.0, 0.0, 1.0]), np.array([8.0, 8.0, 8.0, 8.0])).tolist()
    [[2.0, 2.0], [1.0, 2.0]]
    """

    def __init__(self, ranks: Places, routes: Sequence[Sequence[int]], capacity: Sequence[float]) -> None:
        self.ranks, self._routes, self._capacity = ranks, routes, capacity
        count = ranks.shape[1]
        self._rates = np.full((2**count, count), float(NONE))
        """the rate of each copy, by the set of copies in progress: bit n is that of the n-th rank"""
        self._scratch = np.empty((4, count))

    def ends_s(self, starts_s: Times, nbytes: Times) -> Times:
        """Returns when the copies end, one row for each node.

        Args:
            starts_s: the start of the copy of each rank of the run.
            nbytes: its bytes.
        """
        begun_s, sizes = starts_s[self.ranks], nbytes[self.ranks]
        ends_s, wanted = np.empty(begun_s.shape), np.zeros(1, dtype=np.int64)
        node = 0
        while (node := machine_code()(begun_s, sizes, self._rates, self._scratch, ends_s, wanted, node)) < len(begun_s):
            self._rates[wanted[0]] = self._found(int(wanted[0]))
        return ends_s

    def _found(self, active: int) -> list[float]:
        """Returns the rates of a set of copies; 0 for the others."""
        places = [place for place in range(len(self._routes)) if active >> place & 1]
        rates = [0.0] * len(self._routes)
        found = fair_rates([self._routes[place] for place in places], dict(enumerate(self._capacity)))
        for rate, place in zip(found, places, strict=True):
            rates[place] = rate
        return rates


@cache
def machine_code() -> Callable[..., Any]:
    """Returns `play`, which numba compiles at its first call."""
    return compiled(play)


# --- plain Python, or machine code ------------------------------------------------------------------------------------


def play(starts: Any, nbytes: Any, rates: Any, scratch: Any, ends: Any, wanted: Any, node: int) -> int:
    """Plays the copies of nodes until a set of copies is in progress whose rates are not known.

    Args:
        starts: the start of each copy, one row for each node.
        nbytes: its bytes.
        rates: the rate of each copy, by the set of copies in progress; below 0 if they are not known.
        scratch: four rows of numbers.
        ends: receives the ends of the copies.
        wanted: receives the set whose rates are not known.
        node: the first node.

    Returns:
        The node whose copies could not be played; the number of nodes if all could.
    """
    left, since, rate, due = scratch[0], scratch[1], scratch[2], scratch[3]
    count = starts.shape[1]
    while node < starts.shape[0]:
        now, active, waiting = 0.0, 0, (1 << count) - 1
        while active + waiting > 0:
            begin, soonest = np.inf, np.inf
            for at in range(count):
                if waiting >> at & 1:
                    begin = min(begin, starts[node, at])
                elif active >> at & 1:
                    soonest = min(soonest, due[at])
            latest = together(soonest, now)
            now = min(soonest, begin)
            for at in range(count):
                if waiting >> at & 1:
                    if starts[node, at] <= now:
                        waiting -= 1 << at
                        active += 1 << at
                        left[at], since[at], rate[at] = nbytes[node, at], now, NONE
                elif active >> at & 1 and now == soonest and due[at] <= latest:
                    active -= 1 << at
                    ends[node, at] = due[at]
            if rates[active, 0] < 0.0:
                wanted[0] = active
                return node
            for at in range(count):
                if active >> at & 1 and rates[active, at] != rate[at]:
                    if rate[at] > 0.0:
                        left[at] -= rate[at] * (now - since[at])
                    since[at], rate[at] = now, rates[active, at]
                    due[at] = now + until(left[at], rate[at])
        node += 1
    return node


COPIES = -1
"""the number by which `PortUse` knows the copies of each node"""


class CopyPaths:
    """The links of the copies of all ranks, and how long copies take.

    Args:
        memory: the memories of the nodes.
        workers: the number of workers, all of which have batches to copy.
    """

    def __init__(self, memory: NodeMemory, workers: int) -> None:
        cluster = memory.network.cluster
        self._numbers: dict[Port, int] = {}
        self._capacity: list[float] = []
        self._routes: list[list[int]] = []
        self.node = np.array([cluster.node_of(Rank(rank)) for rank in range(workers)])
        changes = np.diff(self.node, prepend=-1) != 0
        self.firsts = np.flatnonzero(changes)
        """the first rank of each node that has workers"""
        self.slows_collectives = cluster.workers <= MOST_SLOWED
        self.ports: list[set[Port]] = [set() for _ in self.firsts]
        """the ports of each node, if copies slow collectives down"""
        latency_s = []
        for rank, place in enumerate((np.cumsum(changes) - 1).tolist()):
            path = memory.path_to_device(Rank(rank))
            if self.slows_collectives:
                self.ports[place].update(path.ports)
            self._routes.append(self._links(memory, path))
            latency_s.append(path.latency_s)
        self.latency_s = np.array(latency_s)
        self._kinds = self._found_kinds()

    def by_port(self, nbytes: Times) -> dict[Port, float]:
        """Returns the bytes that each port carries, given the bytes that were copied for each rank."""
        links = np.array([link for route in self._routes for link in route], dtype=np.int64)
        carried = np.bincount(links, np.repeat(nbytes, [len(route) for route in self._routes]), len(self._capacity))
        return {port: float(carried[link]) for port, link in self._numbers.items()}

    def _links(self, memory: NodeMemory, path: Path) -> list[int]:
        """Returns the numbers of the links of a copy; the limit of one copy is a link that only it uses."""
        numbers = self._numbers
        for port in path.ports:
            if port not in numbers:
                numbers[port] = len(self._capacity)
                self._capacity.append(memory.capacity_of(port))
        route = [numbers[port] for port in path.ports]
        if np.isfinite(path.limit_bytes_per_s):
            route.append(len(self._capacity))
            self._capacity.append(path.limit_bytes_per_s)
        return route

    def _found_kinds(self) -> list[NodeCopies] | None:
        """Returns the nodes by their links; None if nodes have links in common, or a node has too many ranks."""
        ends = [*self.firsts[1:].tolist(), len(self._routes)]
        alike: defaultdict[tuple[Any, ...], list[list[int]]] = defaultdict(list)
        before = 0
        for first, end in zip(self.firsts.tolist(), ends, strict=True):
            numbers: dict[int, int] = {}
            routes = tuple(
                tuple([numbers.setdefault(link, len(numbers)) for link in route]) for route in self._routes[first:end]
            )
            # links are numbered in the order of their first ranks, so a link of an earlier node has a smaller number
            if min(numbers) < before or end - first > MOST_COPIES:
                return None
            before = max(before, max(numbers) + 1)
            capacity = tuple([self._capacity[link] for link in numbers])
            alike[routes, capacity].append(list(range(first, end)))
        return [NodeCopies(np.array(ranks), routes, capacity) for (routes, capacity), ranks in alike.items()]

    def ends_s(self, starts_s: Times, nbytes: Times) -> Times:
        """Returns when the last byte of each rank's copy has passed.

        Args:
            starts_s: when each rank's copy begins.
            nbytes: its bytes.
        """
        if self._kinds is None:
            return self._played(starts_s, nbytes)
        ends_s = np.empty(len(starts_s))
        for kind in self._kinds:
            ends_s[kind.ranks] = kind.ends_s(starts_s, nbytes)
        return ends_s

    def _played(self, starts_s: Times, nbytes: Times) -> Times:
        """Simulates the copies of all ranks together."""
        return finish_times(self._capacity, self._routes, starts_s, nbytes)[0]


@dataclass(eq=False, slots=True)
class _Round:
    """The copies of one batch of every rank."""

    starts_s: dict[int, Times] = field(default_factory=dict)
    nbytes: dict[int, Times] = field(default_factory=dict)
    promises: dict[int, TimedPromise] = field(default_factory=dict)
    step: int = 0


class BatchCopies:
    """The copies of the batches of a run.

    Args:
        paths: the links of the copies.
        staging: what is copied, and how.
        classes: the classes of workers.
        records: the record.
        use: the ports that collectives use; None if these are not modelled.
        traffic: counts what the links carry; None if links are not modelled.
    """

    def __init__(
        self,
        paths: CopyPaths,
        staging: Staging,
        classes: list[RankClass],
        records: ClassRecorder,
        use: PortUse | None,
        traffic: LinkTraffic | None = None,
    ) -> None:
        self._paths, self._staging, self._classes, self._records = paths, staging, classes, records
        self._use = use if paths.slows_collectives else None
        if self._use is not None:
            self._use.add(COPIES, paths.ports)
        self._copied = np.zeros(len(paths.node))
        """the bytes that were copied for each rank"""
        if traffic is not None:
            traffic.add_at_end(lambda: paths.by_port(self._copied))
        self._ahead: dict[int, tuple[Samples, TimedPromise]] = {}
        """the batch of each class that is copied ahead"""
        self._turns: defaultdict[int, int] = defaultdict(int)
        self._rounds: dict[int, _Round] = {}
        self._busy_s: Times | None = None
        """when the last copies of each node ended"""
        self.last_s: dict[int, Times] = {}
        """when the last copy of each rank of a class ended"""

    def take(self, task: CohortTask, samples: Samples) -> Steps:
        """Waits until a batch is on the device."""
        own = task.own
        if not self._staging.ahead:
            promise = self._request(own, samples, task.now_s)
        else:
            if own.number not in self._ahead:
                self._ahead[own.number] = samples, self._request(own, samples, task.now_s)
            expected, promise = self._ahead[own.number]
            if expected != samples:
                raise NotACohort("it takes other batches than those that are copied ahead")
        if not promise.settled:
            yield promise
        task.until(promise)
        if self._staging.ahead:
            coming = following(samples)
            self._ahead[own.number] = coming, self._request(own, coming, task.now_s)

    def _request(self, own: RankClass, samples: Samples, now_s: Times) -> TimedPromise:
        turn = self._turns[own.number]
        self._turns[own.number] += 1
        one = self._rounds.setdefault(turn, _Round(step=samples.index))
        promise = one.promises[own.number] = TimedPromise(lambda: "the copy of a batch")
        one.starts_s[own.number] = now_s
        one.nbytes[own.number] = of_ranks(samples.count, own.count) * self._staging.sample_bytes
        if len(one.promises) == len(self._classes):
            self._settle(self._rounds.pop(turn))
        return promise

    def _settle(self, one: _Round) -> None:
        paths = self._paths
        starts_s, nbytes = np.empty(len(paths.node)), np.empty(len(paths.node))
        for own in self._classes:
            starts_s[own.ranks], nbytes[own.ranks] = one.starts_s[own.number], one.nbytes[own.number]
        begun_s = np.minimum.reduceat(starts_s, paths.firsts)
        if self._busy_s is not None and (begun_s < self._busy_s * (1 - SAME)).any():
            raise NotACohort("copies of successive batches overlap in a node")
        ends_s = paths.ends_s(starts_s, nbytes)
        self._copied += nbytes
        self._busy_s = np.maximum.reduceat(ends_s, paths.firsts)
        if self._use is not None:
            self._use.used(COPIES, "", begun_s, self._busy_s)
        ends_s = ends_s + paths.latency_s
        for own in self._classes:
            mine = self.last_s[own.number] = ends_s[own.ranks]
            sizes = np.rint(one.nbytes[own.number]).astype(np.int64)
            self._records.span(
                own, COPY_TO_DEVICE, "copy", one.step, one.starts_s[own.number], mine, nbytes=sizes, key="batch"
            )
            one.promises[own.number].end_at(mine)

    def close(self, own: RankClass, now_s: Times) -> None:
        """Checks that the copies of a class had ended when its program ended, because it would have ended them."""
        if own.number in self.last_s and (self.last_s[own.number] > now_s).any():
            raise NotACohort("a batch is being copied when its program ends")
