"""Storage in virtual time, with all requests of a batch together. `topologies.catalogue.storage_devices` has the costs.

* The unit of simulation is not a request but all requests of a reader for one batch. Alone, a batch takes the time of
  its requests one after the other, exactly.
* With concurrent readers, a batch progresses at a constant rate, and so does each of its parts: its bytes, and the
  requests that the device processes. No part is faster than alone. A port above its capacity is shared max-min fairly
  (`Ports`). The batch is done when its last part is done.
* Bytes that lie on few servers are transferred from these servers; bytes on many servers count as spread evenly over
  all.
* A disk with one head serves its k readers in turn. Each progresses at 1/k of the rate that it would have if the head
  had to return for every piece of its read-ahead (`DiskHead`). A reader that is alone again has its own rate again.

A constant rate is an approximation. Near the capacity of a device, the single requests of different readers sometimes
wait for each other, so the constant rate is too fast. It is exact far below and far above the capacity; in between the
error is at most a factor of two, and vanishes when servers that serve their readers in turn have staggered them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import simpy

from paceline.simulator.flows.flow_engine import Flows, Port
from paceline.simulator.kernel.simpy_events import after, upon
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.workloads.reading import Piece

FULL = 1 + 1e-9
"""factor below which two sums count as equal, because they are rounded"""
Then = Callable[[], None]
Capacity = float | Callable[[int], float]
"""capacity of a port per second: a number, or a function of the number of its users"""
MANY = 10**9
"""a number of readers larger than any depth"""
FEW = 0.25
"""fraction of the servers up to which bytes lie on few servers; a single server always counts as few"""


class BatchRequests(NamedTuple):
    """All requests of a reader for one batch."""

    requests: int = 0
    seeks: int = 0
    """number of requests that do not begin where the reader's last one ended"""
    bytes: int = 0
    latencies: int = 0
    turns: int = 0
    """number of latencies on a disk head that also serves others: one for every piece of its read-ahead"""
    returns: int = 0
    """number of further latencies if the head has served another reader since this reader's last request"""
    transfer_s: float = 0.0
    """seconds of the transfer without other readers"""
    servers: Mapping[int, float] = {}
    """the bytes from each server"""


class StorageReader:
    """The reader of one rank: turns pieces of a file into requests.

    Args:
        storage: the storage of the file.
        record_bytes: bytes of one record.
        node: the rank's node.

    >>> disk = StorageModel(name="disk", latency_s=0.01, bytes_per_s=1e6, depth=1, read_ahead_bytes=4000)
    >>> reader = StorageReader(disk, record_bytes=1000, node=0)
    >>> asked = reader.ask([Piece(0, 6), Piece(6, 3), Piece(100, 1)])
    >>> asked.requests, asked.seeks, asked.bytes, asked.turns
    (3, 2, 10000, 4)
    """

    def __init__(self, storage: StorageModel, record_bytes: int, node: int) -> None:
        self.node, self._storage, self._record_bytes = node, storage, record_bytes
        self._end: int | None = None
        """the record after the last request"""
        self._run = 0
        """bytes since the last seek"""

    def ask(self, pieces: Sequence[Piece]) -> BatchRequests:
        """Returns the requests for these pieces, given what was read before."""
        continues = bool(pieces) and pieces[0].first == self._end
        seeks = turns = records = 0
        for piece in pieces:
            if piece.first != self._end:
                seeks, self._run = seeks + 1, 0
            size = piece.records * self._record_bytes
            turns += self._turns(size) if self._storage.one_arm else 0
            self._run += size
            self._end = piece.first + piece.records
            records += piece.records
        transfer_s, servers = self._transfers(pieces, records * self._record_bytes)
        latencies = len(pieces) if self._storage.read_ahead_bytes is None else seeks
        returns = int(continues and latencies < turns)
        return BatchRequests(
            len(pieces), seeks, records * self._record_bytes, latencies, turns, returns, transfer_s, servers
        )

    def _turns(self, size: int) -> int:
        """Returns how often the head returns for the next `size` bytes: once for every piece of its read-ahead."""
        piece = self._storage.read_ahead_bytes
        return 1 if piece is None else -(-(self._run + size) // piece) - -(-self._run // piece)

    def _transfers(self, pieces: Sequence[Piece], nbytes: int) -> tuple[float, Mapping[int, float]]:
        """Returns the seconds of the transfers, one request after the other, and the bytes from each server."""
        storage, record_bytes, pace = self._storage, self._record_bytes, self._storage.reader_bytes_per_s
        if storage.stripes == 1:
            return nbytes / pace, {0: float(nbytes)}
        transfer_s, servers = 0.0, dict[int, float]()
        for first, records in pieces:
            start, size = first * record_bytes, records * record_bytes
            stripe = start // storage.stripe_bytes
            if (start + size - 1) // storage.stripe_bytes == stripe:  # the most frequent case, kept fast
                parts: Mapping[int, float] = {stripe % storage.stripes: float(size)}
                transfer_s += size / pace
            else:
                parts = storage.parts(start, size)
                transfer_s += storage.transfer_s(parts)
            for server, part in parts.items():
                servers[server] = servers.get(server, 0.0) + part
        return transfer_s, servers


class Stores:
    """All storage of a run.

    Args:
        env: the run's clock.
        storage: its properties.
        record_bytes: bytes of one record of the file.
        nodes: the node of each reader.
    """

    def __init__(self, env: simpy.Environment, storage: StorageModel, record_bytes: int, nodes: Sequence[int]) -> None:
        self._env, self._storage, self._record_bytes = env, storage, record_bytes
        self._on = {node: nodes.count(node) for node in dict.fromkeys(nodes)}
        """number of readers on each node"""
        self._heads = {self._device(node): DiskHead(env) for node in self._on} if storage.one_arm else {}
        self._ports = Ports(env, {} if storage.one_arm else self._capacity())

    def reader(self, node: int) -> StorageReader:
        """Returns a new reader on this node."""
        return StorageReader(self._storage, self._record_bytes, node)

    def read(self, reader: StorageReader, asked: BatchRequests, then: Then) -> None:
        """Performs requests.

        Args:
            reader: the reader.
            asked: its requests.
            then: called when they are complete.
        """
        if self._storage.one_arm:
            head, latency_s = self._heads[self._device(reader.node)], self._storage.latency_s
            latencies = asked.latencies + (asked.returns if head.last is not reader else 0)
            alone_s, beside_s = (count * latency_s + asked.transfer_s for count in (latencies, asked.turns))
            head.serve(reader, alone_s, beside_s, then)
            return
        seconds = asked.latencies * self._storage.latency_s + asked.transfer_s
        self._ports.begin([part for part in self._parts(reader.node, asked, seconds) if part.ports], seconds, then)

    def _device(self, node: int) -> int | None:
        """Returns the device that a node reads from: its own, or None for the shared one."""
        return None if self._storage.shared else node

    def _readers(self, node: int) -> int:
        """Returns the number of readers of this node's device."""
        return sum(self._on.values()) if self._storage.shared else self._on[node]

    def _capacity(self) -> dict[Port, Capacity]:
        """Returns the capacity of each port: bytes per second, or requests per second for the requests of a device."""
        storage, capacity = self._storage, dict[Port, Capacity]()
        for node in self._on:
            if storage.client_bytes_per_s is not None:
                capacity[f"client {node}"] = storage.client_bytes_per_s
            device = self._device(node)
            if storage.limited:
                by_readers = storage.requests_per_s
                capacity[f"requests {device}"] = by_readers if storage.waiting > 0 else by_readers(MANY)
            capacity[f"servers {device}"] = storage.bytes_per_s
            for server in range(storage.stripes) if storage.stripes > 1 else ():
                capacity[f"server {server} {device}"] = storage.server_bytes_per_s
        return capacity

    def _parts(self, node: int, asked: BatchRequests, seconds: float) -> list[PortShare]:
        """Returns the parts of a batch with their ports; a port that has only one reader is left out."""
        device, readers, stripes = self._device(node), self._readers(node), self._storage.stripes
        client = (f"client {node}",) if self._storage.client_bytes_per_s is not None and self._on[node] > 1 else ()
        ports = (*client, f"servers {device}") if readers > 1 else ()
        if ports and stripes > 1 and len(asked.servers) <= max(1, FEW * stripes):
            parts = [
                PortShare((*ports, f"server {server} {device}"), nbytes, nbytes / seconds)
                for server, nbytes in asked.servers.items()
            ]
        else:
            parts = [PortShare(ports, asked.bytes, asked.bytes / seconds)]
        if self._storage.limited and readers > 1 and asked.latencies:
            parts.append(PortShare((f"requests {device}",), asked.latencies, asked.latencies / seconds))
        return parts


# --- ports that many readers share and that are rarely full ----------------------------------------------------------

# Below capacity, every transfer runs at its own limit and a timer is enough: no max-min solve is needed. When the sum
# of the limits exceeds the capacity of a port, its transfers become flows (`Flows`), which share it max-min fairly up
# to their limits. This is exact, because a port that cannot be full changes no rate. The capacity of a port may depend
# on the number of its users.


@dataclass(eq=False, slots=True)
class PortShare:
    """The part of a batch that passes the same ports.

    Args:
        ports: the ports that it passes.
        amount: bytes, or requests.
        pace: bytes or requests per second when it is alone, its limit.
    """

    ports: tuple[Port, ...]
    amount: float
    pace: float


@dataclass(eq=False, slots=True)
class _Batch:
    parts: Sequence[PortShare]
    begun_s: float
    seconds: float
    then: Then
    pending: int = 1
    """number of events to wait for: the timer, and the parts that are flows"""


class Ports:
    """The ports of a run. A part is a flow only if one of its ports may be full.

    Args:
        env: the run's clock.
        capacity: the capacity of each port.
    """

    def __init__(self, env: simpy.Environment, capacity: Mapping[Port, Capacity]) -> None:
        self._env, self._of = env, capacity
        self._capacity = {port: _for(1, given) for port, given in capacity.items()}
        """the present capacity of each port"""
        self._flows = Flows(env, self._capacity)
        self._load = dict.fromkeys(capacity, 0.0)
        """the sum of the paces of all parts at each port"""
        self._users = dict.fromkeys(capacity, 0)
        self._unshared: dict[Port, dict[PortShare, _Batch]] = {port: {} for port in capacity}
        """the parts at each port that are not flows"""

    def begin(self, parts: Sequence[PortShare], seconds: float, then: Then) -> None:
        """Begins a batch.

        Args:
            parts: its parts.
            seconds: how long it takes if every part runs at its own pace.
            then: called when all parts are done.
        """
        batch = _Batch(parts, self._env.now, seconds, then)
        for part in parts:
            for port in part.ports:
                self._load[port] += part.pace
                self._users[port] += 1
                self._unshared[port][part] = batch
        after(self._env, seconds, lambda _: self._timer_done(batch))
        for port in dict.fromkeys(port for part in parts for port in part.ports):
            self._update(port)

    def _update(self, port: Port) -> None:
        """Updates the capacity of a port and turns its parts into flows if it may be full."""
        now = _for(max(1, self._users[port]), self._of[port])
        if now != self._capacity[port]:
            self._capacity[port] = now
            self._flows.change(port, now)
        if self._load[port] > self._capacity[port] * FULL:
            for part, its in list(self._unshared[port].items()):
                self._share(part, its)

    def _share(self, part: PortShare, batch: _Batch) -> None:
        """Turns what is left of a part into a flow."""
        left = 1 - (self._env.now - batch.begun_s) / batch.seconds
        if left <= 0:
            return  # its timer is due at this instant
        for port in part.ports:
            del self._unshared[port][part]
        batch.pending += 1
        flow = self._flows.begin(part.ports, part.amount * left, part.pace)
        upon(flow, lambda _: self._part_done(part, batch))

    def _timer_done(self, batch: _Batch) -> None:
        for part in batch.parts:
            if part in self._unshared[part.ports[0]]:
                for port in part.ports:
                    del self._unshared[port][part]
                self._leave(part)
        self._end_one(batch)

    def _part_done(self, part: PortShare, batch: _Batch) -> None:
        self._leave(part)
        self._end_one(batch)

    def _leave(self, part: PortShare) -> None:
        for port in part.ports:
            self._users[port] -= 1
            self._load[port] = self._load[port] - part.pace if self._users[port] else 0.0
            if callable(self._of[port]):
                self._update(port)

    def _end_one(self, batch: _Batch) -> None:
        batch.pending -= 1
        if batch.pending == 0:
            batch.then()


def _for(users: int, capacity: Capacity) -> float:
    return capacity(users) if callable(capacity) else capacity


# --- a disk whose head serves one reader at a time, in short turns ----------------------------------------------------

# Turns are short, so the model is processor sharing: each of k readers progresses at 1/k of the rate at which the disk
# serves it. A reader that is alone is served faster, because the head does not move away and back (`alone_s`,
# `beside_s`).


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
