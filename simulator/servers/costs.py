"""The times of a compiled run that do not change during it: of messages, charges and loading, for every worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Role
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.link_traffic import LinkTraffic, add, bytes_of_table
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.interpreter.cpu_overheads import NO_HANDLING, Handling
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork, Network, NoCost
from paceline.simulator.servers.reasons import NotCompiled
from paceline.simulator.servers.shapes import Shape
from paceline.simulator.servers.shared_ports import SharedPorts

Array = np.ndarray
NONE = np.zeros((1, 1))
"""the table of times that are all 0, which the event loop does not read"""


@dataclass
class KindCosts:
    """The times of messages: one row for each kind, one column for each worker."""

    message_s: Array
    send_s: Array
    receive_s: Array
    copy_s: Array
    path_class: Array
    path_s: Array
    counts: Array
    """number of messages, which the event loop counts"""


class Costs:
    """Asks the timing and the network once for each worker and kind of messages.

    Args:
        job: the run's job.
        timing: the seconds of each rank's own work.
        network: the network.
        handling: the processor time of messages.
    """

    def __init__(self, job: Job, timing: Timing, network: Network, handling: Handling) -> None:
        self._job, self._timing, self._network, self._handling = job, timing, network, handling
        self.ranks = len(job.team)
        self.workers = self.ranks - 1
        self.ports = SharedPorts(network.fabric) if isinstance(network, ClusterNetwork) else None
        self._handled = handling is not NO_HANDLING
        self._kinds = 0
        self._sent: list[tuple[Role, int]] = []
        """the role of the sender and the bytes of each kind of messages"""
        processed = [np.zeros((2, self.workers)) if self._handled else NONE for _ in range(3)]
        paths = (2, self.workers) if self.ports is not None else (1, 1)
        send_s, receive_s, copy_s = processed
        path_class, path_s = np.full(paths, -1, np.int64), np.zeros((*paths, 3))
        counts = np.zeros((2, self.workers), np.int64)
        self.messages = KindCosts(np.zeros((2, self.workers)), send_s, receive_s, copy_s, path_class, path_s, counts)
        self.load_s = np.zeros(self.ranks)
        self.rest_s = np.zeros(self.ranks)
        for rank in range(self.workers):
            self.load_s[rank], self.rest_s[rank] = timing.load_s(Rank(rank), job.batches[0]), timing.rest_s(Rank(rank))

    def add_kinds(self, kinds: Mapping[tuple[Role, Shape], int], sizes: Mapping[int, int]) -> None:
        """Adds the times of new kinds of messages.

        Args:
            kinds: the number of each kind, by the role of its sender and its shape.
            sizes: the bytes of each kind.
        """
        for (role, _), kind in kinds.items():
            if kind >= self._kinds:
                self._make_room(kind + 1)
                self._add_kind(role, kind, sizes[kind])
        self._kinds = max(self._kinds, len(kinds))

    def _make_room(self, count: int) -> None:
        found, rows = self.messages, 2 * count
        if len(found.message_s) >= count:
            return

        def grown(old: Array, fill: float, *shape: int) -> Array:
            new = np.full(shape, fill, old.dtype)
            new[: len(old)] = old
            return new

        found.message_s = grown(found.message_s, 0.0, rows, self.workers)
        found.counts = grown(found.counts, 0, rows, self.workers)
        if self._handled:
            for name in ("send_s", "receive_s", "copy_s"):
                setattr(found, name, grown(getattr(found, name), 0.0, rows, self.workers))
        if self.ports is not None:
            found.path_class = grown(found.path_class, -1, rows, self.workers)
            found.path_s = grown(found.path_s, 0.0, rows, self.workers, 3)

    def _add_kind(self, role: Role, kind: int, size: int) -> None:
        found = self.messages
        self._sent.append((role, size))
        if self._handled:
            self._add_handling(role, kind, size)
        if self.ports is not None:
            found.path_class[kind], found.path_s[kind] = self.ports.paths(size, to_server=role == "worker")
            self.ports.check()
        elif isinstance(self._network, MeasuredNetwork):
            self._measured(self._network, role, kind, size)

    def _add_handling(self, role: Role, kind: int, size: int) -> None:
        """Adds the processor times of a kind of messages; of workers that are alike, only those of the first one."""
        server, found, handling = Rank(self.workers), self.messages, self._handling
        first, which = self._alike
        times_s = np.zeros((3, len(first)))
        for place, worker in enumerate(map(Rank, first.tolist())):
            source, to = (worker, server) if role == "worker" else (server, worker)
            if handling.waits(to, size):
                raise NotCompiled("large messages wait at their senders until the server receives them")
            times_s[:, place] = [of(source, to, size) for of in (handling.send_s, handling.receive_s, handling.copy_s)]
        found.send_s[kind], found.receive_s[kind], found.copy_s[kind] = times_s[:, which]

    @cached_property
    def _alike(self) -> tuple[Array, Array]:
        """The first worker of each set of workers that are alike, and the set of each worker."""
        known = self._handling.alike()
        numbers = np.arange(self.workers) if known is None else np.asarray(known)
        _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
        return first, which.reshape(-1)

    def _measured(self, network: MeasuredNetwork, role: Role, kind: int, size: int) -> None:
        server, row = Rank(self.workers), self.messages.message_s[kind]
        for worker in map(Rank, range(self.workers)):
            source, to = (worker, server) if role == "worker" else (server, worker)
            row[worker] = network.message_seconds(source, to, size)

    def note_traffic(self) -> None:
        """Tells a cluster's network what its links have carried."""
        if isinstance(self._network, ClusterNetwork):
            fabric, traffic = self._network.fabric, LinkTraffic()
            traffic.add_at_end(lambda: self._carried(fabric))
            self._network.traffic = traffic

    def _carried(self, fabric: GraphFabric) -> dict[Port, float]:
        """Returns the bytes of all messages by port."""
        found: defaultdict[Port, float] = defaultdict(float)
        for kind, (role, size) in enumerate(self._sent):
            if size:
                table = fabric.server_paths(size, to_server=role == "worker")
                assert table is not None, "no link is broken"
                add(found, bytes_of_table(table, float(size) * self.messages.counts[kind]))
        return dict(found)

    def charge_s(self, role: Role, op: Charge) -> Array:
        """Returns the seconds of a charge, for all ranks of a role."""
        seconds = np.zeros(self.ranks)
        ranks = range(self.workers) if role == "worker" else [self.workers]
        for rank in ranks:
            seconds[rank] = self._timing.work_s(Rank(rank), op)
        return seconds


def supported(network: Network) -> str | None:
    """Returns why messages of a network cannot be computed here; None if they can."""
    if type(network) in (NoCost, MeasuredNetwork):
        return None
    if type(network) is not ClusterNetwork:
        return f"messages pass a {type(network).__name__}"
    if network.cluster.graph.varying:
        return "the bandwidths of links vary during the run"
    return "links fail during the run" if network.cluster.link_faults else None
