"""Process groups of torch.distributed, made by name through the store.

Rules of this file:

* Groups are not made by `new_group`: only members take part, in no global order.
* The launcher watches for ranks that die or stop; gloo's own time-out would close the connections of healthy ones too.
* What may wait for the dead until gloo's time-out is waited for by a thread, which is left behind then: a group that is
  being connected, and a large value of which a part has gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from paceline.algorithms.core.errors import PeerFailed, RunFailed
from paceline.algorithms.core.values import Group, Rank
from paceline.backend.devices.accelerator import Accelerator, Processor, wait_for_device
from paceline.backend.devices.gpus import Devices
from paceline.backend.status.status_board import Lost
from paceline.backend.transports.inbox import POLL_S
from paceline.backend.transports.launch_environment import GLOO_THREAD

T = TypeVar("T")
LOOPBACK = "lo"
"""the interface by which processes of one host meet"""
NOTICE_S = 5.0
"""how long the launcher may need to notice that a rank has died"""
LARGE_BYTES = 2**24
"""from here on a value may be on its way when a rank dies; a thread for it costs nothing beside its transfer"""


@dataclass(frozen=True, slots=True)
class Groups:
    """What one rank makes its process groups with.

    Args:
        rank: the member.
        store: where members find each other.
        lost: names the dead rank that a wait is in vain for.
        interface: the network interface that messages cross.
        survives: whether the run goes on without some. Of a collective that a death interrupts, gloo tells only those
            who exchange with the dead; the others would wait for ever.
        accelerator: what this rank computes on.
        devices: what every rank does.
    """

    rank: Rank
    store: Store
    lost: Lost
    interface: str = LOOPBACK
    survives: bool = False
    accelerator: Accelerator = field(default_factory=Processor)
    devices: Devices = field(default_factory=lambda: Devices("nobody has asked"))

    def direct(self, group: Group) -> bool:
        """Whether vectors go from GPU to GPU in this group."""
        return self.devices.direct(group)

    def make_direct(self, name: str, group: Group) -> Any:
        """A group of these ranks' GPUs; NCCL connects them at their first collective."""
        store = PrefixStore(f"{name} of GPUs/{','.join(map(str, group))}", self.store)
        return self.accelerator.group(store, group.ranks.index(self.rank), len(group))

    def make(self, name: str, group: Group) -> Any:
        """A gloo group of these ranks; waits until all members make it."""
        options: Any = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stubs
        options._timeout = timedelta(hours=1)
        options._devices = [device_of(self.interface)]
        store = PrefixStore(f"{name}/{','.join(map(str, group))}", self.store)
        place = group.ranks.index(self.rank)
        return self._unless_lost(lambda: dist.ProcessGroupGloo(store, place, len(group), options), group)

    def wait(self, work: Any, needed: Iterable[Rank], nbytes: int = 0) -> None:
        """Waits until work on so many bytes is done; raises `PeerFailed` where one that it needs is gone."""
        if nbytes >= LARGE_BYTES:
            self._unless_lost(work.wait, needed)
            return
        try:
            work.wait()
        except RuntimeError as error:
            raise self.failure(error, needed) from error

    def without(self, rank: Rank) -> bool:
        """Whether this rank has died, and the run goes on without it."""
        return self.lost((rank,)) is not None and self.lost(()) is None

    def _unless_lost(self, what: Callable[[], T], needed: Iterable[Rank]) -> T:
        """Has it done by a thread; leaves that behind when one who is needed has died and gloo has not noticed."""
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
        """Waits until a device has done a group's work, and lets what is computed from now on follow it."""
        members = tuple(needed)

        def look() -> None:
            if (dead := self.lost(members)) is not None:
                raise PeerFailed(f"rank {dead} died", dead)

        wait_for_device(work.is_completed, look)
        self.wait(work, members, nbytes)

    def failure(self, error: RuntimeError, needed: Iterable[Rank]) -> PeerFailed:
        """What gloo's error comes from: the death of a rank, which the launcher needs a moment to notice."""
        until, ranks = time.monotonic() + NOTICE_S, tuple(needed)
        while (dead := self.lost(ranks)) is None and time.monotonic() < until:
            time.sleep(0.01)
        return PeerFailed(f"torch.distributed: {error}" if dead is None else f"rank {dead} died", dead)


def device_of(interface: str) -> Any:
    """What gloo sends by; raises `RunFailed` where the interface has no address."""
    try:
        return dist.ProcessGroupGloo.create_device(interface=interface)
    except RuntimeError as error:
        if "find address" not in str(error):
            raise
        raise RunFailed(no_address(interface)) from error


def no_address(interface: str) -> str:
    """That an interface is down, and what to do about it."""
    if interface == LOOPBACK:
        return (
            f"the loopback interface {LOOPBACK} is down or has no address here, as in a new network namespace; ranks "
            f"of one host meet by it: `ip link set {LOOPBACK} up`"
        )
    return f"the network interface {interface} is down or has no address here; expected one with an address"
