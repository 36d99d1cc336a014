"""Loading in a real run: a rank's batches, prefetched in the background if the scenario defines how they are read.

Rules of this file:

* The simulator uses the same rule. With a depth of d ≥ 1 a thread reads batch after batch (`following`), puts each into
  a queue of length d, and holds one finished batch while the queue is full. With d = 0 the program reads itself.
* Prefetching starts with the first requested batch. If a requested batch is not the next one in the queue, it is read
  anew after the current read; the current read and the prefetched batches are dropped.
* Figures count requests up to the last batch that was taken. Batches that were prefetched and never requested are not
  counted: their number depends only on when a run ends.
* A failure takes the place of its batch: it is raised in the program, at the `Load` of that batch.
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
from paceline.backend.rank.rank_context import RankStation, Thread
from paceline.records.trace import READER, Reads
from paceline.workloads.batches.drawing import RequestCounting
from paceline.workloads.reading import following

LEAVE_S = 1.0
"""how long the end of a run waits for a read that is no longer needed; the process then ends in any case"""


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """A batch as it was read: its data or failure, and the requests to the file until then."""

    samples: Samples
    data: Any
    failure: Exception | None
    reads: Reads | None


class Loader:
    """Loads one rank's batches.

    Args:
        station: the rank's context.
        learner: reads the batches.
        depth: batches that are prefetched; None: samples are in memory and are not read.
    """

    def __init__(self, station: RankStation, learner: Learner, depth: int | None) -> None:
        self.station, self.learner, self.depth = station, learner, depth
        self._reads: Reads | None = None
        self._stall_s = 0.0
        self._asking = threading.Lock()
        """lanes that load at the same time take turns"""
        self.before: Reads | None = None
        """requests to a file before the checkpoint from which the run was resumed"""
        self._counts = counting(learner)
        self._ahead = None if not depth else Prefetching(station, learner, depth)

    def load(self, thread: Thread, samples: Samples) -> Batch:
        """Returns the samples' data; waits for it if necessary."""
        start = self.station.clock.now()
        # a lane that waits for the disk does not wait for a rank, even while the program waits for the lane
        with nullcontext() if self.depth is None else self.station.busy(), self._asking:
            loaded = read(self.learner, samples, self._counts) if self._ahead is None else self._ahead.take(samples)
            if loaded.failure is not None:
                raise loaded.failure
            self._reads = loaded.reads
            self.station.accelerator.synchronize()  # a batch is loaded when it is on the device
            self._stall_s += self.station.span(thread, "load", start, step=samples.index) - start
        return Batch(samples, loaded.data)

    @property
    def reads(self) -> Reads | None:
        """Requests to a file for the batches that were taken; None if there is no file."""
        if self._reads is None:
            return self.before
        now, before = self._reads._replace(stall_s=self._stall_s), self.before or Reads()
        requests, seeks = before.requests + now.requests, before.seeks + now.seeks
        return Reads(requests, seeks, before.bytes + now.bytes, before.stall_s + now.stall_s)

    def close(self) -> None:
        """Ends the prefetching."""
        if self._ahead is not None:
            self._ahead.close()


class Prefetching:
    """Prefetches batches in a thread of its own, which starts with the first requested batch."""

    def __init__(self, station: RankStation, learner: Learner, depth: int) -> None:
        self.station, self.learner, self.depth = station, learner, depth
        self._counts = counting(learner)
        self._queue: deque[LoadedBatch] = deque()
        self._changed = threading.Condition()
        self._due: Samples | None = None
        """the expected next request: the first in the queue, or the one that will be put there first"""
        self._next: Samples | None = None
        """the next batch to read; None after a failure, until another request"""
        self._turn = 0
        """counts restarts: batches read for an earlier one are dropped"""
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=READER, daemon=True)

    def take(self, samples: Samples) -> LoadedBatch:
        """Returns the batch; waits for it if necessary."""
        with self._changed:
            if samples != self._due:
                self._begin(samples)
            self._changed.wait_for(lambda: self._queue)
            loaded = self._queue.popleft()
            self._due = None if loaded.failure is not None else following(samples)
            self._changed.notify_all()
        return loaded

    def _begin(self, samples: Samples) -> None:
        """Drops the prefetched batches and continues to read from here."""
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
        """Returns the batch to read and the restart to which it belongs; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._next is not None)
            if self._closed or self._next is None:
                return None
            samples, self._next = self._next, following(self._next)
            return samples, self._turn

    def _put(self, loaded: LoadedBatch, turn: int) -> None:
        """Puts a batch into the queue when there is space, unless it is no longer needed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or turn != self._turn or len(self._queue) < self.depth)
            if turn != self._turn:
                return
            if loaded.failure is not None:
                self._next = None
            self._queue.append(loaded)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread after its current read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(LEAVE_S)


def read(learner: Learner, samples: Samples, counts: RequestCounting | None) -> LoadedBatch:
    """Reads a batch in the calling thread; `counts` returns the requests to the file."""
    data: Any = None
    failure: Exception | None = None
    try:
        data = learner.load(samples)
    except OSError as error:
        failure = RunFailed(f"worker {samples.worker} could not load the batch of step {samples.index}: {error}")
    except Exception as error:
        failure = error
    return LoadedBatch(samples, data, failure, None if counts is None else Reads(*counts.reads(samples.worker)))


def counting(learner: Learner) -> RequestCounting | None:
    """Returns the counter of a learner's requests to a file; None if it reads no file. The check is slow."""
    draw = getattr(learner, "draw", None)
    return draw if isinstance(draw, RequestCounting) else None
