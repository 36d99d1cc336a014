"""Messages and collectives on torch.distributed's gloo.

Rules of this file, each a trap of gloo that was met:

* A gloo send is a rendezvous. One thread per rank keeps a receive from anyone posted at all times and feeds an inbox,
  so that a `Send` completes whatever the receiver's program is doing, and a time-out of the inbox harms nobody.
* A receive buffer that is too small aborts the process, one that is too large is filled in part without a word: buffers
  have one agreed capacity and messages carry their length.
* Collectives match by order, not by name: one process group per group of ranks and stream; `Board.enter` checks first.
* Groups are made by name through the store, not by `new_group`: only members take part, in no global order.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from paceline.algorithms.errors import PacelineError, PeerFailed, TimedOut
from paceline.algorithms.meeting import Collective
from paceline.algorithms.operations import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Reduce,
)
from paceline.algorithms.values import Group, Rank
from paceline.backend import wire

LOOPBACK = "lo"
"""the interface by which processes of one host meet"""
LOOK_S = 0.05
"""how often a waiting thread looks whether a peer has died"""
TORCH_OPS: dict[str, Any] = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM}
"""gloo has no mean: the sum is divided afterwards"""
STAND_INS = {1: torch.uint8, 2: torch.float16, 4: torch.float32, 8: torch.float64}
"""what the elements of a `Null` travel as, by their bytes"""


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """A message as it travels."""

    source: Rank
    tag: str
    value: Any
    sent_s: float


class Cancelled(PacelineError):
    """The operation was given up by `Cancel`."""


@dataclass
class Claim:
    """A receive that has neither its message nor been given up, as long as it is open."""

    inbox: Inbox
    open: bool = True
    turn: int = 0
    """its place among the receives of this rank that have ended"""

    def give_up(self) -> bool:
        """Closes it; False if it has its message already."""
        return self.inbox.close(self)


class Inbox:
    """What has arrived and nobody has asked for yet."""

    def __init__(self, lost: Callable[[], Rank | None]) -> None:
        self._waiting: deque[Envelope] = deque()
        self._changed = threading.Condition()
        self._lost = lost
        self._ended = count()

    def put(self, envelope: Envelope) -> None:
        with self._changed:
            self._waiting.append(envelope)
            self._changed.notify_all()

    def _take(self, source: Rank | None, tag: str) -> Envelope | None:
        for envelope in self._waiting:
            if envelope.tag == tag and source in (None, envelope.source):
                self._waiting.remove(envelope)
                return envelope
        return None

    def close(self, claim: Claim) -> bool:
        """Gives up a `get`; False if it has its message already."""
        with self._changed:
            claim.open, in_time = False, claim.open
            self._changed.notify_all()
        return in_time

    def get(self, source: Rank | None, tag: str, timeout_s: float | None, claim: Claim) -> Envelope:
        """The oldest message that fits; raises `TimedOut`, or `PeerFailed` when a rank has died and none has come."""
        due = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while True:
                if not claim.open:
                    raise Cancelled("a receive that was given up")
                if (found := self._take(source, tag)) is not None:
                    claim.open, claim.turn = False, next(self._ended)
                    return found
                if (dead := self._lost()) is not None:
                    raise PeerFailed(f"rank {dead} died")
                left = LOOK_S if due is None else min(LOOK_S, due - time.monotonic())
                if left <= 0:
                    claim.open, claim.turn = False, next(self._ended)
                    raise TimedOut(f"no message within {timeout_s} s")
                self._changed.wait(left)


class Transport:
    """One rank's way to the others."""

    def __init__(
        self,
        rank: Rank,
        ranks: int,
        store: Store,
        *,
        capacity: int,
        lost: Callable[[], Rank | None],
        interface: str = LOOPBACK,
    ) -> None:
        self.rank, self.ranks, self.capacity, self.interface = rank, ranks, capacity, interface
        self.inbox = Inbox(lost)
        self._store = store
        self._lost = lost
        self._groups: dict[tuple[Group, str], Any] = {}
        self._positions: dict[tuple[Group, str], int] = {}
        self._sending: dict[Rank, list[tuple[Any, torch.Tensor]]] = {}
        self._sending_lock = threading.Lock()
        self._mail = self._make("mail", Group(tuple(Rank(r) for r in range(ranks)))) if ranks > 1 else None
        if self._mail is not None:
            threading.Thread(target=self._listen, daemon=True, name="inbox").start()

    def _make(self, name: str, group: Group) -> Any:
        options: Any = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stubs
        options._timeout = timedelta(hours=1)  # the launcher watches; gloo's own time-out would close healthy pairs too
        options._devices = [dist.ProcessGroupGloo.create_device(interface=self.interface)]
        store = PrefixStore(f"{name}/{','.join(map(str, group))}", self._store)
        return dist.ProcessGroupGloo(store, group.ranks.index(self.rank), len(group), options)

    # --- point to point -------------------------------------------------------------------------------------------

    def send(self, to: Rank, envelope: Envelope) -> None:
        """Hands a message over; the receiver's inbox thread takes it whatever its program does."""
        data = wire.encode(envelope)
        if to == self.rank:
            self.inbox.put(wire.decode(data.numpy()))
            return
        assert self._mail is not None, "a run of one rank has nobody else to send to"
        with self._sending_lock:
            self._settle(to)
            works = [(self._mail.send([part], int(to), 0), part) for part in wire.chunks(data, self.capacity)]
            self._sending[to] = works

    def _settle(self, to: Rank) -> None:
        """Waits until the last message to `to` has gone: its buffer must live until then, and gloo cannot be asked."""
        for work, _ in self._sending.pop(to, []):
            self._await(work)

    def flush(self) -> None:
        """Waits until everything handed over has gone."""
        with self._sending_lock:
            for to in list(self._sending):
                self._settle(to)

    def _listen(self) -> None:
        buffer = torch.empty(self.capacity, dtype=torch.uint8)
        partial: dict[int, list[Any]] = {}
        assert self._mail is not None
        while True:
            try:
                work = self._mail.recv_anysource([buffer], 0)
                work.wait()
            except RuntimeError:  # the group broke: a peer is gone, which the launcher notices and says on the board
                return
            source = int(work._source_rank())
            data = buffer.numpy()
            parts = partial.setdefault(source, [])
            parts.append(data if not parts and wire.total_bytes(data) <= self.capacity else data.copy())
            length = wire.total_bytes(parts[0])
            if len(parts) * self.capacity >= length:
                whole = parts[0] if len(parts) == 1 else torch.cat([torch.from_numpy(p) for p in parts]).numpy()
                self.inbox.put(wire.decode(whole))
                del partial[source]

    # --- collectives ----------------------------------------------------------------------------------------------

    def group(self, group: Group, stream: str = "") -> Any:
        """The process group for these ranks and this stream of collectives, made at its first use."""
        if (group, stream) not in self._groups:
            self._groups[group, stream] = self._make(f"collectives{stream}", group)
        return self._groups[group, stream]

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
                return Flying(self, members.barrier(), lambda: None)
            case AllGather():
                mine, like = tensor_of(op.value)
                everyone = [torch.empty_like(mine) for _ in op.group]
                return Flying(self, members.allgather([everyone], [mine]), lambda: tuple(map(like, everyone)))
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
        return Flying(self, work, lambda: like(mine / share if share > 1 else mine) if answers else None)

    def _await(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise PeerFailed(self._who() or f"torch.distributed: {error}") from error

    def _who(self) -> str | None:
        """Names the dead rank; the launcher needs a moment to notice."""
        until = time.monotonic() + 1.0
        while self._lost() is None and time.monotonic() < until:
            time.sleep(0.01)
        return None if (dead := self._lost()) is None else f"rank {dead} died"


@dataclass
class Flying:
    """A collective under way."""

    transport: Transport
    work: Any
    answer: Callable[[], Any]

    def done(self) -> bool:
        return bool(self.work.is_completed())

    def finish(self) -> Any:
        self.transport._await(self.work)
        return self.answer()


def tensor_of(value: Any) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
    """A private copy of a vector as a tensor that gloo may write into, and the way back."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone(), lambda tensor: tensor
    if hasattr(value, "__array__"):
        return torch.tensor(value), lambda tensor: tensor.numpy()
    return torch.zeros(value.count, dtype=STAND_INS[value.item_bytes]), lambda _: value
