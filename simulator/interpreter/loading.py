"""Prefetching of batches from storage.

* With a depth of d ≥ 1, a rank's loader reads batch after batch concurrently with its program. It puts batches into a
  queue of d places and holds one more while the queue is full, so at most d + 1 batches are ready. With d = 0, a batch
  is read when the program requests it.
* The first request starts the loader. A request for another batch than the predicted one restarts it, after the current
  read: this batch and all prefetched ones are dropped.
* The loader reads the same pieces as the real reader: those of `Order` that it does not hold yet (`Held`).
* Statistics cover all requests up to the last batch that the program took. When a program ends, its loader starts no
  further read, and the run does not wait for the current one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import simpy

from paceline.algorithms.core.values import Rank, Samples
from paceline.records.recorder import Recorder
from paceline.records.trace import READER, Reads
from paceline.simulator.interpreter.storage import StorageReader, Stores
from paceline.simulator.kernel.lanes import Mutex, SimulatedTask, Steps
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.workloads.reading import Held, Order, following


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The source of a run's batches.

    Args:
        storage: the storage of the file.
        order: the order in which samples are used.
        record_bytes: bytes of one sample in the file.
        prefetch: number of batches that are read ahead.
        nodes: the node of each worker.
    """

    storage: StorageModel
    order: Order
    record_bytes: int
    prefetch: int
    nodes: Sequence[int]


class Loading:
    """The loaders of all ranks of a run.

    Args:
        env: the run's clock.
        supply: the source of batches.
        recorder: writes the run's record.
    """

    def __init__(self, env: simpy.Environment, supply: Supply, recorder: Recorder) -> None:
        self._env, self._supply, self._recorder = env, supply, recorder
        self.stores = Stores(env, supply.storage, supply.record_bytes, supply.nodes)
        self._loaders: dict[Rank, _Loader] = {}

    def take(self, task: SimulatedTask, samples: Samples) -> Steps:
        """Waits for a batch and takes it."""
        start_s = self._env.now
        reads = yield from self.read(task, samples)
        self.taken(task.me.rank, reads, self._env.now - start_s)

    def read(self, task: SimulatedTask, samples: Samples) -> Steps:
        """Waits for a batch that the program does not take yet; returns the reader's statistics at its end."""
        if (rank := task.me.rank) not in self._loaders:
            reader = self.stores.reader(self._supply.nodes[rank])
            self._loaders[rank] = _Loader(self._env, rank, reader, self.stores, self._supply, self._recorder)
        return (yield from self._loaders[rank].take(task, samples))

    def taken(self, rank: Rank, reads: Reads, waited_s: float) -> None:
        """Records that the program has taken a batch.

        Args:
            rank: the rank.
            reads: the reader's statistics at the end of the batch.
            waited_s: how long the program waited for it.
        """
        trace = self._recorder.trace
        before_s = trace.reads[rank].stall_s if rank in trace.reads else 0.0
        trace.reads[rank] = reads._replace(stall_s=waited_s + before_s)

    def end(self, rank: Rank) -> None:
        """Stops the loader of a rank whose program has ended."""
        if rank in self._loaders:
            self._loaders[rank].end()


@dataclass(frozen=True, slots=True)
class _Reading:
    """A batch that is being read."""

    samples: Samples
    begun_s: float
    reads: Reads
    """the reader's statistics, this batch included"""
    beginning: int
    """number of the loader's restart in which it was begun"""


class _Loader:
    """Reads one rank's batches."""

    def __init__(
        self,
        env: simpy.Environment,
        rank: Rank,
        reader: StorageReader,
        stores: Stores,
        supply: Supply,
        recorder: Recorder,
    ) -> None:
        self._env, self._rank, self._reader, self._stores, self._recorder = env, rank, reader, stores, recorder
        self._order, self._depth, self._held = supply.order, supply.prefetch, Held()
        self._asking = Mutex(env)
        """lanes that load at the same time do so one after the other"""
        self._ready: deque[Reads] = deque()
        """the reader's statistics at each batch that is ready"""
        self._due: Samples | None = None
        """the predicted next request"""
        self._next: Samples | None = None
        """the next batch to read"""
        self._now: _Reading | None = None
        self._beginnings = 0
        """number of restarts; batches that were read before the last one are dropped"""
        self._reads = Reads()
        self._come: simpy.Event | None = None
        """the event that the program waits for"""
        self._ended = False

    def take(self, task: SimulatedTask, samples: Samples) -> Steps:
        """Waits for a batch; returns the reader's statistics at its end."""
        yield from self._asking.acquire(task, "its loader")
        try:
            self._come = self._env.event()
            if samples != self._due:
                self._begin(samples)
            if not self._ready:
                task.blocked = lambda: f"waits for batch {samples.index} from storage"
                yield self._come
            reads, self._come = self._ready.popleft(), None
            self._due = following(samples) if self._depth else None
            self._read_next()
        finally:
            self._come = None
            self._asking.release()
        return reads

    def end(self) -> None:
        """Stops prefetching; a read that the program does not wait for is recorded up to now."""
        self._ended = True
        if self._now is not None and not self._waited_for:
            self._note(self._now)
            self._now = None

    @property
    def _waited_for(self) -> bool:
        return self._come is not None and not self._come.triggered

    def _begin(self, samples: Samples) -> None:
        """Drops prefetched batches and continues with this one."""
        self._ready.clear()
        self._due = self._next = samples
        self._beginnings += 1
        self._read_next()

    def _read_next(self) -> None:
        """Reads the next batch, if the loader may hold another one."""
        while self._next is not None and self._now is None and len(self._ready) <= self._depth:
            if self._ended and not self._waited_for:
                return
            samples, self._next = self._next, following(self._next) if self._depth else None
            asked = self._reader.ask(self._held.fresh(self._order.pieces(samples)))
            requests, seeks, nbytes, _ = self._reads
            self._reads = Reads(requests + asked.requests, seeks + asked.seeks, nbytes + asked.bytes)
            reading = _Reading(samples, self._env.now, self._reads, self._beginnings)
            if asked.requests:
                self._now = reading
                self._stores.read(self._reader, asked, partial(self._read, reading))
            else:
                self._put(reading)

    def _read(self, reading: _Reading) -> None:
        if self._now is not reading:
            return  # the program has ended
        self._now = None
        self._note(reading)
        self._put(reading)
        self._read_next()

    def _put(self, reading: _Reading) -> None:
        """Hands a batch to the program, or stores it for later."""
        if reading.beginning != self._beginnings:
            return
        self._ready.append(reading.reads)
        if self._come is not None and self._waited_for:
            self._come.succeed()

    def _note(self, reading: _Reading) -> None:
        """Records the span of a read that ran concurrently with the program."""
        if self._depth:
            step, start_s = reading.samples.index, reading.begun_s
            self._recorder.span(self._rank, READER, "read", None, step, start_s, self._env.now)
