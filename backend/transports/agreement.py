"""Agreement on the outcome of a collective after a death: all survivors have the answer, or none has.

Rationale:

* Invariant: survivors continue with the same outcome. A death may give the answer to some members and not to others,
  which would then do different things. So in a run that can lose ranks each member votes on the board, COMMIT or ABORT,
  and waits for the other votes. The collective is aborted if any member votes so.
* Why no lock or coordinator is needed: each member writes its own row, once for a collective. A vote stays after its
  member has died, and dead members vote no more. So every survivor that reads the board once all members have voted or
  died finds the same votes.
* Rejected: two-phase commit, whose coordinator may die between the phases. Rejected: to repeat the collective among the
  survivors, since the members that have the answer would have to take part again. A run that can lose no rank votes on
  nothing and pays nothing.
* Source: the agreement of MPI's User-Level Failure Mitigation (MPI_Comm_agree; Bland et al. 2013), which shared memory
  makes simple here: votes are never lost and a death is known to all.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.values import Group, Rank
from paceline.backend.posix.backoff import Backoff
from paceline.backend.status.rank_status import Vote
from paceline.backend.status.status_board import StatusBoard

LONGEST_S = 1e-3
"""the longest sleep in a wait for votes"""


class Agreement:
    """One rank's part in the agreement."""

    def __init__(self, board: StatusBoard, rank: Rank) -> None:
        self._board, self._status = board, board.ranks[rank]

    @contextmanager
    def failing(self, group: Group, stream: str, position: int) -> Iterator[None]:
        """Votes ABORT if the block fails by a death."""
        try:
            yield
        except PeerFailed:
            if self._board.spare:
                self._status.vote(name_of(stream), position, Vote.ABORT)
            raise

    def reach(self, group: Group, stream: str, position: int) -> None:
        """Votes COMMIT, and waits until all survivors have.

        Raises:
            PeerFailed: a member has voted ABORT, or the run ends.
        """
        if not self._board.spare:
            return
        name, backoff = name_of(stream), Backoff(LONGEST_S)
        self._status.vote(name, position, Vote.COMMIT)
        others = [rank for rank in group if rank != self._status.rank]
        while others:
            # read before the votes: the vote of a rank that is dead by now does not change any more
            dead = [rank for rank in others if self._board.ranks[rank].dead]
            votes = {rank: self._board.ranks[rank].vote_on(name, position) for rank in others}
            if Vote.ABORT in votes.values():
                raise self._failure(group)
            others = [rank for rank in others if votes[rank] is None and rank not in dead]
            if others and (lost := self._board.lost()) is not None:
                raise PeerFailed(f"rank {lost} died", lost)
            if others:
                backoff.pause()

    def _failure(self, group: Group) -> PeerFailed:
        """The error that names the rank whose death aborted the collective."""
        lost = self._board.lost(group)
        return PeerFailed("a collective was aborted" if lost is None else f"rank {lost} died", lost)


def name_of(stream: str) -> int:
    """A number that identifies a group and stream."""
    return zlib.crc32(stream.encode()) | len(stream) << 32
