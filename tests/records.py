"""Tiny record files: the inputs show the position of a record, and the labels its number."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paceline.workloads.reading.file import RecordFile, records_of, write_records


def numbered(path: Path, num_samples: int, *, shape: tuple[int, ...] = (3,)) -> RecordFile:
    """Returns a file of this many records, each labelled with its number."""
    labels = np.arange(num_samples)
    inputs = np.random.default_rng(num_samples).integers(0, 256, (num_samples, *shape)).astype(np.uint8)
    records = records_of(inputs, labels)
    write_records(path, [records[:7], records[7:]], count=num_samples, dtype=records.dtype)
    return RecordFile.open(path)
