"""Loading in a real run: a rank's batches, read ahead in the background where the scenario says how they are read.

Rules of this file:

* The same rule as the simulator's. With a depth of d ≥ 1 a thread reads batch after batch (`following`), puts each into
  a queue of d places, and keeps a finished batch in hand while the queue is full. With d = 0 the program reads itself.
* The first batch asked for begins this; nothing is read ahead of it. A batch asked for that is not the next one in the
  queue is read anew, once what is being read is there: that and all that was read ahead is dropped.
* Figures are those of requests up to the last batch that was taken. What was read ahead and never asked for is in none
  of them: how much that is depends on when a run ends, and on nothing else.
* A failure takes the place of its batch: it is raised in the program, at the `Load` that asks for that batch.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.job import Learner
from paceline.algorithms.core.values import Batch, Samples
from paceline.backend.rank.rank_context import Station, Thread
from paceline.records.trace import READER, Reads
from paceline.workloads.batches.drawing import Counting
from paceline.workloads.reading import following

LEAVE_S = 1.0
"""how long the end of a run waits for a read that nobody needs; the process ends with or without it"""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A batch as its reader left it: with what came of it, and what had been asked of the file by then."""

    samples: Samples
    data: Any
    failure: Exception | None
    reads: Reads | None


class Loader:
    """Loads one rank's batches.

    Args:
        station: the rank's.
        learner: whose batches they are.
        depth: batches that are read ahead; None: samples are not read, they are in memory.
    """

    def __init__(self, station: Station, learner: Learner, depth: int | None) -> None:
        self.station, self.learner, self.depth = station, learner, depth
        self._reads: Reads | None = None
        self._stall_s = 0.0
        self._asking = threading.Lock()
        """lanes that load at the same time do so one after the other"""
        self.before: Reads | None = None
        """what was asked of a file before the checkpoint that the run goes on from"""
        self._counts = counting(learner)
        self._ahead = None if not depth else Ahead(station, learner, depth)

    def load(self, thread: Thread, samples: Samples) -> Batch:
        """The samples' data, once it is there."""
        start = self.station.clock.now()
        # a lane that waits for the disk waits for nobody, even while the program waits for the lane
        with nullcontext() if self.depth is None else self.station.busy(), self._asking:
            loaded = read(self.learner, samples, self._counts) if self._ahead is None else self._ahead.take(samples)
            if loaded.failure is not None:
                raise loaded.failure
            self._reads = loaded.reads
            self.station.accelerator.synchronize()  # a batch is loaded once it is on the device
            self.station.span(thread, "load", start, step=samples.index)
            self._stall_s += self.station.clock.now() - start
        return Batch(samples, loaded.data)

    @property
    def reads(self) -> Reads | None:
        """What was asked of a file for the batches that were taken; None where there is no file."""
        if self._reads is None:
            return self.before
        now, before = self._reads._replace(stall_s=self._stall_s), self.before or Reads()
        requests, seeks = before.requests + now.requests, before.seeks + now.seeks
        return Reads(requests, seeks, before.bytes + now.bytes, before.stall_s + now.stall_s)

    def close(self) -> None:
        """Ends the reading ahead."""
        if self._ahead is not None:
            self._ahead.close()


class Ahead:
    """Reads batch after batch in a thread of its own, which begins with the first batch that is asked for."""

    def __init__(self, station: Station, learner: Learner, depth: int) -> None:
        self.station, self.learner, self.depth = station, learner, depth
        self._counts = counting(learner)
        self._queue: deque[Loaded] = deque()
        self._changed = threading.Condition()
        self._due: Samples | None = None
        """what is asked for next if the prediction is right: the queue's first, or what will be put there first"""
        self._next: Samples | None = None
        """what is read next; None after a failure, until something is asked for anew"""
        self._turn = 0
        """counts the beginnings: what was read for an earlier one is dropped"""
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=READER, daemon=True)

    def take(self, samples: Samples) -> Loaded:
        """The batch, once it is there."""
        with self._changed:
            if samples != self._due:
                self._begin(samples)
            self._changed.wait_for(lambda: self._queue)
            loaded = self._queue.popleft()
            self._due = None if loaded.failure is not None else following(samples)
            self._changed.notify_all()
        return loaded

    def _begin(self, samples: Samples) -> None:
        """Drops what was read ahead and reads on from here."""
        self._queue.clear()
        self._due = self._next = samples
        self._turn += 1
        if not self._thread.is_alive():
            self._thread.start()  # here, not before: a thread does not survive the fork
        self._changed.notify_all()

    def _work(self) -> None:
        while (job := self._job()) is not None:
            samples, turn = job
            start = self.station.clock.now()
            loaded = read(self.learner, samples, self._counts)
            self.station.span(Thread(READER), "read", start, step=samples.index)
            self._put(loaded, turn)

    def _job(self) -> tuple[Samples, int] | None:
        """What is to be read, and in which turn; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._next is not None)
            if self._closed or self._next is None:
                return None
            samples, self._next = self._next, following(self._next)
            return samples, self._turn

    def _put(self, loaded: Loaded, turn: int) -> None:
        """Into the queue as soon as there is a place, unless nobody wants it any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or turn != self._turn or len(self._queue) < self.depth)
            if turn != self._turn:
                return
            if loaded.failure is not None:
                self._next = None
            self._queue.append(loaded)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread, once it has read what it is reading."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(LEAVE_S)


def read(learner: Learner, samples: Samples, counts: Counting | None) -> Loaded:
    """A batch, read now by whoever calls; `counts` says what was asked of the file."""
    data: Any = None
    failure: Exception | None = None
    try:
        data = learner.load(samples)
    except OSError as error:
        failure = RunFailed(f"worker {samples.worker} could not load the batch of step {samples.index}: {error}")
    except Exception as error:
        failure = error
    return Loaded(samples, data, failure, None if counts is None else Reads(*counts.reads(samples.worker)))


def counting(learner: Learner) -> Counting | None:
    """What counts a learner's requests to a file; None where its batches come from elsewhere. To ask is slow."""
    draw = getattr(learner, "draw", None)
    return draw if isinstance(draw, Counting) else None
