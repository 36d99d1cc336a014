"""Process groups of torch.distributed, made by name through the store.

Rules of this file:

* Groups are not made by `new_group`: only members take part, in no global order.
* The launcher watches for ranks that die or stop; gloo's own time-out would close the connections of healthy ones too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from paceline.algorithms.errors import PeerFailed
from paceline.algorithms.values import Group, Rank
from paceline.backend.accelerator import Accelerator, Processor, until
from paceline.backend.board import Lost
from paceline.backend.gpus import Devices

LOOPBACK = "lo"
"""the interface by which processes of one host meet"""
NOTICE_S = 1.0
"""how long the launcher may need to notice that a rank has died"""


@dataclass(frozen=True, slots=True)
class Groups:
    """What one rank makes its process groups with.

    Args:
        rank: the member.
        store: where members find each other.
        lost: names the dead rank that a wait is in vain for.
        interface: the network interface that messages cross.
        accelerator: what this rank computes on.
        devices: what every rank does.
    """

    rank: Rank
    store: Store
    lost: Lost
    interface: str = LOOPBACK
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
        options._devices = [dist.ProcessGroupGloo.create_device(interface=self.interface)]
        store = PrefixStore(f"{name}/{','.join(map(str, group))}", self.store)
        return dist.ProcessGroupGloo(store, group.ranks.index(self.rank), len(group), options)

    def wait(self, work: Any, needed: Iterable[Rank]) -> None:
        """Waits until a group's work is done; raises `PeerFailed` where one of those it needs is gone."""
        try:
            work.wait()
        except RuntimeError as error:
            raise PeerFailed(self._who(tuple(needed)) or f"torch.distributed: {error}") from error

    def wait_for_device(self, work: Any, needed: Iterable[Rank]) -> None:
        """Waits until a device has done a group's work, and lets what is computed from now on follow it."""
        members = tuple(needed)

        def look() -> None:
            if (dead := self.lost(members)) is not None:
                raise PeerFailed(f"rank {dead} died")

        until(work.is_completed, look)
        self.wait(work, members)

    def _who(self, needed: tuple[Rank, ...]) -> str | None:
        """Names the dead rank; the launcher needs a moment to notice."""
        until = time.monotonic() + NOTICE_S
        while (dead := self.lost(needed)) is None and time.monotonic() < until:
            time.sleep(0.01)
        return None if dead is None else f"rank {dead} died"
