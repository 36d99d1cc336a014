"""Collectives on torch.distributed: gloo for vectors in host memory, NCCL between GPUs.

Rules of this file:

* Collectives match by order, not by name, so there is one process group per group of ranks and stream.
  `CollectiveEntries` checks the order first.
* NCCL groups exist for the main stream only. The host considers a collective finished when the GPU has finished it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.backend.transports.process_groups import LARGE_BYTES, Groups

TORCH_OPS: dict[str, Any] = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM}
"""gloo has no mean: the sum is divided afterwards"""
Wait = Callable[[Any, Iterable[Rank], int], None]
"""waits until a group's work is done; arguments: the work, the ranks that it needs, its bytes"""
STAND_INS = {1: torch.uint8, 2: torch.float16, 4: torch.float32, 8: torch.float64}
"""the number type in which the elements of a `Null` are sent, by their size in bytes"""


class Collectives:
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
                mine, like = tensor_of(op.value)
                everyone = [torch.empty_like(mine) for _ in op.group]
                work = members.allgather([everyone], [mine])
                return Flying(wait, work, op.group, lambda: tuple(map(like, everyone)), self._size(mine))
            case AllReduce():
                mine, like = tensor_of(op.value, spent=op.donate)
            case _:
                mine, like = tensor_of(op.value)
        match op:
            case AllReduce():
                work, answers = members.allreduce([mine], TORCH_OPS[op.op]), True
            case Reduce():
                options = dist.ReduceOptions()
                options.reduceOp, options.rootRank = TORCH_OPS[op.op], root
                work, answers = members.reduce([mine], options), op.root == self.rank
            case Broadcast():
                sending = dist.BroadcastOptions()
                sending.rootRank, sending.rootTensor = root, 0
                work, answers = members.broadcast([mine], sending), True
        share = len(op.group) if getattr(op, "op", "") == "mean" else 1
        answer = lambda: like(divided(mine, share)) if answers else None  # noqa: E731
        return Flying(wait, work, op.group, answer, self._size(mine))

    def _size(self, mine: torch.Tensor) -> int:
        """Bytes of a value. A run that survives deaths treats all as large: a part may have been sent at a death."""
        return LARGE_BYTES if self._groups.survives else mine.nbytes


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
        mine = value.detach()
        return (mine if spent and mine.is_contiguous() else mine.clone()), lambda tensor: tensor
    if hasattr(value, "__array__"):
        return torch.tensor(value), lambda tensor: tensor.numpy()
    return torch.zeros(value.count, dtype=STAND_INS[value.item_bytes]), lambda _: value
