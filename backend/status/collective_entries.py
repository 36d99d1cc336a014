"""Who has entered which allreduce_algorithm: each rank's row of the board has room for its last ones.

Rules of this file: a rank writes its own entries only, and looks at the others' after. So of two members that enter
different collectives whoever comes second sees it, and does not issue.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from typing import Any

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.values import Rank
from paceline.backend.status.board_layout import BUCKETS, SLOTS, TEXT


class Entries:
    """Everybody's.

    Args:
        entries: of each rank, by bucket and slot.
    """

    def __init__(self, entries: Any) -> None:
        # columns, looked up once
        self._turns, self._streams = entries["turn"], entries["stream"]
        self._positions, self._texts = entries["position"], entries["text"]
        self._writing = threading.Lock()
        """of the lanes of one rank: each process has its own"""

    def enter(self, rank: Rank, members: Sequence[Rank], stream: str, position: int, what: str, place: str) -> None:
        """Notes a collective before it is issued; raises `ProgramError` where another member issued something else.

        gloo matches collectives by their order alone: a swapped pair of equal size is silently added up, one of unequal
        size aborts the process.
        """
        check = zlib.crc32(stream.encode())
        bucket, slot, name = check % BUCKETS, position % SLOTS, check | len(stream) << 32
        mine, said = (rank, bucket, slot), what.encode()
        with self._writing:
            self._turns[mine] += 1  # odd while it is being written: streams may share a bucket, and so an entry
            self._streams[mine], self._positions[mine] = name, position
            self._texts[mine] = b"\1".join((said, place.encode()))[:TEXT]
            self._turns[mine] += 1
        for other in members:
            if other == rank or (theirs := self._read((other, bucket, slot), name, position)) is None:
                continue
            theirs_said, _, their_place = theirs.partition(b"\1")
            if theirs_said != said[:TEXT]:
                raise ProgramError(
                    f"mismatched collectives: rank {rank} at {place} enters {what}, where rank {other} at "
                    f"{their_place.decode(errors='replace')} entered {theirs_said.decode(errors='replace')}; "
                    "all members must issue the same collectives in the same order"
                )

    def _read(self, at: tuple[int, int, int], name: int, position: int) -> bytes | None:
        """What somebody entered there; None if it is of another collective.

        Also if it was being written meanwhile: whoever writes looks at the others after.
        """
        turn = self._turns[at]
        if turn % 2 or self._positions[at] != position or self._streams[at] != name:
            return None
        text = bytes(self._texts[at])
        return text if turn == self._turns[at] else None
