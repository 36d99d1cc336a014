"""The devices of ranks: a processor or a GPU, which rank has which, and copies between device and host memory.

Rules of this file:

* All tensors of a rank are on its device; NumPy arrays (counts, random numbers) stay in host memory. Vectors that leave
  the rank through the host (messages, cells, its record) are copied out, and those that arrive are copied to the
  device. So a program does not depend on the device.
* A GPU continues to work while the host does. Code that measures a time calls `synchronize` first. It waits for the
  rank's compute stream, and not for collectives in flight, which have streams of their own.
* CUDA's current device is a property of a thread, and a rank has several threads: every call names its device.
* NCCL refuses two ranks of a group on one GPU. So a GPU is shared only if the scenario allows it, and collectives of
  ranks that share one go through host memory.
* Nothing here initialises CUDA before `enter`. Counting GPUs does not: torch asks NVIDIA's management library. A
  launcher that had initialised CUDA could not be forked into ranks that use it.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch.cuda import nccl
from torch.distributed.distributed_c10d import Store

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Group, Rank, parts_of
from paceline.backend.posix.waits import wait_until
from paceline.records.machine import gpu_driver

NCCL_TIMEOUT = timedelta(hours=1)
"""NCCL's timeout of a collective; the launcher detects dead ranks and deadlocks much earlier"""
SPIN_S = 0.001
"""how long a wait for a device only yields its core, before it sleeps"""
PAUSE_S = 0.0001


class Accelerator(Protocol):
    """The interface of a rank's device."""

    device: torch.device

    def enter(self) -> None:
        """Prepares the device for this process; called once, before there are threads or tensors."""
        ...

    def holds(self, value: Any) -> bool:
        """Whether the value is a vector on the device and not in host memory."""
        ...

    def out(self, value: Any) -> Any:
        """Returns the same value with all its vectors in host memory."""
        ...

    def into(self, value: Any) -> Any:
        """Returns the same value with all its tensors on the device."""
        ...

    def synchronize(self) -> None:
        """Waits until everything issued so far has been computed."""
        ...

    def group(self, store: Store, rank: int, size: int) -> Any:
        """Returns a process group for collectives of vectors on the device."""
        ...

    def facts(self) -> dict[str, Any]:
        """Returns the device's entries of the run's record."""
        ...


class Processor:
    """The processor: its memory is host memory, and its results are available at once."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def enter(self) -> None:
        """Does nothing."""

    def holds(self, value: Any) -> bool:
        return False

    def out(self, value: Any) -> Any:
        return value

    def into(self, value: Any) -> Any:
        return value

    def synchronize(self) -> None:
        """Does nothing: there is nothing to wait for."""

    def group(self, store: Store, rank: int, size: int) -> Any:
        raise AssertionError("vectors of a processor are in host memory")

    def facts(self) -> dict[str, Any]:
        return {"device": "cpu"}


class CopyingDevice:
    """Copies vectors between a device and host memory, and counts the bytes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.out_bytes = self.in_bytes = 0
        self._counting = threading.Lock()

    def holds(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device == self.device

    def out(self, value: Any) -> Any:
        return mapped(value, self._out)

    def into(self, value: Any) -> Any:
        return mapped(value, self._into)

    def _out(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self.holds(tensor):
            return tensor
        with self._counting:
            self.out_bytes += tensor.nbytes
        return self.to_host(tensor)

    def _into(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.holds(tensor):
            return tensor
        with self._counting:
            self.in_bytes += tensor.nbytes
        return self.to_device(tensor)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copies one tensor to pinned memory, and returns after the copy is complete."""
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self.device.type == "cuda")
        return pinned.copy_(tensor.detach())

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copies one tensor to the device."""
        return tensor.to(self.device)

    def facts(self) -> dict[str, Any]:
        return {"device": str(self.device), "copied_out_bytes": self.out_bytes, "copied_in_bytes": self.in_bytes}


class Gpu(CopyingDevice):
    """One GPU by CUDA, with NCCL for collectives."""

    def enter(self) -> None:
        torch.cuda.set_device(self.device)  # of this thread; NCCL and libraries of the user's model use it
        torch.backends.cudnn.allow_tf32 = False  # torch's default for convolutions; a run states its compute dtype

    def synchronize(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()

    def group(self, store: Store, rank: int, size: int) -> Any:
        """Returns an NCCL group, which connects its members at its first collective."""
        options: Any = dist.ProcessGroupNCCL.Options()
        options._timeout = NCCL_TIMEOUT
        return dist.ProcessGroupNCCL(store, rank, size, options)

    def facts(self) -> dict[str, Any]:
        about = torch.cuda.get_device_properties(self.device)
        return {
            **super().facts(),
            "name": about.name,
            "memory_bytes": about.total_memory,
            "driver": gpu_driver(),
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, nccl.version())),
        }


def accelerator(name: str) -> Accelerator:
    """Returns the device with this name in torch.

    >>> accelerator("cpu").facts()
    {'device': 'cpu'}
    """
    return Processor() if name == "cpu" else Gpu(torch.device(name))


def wait_for_device(done: Callable[[], bool], check: Callable[[], None]) -> None:
    """Waits until the device's work is done: first in a busy loop, then with pauses.

    NCCL's own wait only orders later work after the collective, and waiting for that on the host would never end if a
    member has died. So the host polls.

    Args:
        done: whether the work is done.
        check: called before each pause; may raise.
    """
    spinning = time.monotonic() + SPIN_S
    while not done() and time.monotonic() < spinning:
        os.sched_yield()
    wait_until(done, every_s=PAUSE_S, check=check)


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Returns a copy of a value in which every tensor, at any depth, has been changed.

    >>> mapped((torch.ones(1), {"step": 3}), lambda tensor: tensor + 1)
    (tensor([2.]), {'step': 3})
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(part, change) for key, part in value.items()}
    if isinstance(value, list):
        return [mapped(part, change) for part in value]
    if isinstance(value, tuple):
        parts = [mapped(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    kind: type = type(value)
    old = {name: getattr(value, name) for name in parts_of(kind) or ()}
    new = {name: mapped(part, change) for name, part in old.items()}
    changed = {name: part for name, part in new.items() if part is not old[name]}
    return dataclasses.replace(value, **changed) if changed else value


Asked = Literal["cpu", "cuda", "auto"]
Start = Literal["auto", "fork", "spawn"]


@runtime_checkable
class Movable(Protocol):
    """A learner that can compute on a GPU."""

    def on(self, device: torch.device) -> Any:
        """Returns the same learner for this device; this one does not change."""
        ...


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of the ranks of a run.

    Args:
        why: the reason, in words.
        gpus: host and GPU of each rank; empty if all compute on processors.
        apart: whether messages have to cross an emulated network, which NCCL would bypass, so that no group uses NCCL.
    """

    why: str
    gpus: Mapping[Rank, tuple[int, int]] = field(default_factory=dict)
    apart: bool = False

    @property
    def cuda(self) -> bool:
        return bool(self.gpus)

    def name(self, rank: Rank) -> str:
        """Returns torch's name of a rank's device.

        >>> Devices("asked for", {Rank(3): (0, 1)}).name(Rank(3)), Devices("").name(Rank(0))
        ('cuda:1', 'cpu')
        """
        return f"cuda:{self.gpus[rank][1]}" if rank in self.gpus else "cpu"

    def direct(self, group: Group) -> bool:
        """Whether NCCL can serve this group: each member has a GPU that no other member has.

        >>> shared = Devices("", {Rank(0): (0, 0), Rank(1): (0, 1), Rank(2): (0, 0)})
        >>> shared.direct(Group((Rank(0), Rank(1)))), shared.direct(Group((Rank(0), Rank(2))))
        (True, False)
        """
        taken = {self.gpus[rank] for rank in group if rank in self.gpus}
        return len(taken) == len(group) and not self.apart

    @property
    def words(self) -> str:
        """The devices in one line.

        >>> Devices("1 GPU for 1 rank", {Rank(0): (0, 0)}).words
        'rank 0 on cuda:0 (1 GPU for 1 rank)'
        """
        if not self.gpus:
            return f"on processors ({self.why})"
        return ", ".join(f"rank {rank} on {self.name(rank)}" for rank in self.gpus) + f" ({self.why})"

    def record(self, facts: Sequence[tuple[Rank, Mapping[str, Any]]]) -> dict[str, Any]:
        """Returns the entries of a run's record: the reason, and what each rank has reported about its device."""
        return {"why": self.why, "words": self.words, "ranks": {str(rank): dict(said) for rank, said in facts}}

    def start(self, asked: Start) -> Literal["fork", "spawn"]:
        """Returns how the processes of ranks are started; raises `InputError` if GPUs are not usable that way."""
        if asked == "fork" and self.cuda:
            raise InputError(
                "train.start_method: found fork with ranks on GPUs; expected spawn or auto: CUDA is not forked"
            )
        return ("spawn" if self.cuda else "fork") if asked == "auto" else asked


def devices(
    asked: Asked,
    hosts: Sequence[Sequence[Rank]],
    gpus: Sequence[int] | None = None,
    *,
    learner: object,
    share: bool = False,
    apart: bool = False,
) -> Devices:
    """Chooses the devices of the ranks of a run.

    Args:
        asked: "cuda": GPUs; "cpu": processors; "auto": GPUs if there is one for every rank, else processors.
        hosts: the ranks of each host, in order.
        gpus: the number of GPUs of each host; None: one host with the GPUs that torch finds.
        learner: the learning problem: only one that torch computes can use a GPU.
        share: whether ranks may share a GPU.
        apart: whether hosts are network namespaces of one machine, whose emulated network NCCL would bypass.

    Raises:
        InputError: GPUs are requested, and there are none or too few.
    """
    if asked == "cpu":
        return Devices("train.device is cpu")
    if not isinstance(learner, Movable):
        if asked == "cuda":
            raise InputError(
                "train.device: found cuda, with a learning problem that torch does not compute; expected cpu or auto, "
                "or workload.learning: train"
            )
        return Devices("torch does not compute the learning problem")
    counts = [torch.cuda.device_count()] if gpus is None else list(gpus)
    room = _words(counts, hosts)
    enough = all(
        count >= (min(1, len(ranks)) if share else len(ranks)) for count, ranks in zip(counts, hosts, strict=True)
    )
    if not enough and asked == "auto":
        return Devices(room)
    if not enough:
        raise InputError(f"train.device: found cuda, with {room}; {_right(counts)}")
    taken = {
        rank: (host, place % count)
        for host, (count, ranks) in enumerate(zip(counts, hosts, strict=True))
        for place, rank in enumerate(ranks)
    }
    return Devices(room, taken, apart)


def _words(counts: Sequence[int], hosts: Sequence[Sequence[Rank]]) -> str:
    """Describes how many GPUs there are for how many ranks, on the host with the fewest left over."""
    count, ranks = min(
        ((count, len(ranks)) for count, ranks in zip(counts, hosts, strict=True)), key=lambda c: c[0] - c[1]
    )
    where = " on a host" if len(hosts) > 1 else ""
    seen = f"{count} GPU{'s' * (count != 1)} for {ranks} rank{'s' * (ranks != 1)}{where}"
    return seen if torch.backends.cuda.is_built() or count else f"{seen}: this torch is built without CUDA"


def _right(counts: Sequence[int]) -> str:
    """Describes the remedies if there are too few GPUs."""
    if not min(counts):
        return "expected cpu or auto here"
    return (
        "expected one for each, since NCCL refuses two ranks on one; or `train.share_gpus: true`, and collectives of "
        "ranks that share one go by way of the host's memory; or cpu or auto"
    )
