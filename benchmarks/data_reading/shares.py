"""Parts of `benchmarks/reading.py`: the shares of several readers, measured and simulated."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
import simpy

from paceline.algorithms.core.values import Samples
from paceline.simulator.interpreter.storage import Stores
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.workloads.reading import Held, Order, Piece, Strategy
from paceline.workloads.reading.file import RecordFile, Records
from paceline.workloads.reading.reader import Opened, Reader

SHARE = 16
"""fraction of an epoch that is read if every record is a request"""
SEED = 1
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
IN_MEMORY = 64 << 20
"""bytes of records in memory: more than caches hold"""
CORES = len(os.sched_getaffinity(0))


class InMemory(Opened):
    """A record file in memory. Reading it costs only the work of the reader."""

    def __init__(self, file: RecordFile) -> None:
        self.file, self.note, self.direct = file, None, False
        self._records = np.ones(
            min(file.num_samples, IN_MEMORY // file.record_bytes) * file.record_bytes, np.uint8
        ).view(file.dtype)

    def read(self, piece: Piece) -> Records:
        first = piece.first % (len(self._records) - piece.records + 1)
        return self._records[first : first + piece.records]


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one of several readers: a number of steps from a first one."""

    order: Order
    worker: int
    workers: int
    batch: int
    first: int
    steps: int
    from_memory: bool = False

    @property
    def samples(self) -> Iterator[Samples]:
        """Reads step by step."""
        for index in range(self.first, self.first + self.steps):
            yield Samples(self.worker, self.workers, index, self.batch)

    def ready(self, opened: Opened) -> Callable[[], None]:
        """See `readers.Work`. The order of the epoch is computed before the timing begins."""
        file = InMemory(opened.file) if self.from_memory else opened
        reader, steps = Reader(opened.file, self.order, opened=file), list(self.samples)
        self.order.positions(steps[0])

        def run() -> None:
            for samples in steps:
                reader.records(samples)

        return run


@dataclass(frozen=True, slots=True)
class Cell:
    """The number of readers and their strategy."""

    readers: int
    strategy: Strategy

    def shares(self, num_samples: int, *, buffer: int, batch: int, turn: int) -> list[Share]:
        """Returns the share of each reader in a turn: the whole epoch, or a part of it if each record is a request.

        Args:
            num_samples: Records in the file.
            buffer: Records of a shuffle buffer.
            batch: Samples of one step of one reader.
            turn: Number of the turn. Each turn reads the records after those of the previous one.
        """
        order = Order(strategy=self.strategy, num_samples=num_samples, seed=SEED, buffer=buffer)
        epoch = num_samples // (self.readers * batch)
        steps = epoch if self.strategy == "contiguous" else max(2, epoch // SHARE)
        first = turn * steps
        return [Share(order, worker, self.readers, batch, first, steps) for worker in range(self.readers)]


def simulated_s(storage: StorageModel, record_bytes: int, shares: Sequence[Share], handling_s: float) -> float:
    """Returns the simulated seconds of these shares.

    Args:
        storage: The calibrated storage.
        record_bytes: Bytes of a record.
        shares: The shares of the readers on one node.
        handling_s: Seconds that a reader needs for a batch after its bytes arrived, on one of `CORES`.
    """
    env = simpy.Environment()
    cores = simpy.Resource(env, CORES)
    stores = Stores(env, storage, record_bytes, [0] * len(shares))

    def read(share: Share) -> Generator[simpy.Event, Any, None]:
        reader, held = stores.reader(0), Held()
        for samples in share.samples:
            asked = reader.ask(held.fresh(share.order.pieces(samples)))
            if asked.requests:
                there = env.event()
                stores.read(reader, asked, partial(_come, there))
                yield there
            with cores.request() as core:
                yield core
                yield env.timeout(handling_s)

    env.run(until=env.all_of([env.process(read(share)) for share in shares]))
    return float(env.now)


def _come(event: simpy.Event) -> None:
    event.succeed()


def records(shares: Sequence[Share]) -> int:
    """Returns the records of all shares."""
    return sum(share.steps * share.batch for share in shares)
