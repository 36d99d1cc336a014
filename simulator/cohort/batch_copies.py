"""The copies of batches to devices, of all ranks together.

* With a depth of 1, the copy of the next batch begins when the program takes a batch; with 0, the program waits for the
  copy of its batch. The copies of the n-th batches of all ranks form a round.
* The copies of a round share the links and the memory of their nodes max-min fairly, see `PartedFlows`.
* Rounds that overlap in a node would have to be simulated together; such runs are given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank, Samples
from paceline.records.recorder import Recorder
from paceline.records.trace import COPY_TO_DEVICE
from paceline.simulator.cohort.classes import CohortTask, RankClass, Steps, TimedPromise
from paceline.simulator.cohort.collectives import Turns
from paceline.simulator.cohort.prices import SAME, Prices
from paceline.simulator.cohort.values import NotACohort, Times, of_ranks
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.parted_flows import PartedFlows
from paceline.simulator.flows.path_tables import Path
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.network.node_memory import MOST_SLOWED, NodeMemory
from paceline.topologies.catalogue.host_memory import StagingModel
from paceline.workloads.reading import following

COPIES = -1
"""the number by which `PortUse` knows the copies of each node"""


class CopyPaths:
    """The links of the copies of all ranks.

    Args:
        memory: the memories of the nodes.
        workers: the number of workers, all of which have batches to copy.
    """

    def __init__(self, memory: NodeMemory, workers: int) -> None:
        cluster = memory.network.cluster
        self._numbers: dict[Port, int] = {}
        self._capacity: list[float] = []
        self._routes: list[list[int]] = []
        changes = np.diff([cluster.node_of(Rank(rank)) for rank in range(workers)], prepend=-1) != 0
        self.firsts = np.flatnonzero(changes)
        """the first rank of each node that has workers"""
        self.ports: list[set[Port]] = [set() for _ in self.firsts]
        """the ports of each node, if copies slow collectives down"""
        latency_s = []
        for rank, place in enumerate((np.cumsum(changes) - 1).tolist()):
            path = memory.path_to_device(Rank(rank))
            if cluster.workers <= MOST_SLOWED:
                self.ports[place].update(path.ports)
            self._routes.append(self._links(memory, path))
            latency_s.append(path.latency_s)
        self.latency_s = np.array(latency_s)
        self.flows = PartedFlows(self._capacity, self._routes, self.firsts.tolist())

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


_PATHS: WeakKeyDictionary[ClusterNetwork, CopyPaths] = WeakKeyDictionary()
"""the links of the copies on networks that serve several runs; the workers are those of the cluster"""


@dataclass(frozen=True, slots=True, eq=False)
class BatchCopy:
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
        recorder: writes the record.
        prices: the ports that collectives use, and what the links carry.
    """

    def __init__(
        self, paths: CopyPaths, staging: StagingModel, workers: int, recorder: Recorder, prices: Prices
    ) -> None:
        self._paths, self._staging, self._workers, self._recorder = paths, staging, workers, recorder
        self._use = prices.use
        self._use.add(COPIES, paths.ports)
        self._copied = np.zeros(workers)
        """the bytes that were copied for each rank"""
        prices.traffic.add_at_end(lambda: paths.by_port(self._copied))
        self._ahead: dict[int, tuple[Samples, TimedPromise]] = {}
        """the batch of each class that is copied ahead"""
        self._turns: Turns[BatchCopy] = Turns()
        self._busy_s = np.zeros(len(paths.firsts))
        """when the last copies of each node ended"""
        self._last_s: dict[int, Times] = {}
        """when the last copy of each rank of a class ended"""

    @staticmethod
    def of(job: Job, hosts: HostCosts, recorder: Recorder, prices: Prices) -> BatchCopies | None:
        """Returns the copies of a run; None if no batches are copied.

        Args:
            job: the job.
            hosts: what the hosts of the ranks cost and share.
            recorder: writes the record.
            prices: the ports that collectives use, and what the links carry.

        Raises:
            NotACohort: the copies cannot be vectorised.
        """
        if (memory := hosts.staging) is None or (staging := memory.network.cluster.staging) is None:
            return None
        network = memory.network
        if network.fabric.buffers.copied:
            raise NotACohort("the library copies vectors between hosts and devices")
        if staging.batches == "pageable" or staging.prefetch > 1:
            raise NotACohort("batches are copied from pageable memory, or more than one ahead")
        sockets = {network.cluster.socket_of(rank) for rank in job.team[0].workers}
        if len(sockets) > 1 and None in sockets:
            raise NotACohort("the batches of some workers are copied to devices, and those of others are not")
        if staging.batches == "none" or staging.sample_bytes <= 0 or None in sockets:
            return None
        paths = _PATHS.get(network) or CopyPaths(memory, job.workers)
        if not network.cluster.links_change:  # else its capacities change, and it serves one run
            _PATHS[network] = paths
        return BatchCopies(paths, staging, job.workers, recorder, prices)

    def take(self, task: CohortTask, samples: Samples) -> Steps:
        """Waits until a batch is on the device."""
        number = task.own.number
        expected, promise = self._ahead.get(number) or (samples, self._request(task, samples))
        if expected != samples:
            raise NotACohort("it takes other batches than those that are copied ahead")
        yield from task.wait(promise)
        if self._staging.ahead:
            coming = following(samples)
            self._ahead[number] = coming, self._request(task, coming)

    def _request(self, task: CohortTask, samples: Samples) -> TimedPromise:
        own, promise = task.own, TimedPromise()
        nbytes = of_ranks(samples.count, own.count) * self._staging.sample_bytes
        copy = BatchCopy(own, samples.index, task.now_s, nbytes, promise)
        if copies := self._turns.add(copy, None, self._workers):
            self._settle(copies)
        return promise

    def _settle(self, copies: Sequence[BatchCopy]) -> None:
        paths = self._paths
        starts_s, nbytes = np.empty(self._workers), np.empty(self._workers)
        for copy in copies:
            starts_s[copy.own.ranks], nbytes[copy.own.ranks] = copy.starts_s, copy.nbytes
        begun_s = np.minimum.reduceat(starts_s, paths.firsts)
        if (begun_s < self._busy_s * (1 - SAME)).any():
            raise NotACohort("copies of successive batches overlap in a node")
        ends_s = paths.flows.ends_s(starts_s, nbytes)
        self._copied += nbytes
        self._busy_s = np.maximum.reduceat(ends_s, paths.firsts)
        self._use.used(COPIES, "", begun_s, self._busy_s)
        ends_s = ends_s + paths.latency_s
        for copy in sorted(copies, key=lambda copy: copy.own.number):
            own_s = self._last_s[copy.own.number] = ends_s[copy.own.ranks]
            sizes = np.rint(copy.nbytes).astype(np.int64)
            self._recorder.spans(
                copy.own.ranks, COPY_TO_DEVICE, "copy", copy.step, copy.starts_s, own_s, nbytes=sizes, key="batch"
            )
            copy.promise.end_at(own_s)

    def close(self, task: CohortTask) -> None:
        """Checks that the copies of a class had ended when its program ended, because it would have ended them."""
        if (last_s := self._last_s.get(task.own.number)) is not None and (last_s > task.now_s).any():
            raise NotACohort("a batch is being copied when its program ends")
