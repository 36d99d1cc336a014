"""Collectives on torch.distributed's gloo.

Rules of this file:

* Collectives match by order, not by name: one process group per group of ranks and stream; `Board.enter` checks first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from paceline.algorithms.meeting import Collective
from paceline.algorithms.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.values import Group
from paceline.backend.groups import LARGE_BYTES, Groups

TORCH_OPS: dict[str, Any] = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM}
"""gloo has no mean: the sum is divided afterwards"""
STAND_INS = {1: torch.uint8, 2: torch.float16, 4: torch.float32, 8: torch.float64}
"""what the elements of a `Null` travel as, by their bytes"""


class Collectives:
    """One rank's collectives by gloo."""

    def __init__(self, groups: Groups) -> None:
        self.rank = groups.rank
        self._groups = groups
        self._made: dict[tuple[Group, str], Any] = {}
        self._positions: dict[tuple[Group, str], int] = {}

    def group(self, group: Group, stream: str = "") -> Any:
        """The process group for these ranks and this stream of collectives, made at its first use."""
        if (group, stream) not in self._made:
            self._made[group, stream] = self._groups.make(f"collectives{stream}", group)
        return self._made[group, stream]

    def position(self, group: Group, stream: str) -> int:
        """How many collectives this rank has issued there before; counts this one."""
        before = self._positions.get((group, stream), 0)
        self._positions[group, stream] = before + 1
        return before

    def issue(self, op: Collective, stream: str = "") -> Flying:
        """Begins a collective; finish it with `Flying.finish`."""
        members = self.group(op.group, stream)
        root = op.group.ranks.index(op.root) if isinstance(op, Reduce | Broadcast) else 0
        match op:
            case Barrier():
                return Flying(self._groups, members.barrier(), op.group, lambda: None)
            case AllGather():
                mine, like = tensor_of(op.value)
                everyone = [torch.empty_like(mine) for _ in op.group]
                work = members.allgather([everyone], [mine])
                return Flying(self._groups, work, op.group, lambda: tuple(map(like, everyone)), mine.nbytes)
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
        return Flying(self._groups, work, op.group, answer, mine.nbytes)


@dataclass
class Flying:
    """A collective under way."""

    groups: Groups
    work: Any
    members: Group
    answer: Callable[[], Any]
    nbytes: int = 0

    def done(self) -> bool:
        return bool(self.work.is_completed())

    def finish(self) -> Any:
        self.groups.wait(self.work, self.members, LARGE_BYTES if self.groups.survives else self.nbytes)
        return self.answer()


def divided(total: torch.Tensor, share: int) -> torch.Tensor:
    """A sum of one's own divided by a number: in place where its numbers can hold that, as a new page takes time."""
    if share == 1:
        return total
    return total.div_(share) if total.is_floating_point() else total / share


def tensor_of(value: Any) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
    """A private copy of a vector as a tensor that gloo may write into, and the way back."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone(), lambda tensor: tensor
    if hasattr(value, "__array__"):
        return torch.tensor(value), lambda tensor: tensor.numpy()
    return torch.zeros(value.count, dtype=STAND_INS[value.item_bytes]), lambda _: value
