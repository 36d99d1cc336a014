"""Detects mismatched collectives: each rank's row of the board lists the latest collectives that it has entered.

Rules of this file: a rank writes only its own entries, and reads the others' afterwards. So if two members enter
different collectives, the second one sees the mismatch and does not issue its own.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.program_errors import mismatch
from paceline.backend.status.board_layout import BUCKETS, SLOTS, TEXT


class CollectiveEntries:
    """The entries of all ranks.

    Args:
        entries: array of shape (ranks, buckets, slots).
    """

    def __init__(self, entries: Any) -> None:
        # columns, looked up once
        self._turns, self._streams = entries["turn"], entries["stream"]
        self._positions, self._texts = entries["position"], entries["text"]
        self._writing = threading.Lock()
        """for the threads of this process: each process has its own lock"""

    def enter(self, rank: Rank, members: Sequence[Rank], stream: str, position: int, what: str, place: str) -> None:
        """Records a collective before it is issued.

        gloo matches collectives by their order alone: two collectives of equal size in the wrong order are added up
            without
        an error, and two of unequal size abort the process.

        Args:
            rank: the rank that enters.
            members: the members of the collective.
            stream: the name of the sequence in which it is issued.
            position: its position in this sequence.
            what: describes the collective; equal for all members.
            place: the line of the program, for messages.

        Raises:
            ProgramError: another member has entered a different collective at this position.
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
                their_line, their_words = their_place.decode(errors="replace"), theirs_said.decode(errors="replace")
                raise mismatch(rank, place, what, other, their_line, their_words)

    def absent(self, rank: Rank, words: str, members: Sequence[Rank]) -> list[Rank]:
        """Returns the members that have not entered the last collective of this description that a rank has entered.

        Only entries of ranks on this host are known.

        Args:
            rank: a rank that has entered it.
            words: describes the collective, as in `enter`.
            members: the members of the collective.
        """
        own = self._texts[rank]
        found = np.argwhere(np.char.startswith(own, (words.encode() + b"\1")[:TEXT]))
        if not len(found):
            return []
        bucket, slot = max(map(tuple, found), key=lambda at: int(self._positions[(rank, *at)]))
        key = self._streams[rank, bucket, slot], self._positions[rank, bucket, slot]
        return [one for one in members if self._read((one, bucket, slot), *key) is None]

    def _read(self, at: tuple[int, int, int], name: int, position: int) -> bytes | None:
        """Returns the text of an entry; None if it belongs to another collective or was being written.

        A rank that is writing its entry reads the others' afterwards, so the mismatch is still found.
        """
        turn = self._turns[at]
        if turn % 2 or self._positions[at] != position or self._streams[at] != name:
            return None
        text = bytes(self._texts[at])
        return text if turn == self._turns[at] else None
