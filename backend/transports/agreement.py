"""Agreement on the outcome of a collective after a death: all survivors have the result, or none has.

Rationale:

* Invariant: survivors continue with the same outcome. After a death, some members may have the result of a collective
  and others not, and their programs would diverge. So in a run that can lose ranks, each member votes COMMIT or ABORT
  on the status board and waits for the other votes. The collective is aborted if any member votes ABORT.
* Why no lock or coordinator is needed: each member writes only its own row, once per collective. A vote stays readable
  after its member has died, and dead members do not vote. So every survivor that reads the board after all members
  have voted or died finds the same votes.
* Rejected: two-phase commit, whose coordinator may die between the phases. Rejected: repeating the collective among the
  survivors, since members that already have the result would have to take part again. A run that cannot lose a rank
  skips the vote.
* Source: the agreement of MPI's User-Level Failure Mitigation (MPI_Comm_agree; Bland et al. 2013). Shared memory makes
  it simple here: votes are never lost and all members see a death.
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
"""the longest sleep while waiting for votes"""


class Agreement:
    """The agreement as one rank takes part in it."""

    def __init__(self, board: StatusBoard, rank: Rank) -> None:
        self._board, self._status = board, board.ranks[rank]

    @contextmanager
    def failing(self, group: Group, stream: str, position: int) -> Iterator[None]:
        """Votes ABORT if the block fails because a rank died."""
        try:
            yield
        except PeerFailed:
            if self._board.spare:
                self._status.vote(name_of(stream), position, Vote.ABORT)
            raise

    def reach(self, group: Group, stream: str, position: int) -> None:
        """Votes COMMIT and waits for the votes of all survivors.

        Raises:
            PeerFailed: a member has voted ABORT, or the run ends.
        """
        if not self._board.spare:
            return
        name, backoff = name_of(stream), Backoff(LONGEST_S)
        self._status.vote(name, position, Vote.COMMIT)
        others = [rank for rank in group if rank != self._status.rank]
        while others:
            # read before the votes: a rank that is dead here cannot change its vote afterwards
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
        """Returns the error that names the rank whose death aborted the collective."""
        lost = self._board.lost(group)
        return PeerFailed("a collective was aborted" if lost is None else f"rank {lost} died", lost)


def name_of(stream: str) -> int:
    """Returns a number that identifies a group and stream."""
    return zlib.crc32(stream.encode()) | len(stream) << 32
