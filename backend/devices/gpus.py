"""The GPU of each rank, and how its process is started.

Rules of this file:

* The first rank of a host uses the host's first GPU, and so on.
* NCCL refuses two ranks of a group on one GPU. So a GPU is shared only if the scenario allows it, and collectives of
  ranks that share one go through host memory.
* Counting GPUs does not initialise CUDA: torch asks NVIDIA's management library. The launcher does nothing else with
  CUDA, since a process that has initialised it cannot be forked into one that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import torch

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Group, Rank

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
