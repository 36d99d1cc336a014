"""The copies of batches to devices, of all ranks together.

* With a depth of 1, the copy of the next batch begins when the program takes a batch; with 0, the program waits for the
  copy of its batch. The copies of the n-th batches of all ranks form a round.
* The copies of a round share the links and the memory of their nodes max-min fairly. `node_copies` plays them node by
  node; if nodes share links, `max_min.finish_times` plays them all together.
* Rounds that overlap in a node would have to be simulated together; such runs are given up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank, Samples
from paceline.records.trace import COPY_TO_DEVICE
from paceline.simulator.cohort.classes import CohortTask, RankClass, TimedPromise
from paceline.simulator.cohort.collectives import Turns
from paceline.simulator.cohort.prices import SAME, Prices
from paceline.simulator.cohort.recorder import ClassRecorder
from paceline.simulator.cohort.values import NotACohort, Places, Times, of_ranks
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.max_min import NONE, compiled, fair_rates, finish_times, together, until
from paceline.simulator.flows.path_tables import Path
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.network.network import ClusterNetwork
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


_PATHS: WeakKeyDictionary[ClusterNetwork, CopyPaths] = WeakKeyDictionary()
"""the links of the copies on networks that serve several runs; the workers are those of the cluster"""


def _copied(hosts: HostCosts) -> tuple[NodeMemory, Staging] | None:
    """Returns the memories and links by which batches and vectors may be copied; None if nothing is."""
    if hosts.staging is None or (staging := hosts.staging.network.cluster.staging) is None:
        return None
    return hosts.staging, staging


def why_not_copied(job: Job, hosts: HostCosts) -> str | None:
    """Returns why the copies of a run cannot be vectorised; None if they can.

    Args:
        job: the job.
        hosts: what the hosts of the ranks cost and share.
    """
    if (copied := _copied(hosts)) is None:
        return None
    memory, staging = copied
    if memory.network.fabric.buffers.copied:
        return "the library copies vectors between hosts and devices"
    if staging.batches == "pageable" or staging.prefetch > 1:
        return "batches are copied from pageable memory, or more than one ahead"
    sockets = [memory.network.cluster.socket_of(rank) for rank in job.team[0].workers]
    if None in sockets and any(socket is not None for socket in sockets):
        return "the batches of some workers are copied to devices, and those of others are not"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """The copies of one batch of every rank of a class."""

    own: RankClass
    step: int
    starts_s: Times
    nbytes: Times
    promise: TimedPromise


class BatchCopies:
    """The copies of the batches of a run.

    Args:
        paths: the links of the copies.
        staging: what is copied, and how.
        workers: the number of workers.
        records: the record.
        prices: the ports that collectives use, and what the links carry.
    """

    def __init__(
        self, paths: CopyPaths, staging: Staging, workers: int, records: ClassRecorder, prices: Prices
    ) -> None:
        self._paths, self._staging, self._workers, self._records = paths, staging, workers, records
        self._use = prices.use
        self._use.add(COPIES, paths.ports)
        self._copied = np.zeros(workers)
        """the bytes that were copied for each rank"""
        prices.traffic.add_at_end(lambda: paths.by_port(self._copied))
        self._ahead: dict[int, tuple[Samples, TimedPromise]] = {}
        """the batch of each class that is copied ahead"""
        self._turns: Turns[Copy] = Turns()
        self._busy_s = np.zeros(len(paths.firsts))
        """when the last copies of each node ended"""
        self._last_s: dict[int, Times] = {}
        """when the last copy of each rank of a class ended"""

    @staticmethod
    def of(job: Job, hosts: HostCosts, records: ClassRecorder, prices: Prices) -> BatchCopies | None:
        """Returns the copies of a run; None if no batches are copied.

        Args:
            job: the job.
            hosts: what the hosts of the ranks cost and share.
            records: the record.
            prices: the ports that collectives use, and what the links carry.
        """
        if (copied := _copied(hosts)) is None:
            return None
        memory, staging = copied
        network = memory.network
        if (
            staging.batches == "none"
            or staging.sample_bytes <= 0
            or network.cluster.socket_of(job.team[0].rank) is None
        ):
            return None
        paths = _PATHS.get(network) or CopyPaths(memory, job.workers)
        if not network.cluster.links_change:  # else its capacities change, and it serves one run
            _PATHS[network] = paths
        return BatchCopies(paths, staging, job.workers, records, prices)

    def take(self, task: CohortTask, samples: Samples) -> Generator[TimedPromise, None, None]:
        """Waits until a batch is on the device."""
        number = task.own.number
        expected, promise = self._ahead.get(number) or (samples, self._request(task, samples))
        if expected != samples:
            raise NotACohort("it takes other batches than those that are copied ahead")
        if not promise.settled:
            yield promise
        task.until(promise)
        if self._staging.ahead:
            coming = following(samples)
            self._ahead[number] = coming, self._request(task, coming)

    def _request(self, task: CohortTask, samples: Samples) -> TimedPromise:
        own, promise = task.own, TimedPromise()
        nbytes = of_ranks(samples.count, own.count) * self._staging.sample_bytes
        copy = Copy(own, samples.index, task.now_s, nbytes, promise)
        if copies := self._turns.add(copy, None, self._workers):
            self._settle(copies)
        return promise

    def _settle(self, copies: Sequence[Copy]) -> None:
        paths = self._paths
        starts_s, nbytes = np.empty(self._workers), np.empty(self._workers)
        for copy in copies:
            starts_s[copy.own.ranks], nbytes[copy.own.ranks] = copy.starts_s, copy.nbytes
        begun_s = np.minimum.reduceat(starts_s, paths.firsts)
        if (begun_s < self._busy_s * (1 - SAME)).any():
            raise NotACohort("copies of successive batches overlap in a node")
        ends_s = paths.ends_s(starts_s, nbytes)
        self._copied += nbytes
        self._busy_s = np.maximum.reduceat(ends_s, paths.firsts)
        self._use.used(COPIES, "", begun_s, self._busy_s)
        ends_s = ends_s + paths.latency_s
        for copy in sorted(copies, key=lambda copy: copy.own.number):
            own_s = self._last_s[copy.own.number] = ends_s[copy.own.ranks]
            sizes = np.rint(copy.nbytes).astype(np.int64)
            self._records.span(
                copy.own, COPY_TO_DEVICE, "copy", copies[0].step, copy.starts_s, own_s, nbytes=sizes, key="batch"
            )
            copy.promise.end_at(own_s)

    def close(self, task: CohortTask) -> None:
        """Checks that the copies of a class had ended when its program ended, because it would have ended them."""
        if (last_s := self._last_s.get(task.own.number)) is not None and (last_s > task.now_s).any():
            raise NotACohort("a batch is being copied when its program ends")
