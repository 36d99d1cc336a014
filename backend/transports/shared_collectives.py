"""Collectives of one group and stream in shared memory, as one member performs them.

Rationale:

* Invariant: every word and every slot has one writer, so there are no locks, and a killed member leaves none held. A
  value passes in pieces. In each turn a member writes its piece into its own slot, increments its own counter, and
  reads the other slots once their counters have reached the same turn.
* Invariant: two buffers suffice. A member writes its next piece into the other buffer. It reuses a buffer only after
  all members have counted the following turn, so all have read the old piece. A turn needs one wait instead of two.
* Invariant: sums are in the order of the group, as in the simulator, so all members have the same bits. In a small
  group every member that gets it adds all pieces. In a large one each member adds one share, and those that
  get the result read the other sums in a second turn (a reduce-scatter, then an all-gather or a gather). So the bytes
  that a member reads do not grow with the group.
* Rejected: gloo between processes of one host, which copies every piece through sockets. Rejected: a ring over shared
  memory, which waits for every member in turn and adds each part of a value in another order. Rejected: locks, because
  a killed member could leave one held.
* A counter is written after its piece and read before it. On x86-64 other processors see stores in order; on other
  architectures a `Fence` enforces the order.
* Source: a barrier of flags that only their owners write, with counters in place of sense reversal (Mellor-Crummey and
  Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", 1991). Graham and Shipman, "MPI
  support for multi-core architectures: optimized shared memory collectives" (2008), implement collectives in shared
  memory in this way. docs/results has the measurements.
"""

from __future__ import annotations

import platform
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.algorithms.core.errors import PeerFailed, ProgramError
from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.backend.posix.processes import WorkerThread
from paceline.backend.posix.waits import Backoff
from paceline.backend.status.status_board import Lost
from paceline.backend.transports.collectives import STAND_INS
from paceline.backend.transports.shared_segment import BUFFERS, LINE_BYTES, Fence, Segment
from paceline.topologies.catalogue.host_memory import shares_sum

SPINS = 30
"""how often a counter is read before the wait backs off: some microseconds"""
IN_ORDER = platform.machine() in ("x86_64", "AMD64")
"""whether other processors see stores in order"""
WORD_BYTES = 8
FORMS = {
    dtype: code
    for code, dtype in enumerate(
        (
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
            torch.complex64,
            torch.complex128,
            torch.bool,
        ),
        1,
    )
}
"""a code for each number type, so that members can compare theirs"""


class MemoryChannel:
    """One member's part in the collectives of a group and stream.

    Args:
        segment: the node's shared memory.
        number: the index of the channel in it.
        group: the members, in the order of sums.
        rank: this member.
        lost: returns the dead rank for which a wait cannot end.
    """

    def __init__(self, segment: Segment, number: int, group: Group, rank: Rank, lost: Lost) -> None:
        self._group, self._me, self._lost = group, group.ranks.index(rank), lost
        self._memory, self._begins, self._piece_bytes = segment.memory, segment.begins(number), segment.piece_bytes
        self._words = memoryview(segment.memory).cast("q")
        self._counters = [(self._begins + member * LINE_BYTES) // WORD_BYTES for member in range(len(group))]
        """the word of each member's counter"""
        self._headers = [
            [self._at(buffer, member) // WORD_BYTES for member in range(len(group))] for buffer in range(BUFFERS)
        ]
        """the word in front of each slot that holds the form of the value: length and type"""
        self._slots: dict[torch.dtype, list[list[torch.Tensor]]] = {}
        self._everyone = range(len(group))
        self._turn = 0
        """turns that this member has counted"""
        self._broken: Exception | None = None
        self._fence = Fence()

    def perform(self, op: Collective) -> Any:
        """Performs a collective after those issued before it, and returns its result.

        Raises:
            PeerFailed: a rank has died, now or in an earlier collective.
            ProgramError: the members' values differ in length or type.
        """
        if self._broken is not None:
            raise self._broken
        try:
            return self._perform(op)
        except Exception as error:
            self._broken = error  # the members' counters differ from here on
            raise

    def _perform(self, op: Collective) -> Any:
        if isinstance(op, Barrier):
            nothing = torch.empty(0)
            self._exchange(nothing, form_of(nothing), self._everyone)
            return None
        own, like = flat(op.value)
        form = form_of(own)
        match op:
            case AllGather():
                rows = [torch.empty_like(own) for _ in self._everyone]
                for part in self._parts(own):
                    _copy([row[part] for row in rows], self._exchange(own[part], form, self._everyone))
                return tuple(map(like, rows))
            case Broadcast(root=root) if self._group.ranks[self._me] != root:
                value, sources = torch.empty_like(own), [self._group.ranks.index(root)]
                for part in self._parts(own):
                    _copy([value[part]], self._exchange(own[part], form, sources, writes=False))
                return like(value)
            case Broadcast():
                self._publish(own, form)
                return op.value  # programs change no vector in place
            case AllReduce() | Reduce():
                shared = shares_sum(len(self._group), own.nbytes)
                reads = isinstance(op, AllReduce) or self._group.ranks[self._me] == op.root
                if not (shared or reads):
                    return self._publish(own, form)
                divisor = len(self._group) if op.op == "mean" else 1
                # this member's numbers are copied to shared memory before the total overwrites them
                spent = isinstance(op, AllReduce) and op.donate and isinstance(op.value, torch.Tensor)
                total = own if spent else torch.empty_like(own)
                whole = 1 if total.is_floating_point() else divisor  # integers are divided into a new tensor
                if shared:
                    self._add_shares(own, form, total, divisor // whole, reads=reads)
                else:
                    self._add_all(own, form, total, divisor // whole)
                if not reads:
                    return None
                return like(total) if whole == 1 else like(total) / divisor

    # --- values, piece by piece -----------------------------------------------------------------------------------

    def _parts(self, value: torch.Tensor) -> Iterator[slice]:
        """Yields the slices of its pieces: one empty slice for an empty value."""
        size = self._piece_bytes // value.itemsize
        return (slice(start, min(start + size, len(value))) for start in range(0, max(1, len(value)), size))

    def _publish(self, own: torch.Tensor, form: int) -> None:
        """Writes a value for the other members to read."""
        for part in self._parts(own):
            self._exchange(own[part], form)

    def _add_all(self, own: torch.Tensor, form: int, total: torch.Tensor, divisor: int) -> None:
        """Adds up the pieces of all members."""
        for part in self._parts(own):
            _add(total[part], self._exchange(own[part], form, self._everyone), divisor)

    def _add_shares(self, own: torch.Tensor, form: int, total: torch.Tensor, divisor: int, *, reads: bool) -> None:
        """Adds up this member's share of all pieces, and reads the sums of the other shares if it gets the result."""
        members = len(self._group)
        for part in self._parts(own):
            shares = total[part].tensor_split(members)
            start = sum(map(len, shares[: self._me]))
            pieces = self._exchange(own[part], form, self._everyone)
            _add(shares[self._me], [piece[start:] for piece in pieces], divisor)
            sums = self._exchange(shares[self._me], form, self._everyone if reads else ())
            if reads:
                _copy(shares, sums)

    # --- turns ----------------------------------------------------------------------------------------------------

    def _exchange(
        self, piece: torch.Tensor, form: int, sources: Sequence[int] = (), *, writes: bool = True
    ) -> list[torch.Tensor]:
        """Performs one turn: writes a piece and returns the others', which are valid until the next turn."""
        buffer, slots = self._turn % BUFFERS, self._views(piece.dtype)
        self._await(self._everyone)  # all members have read the previous content of this buffer
        if writes and len(piece):
            slots[buffer][self._me][: len(piece)].copy_(piece)
        self._count(buffer, form)
        if sources:
            self._await(sources)
            self._compare(buffer, sources, form)
        return [slots[buffer][source] for source in sources]

    def _views(self, dtype: torch.dtype) -> list[list[torch.Tensor]]:
        """Returns every member's slot in every buffer, as numbers of this type."""
        if dtype not in self._slots:
            count = self._piece_bytes // dtype.itemsize
            self._slots[dtype] = [
                [
                    torch.frombuffer(
                        self._memory, dtype=dtype, count=count, offset=self._at(buffer, member) + LINE_BYTES
                    )
                    for member in self._everyone
                ]
                for buffer in range(BUFFERS)
            ]
        return self._slots[dtype]

    def _at(self, buffer: int, member: int) -> int:
        members = len(self._group)
        return self._begins + members * LINE_BYTES + (buffer * members + member) * (LINE_BYTES + self._piece_bytes)

    def _count(self, buffer: int, form: int) -> None:
        """Writes the form of the value and increments the counter: the piece can be read."""
        self._words[self._headers[buffer][self._me]] = form
        if not IN_ORDER:
            self._fence()
        self._turn += 1
        self._words[self._counters[self._me]] = self._turn

    def _await(self, members: Sequence[int]) -> None:
        """Waits until these members have counted as many turns as this one."""
        words, turn = self._words, self._turn
        for member in members:
            if words[self._counters[member]] < turn:
                self._await_long(self._counters[member])
        if not IN_ORDER:
            self._fence()

    def _await_long(self, place: int) -> None:
        """Waits for one member, with backoff."""
        words, turn = self._words, self._turn
        for _ in range(SPINS):
            if words[place] >= turn:
                return
        backoff = Backoff()
        while words[place] < turn:
            if backoff.try_yield():
                continue
            if (dead := self._lost(self._group)) is not None and words[place] < turn:
                raise PeerFailed(f"rank {dead} died", dead)
            backoff.pause()

    def _compare(self, buffer: int, sources: Sequence[int], own: int) -> None:
        for source in sources:
            if (word := self._words[self._headers[buffer][source]]) != own:
                ranks = self._group.ranks
                raise ProgramError(
                    f"rank {ranks[self._me]} enters a collective over {self._group} with {_words(own)}, where rank "
                    f"{ranks[source]} entered it with {_words(word)}; all members must give equally many, of one type"
                )


# --- values -----------------------------------------------------------------------------------------------------------


def flat(value: Any) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
    """Returns a vector as a flat tensor, read-only unless donated, and a function that converts such a tensor back."""
    if isinstance(value, torch.Tensor):
        shape = value.shape
        return value.detach().contiguous().reshape(-1), lambda tensor: tensor.reshape(shape)
    if hasattr(value, "__array__"):
        given = torch.as_tensor(value if value.flags.writeable and value.flags.c_contiguous else value.copy())
        return given.reshape(-1), lambda tensor: tensor.reshape(given.shape).numpy()
    return torch.zeros(value.count, dtype=STAND_INS[value.item_bytes]), lambda _: value


def form_of(value: torch.Tensor) -> int:
    """Encodes the length and number type of a value in one number."""
    return len(value) << 8 | FORMS[value.dtype]


def _add(into: torch.Tensor, pieces: Sequence[torch.Tensor], divisor: int) -> None:
    """Sums the first numbers of the pieces in their order and divides, while they are in the processor's cache."""
    first, *rest = (piece[: len(into)] for piece in pieces)
    if rest:
        torch.add(first, rest[0], out=into)
        for piece in rest[1:]:
            into.add_(piece)
    else:
        into.copy_(first)
    if divisor > 1:
        into.div_(divisor)


def _copy(into: Sequence[torch.Tensor], pieces: Sequence[torch.Tensor]) -> None:
    for place, piece in zip(into, pieces, strict=True):
        place.copy_(piece[: len(place)])


def _words(form: int) -> str:
    dtype = next(dtype for dtype, code in FORMS.items() if code == form & 255)
    return f"{form >> 8} numbers of {str(dtype).removeprefix('torch.')}"


class MemoryCollectives:
    """The collectives of one rank in its node's shared memory."""

    def __init__(self, segment: Segment, rank: Rank, lost: Lost) -> None:
        self._segment, self._rank, self._lost = segment, rank, lost
        self._lines: dict[tuple[Group, str], CollectiveLine | None] = {}

    def line(self, group: Group, stream: str = "") -> CollectiveLine | None:
        """Returns the line of this group and stream, or None if they use gloo."""
        if not self._segment.holds(group):
            return None
        if (group, stream) not in self._lines:
            number = self._segment.claim(group, stream)
            self._lines[group, stream] = (
                None
                if number is None
                else CollectiveLine(MemoryChannel(self._segment, number, group, self._rank, self._lost))
            )
        return self._lines[group, stream]

    def leave(self, stream: str) -> None:
        """Releases the channels of a stream that has ended, after the collectives started in it."""
        for group, _ in [key for key in list(self._lines) if key[1] == stream]:
            line = self._lines.pop((group, stream))

            def give_back(group: Group = group) -> None:
                self._segment.leave(group, stream)

            give_back() if line is None else line.close(give_back)

    def close(self) -> None:
        """Ends the threads of started collectives after those that are pending; nothing may be issued afterwards."""
        for line in self._lines.values():
            if line is not None:
                line.close(lambda: None)


class CollectiveLine:
    """The collectives of a group and stream at one rank, in order. One thread at a time issues them."""

    def __init__(self, channel: MemoryChannel) -> None:
        self._channel = channel
        self._due: deque[Issued] = deque()
        self._turn = threading.Lock()
        """held by the thread that performs one"""
        self._helper: WorkerThread | None = None
        """None until a collective is started"""

    def issue(self, op: Collective, *, started: bool) -> FlyingInMemory:
        """Issues a collective; one that is not started is performed when its result is requested."""
        issued = Issued(op)
        self._due.append(issued)
        if started:
            if self._helper is None:
                self._helper = WorkerThread("collectives")
            self._helper.put(self._next)
        return FlyingInMemory(lambda: issued.done, lambda: self._finish(issued))

    def _next(self) -> None:
        """Performs the oldest pending one, unless a waiting thread has done so."""
        with self._turn:
            if self._due:
                self._due.popleft().perform(self._channel)

    def _finish(self, issued: Issued) -> Any:
        """Performs the pending ones up to this one, as far as the helper has not, and returns its result."""
        with self._turn:
            while not issued.done:
                self._due.popleft().perform(self._channel)
        return issued.answer()

    def close(self, then: Callable[[], None]) -> None:
        """Calls `then` when all are done; nothing may be issued afterwards."""
        if self._helper is None:
            then()
        else:
            self._helper.put(then)
            self._helper.close()


@dataclass(slots=True)
class Issued:
    """A collective and its outcome."""

    op: Collective | None
    done: bool = False
    _answer: Any = None
    _failure: BaseException | None = None

    def perform(self, channel: MemoryChannel) -> None:
        """Performs it and releases its value."""
        assert self.op is not None, "each is performed once"
        op, self.op = self.op, None
        try:
            self._answer = channel.perform(op)
        except BaseException as error:
            self._failure = error
        self.done = True

    def answer(self) -> Any:
        """Returns the result, or raises the failure."""
        if self._failure is not None:
            raise self._failure
        return self._answer


@dataclass(frozen=True, slots=True)
class FlyingInMemory:
    """A collective in flight."""

    done: Callable[[], bool]
    finish: Callable[[], Any]
    """waits and returns the result; called once"""
