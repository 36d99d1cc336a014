"""Batches that are read from storage, ahead of the program that asks for them.

Rules of this file:

* With a depth of d ≥ 1 a rank's loader reads batch after batch beside its program, puts each into a queue of d places,
  and keeps a finished one in hand while the queue is full: d + 1 batches at most are there and not yet taken. With
  d = 0 nothing is read before it is asked for.
* The first batch that is asked for begins this. One that was not foreseen begins it anew, once what is being read is
  there: that, and all that was read ahead, is dropped.
* What is read is what the real reader reads: the pieces of `Order` that it does not hold yet (`Held`).
* Figures are those of all requests up to the last batch that was taken. Where a program ends, its loader begins nothing
  any more, and nobody waits for what it is reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import simpy

from paceline.algorithms.core.values import Rank, Samples
from paceline.records.trace import READER, Reads, Span, Trace
from paceline.simulator.interpreter.storage import Reader, Stores
from paceline.simulator.kernel.lanes import Mutex, Steps, Task
from paceline.topologies.catalogue.storage_devices import Storage
from paceline.workloads.reading import Held, Order, following


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Where a run's batches come from.

    Args:
        storage: what the file lies on.
        order: in which samples are used.
        record_bytes: of one sample in the file.
        prefetch: batches that are read ahead.
        nodes: the node of each worker.
    """

    storage: Storage
    order: Order
    record_bytes: int
    prefetch: int
    nodes: Sequence[int]


class Loading:
    """The loaders of all ranks of a run."""

    def __init__(self, env: simpy.Environment, supply: Supply, trace: Trace) -> None:
        self._env, self._supply, self._trace = env, supply, trace
        self.stores = Stores(env, supply.storage, supply.record_bytes, supply.nodes)
        self._loaders: dict[Rank, _Loader] = {}

    def take(self, task: Task, samples: Samples) -> Steps:
        """Waits until the batch is there, and takes it."""
        rank, start_s = task.me.rank, self._env.now
        if rank not in self._loaders:
            reader = self.stores.reader(self._supply.nodes[rank])
            self._loaders[rank] = _Loader(self._env, rank, reader, self.stores, self._supply, self._trace)
        reads = yield from self._loaders[rank].take(task, samples)
        stall_s = self._env.now - start_s + (self._trace.reads[rank].stall_s if rank in self._trace.reads else 0.0)
        self._trace.reads[rank] = reads._replace(stall_s=stall_s)

    def end(self, rank: Rank) -> None:
        """The rank's program has ended."""
        if rank in self._loaders:
            self._loaders[rank].end()


@dataclass(frozen=True, slots=True)
class _Reading:
    """A batch that is being read."""

    samples: Samples
    begun_s: float
    reads: Reads
    """of the reader, up to its end"""
    beginning: int
    """during which it was begun"""


class _Loader:
    """Reads one rank's batches."""

    def __init__(
        self, env: simpy.Environment, rank: Rank, reader: Reader, stores: Stores, supply: Supply, trace: Trace
    ) -> None:
        self._env, self._rank, self._reader, self._stores, self._trace = env, rank, reader, stores, trace
        self._order, self._depth, self._held = supply.order, supply.prefetch, Held()
        self._asking = Mutex(env)
        """lanes that load at the same time do so one after the other"""
        self._ready: deque[Reads] = deque()
        """of each batch that is there: what had been read by then"""
        self._due: Samples | None = None
        """the batch that is asked for next, if it is as foreseen"""
        self._next: Samples | None = None
        """the batch that is read next"""
        self._now: _Reading | None = None
        self._beginnings = 0
        """what was read for an earlier one is dropped"""
        self._reads = Reads()
        self._come: simpy.Event | None = None
        """what the program waits for"""
        self._ended = False

    def take(self, task: Task, samples: Samples) -> Steps:
        """Answers what had been read when the batch was there."""
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
            self._go_on()
        finally:
            self._come = None
            self._asking.release()
        return reads

    def end(self) -> None:
        """Reads ahead no more; what is being read, if nobody waits for it, was read up to now."""
        self._ended = True
        if self._now is not None and not self._waited_for:
            self._note(self._now)
            self._now = None

    @property
    def _waited_for(self) -> bool:
        return self._come is not None and not self._come.triggered

    def _begin(self, samples: Samples) -> None:
        """Drops what was read ahead, and reads on from here."""
        self._ready.clear()
        self._due = self._next = samples
        self._beginnings += 1
        self._go_on()

    def _go_on(self) -> None:
        """Reads the next batch, if there is a place for it or a hand to keep it in."""
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
        self._go_on()

    def _put(self, reading: _Reading) -> None:
        """Hands a batch to the program, or keeps it for later."""
        if reading.beginning != self._beginnings:
            return
        self._ready.append(reading.reads)
        if self._come is not None and self._waited_for:
            self._come.succeed()

    def _note(self, reading: _Reading) -> None:
        """Records what was read beside the program."""
        if self._depth:
            step, start_s = reading.samples.index, reading.begun_s
            self._trace.spans.append(Span(self._rank, READER, "read", None, step, start_s, self._env.now))
