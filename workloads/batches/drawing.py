"""The sources of a learner's batches: examples in memory, or a file.

A batch is a function of `Samples` alone, independent of earlier requests. Data that is cached between two batches only
saves time.

Batches from a record file: the same batches as those of `InMemoryExamples`, without the file in memory.

Every worker has its own reader, made on first use: ranks are forked, and each process opens the file itself. Readers of
one process share one open file. If there are many, as in a simulation, the least recently used ones free their memory,
which costs time but does not change the batches.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Samples
from paceline.workloads.batches.examples import LabelledBatch
from paceline.workloads.datasets import MANY
from paceline.workloads.reading.file import RecordFile, Records
from paceline.workloads.reading.orders import Order, Piece, Places
from paceline.workloads.reading.reader import Counts, Opened, Reader
from paceline.workloads.sampling import positions


class Draw(Protocol):
    """A source of batches in their stored form, which `Examples.shaped` converts for a model."""

    @property
    def num_samples(self) -> int:
        """Samples in one epoch."""
        ...

    def batch(self, samples: Samples) -> LabelledBatch:
        """Returns the examples of one step of one worker."""
        ...

    def batches(self, samples: Sequence[Samples]) -> LabelledBatch:
        """Returns the examples of several steps with equally many samples, with an additional first dimension."""
        ...


@runtime_checkable
class RequestCounting(Protocol):
    """A source that counts the requests of its workers to a file."""

    def reads(self, worker: int) -> tuple[int, int, int]:
        """Returns the requests, seeks and bytes of this process for a worker so far."""
        ...


@dataclass(frozen=True, slots=True)
class InMemoryExamples:
    """Draws from examples that are in memory.

    Args:
        train: the examples.
        order: returns the positions of a step's samples.
    """

    train: LabelledBatch
    order: Callable[[Samples], NDArray[np.int64]]

    @staticmethod
    def shuffled(train: LabelledBatch, seed: int) -> InMemoryExamples:
        """Returns a source whose order is shuffled in every epoch; see `sampling`.

        Args:
            train: the examples.
            seed: seed of the order.
        """
        return InMemoryExamples(train, partial(positions, num_samples=len(train.labels), seed=seed))

    @property
    def num_samples(self) -> int:
        return len(self.train.labels)

    def batch(self, samples: Samples) -> LabelledBatch:
        return self.train.at(torch.from_numpy(self.order(samples).copy()))

    def batches(self, samples: Sequence[Samples]) -> LabelledBatch:
        chosen = {sample: self.order(sample) for sample in samples}  # a block may be padded with copies
        return self.train.at(torch.from_numpy(np.stack([chosen[sample] for sample in samples])))


KEPT = 256 << 20
"""bytes of windows that all readers of one process keep in memory; provenance: ours"""


class FromFile:
    """Draws from a record file; see the top of this file.

    Args:
        file: the examples.
        order: the positions of a step's samples in the file.
        dtype: type of inputs that are not bytes.
        classes: number of classes, to report wrong labels; None if unknown.
    """

    def __init__(self, file: RecordFile, order: Order, *, dtype: torch.dtype, classes: int | None) -> None:
        self.file, self.order, self.dtype, self.classes = file, order, dtype, classes
        self._most = max(1, KEPT // (order.buffer * file.record_bytes))
        self._process = 0  # the process that opened the file; 0: none
        self._opened: Opened | None = None
        self._readers: dict[int, Reader] = {}
        self._lock = threading.Lock()

    @property
    def num_samples(self) -> int:
        return self.file.num_samples

    def batch(self, samples: Samples) -> LabelledBatch:
        records = self._reader(samples.worker).records(samples)
        return _batch(self.file, records, lambda: self.order.positions(samples), self.classes).rounded(self.dtype)

    def batches(self, samples: Sequence[Samples]) -> LabelledBatch:
        drawn = {sample: self.batch(sample) for sample in dict.fromkeys(samples)}  # a block may be padded with copies
        return LabelledBatch(
            *(torch.stack(parts) for parts in zip(*(drawn[sample] for sample in samples), strict=True))
        )

    def reads(self, worker: int) -> Counts:
        """Returns the requests of this process for a worker."""
        return self._reader(worker).counts

    def _reader(self, worker: int) -> Reader:
        """Returns the worker's reader, and marks it as the most recently used one."""
        with self._lock:
            if self._process != os.getpid():  # files and counts from before a fork belong to the parent
                self._process, self._opened, self._readers = os.getpid(), Opened(self.file), {}
            reader = self._readers.pop(worker, None) or Reader(self.file, self.order, opened=self._opened)
            self._readers[worker] = reader
            if len(self._readers) > self._most:
                oldest = list(self._readers)[-self._most - 1]
                self._readers[oldest].forget()
        return reader


def read_part(file: RecordFile, count: int, classes: int) -> LabelledBatch:
    """Returns the first records of a file.

    Args:
        file: the record file.
        count: number of records.
        classes: number of classes.

    Raises:
        InputError: a label is not a class.
    """
    opened = Opened(file)
    try:
        records = opened.read(Piece(0, count))
        file.verify(0, records)
        return _batch(file, records, lambda: np.arange(count), classes)
    finally:
        opened.close()


def _batch(file: RecordFile, records: Records, places: Callable[[], Places], classes: int | None) -> LabelledBatch:
    """Copies records to a batch; `places` is called only to report a wrong record."""
    inputs, labels = np.ascontiguousarray(records["inputs"]), records["label"].astype(np.int64)
    wrong = np.flatnonzero((labels < 0) | (labels >= (MANY if classes is None else classes)))
    if wrong.size:
        record = int(places()[wrong[0]])
        where = f"record {record:,} of {file.path}, at offset {file.offset(record):,}"
        raise InputError(f"found label {labels[wrong[0]]} in {where}; expected 0 to {(classes or MANY) - 1}")
    return LabelledBatch(torch.from_numpy(inputs), torch.from_numpy(labels))
