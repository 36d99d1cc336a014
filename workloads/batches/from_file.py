"""Batches from a record file: the same that `InMemory` would draw, without the file in memory.

Rules of this file:

* Every worker has a reader of its own, made when it is first asked: ranks are forked, and a process opens for itself.
* Readers of one process share one open file. Where there are many, as in a simulation, those that have not been asked
  for longest free their memory; that costs time and changes nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

import numpy as np
import torch

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Samples
from paceline.workloads.batches.examples import Batch
from paceline.workloads.datasets import MANY
from paceline.workloads.reading.file import RecordFile, Records
from paceline.workloads.reading.orders import Order, Piece, Places
from paceline.workloads.reading.reader import Counts, Opened, Reader

KEPT = 256 << 20
"""bytes of windows that the readers of one process keep together; provenance: ours"""


class FromFile:
    """Draws from a record file; see the head of this file.

    Args:
        file: the examples.
        order: where the samples of a step lie in it.
        dtype: of inputs that are no bytes.
        classes: how many there are, so that a wrong label is told by its place; None: nobody knows.
    """

    def __init__(self, file: RecordFile, order: Order, *, dtype: torch.dtype, classes: int | None) -> None:
        self.file, self.order, self.dtype, self.classes = file, order, dtype, classes
        self._most = max(1, KEPT // (order.buffer * file.record_bytes))
        self._process = 0  # that nothing has been opened in yet
        self._opened: Opened | None = None
        self._readers: dict[int, Reader] = {}
        self._lock = threading.Lock()

    @property
    def num_samples(self) -> int:
        return self.file.num_samples

    def batch(self, samples: Samples) -> Batch:
        records = self._reader(samples.worker).records(samples)
        return _batch(self.file, records, lambda: self.order.positions(samples), self.classes).rounded(self.dtype)

    def batches(self, samples: Sequence[Samples]) -> Batch:
        drawn = {
            one: self.batch(one) for one in dict.fromkeys(samples)
        }  # a block may be filled up with one and the same
        return Batch(*(torch.stack(parts) for parts in zip(*(drawn[one] for one in samples), strict=True)))

    def reads(self, worker: int) -> Counts:
        """What this process has asked of the file for a worker."""
        return self._reader(worker).counts

    def _reader(self, worker: int) -> Reader:
        """The worker's, as the one that was asked for last."""
        with self._lock:
            if self._process != os.getpid():  # what was opened and counted before a fork is the parent's
                self._process, self._opened, self._readers = os.getpid(), Opened(self.file), {}
            reader = self._readers.pop(worker, None) or Reader(self.file, self.order, opened=self._opened)
            self._readers[worker] = reader
            if len(self._readers) > self._most:
                oldest = list(self._readers)[-self._most - 1]
                self._readers[oldest].forget()
        return reader


def read_part(file: RecordFile, count: int, classes: int) -> Batch:
    """The first few records of a file; raises `InputError` for a label that is no class."""
    opened = Opened(file)
    try:
        records = opened.read(Piece(0, count))
        file.verify(0, records)
        return _batch(file, records, lambda: np.arange(count), classes)
    finally:
        opened.close()


def _batch(file: RecordFile, records: Records, places: Callable[[], Places], classes: int | None) -> Batch:
    """Records as a batch, in memory of its own; where they lie is asked only if one of them is wrong."""
    inputs, labels = np.ascontiguousarray(records["inputs"]), records["label"].astype(np.int64)
    wrong = np.flatnonzero((labels < 0) | (labels >= (MANY if classes is None else classes)))
    if wrong.size:
        record = int(places()[wrong[0]])
        where = f"record {record:,} of {file.path}, at offset {file.offset(record):,}"
        raise InputError(f"found label {labels[wrong[0]]} in {where}; expected 0 to {(classes or MANY) - 1}")
    return Batch(torch.from_numpy(inputs), torch.from_numpy(labels))
