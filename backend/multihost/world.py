"""The processes of an externally launched job: their rendezvous, their hosts, and the store between them.

Rules of this file:

* Processes meet in the store at the address that the launcher gives. Their keys have a separate prefix for each start
  of the job, because torchrun's store outlives a restart.
* The first process of each host creates a folder in the host's memory, and a guard that removes it after all processes
  of the host have ended in any way. Every process holds a lock on a file there while it lives, so the others detect its
  end.
* The process that hosts the store leaves last.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.algorithms.core.method import RankContext
from paceline.backend.devices.accelerator import Devices, devices
from paceline.backend.devices.cpu_affinity import Pin, Placement, placement
from paceline.backend.local.launch import Launch
from paceline.backend.multihost.rank_mapping import Host, map_ranks
from paceline.backend.posix.processes import ALIVE, free, takes, uninterrupted
from paceline.backend.posix.run_folders import SHARED, run_folder
from paceline.backend.posix.waits import wait_until
from paceline.backend.transports.collectives import LOOPBACK, address_towards, interface_with, set_peer_timeout
from paceline.backend.transports.launchers import LaunchedProcess, RefusedElsewhere
from paceline.records.machine import OtherLoad, machine_facts

T = TypeVar("T", bool, int, float, str)
MEET_S = 300.0
"""how long processes wait for each other to start: some may import torch from a slow disk"""
STORE_S = 3600.0
"""timeout of the store: other processes may be evaluating an earlier run"""
UNHEARD_S = 15
"""seconds without an answer after which a connection with the store counts as broken; chosen by us"""
LEAVE_S = 5.0


@dataclass
class World:
    """All processes of the job, as one of them sees them.

    Args:
        joined: how this process was started.
        hosts: the hosts of all processes.
        here: the number of this process's host.
        folder: the folder of this host.
        interface: the network interface for messages to other hosts.
        connections: connections on which clocks are compared: process 0 has one to each other host; the first process
            of another host has one to process 0.
    """

    joined: LaunchedProcess
    hosts: tuple[Host, ...]
    here: int
    folder: Path
    interface: str
    store: Store
    cores: int = 1
    """the cores of this host; hosts that may use the same cores of a machine share them evenly"""
    crowded: bool = False
    """whether another of these hosts may use its cores"""
    ids: Mapping[int, int] = field(default_factory=dict)
    """process ids of this host's processes"""
    connections: list[socket.socket] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    """hosts that have been declared failed"""
    runs: Iterator[int] = field(default_factory=count)
    gpus: tuple[int, ...] = ()
    """how many GPUs each host has"""
    machines: tuple[str, ...] = ()
    """the machine of each host; two hosts may be one machine"""

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The processes of this host, including this one."""
        return self.hosts[self.here].processes

    @property
    def others(self) -> tuple[int, ...]:
        """The process ids of the other processes of this host."""
        return tuple(pid for process, pid in self.ids.items() if process != self.joined.process)

    @property
    def first(self) -> bool:
        """Whether this is the first living process of its host."""
        return self.joined.process == next(neighbour for neighbour in self.neighbours if self.lives(neighbour))

    @property
    def leads(self) -> bool:
        """Whether this process decides for all: the first living one of host 0."""
        return self.here == 0 and self.first

    def lives(self, process: int) -> bool:
        """Whether a process of this host is alive."""
        return process == self.joined.process or not free(_alive(self.folder, process))

    def closed(self, host: int) -> bool:
        """Whether the first process of a host has ended or closed its connection with this one, if there is one."""
        if not self.connections:
            return False
        connection = self.connections[0 if self.here else host - 1]
        if not select.select([connection], [], [], 0)[0]:
            return False
        try:
            return not connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def placement(self, pin: Pin, team: Sequence[RankContext], threads: int) -> Placement:
        """Returns the cores of this host's ranks; none if another host of the run may use them."""
        if self.crowded and pin == "auto":
            return Placement("none", "several hosts of the run share the cores of a machine")
        return placement(pin, team, threads)

    def devices(self, launch: Launch) -> Devices:
        """Returns the devices of all ranks of a run; the result is the same in every process."""
        mapping = map_ranks(self.hosts, launch.job.team)
        ranks = [mapping.on(host) for host in range(len(self.hosts))]
        return devices(launch.device, ranks, self.gpus, learner=launch.job.learner, share=launch.share_gpus)

    def decide(self, key: str, value: Callable[[], T]) -> T:
        """Returns a value that the leading process computes, in every process; JSON has to hold it."""
        if self.leads:
            self.store.set(key, json.dumps(value()))
        self.store.wait([key], timedelta(seconds=STORE_S))
        decided: T = json.loads(self.store.get(key))
        return decided

    @contextlib.contextmanager
    def reported_once(self) -> Iterator[None]:
        """Raises an `InputError` of the block in the leading process, and `RefusedElsewhere` in the others."""
        try:
            yield
        except InputError as error:
            if self.leads:
                raise
            raise RefusedElsewhere(str(error)) from error

    def refuse_emulation(self, network: str) -> None:
        """Raises `InputError` if the network of a scenario is an emulated one."""
        if network == "emulated":
            raise InputError(
                f"train.network: found emulated in processes that {self.joined.launcher} has started, which use the "
                "real network; expected local"
            )

    def agreed(self, key: str, value: Callable[[], str]) -> str:
        """Returns a value that process 0 of the first start decides for all processes, also of later starts."""
        store = self._lasting
        if self.joined.process == 0 and self.joined.restarts == 0:
            store.set(key, value())
        store.wait([key], timedelta(seconds=MEET_S))
        return str(store.get(key).decode())

    def note(self, key: str, value: str) -> None:
        """Stores a value for the processes of later starts."""
        self._lasting.set(key, value)

    def noted(self, key: str) -> str | None:
        """Returns a value that an earlier start has stored; None if there is none."""
        return str(self._lasting.get(key).decode()) if self._lasting.check([key]) else None

    @cached_property
    def _lasting(self) -> Store:
        return PrefixStore("paceline/all starts", _connected(self.joined))

    def connect(self, name: str) -> Store:
        """Returns a new connection to the store: a wait on a connection blocks all its other users."""
        return PrefixStore(name, _prefixed(self.joined, _connected(self.joined)))


@contextlib.contextmanager
def join(joined: LaunchedProcess) -> Iterator[World]:
    """Connects to the other processes, for the block.

    Raises:
        RunFailed: some processes did not start, or the store cannot be reached.
    """
    # the guard of the folder is forked before any thread starts
    with run_folder() if joined.local == 0 else contextlib.nullcontext() as folder:
        alive: list[IO[bytes]] = []
        world = None
        try:
            world = _meet(joined, folder, alive)
            yield world
        finally:
            with uninterrupted():
                if world is not None:
                    _leave(world)
                    for connection in world.connections:
                        connection.close()
                for file in alive:
                    file.close()
                if folder is not None:
                    wait_until(lambda: all(map(free, folder.glob(ALIVE))), within_s=LEAVE_S)


def _meet(joined: LaunchedProcess, folder: Path | None, alive: list[IO[bytes]]) -> World:
    raw = _connected(joined, hosts=joined.process == 0 and not joined.hosted)
    store = _prefixed(joined, raw)
    store.set(f"process{joined.process}", json.dumps(entry(joined, folder)))
    _barrier(store, "come", joined)
    keys = [f"process{process}" for process in range(joined.processes)]
    entries = [json.loads(text) for text in store.multi_get(keys)]
    hosts = hosts_of(entries)
    here = next(index for index, host in enumerate(hosts) if joined.process in host.processes)
    folder = Path(entries[hosts[here].processes[0]]["folder"])
    if not folder.is_dir():
        raise RunFailed(f"process {joined.process} cannot see {folder}: processes of one host must share {SHARED}")
    alive.append(_alive(folder, joined.process).open("ab"))
    takes(alive[0])
    own = address_towards(joined.address, joined.port)
    interface = os.environ.get("GLOO_SOCKET_IFNAME") or (LOOPBACK if len(hosts) == 1 else interface_with(own))
    machines = [entries[host.processes[0]]["machine"] for host in hosts]
    cores = [set(entries[host.processes[0]]["cores"]) for host in hosts]
    sharing = sum(
        machine == machines[here] and not own_cores.isdisjoint(cores[here])
        for machine, own_cores in zip(machines, cores, strict=True)
    )
    world = World(joined, hosts, here, folder, interface, store)
    world.cores, world.crowded = max(1, len(cores[here]) // sharing), sharing > 1
    world.gpus = tuple(entries[host.processes[0]]["gpus"] for host in hosts)
    world.machines = tuple(machines)
    world.ids = {neighbour: entries[neighbour]["id"] for neighbour in world.neighbours}
    world.connections = _connections(world, own)
    _barrier(store, "met", joined)
    return world


def _connected(joined: LaunchedProcess, *, hosts: bool = False) -> Store:
    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]  # torch re-exports it without saying so
            joined.address,
            joined.port,
            is_master=hosts,
            timeout=timedelta(seconds=MEET_S if hosts else STORE_S),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        raise RunFailed(f"process {joined.process}: no store at {joined.address}:{joined.port}: {error}") from error
    set_peer_timeout(joined.port, UNHEARD_S)
    return store


def _prefixed(joined: LaunchedProcess, store: Store) -> Store:
    return PrefixStore(f"paceline/{joined.restarts}", store)


def _barrier(store: Store, name: str, joined: LaunchedProcess) -> None:
    store.add(name, 1)
    if not wait_until(lambda: store.add(name, 0) >= joined.processes, within_s=MEET_S):
        connected = store.add(name, 0)
        missing = [str(process) for process in range(joined.processes) if not store.check([f"process{process}"])]
        absent = f"; missing: process {', '.join(missing)}" if missing else ""
        raise RunFailed(f"after {MEET_S:g} s {connected} of {joined.processes} processes have connected{absent}")


def _leave(world: World) -> None:
    """Announces that this process leaves; the one that hosts the store waits for all others."""
    if world.here == 0 and not world.joined.hosted and not world.lives(0):
        return  # the process that hosted the store was killed
    with contextlib.suppress(RuntimeError):  # the store may have ended with its process
        for process in world.neighbours:  # also for dead ones
            if process == world.joined.process or not world.lives(process):
                world.store.set(f"left{process}", "")
        if world.joined.process == 0 and not world.joined.hosted:
            processes = range(world.joined.processes)
            wait_until(lambda: all(_left(world, process) for process in processes), within_s=LEAVE_S)


def _left(world: World, process: int) -> bool:
    """Whether a process has left or died."""
    host = next(host for host, entry in enumerate(world.hosts) if process in entry.processes)
    alone = len(world.hosts[host].processes) == 1
    gone = not world.lives(process) if host == world.here else host in world.gone or (alone and world.closed(host))
    return gone or bool(world.store.check([f"left{process}"]))


def _alive(folder: Path, process: int) -> Path:
    return folder / ALIVE.replace("*", f"process{process}")


def _connections(world: World, own: str) -> list[socket.socket]:
    """Connects process 0 with the first process of every other host, in the order of hosts."""
    others = len(world.hosts) - 1
    if not others or world.joined.process != world.neighbours[0]:
        return []
    if world.here != 0:
        address, port = json.loads(world.store.get("clock"))
        connection = socket.create_connection((address, port), MEET_S)
        connection.sendall(bytes([*world.here.to_bytes(4, "big")]))
        return [_tuned(connection)]
    family = socket.AF_INET6 if ":" in own else socket.AF_INET
    with socket.create_server((own, 0), family=family) as server:
        server.settimeout(MEET_S)
        world.store.set("clock", json.dumps([own, server.getsockname()[1]]))
        connections: dict[int, socket.socket] = {}
        while len(connections) < others:
            connection, _ = server.accept()
            connection.settimeout(MEET_S)
            connections[int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")] = _tuned(connection)
    return [connections[index] for index in sorted(connections)]


def _tuned(connection: socket.socket) -> socket.socket:
    connection.settimeout(STORE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


# * Processes share a host if they share its memory, see each other's process ids, and have the same network.
#   Containers or namespaces on one machine may not: each is then a host of its own, and messages between them use
#   TCP.
# * If the launcher numbers its nodes, these numbers decide.


NAMESPACES = ("net", "pid")
"""namespaces of Linux that determine a process's network and the process ids that it sees"""


def entry(joined: LaunchedProcess, folder: Path | None) -> dict[str, Any]:
    """Returns the entry of a process for the store, for JSON.

    Args:
        joined: how it was started.
        folder: the folder that it has created in its host's memory; None if it is not the host's first process.
    """
    return {
        "node": host() if joined.node is None else str(joined.node),
        "machine": machine(),
        "cores": sorted(os.sched_getaffinity(0)),
        "name": socket.gethostname(),
        "local": joined.local,
        "id": os.getpid(),
        "folder": str(folder or ""),
        "gpus": torch.cuda.device_count(),
    }


def hosts_of(entries: list[dict[str, Any]]) -> tuple[Host, ...]:
    """Groups processes by host, in the order of the hosts' first processes.

    >>> hosts_of([{"node": "a", "name": "n1", "local": 1}, {"node": "a", "name": "n1", "local": 0}])
    (Host(name='n1', processes=(1, 0)),)
    """
    nodes = dict.fromkeys(entry["node"] for entry in entries)
    hosts = []
    for node in nodes:
        processes = [process for process, entry in enumerate(entries) if entry["node"] == node]
        processes.sort(key=lambda process: entries[process]["local"])
        hosts.append(Host(entries[processes[0]]["name"], tuple(processes)))
    return tuple(hosts)


def host() -> str:
    """Returns an identifier of this process's host: the machine, the file system in memory, and the namespaces."""
    own = Path("/proc/self/ns")
    namespaces = [str((own / name).stat().st_ino) for name in NAMESPACES] if own.exists() else []
    return " ".join([machine(), str(SHARED.stat().st_dev), *namespaces])


def machine() -> str:
    """Returns an identifier of this machine: the id of its last boot if there is one."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else socket.gethostname()


FACTS = ("processor", "cores", "memory_bytes")


class HostLoads:
    """A context manager that measures on every host which share of its cores other programs use.

    Every process enters it. In the leading process `hosts` has the result for each host at the exit: facts about the
    host, and `other_load`, 0 … 1.

    Args:
        world: the processes.
        name: distinguishes the measurements of a job.
    """

    def __init__(self, world: World, name: str) -> None:
        self.hosts: list[dict[str, Any]] = []
        self._world, self._name, self._load = world, name, OtherLoad(world.others)

    def __enter__(self) -> Self:
        self._load.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._load.__exit__(kind, error, trace)
        world = self._world
        if error is not None or not world.first:
            return
        facts = machine_facts()
        said = {name: facts[name] for name in FACTS} | {"share": self._load.share, "own": self._load.own_share}
        world.store.set(f"load/{self._name}/{world.here}", json.dumps(said))
        if world.leads:
            keys = [f"load/{self._name}/{host}" for host in range(len(world.hosts))]
            world.store.wait(keys, timedelta(seconds=STORE_S))
            self.hosts = loads([json.loads(world.store.get(key)) for key in keys], world.machines)

    @property
    def share(self) -> float:
        """The highest load of a host; 0 in processes other than the leading one."""
        return max((host["other_load"] for host in self.hosts), default=0.0)


def other_load(world: World | None, name: str) -> OtherLoad | HostLoads:
    """Returns the context manager for the load of other programs on this machine, or on the hosts of a world.

    Args:
        world: the processes, if a launcher has started them.
        name: as for `HostLoads`.
    """
    return OtherLoad() if world is None else HostLoads(world, name)


def loads(said: Sequence[Mapping[str, Any]], machines: Sequence[str]) -> list[dict[str, Any]]:
    """Returns facts and the load of each host; hosts that are one machine are no load for each other.

    Args:
        said: what each host has measured: its facts, the share of the machine's cores that were used by programs other
            than the host's processes, and the share that these used (`own`).
        machines: the machine of each host.

    >>> said = [{"cores": 2, "share": 0.5, "own": 0.25}, {"cores": 2, "share": 0.25, "own": 0.5}]
    >>> loads(said, ["a", "a"])
    [{'cores': 2, 'other_load': 0.0}, {'cores': 2, 'other_load': 0.0}]
    >>> [host["other_load"] for host in loads(said, ["a", "b"])]
    [0.5, 0.25]
    """
    host_loads = []
    for here, report in enumerate(said):
        same = [host for host, machine in enumerate(machines) if machine == machines[here] and host != here]
        beside = sum(said[host]["own"] for host in same)
        facts = {name: value for name, value in report.items() if name not in ("share", "own")}
        host_loads.append({**facts, "other_load": max(0.0, report["share"] - beside)})
    return host_loads
