"""One rank's part in making the checkpoints of its run.

Rules of this file:

* A run pauses as it stops: nobody is let into the step, programs return their states, what is in flight is completed.
  Then everybody writes its part, and enters its program again from the state.
* When a rank's part is on the disk it sends everybody a mark. Marks travel behind all that was sent before: who has
  everybody's has nothing more to come of the time before, and drops what nobody has asked for, as a stop does. All
  parts are on the disk then, and the first rank gives the checkpoint its name while the others go on.
* After a death that a method survives there are no more checkpoints, since a whole one has everybody's part; one that
  is being made then is given up, unless the first rank has everybody's mark. The last whole one stays.
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
from paceline.algorithms.runtime.stop_rule import NEVER
from paceline.backend.rank.checkpoint import Mark, Part, Saving, record_of
from paceline.backend.rank.checkpoint_parts import write_part
from paceline.backend.rank.rank_context import Station, Thread
from paceline.backend.transports.inbox import Claim, Envelope
from paceline.backend.transports.mail import Mail

TAG = "\0checkpoint"
"""of marks; no program sends under it"""


class Checkpointer:
    """Makes a rank's parts.

    Args:
        station: the rank's.
        mail: what marks travel by.
        saving: how checkpoints are made.
        begun: the step that the run goes on from; 0 at its beginning.
    """

    def __init__(self, station: Station, mail: Mail, saving: Saving, begun: int) -> None:
        self._station, self._mail, self._saving = station, mail, saving
        self.until = saving.following(begun)
        """the step into which nobody is let before the next checkpoint is made"""
        self._copied = 0
        """bytes of the rank's record that are in the checkpoints' folder"""
        self._record = xxhash.xxh3_128()
        """the checksum of these bytes, which goes on with every checkpoint"""

    def make(self, thread: Thread, part: Part, answer: Callable[[Handle[Any]], Any]) -> None:
        """Makes the checkpoint that is due; when it returns, the rank may go on."""
        station, me, step = self._station, self._station.me, self.until
        began = station.clock.now()
        with station.busy(), self._writing(step):
            files = write_part(self._saving.building(step) / f"rank{me.rank}", part, answer)
            size, checksum = self._copy_record()
        mine = Mark(station.clock.now(), part.state.step, size, checksum, files)
        others = [rank for rank in me.world if rank != me.rank]
        for rank in others:
            self._mail.send(rank, Envelope(me.rank, TAG, mine, station.clock.now()))
        self.until = self._saving.following(step)
        try:
            marks = {me.rank: mine, **{rank: self._hear(thread, rank, step) for rank in others}}
        except PeerFailed:
            if station.board.lost() is not None:  # the run cannot do without it
                raise
            self.until = NEVER
        else:
            if me.rank == me.world.ranks[0]:
                with station.busy(), self._writing(step):
                    self._saving.commit(step, [marks[rank] for rank in me.world])
        self._mail.inbox.begin_again()
        station.moving(thread)
        station.span(thread, "checkpoint", began, step=part.state.step)

    @contextmanager
    def _writing(self, step: int) -> Iterator[None]:
        """Raises `RunFailed` in words where the disk does not take a checkpoint."""
        try:
            yield
        except OSError as error:
            where = error.filename or self._saving.folder
            words = f"{where}: {error.strerror or error}"
            raise RunFailed(f"the checkpoint at step {step} cannot be written: {words}") from error

    def _hear(self, thread: Thread, rank: Rank, step: int) -> Mark:
        """A rank's mark, once it is there; what it had sent before is dropped."""
        inbox = self._mail.inbox
        self._station.waiting(thread, f"for the part of rank {rank} of the checkpoint at step {step}")
        envelope = inbox.get(rank, TAG, None, Claim(inbox))
        inbox.drop(rank, envelope.sent_s)
        mark: Mark = envelope.value
        return mark

    def _copy_record(self) -> tuple[int, str]:
        """Puts on the disk what the rank has recorded since the last time; answers how many bytes there are, and their
        checksum.
        """
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
            to.truncate()  # what an attempt that failed had put there
            to.flush()
            os.fsync(to.fileno())
            self._copied = to.tell()
        return self._copied, self._record.hexdigest()
