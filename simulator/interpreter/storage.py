"""Storage in virtual time, all the requests of a batch at once. What a request costs is in `topologies.storage`.

Rules of this file:

* What is simulated is not a request but all that a reader asks for to complete a batch. That has a time of its own: of
  its requests one after the other, when nobody else reads. Alone it takes exactly this.
* Beside others it goes on at one even pace, and so does each of its parts: its bytes, and the requests that the device
  takes. No part is faster than alone; a port that is asked for too much is shared max-min fairly (`ports`). It is done
  when its last part is.
* Bytes that lie on few servers come from each of these; those that lie on many come evenly from all together.
* A disk with one arm serves its k readers in turn, so each gets on at a k-th of the pace that it would have if the arm
  had to come back for every stretch that is read ahead (`disk_head`). Who is alone again has its own pace again.

Request by request, readers meet by chance: where they ask for nearly all that a device has, one waits for another now
and then, and an even pace is too fast by that. It is exact where little or too much is asked for; in between it is
never off by more than a factor of two, and not at all once servers that serve in turn have dealt their readers out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import simpy

from paceline.simulator.flows.disk_head import DiskHead
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.ports import Capacity, Part, Ports, Then
from paceline.topologies.catalogue.storage_devices import Storage
from paceline.workloads.reading import Piece

MANY = 10**9
"""readers: more than any depth"""
FEW = 0.25
"""of the servers; one is few, too"""


class Asked(NamedTuple):
    """All that a reader asks for at once."""

    requests: int = 0
    seeks: int = 0
    """requests that do not begin where the reader's last one ended"""
    bytes: int = 0
    latencies: int = 0
    turns: int = 0
    """latencies where an arm serves others, too: one for every stretch that is read ahead"""
    returns: int = 0
    """latencies more where an arm has served somebody else since this reader's last request"""
    transfer_s: float = 0.0
    """of its bytes, when nobody else reads"""
    servers: Mapping[int, float] = {}
    """of its bytes, those of each server"""


class Reader:
    """What one rank reads of a file.

    >>> disk = Storage(name="disk", latency_s=0.01, bytes_per_s=1e6, depth=1, read_ahead_bytes=4000)
    >>> reader = Reader(disk, record_bytes=1000, node=0)
    >>> asked = reader.ask([Piece(0, 6), Piece(6, 3), Piece(100, 1)])
    >>> asked.requests, asked.seeks, asked.bytes, asked.turns
    (3, 2, 10000, 4)
    """

    def __init__(self, storage: Storage, record_bytes: int, node: int) -> None:
        self.node, self._storage, self._record_bytes = node, storage, record_bytes
        self._end: int | None = None
        """the record after the last request"""
        self._run = 0
        """bytes since the last seek"""

    def ask(self, pieces: Sequence[Piece]) -> Asked:
        """What it costs to read these, after what was read before."""
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
        return Asked(len(pieces), seeks, records * self._record_bytes, latencies, turns, returns, transfer_s, servers)

    def _turns(self, size: int) -> int:
        """How often an arm comes back for the next `size` bytes: once for every stretch that is read ahead."""
        time_dilation = self._storage.read_ahead_bytes
        return 1 if time_dilation is None else -(-(self._run + size) // time_dilation) - -(-self._run // time_dilation)

    def _transfers(self, pieces: Sequence[Piece], nbytes: int) -> tuple[float, Mapping[int, float]]:
        """What the bytes of all of them take, one request after the other, and those of each server."""
        storage, record_bytes, pace = self._storage, self._record_bytes, self._storage.reader_bytes_per_s
        if storage.stripes == 1:
            return nbytes / pace, {0: float(nbytes)}
        transfer_s, servers = 0.0, dict[int, float]()
        for first, records in pieces:
            start, size = first * record_bytes, records * record_bytes
            stripe = start // storage.stripe_bytes
            if (start + size - 1) // storage.stripe_bytes == stripe:  # as nearly all do: this is to be quick
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
        storage: what it is.
        record_bytes: of one record of the file.
        nodes: the node of each reader.
    """

    def __init__(self, env: simpy.Environment, storage: Storage, record_bytes: int, nodes: Sequence[int]) -> None:
        self._env, self._storage, self._record_bytes = env, storage, record_bytes
        self._on = {node: nodes.count(node) for node in dict.fromkeys(nodes)}
        """readers of each node"""
        self._heads = {self._device(node): DiskHead(env) for node in self._on} if storage.one_arm else {}
        self._ports = Ports(env, {} if storage.one_arm else self._capacity())

    def reader(self, node: int) -> Reader:
        """A new reader on this node."""
        return Reader(self._storage, self._record_bytes, node)

    def read(self, reader: Reader, asked: Asked, then: Then) -> None:
        """Reads what was asked for, and calls somebody once it is there."""
        if self._storage.one_arm:
            head, latency_s = self._heads[self._device(reader.node)], self._storage.latency_s
            latencies = asked.latencies + (asked.returns if head.last is not reader else 0)
            alone_s, beside_s = (count * latency_s + asked.transfer_s for count in (latencies, asked.turns))
            head.serve(reader, alone_s, beside_s, then)
            return
        seconds = asked.latencies * self._storage.latency_s + asked.transfer_s
        self._ports.begin([part for part in self._parts(reader.node, asked, seconds) if part.ports], seconds, then)

    def _device(self, node: int) -> int | None:
        """The device that a node reads from: its own, or the one that there is."""
        return None if self._storage.shared else node

    def _readers(self, node: int) -> int:
        """Of the device of this node."""
        return sum(self._on.values()) if self._storage.shared else self._on[node]

    def _capacity(self) -> dict[Port, Capacity]:
        """What each port has: bytes a second of servers and clients, requests a second of devices."""
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

    def _parts(self, node: int, asked: Asked, seconds: float) -> list[Part]:
        """What has to come through ports; a port that only one reader may use is none."""
        device, readers, stripes = self._device(node), self._readers(node), self._storage.stripes
        client = (f"client {node}",) if self._storage.client_bytes_per_s is not None and self._on[node] > 1 else ()
        ways = (*client, f"servers {device}") if readers > 1 else ()
        if ways and stripes > 1 and len(asked.servers) <= max(1, FEW * stripes):
            parts = [
                Part((*ways, f"server {server} {device}"), nbytes, nbytes / seconds)
                for server, nbytes in asked.servers.items()
            ]
        else:
            parts = [Part(ways, asked.bytes, asked.bytes / seconds)]
        if self._storage.limited and readers > 1 and asked.latencies:
            parts.append(Part((f"requests {device}",), asked.latencies, asked.latencies / seconds))
        return parts
