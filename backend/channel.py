"""Collectives of one group and stream in shared memory, as one member performs them.

Rules of this file:

* A value passes in pieces. In each turn every member writes its piece into its own slot, counts its own counter up, and
  reads the others' slots once their counters have come as far. Nobody writes what another one writes, so there are
  no locks.
* There are two buffers: whoever writes the piece after the next one has seen everybody count the next one, and so
  everybody has done with this one. A turn needs one round of waiting, not two.
* Everybody reads everything: each member adds up all the pieces itself, in the order of the group, as the simulator
  does. So all have the same bits, and the simulator's.
* A counter is written after its piece and read before it. On x86-64 others see stores in their order; elsewhere
  a `Fence` in between keeps them so.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

import torch

from paceline.algorithms.errors import PeerFailed, ProgramError
from paceline.algorithms.meeting import Collective
from paceline.algorithms.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.values import Group, Rank
from paceline.backend.board import Lost
from paceline.backend.collectives import STAND_INS
from paceline.backend.fence import Fence
from paceline.backend.patience import Patience
from paceline.backend.segment import BUFFERS, LINE_BYTES, Segment

SPINS = 30
"""looks at a counter before anything else: some microseconds"""
IN_ORDER = platform.machine() in ("x86_64", "AMD64")
"""whether others see a processor's stores in their order"""
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
"""numbers for the types of number, so that members can compare theirs"""
Take = Callable[[slice, Sequence[torch.Tensor]], None]
"""told where in the value a piece lies, and everybody's piece"""


class Channel:
    """One member's part in the collectives of a group and stream.

    Args:
        segment: the node's memory.
        number: the channel in it.
        group: its members, in the order of sums.
        rank: the member.
        lost: names the dead rank that a wait is in vain for.
    """

    def __init__(self, segment: Segment, number: int, group: Group, rank: Rank, lost: Lost) -> None:
        self._group, self._me, self._lost = group, group.ranks.index(rank), lost
        self._memory, self._begins, self._piece_bytes = segment.memory, segment.begins(number), segment.piece_bytes
        self._words = memoryview(segment.memory).cast("q")
        self._counters = [(self._begins + member * LINE_BYTES) // WORD_BYTES for member in range(len(group))]
        """where each member's counter stands among the words"""
        self._headers = [
            [self._at(buffer, member) // WORD_BYTES for member in range(len(group))] for buffer in range(BUFFERS)
        ]
        """where each member says, in front of its slot, of what form its value is"""
        self._slots: dict[torch.dtype, list[list[torch.Tensor]]] = {}
        self._everyone = range(len(group))
        self._turn = 0
        """turns that this member has counted"""
        self._broken: Exception | None = None
        self._fence = Fence()

    def perform(self, op: Collective) -> Any:
        """Performs a collective, once the ones before it are done; answers what it is to answer.

        Raises:
            PeerFailed: a rank has died, now or in an earlier collective.
            ProgramError: the members' values differ in length or type.
        """
        if self._broken is not None:
            raise self._broken
        try:
            return self._perform(op)
        except Exception as error:
            self._broken = error  # counters are out of step from here on
            raise

    def _perform(self, op: Collective) -> Any:
        if isinstance(op, Barrier):
            return self._bring(torch.empty(0), sources=self._everyone)
        mine, like = flat(op.value)
        match op:
            case AllGather():
                rows = [torch.empty_like(mine) for _ in self._everyone]
                self._bring(mine, self._everyone, lambda part, pieces: _copy([row[part] for row in rows], pieces))
                return tuple(map(like, rows))
            case Broadcast(root=root) if self._group.ranks[self._me] == root:
                self._bring(mine)
                return op.value  # nobody changes a vector
            case Broadcast(root=root):
                value = torch.empty_like(mine)
                self._bring(
                    mine,
                    [self._group.ranks.index(root)],
                    lambda part, pieces: _copy([value[part]], pieces),
                    writes=False,
                )
                return like(value)
            case Reduce(root=root) if self._group.ranks[self._me] != root:
                return self._bring(mine)
            case AllReduce() | Reduce():
                share = len(self._group) if op.op == "mean" else 1
                # a piece is in the shared memory before the total's takes its place
                spent = isinstance(op, AllReduce) and op.spent and isinstance(op.value, torch.Tensor)
                total = mine if spent else torch.empty_like(mine)
                whole = 1 if total.is_floating_point() else share  # whole numbers are divided into others
                self._bring(mine, self._everyone, lambda part, pieces: _add(total[part], pieces, share // whole))
                return like(total) if whole == 1 else like(total) / share

    # --- turns ----------------------------------------------------------------------------------------------------

    def _bring(
        self, mine: torch.Tensor, sources: Sequence[int] = (), take: Take | None = None, *, writes: bool = True
    ) -> None:
        """Brings a value through, piece by piece.

        Args:
            mine: the member's value, flat.
            sources: whose pieces it reads, by their places in the group.
            take: what it does with them.
            writes: whether anybody reads its own.
        """
        form, per = len(mine) << 8 | FORMS[mine.dtype], self._piece_bytes // mine.itemsize
        slots = self._views(mine.dtype)
        for start in range(0, max(1, len(mine)), per):
            part = slice(start, min(start + per, len(mine)))
            size, buffer = part.stop - part.start, self._turn % BUFFERS
            self._await(self._everyone)  # all have done with what was in this buffer
            if writes and size:
                slots[buffer][self._me][:size].copy_(mine[part])
            self._count(buffer, form)
            if sources:
                self._await(sources)
                self._compare(buffer, sources, form)
            if take is not None:
                take(part, [slots[buffer][source][:size] for source in sources])

    def _views(self, dtype: torch.dtype) -> list[list[torch.Tensor]]:
        """Every member's slot in every buffer, as numbers of this type."""
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
        """Says of what form the value is, and that the piece is there."""
        self._words[self._headers[buffer][self._me]] = form
        if not IN_ORDER:
            self._fence()
        self._turn += 1
        self._words[self._counters[self._me]] = self._turn

    def _await(self, members: Sequence[int]) -> None:
        """Waits until these have counted as many turns as this member."""
        words, turn = self._words, self._turn
        for member in members:
            if words[self._counters[member]] < turn:
                self._await_long(self._counters[member])
        if not IN_ORDER:
            self._fence()

    def _await_long(self, place: int) -> None:
        """Waits for a member that is not there yet, without keeping others from their work."""
        words, turn = self._words, self._turn
        for _ in range(SPINS):
            if words[place] >= turn:
                return
        patience = Patience()
        while words[place] < turn:
            if patience.gives_way():
                continue
            if (dead := self._lost(self._group)) is not None and words[place] < turn:
                raise PeerFailed(f"rank {dead} died", dead)
            patience.pause()

    def _compare(self, buffer: int, sources: Sequence[int], mine: int) -> None:
        for source in sources:
            if (theirs := self._words[self._headers[buffer][source]]) != mine:
                ranks = self._group.ranks
                raise ProgramError(
                    f"rank {ranks[self._me]} enters a collective over {self._group} with {_words(mine)}, where rank "
                    f"{ranks[source]} entered it with {_words(theirs)}; all members must give as many, of one type"
                )


# --- values -----------------------------------------------------------------------------------------------------------


def flat(value: Any) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
    """A vector's numbers as a flat tensor, which is read only if not spent, and the way back for other such numbers."""
    if isinstance(value, torch.Tensor):
        shape = value.shape
        return value.detach().contiguous().reshape(-1), lambda tensor: tensor.reshape(shape)
    if hasattr(value, "__array__"):
        given = torch.as_tensor(value if value.flags.writeable and value.flags.c_contiguous else value.copy())
        return given.reshape(-1), lambda tensor: tensor.reshape(given.shape).numpy()
    return torch.zeros(value.count, dtype=STAND_INS[value.item_bytes]), lambda _: value


def _add(into: torch.Tensor, pieces: Sequence[torch.Tensor], share: int) -> None:
    """The sum of the pieces in their order, divided; all while they are in the processor's cache."""
    if len(pieces) == 1:
        into.copy_(pieces[0])
    else:
        torch.add(pieces[0], pieces[1], out=into)
        for piece in pieces[2:]:
            into.add_(piece)
    if share > 1:
        into.div_(share)


def _copy(into: Sequence[torch.Tensor], pieces: Sequence[torch.Tensor]) -> None:
    for place, piece in zip(into, pieces, strict=True):
        place.copy_(piece)


def _words(form: int) -> str:
    dtype = next(dtype for dtype, code in FORMS.items() if code == form & 255)
    return f"{form >> 8} numbers of {str(dtype).removeprefix('torch.')}"
