"""One outcome of a collective for all who survive a member's death: everybody has its answer, or nobody.

Rules of this file:

* A death may let some members have the answer and others not. Those who go on would then do different things. So in a
  run that can lose members, each says on the board whether it has the answer, and waits for what the others say.
* Nobody writes what another one writes, and there is no lock: each member marks its own row, once for a collective. A
  mark of the dead stays, and the dead make no new ones. So whoever looks when everybody has made a mark or died finds
  the same: it is given up if anybody says so, else everybody has it.
* A run that can lose nobody does none of this.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.values import Group, Rank
from paceline.backend.posix.backoff import Patience
from paceline.backend.status.status_board import Board, Mark

LONGEST_S = 1e-3
"""the longest pause in a wait for the others"""


class Agreement:
    """One rank's part in it."""

    def __init__(self, board: Board, rank: Rank) -> None:
        self._board, self._rank = board, rank

    @contextmanager
    def failing(self, group: Group, stream: str, position: int) -> Iterator[None]:
        """Says so where the block fails by a death."""
        try:
            yield
        except PeerFailed:
            if self._board.spare:
                self._board.mark(self._rank, name_of(stream), position, Mark.GIVEN_UP)
            raise

    def reach(self, group: Group, stream: str, position: int) -> None:
        """Says that this rank has the answer, and returns when all who are left do; `PeerFailed` where they do not."""
        if not self._board.spare:
            return
        name, patience = name_of(stream), Patience(LONGEST_S)
        self._board.mark(self._rank, name, position, Mark.HAS_IT)
        others = [rank for rank in group if rank != self._rank]
        while others:
            dead = [rank for rank in others if self._board.dead(rank)]  # before their last marks are read
            marks = {rank: self._board.marked(rank, name, position) for rank in others}
            if Mark.GIVEN_UP in marks.values():
                raise self._failure(group)
            others = [rank for rank in others if marks[rank] is None and rank not in dead]
            if others and (lost := self._board.lost()) is not None:
                raise PeerFailed(f"rank {lost} died", lost)
            if others:
                patience.pause()

    def _failure(self, group: Group) -> PeerFailed:
        """Whose death it was that made somebody give up."""
        lost = self._board.lost(group)
        return PeerFailed("a collective was given up" if lost is None else f"rank {lost} died", lost)


def name_of(stream: str) -> int:
    """A number that stands for a group and stream."""
    return zlib.crc32(stream.encode()) | len(stream) << 32
