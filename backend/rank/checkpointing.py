"""Makes the checkpoints of a run, as one rank takes part in it.

Rules of this file:

* A run pauses for a checkpoint in the same way as it stops: no rank may begin the step, programs return their states,
  and operations in flight are completed. Then every rank writes its part and enters its program again with the state.
* After its part is on disk, a rank sends a mark to all others. Messages of a pair arrive in order, so a rank that has
  all marks has all messages of the time before. It drops those that its program has not received, as at a stop. All
  parts are then on disk, and the first rank gives the checkpoint its name while the others continue.
* After a death that the method survives, no more checkpoints are made, since a complete one has parts of all ranks. One
  that is being made is abandoned, unless the first rank has all marks. The latest complete checkpoint remains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from paceline.algorithms.core.errors import PeerFailed, RunFailed
from paceline.algorithms.core.operations import Handle
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.mail import Envelope
from paceline.algorithms.runtime.stop_rule import NEVER
from paceline.backend.rank.checkpoint import Mark, RankPart, Saving, record_of
from paceline.backend.rank.checkpoint_parts import write_part
from paceline.backend.rank.rank_context import RankStation, Thread
from paceline.backend.transports.mail import RankMail
from paceline.backend.transports.messages import ReceiveClaim

TAG = "\0checkpoint"
"""the tag of marks; no program uses it"""


class Checkpointer:
    """Makes the parts of one rank.

    Args:
        station: the rank's context.
        mail: sends the marks.
        saving: how checkpoints are made.
        begun: the step from which the run was resumed; 0 at its beginning.
    """

    def __init__(self, station: RankStation, mail: RankMail, saving: Saving, begun: int) -> None:
        self._station, self._mail, self._saving = station, mail, saving
        self.until = saving.following(begun)
        """the step that no rank may begin before the next checkpoint is complete"""
        self._copied = 0
        """bytes of the rank's record that are in the checkpoints' folder"""
        self._record = xxhash.xxh3_128()
        """the checksum of these bytes, extended with every checkpoint"""

    def make(self, thread: Thread, part: RankPart, answer: Callable[[Handle[Any]], Any]) -> None:
        """Makes the checkpoint that is due; the rank may continue when it returns."""
        station, me, step = self._station, self._station.me, self.until
        began = station.clock.now()
        with station.busy(), self._writing(step):
            files = write_part(self._saving.building(step) / f"rank{me.rank}", part, answer)
            size, checksum = self._copy_record()
        mark = Mark(station.clock.now(), part.state.step, size, checksum, files)
        others = [rank for rank in me.world if rank != me.rank]
        for rank in others:
            self._mail.send(Envelope(me.rank, rank, TAG, mark, station.clock.now()))
        self.until = self._saving.following(step)
        try:
            marks = {me.rank: mark, **{rank: self._hear(thread, rank, step) for rank in others}}
        except PeerFailed:
            if station.board.lost() is not None:  # the run ends with this death
                raise
            self.until = NEVER
        else:
            if me.rank == me.world.ranks[0]:
                with station.busy(), self._writing(step):
                    self._saving.commit(step, [marks[rank] for rank in me.world])
        self._mail.inbox.restart()
        station.moving(thread)
        station.span(thread, "checkpoint", began, step=part.state.step)

    @contextmanager
    def _writing(self, step: int) -> Iterator[None]:
        """Raises `RunFailed` with an explanation if a checkpoint cannot be written to disk."""
        try:
            yield
        except OSError as error:
            where = error.filename or self._saving.folder
            words = f"{where}: {error.strerror or error}"
            raise RunFailed(f"the checkpoint at step {step} cannot be written: {words}") from error

    def _hear(self, thread: Thread, rank: Rank, step: int) -> Mark:
        """Waits for a rank's mark and returns it; drops what the rank had sent before."""
        inbox = self._mail.inbox
        self._station.waiting(thread, f"for the part of rank {rank} of the checkpoint at step {step}")
        envelope = inbox.get(rank, TAG, None, ReceiveClaim(inbox))
        inbox.drop(rank, envelope.sent_s)
        mark: Mark = envelope.value
        return mark

    def _copy_record(self) -> tuple[int, str]:
        """Writes the rank's new records to disk; returns the number of bytes of all records and their checksum."""
        recorder = self._station.recorder
        recorder.flush()
        place: Path = record_of(self._saving.folder, self._station.me.rank)
        place.parent.mkdir(parents=True, exist_ok=True)
        with recorder.path.open("rb") as source, os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as to:
            source.seek(self._copied)
            to.seek(self._copied)
            while piece := source.read(1 << 20):
                to.write(piece)
                self._record.update(piece)
            to.truncate()  # removes the bytes of a failed attempt
            to.flush()
            os.fsync(to.fileno())
            self._copied = to.tell()
        return self._copied, self._record.hexdigest()
