"""Process groups and collectives of torch.distributed: gloo for vectors in host memory, NCCL between GPUs.

Rules of this file:

* Collectives match by order, not by name, so there is one process group per group of ranks and stream.
  `CollectiveEntries` checks the order first. NCCL groups exist for the main stream only.
* `new_group` is not used: only members take part in the creation, and there is no global order.
* The launcher detects ranks that die or stop; gloo's own timeout would close the connections of healthy ranks too.
* Waits that could last until gloo's timeout after a death run in a thread of their own, which is then abandoned: the
  connection of a group, and a large value of which a part has been sent.
* The ranks of a host use its network interfaces in turn, so that with as many network cards as GPUs each rank has a
  card of its own. Each host checks the names of its interfaces before anything runs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from paceline.algorithms.core.errors import InputError, PeerFailed, RunFailed
from paceline.algorithms.core.method import RankContext, on_host
from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.backend.devices.accelerator import Accelerator, Devices, Processor, wait_for_device
from paceline.backend.status.status_board import Lost
from paceline.backend.transports.launchers import GLOO_THREAD
from paceline.backend.transports.messages import POLL_S

T = TypeVar("T")
LOOPBACK = "lo"
"""the interface between processes of one host"""
NOTICE_S = 5.0
"""how long the launcher may need to notice that a rank has died"""
LARGE_BYTES = 2**24
"""from this size on, part of a value may be in flight when a rank dies; a thread costs little beside the transfer"""


@dataclass(frozen=True, slots=True)
class Groups:
    """Creates the process groups of one rank.

    Args:
        rank: this rank.
        store: where members find each other.
        lost: returns the dead rank for which a wait cannot end.
        interface: the network interface of messages.
        survives: whether the run continues after deaths. When a death interrupts a collective, gloo fails only at
            members that exchange data with the dead rank; the others would wait for ever.
        accelerator: the device of this rank.
        devices: the devices of all ranks.
    """

    rank: Rank
    store: Store
    lost: Lost
    interface: str = LOOPBACK
    survives: bool = False
    accelerator: Accelerator = field(default_factory=Processor)
    devices: Devices = field(default_factory=lambda: Devices("not requested"))

    def direct(self, group: Group) -> bool:
        """Whether vectors go from GPU to GPU in this group."""
        return self.devices.direct(group)

    def make_direct(self, name: str, group: Group) -> Any:
        """Creates an NCCL group of these ranks' GPUs, which are connected at the first collective."""
        store = PrefixStore(f"{name} of GPUs/{','.join(map(str, group))}", self.store)
        return self.accelerator.group(store, group.ranks.index(self.rank), len(group))

    def make(self, name: str, group: Group) -> Any:
        """Creates a gloo group of these ranks and waits for all members."""
        options: Any = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stubs
        options._timeout = timedelta(hours=1)
        options._devices = [device_of(self.interface)]
        store = PrefixStore(f"{name}/{','.join(map(str, group))}", self.store)
        place = group.ranks.index(self.rank)
        return self._unless_lost(lambda: dist.ProcessGroupGloo(store, place, len(group), options), group)

    def wait(self, work: Any, needed: Iterable[Rank], nbytes: int = 0) -> None:
        """Waits until work on `nbytes` bytes is done; raises `PeerFailed` if a rank that it needs has died.

        Args:
            work: the work of a gloo group.
            needed: the ranks that it needs.
            nbytes: bytes of the value; a large one is waited for in a thread of its own.
        """
        if nbytes >= LARGE_BYTES:
            self._unless_lost(work.wait, needed)
            return
        try:
            work.wait()
        except RuntimeError as error:
            raise self.failure(error, needed) from error

    def without(self, rank: Rank) -> bool:
        """Whether this rank has died and the run survives that."""
        return self.lost((rank,)) is not None and self.lost(()) is None

    def _unless_lost(self, what: Callable[[], T], needed: Iterable[Rank]) -> T:
        """Calls `what` in a thread, which is abandoned if a needed rank has died and gloo has not noticed."""
        future, ranks = Future[T](), tuple(needed)

        def body() -> None:
            try:
                future.set_result(what())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=body, daemon=True, name=GLOO_THREAD).start()
        try:
            while True:
                try:
                    return future.result(timeout=POLL_S)
                except TimeoutError:
                    if (dead := self.lost(ranks)) is not None and not future.done():
                        raise PeerFailed(f"rank {dead} died", dead) from None
        except RuntimeError as error:
            raise self.failure(error, ranks) from error

    def wait_for_device(self, work: Any, needed: Iterable[Rank], nbytes: int = 0) -> None:
        """Waits until a device has done a group's work, and orders later work of the device after it."""
        members = tuple(needed)

        def look() -> None:
            if (dead := self.lost(members)) is not None:
                raise PeerFailed(f"rank {dead} died", dead)

        wait_for_device(work.is_completed, look)
        self.wait(work, members, nbytes)

    def failure(self, error: RuntimeError, needed: Iterable[Rank]) -> PeerFailed:
        """Returns the cause of gloo's error: the death of a rank, which the launcher needs a moment to notice."""
        until, ranks = time.monotonic() + NOTICE_S, tuple(needed)
        while (dead := self.lost(ranks)) is None and time.monotonic() < until:
            time.sleep(0.01)
        return PeerFailed(f"torch.distributed: {error}" if dead is None else f"rank {dead} died", dead)


def device_of(interface: str) -> Any:
    """Returns gloo's device of an interface; raises `RunFailed` if the interface has no address."""
    try:
        return dist.ProcessGroupGloo.create_device(interface=interface)
    except RuntimeError as error:
        if "find address" not in str(error):
            raise
        raise RunFailed(no_address(interface)) from error


def no_address(interface: str) -> str:
    """Returns a message that an interface is down, with the remedy."""
    if interface == LOOPBACK:
        return (
            f"the loopback interface {LOOPBACK} is down or has no address here, as in a new network namespace; ranks "
            f"of one host meet by it: `ip link set {LOOPBACK} up`"
        )
    return f"the network interface {interface} is down or has no address here; expected one with an address"


INTERNET = (socket.AF_INET, socket.AF_INET6)


def check_interfaces(names: Sequence[str]) -> None:
    """Checks that this host has the interfaces and that they have addresses.

    Raises:
        InputError: names the wrong interface and lists the usable ones.
    """
    interfaces = psutil.net_if_addrs()
    usable = [
        name for name, addresses in interfaces.items() if any(address.family in INTERNET for address in addresses)
    ]
    for index, name in enumerate(names):
        if name not in usable:
            wrong = (
                f"{name!r}, which has no internet address here" if name in interfaces else f"no {name!r} on this host"
            )
            raise InputError(f"train.interfaces[{index}]: found {wrong}; expected some of {', '.join(sorted(usable))}")


def interface_of(me: RankContext, team: Sequence[RankContext], names: Sequence[str]) -> str:
    """Returns the interface of a rank: ranks of a host take the names in turn; loopback if there are no names."""
    place = on_host(team, me.host).ranks.index(me.rank)
    return names[place % len(names)] if names else LOOPBACK


def address_towards(host: str, port: int) -> str:
    """Returns this host's own address on the route to another host."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect(address)  # sends nothing
        return str(way.getsockname()[0])


def interface_with(address: str) -> str:
    """Returns the network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == address for entry in addresses):
            return name
    raise RunFailed(f"no network interface has the address {address}; name one by GLOO_SOCKET_IFNAME")


def set_peer_timeout(port: int, within_s: int) -> None:
    """Makes this process's connections to a port fail when the peer is silent for `within_s` seconds.

    By default TCP retries for a quarter of an hour, or for ever if no data is in flight, and the store of torch, whose
    sockets are private, would wait as long. Has an effect on Linux only, where the connections of a process can be
    listed.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(psutil.Error):
        for connection in psutil.Process().net_connections("tcp"):
            if connection.raddr and connection.raddr.port == port:
                with contextlib.suppress(OSError):  # another thread has closed it meanwhile
                    _set_peer_timeout(connection.fd, port, within_s)


def _set_peer_timeout(descriptor: int, port: int, within_s: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.getpeername()[1] != port:  # closed, and the number reused for another socket
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, within_s // 3))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, within_s // 3))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, within_s * 1000)


TORCH_OPS: dict[str, Any] = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM}
"""gloo has no mean: the sum is divided afterwards"""
Wait = Callable[[Any, Iterable[Rank], int], None]
"""waits until a group's work is done; arguments: the work, the ranks that it needs, its bytes"""
STAND_INS = {1: torch.uint8, 2: torch.float16, 4: torch.float32, 8: torch.float64}
"""the number type in which the elements of a `Null` are sent, by their size in bytes"""


class TorchCollectives:
    """The collectives of one rank by gloo and NCCL."""

    def __init__(self, groups: Groups) -> None:
        self.rank = groups.rank
        self._groups = groups
        self._made: dict[tuple[Group, str], Any] = {}
        self._between_gpus: dict[Group, Any] = {}
        self._positions: dict[tuple[Group, str], int] = {}

    def group(self, group: Group, stream: str = "") -> Any:
        """Returns the process group of these ranks and this stream, created at its first use."""
        if (group, stream) not in self._made:
            self._made[group, stream] = self._groups.make(f"collectives{stream}", group)
        return self._made[group, stream]

    def direct(self, group: Group) -> bool:
        """Whether collectives of GPU vectors use NCCL in this group."""
        return self._groups.direct(group)

    def connect(self, group: Group) -> None:
        """Creates the process group for this rank's vectors and waits for its members, before the first step."""
        if self.direct(group):
            like = self._groups.accelerator.into(torch.zeros(1))
            self.issue_direct(AllReduce(value=like, group=group, key="connect")).finish()
        else:
            self.group(group).barrier().wait()

    def issue_direct(self, op: Collective) -> Flying:
        """Starts a collective of GPU vectors by NCCL."""
        if op.group not in self._between_gpus:
            self._between_gpus[op.group] = self._groups.make_direct("collectives", op.group)
        return self._issue(op, self._between_gpus[op.group], self._groups.wait_for_device)

    def close(self) -> None:
        """Shuts NCCL's groups down, which frees their GPU memory if the process continues."""
        for group in self._between_gpus.values():
            group.shutdown()

    def position(self, group: Group, stream: str) -> int:
        """Returns how many collectives this rank has issued in the stream before, and counts this one."""
        before = self._positions.get((group, stream), 0)
        self._positions[group, stream] = before + 1
        return before

    def issue(self, op: Collective, stream: str = "") -> Flying:
        """Starts a collective in host memory by gloo; `Flying.finish` ends it."""
        return self._issue(op, self.group(op.group, stream), self._groups.wait)

    def _issue(self, op: Collective, members: Any, wait: Wait) -> Flying:
        root = op.group.ranks.index(op.root) if isinstance(op, Reduce | Broadcast) else 0
        match op:
            case Barrier():
                return Flying(wait, members.barrier(), op.group, lambda: None)
            case AllGather():
                own, like = tensor_of(op.value)
                everyone = [torch.empty_like(own) for _ in op.group]
                work = members.allgather([everyone], [own])
                return Flying(wait, work, op.group, lambda: tuple(map(like, everyone)), self._size(own))
            case AllReduce():
                own, like = tensor_of(op.value, spent=op.donate)
            case _:
                own, like = tensor_of(op.value)
        match op:
            case AllReduce():
                work, answers = members.allreduce([own], TORCH_OPS[op.op]), True
            case Reduce():
                options = dist.ReduceOptions()
                options.reduceOp, options.rootRank = TORCH_OPS[op.op], root
                work, answers = members.reduce([own], options), op.root == self.rank
            case Broadcast():
                sending = dist.BroadcastOptions()
                sending.rootRank, sending.rootTensor = root, 0
                work, answers = members.broadcast([own], sending), True
        share = len(op.group) if getattr(op, "op", "") == "mean" else 1
        answer = lambda: like(divided(own, share)) if answers else None  # noqa: E731
        return Flying(wait, work, op.group, answer, self._size(own))

    def _size(self, own: torch.Tensor) -> int:
        """Bytes of a value. A run that survives deaths treats all as large: a part may have been sent at a death."""
        return LARGE_BYTES if self._groups.survives else own.nbytes


@dataclass
class Flying:
    """A collective in flight."""

    wait: Wait
    work: Any
    members: Group
    answer: Callable[[], Any]
    nbytes: int = 0

    def done(self) -> bool:
        return bool(self.work.is_completed())

    def finish(self) -> Any:
        self.wait(self.work, self.members, self.nbytes)
        return self.answer()


def divided(total: torch.Tensor, share: int) -> torch.Tensor:
    """Divides a sum that belongs to the caller; in place if its number type allows it, as new pages take time."""
    if share == 1:
        return total
    return total.div_(share) if total.is_floating_point() else total / share


def tensor_of(value: Any, *, spent: bool = False) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
    """Returns a vector as a tensor that gloo may write to, and the way back. It is a copy unless `spent`."""
    if isinstance(value, torch.Tensor):
        own = value.detach()
        return (own if spent and own.is_contiguous() else own.clone()), lambda tensor: tensor
    if hasattr(value, "__array__"):
        return torch.tensor(value), lambda tensor: tensor.numpy()
    return torch.zeros(value.count, dtype=STAND_INS[value.item_bytes]), lambda _: value
