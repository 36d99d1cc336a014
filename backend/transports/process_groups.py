"""Process groups of torch.distributed, created by name through the store.

Rules of this file:

* `new_group` is not used: only members take part in the creation, and there is no global order.
* The launcher detects ranks that die or stop; gloo's own timeout would close the connections of healthy ranks too.
* Waits that could last until gloo's timeout after a death run in a thread of their own, which is then abandoned: the
  connection of a group, and a large value of which a part has been sent.
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
