"""Tiny record files: inputs that tell where a record lies, and labels that say its number."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paceline.workloads.reading.file import RecordFile, records_of, write_records


def numbered(path: Path, population: int, *, shape: tuple[int, ...] = (3,)) -> RecordFile:
    """A file of so many records, each labelled with its number."""
    labels = np.arange(population)
    inputs = np.random.default_rng(population).integers(0, 256, (population, *shape)).astype(np.uint8)
    records = records_of(inputs, labels)
    write_records(path, [records[:7], records[7:]], count=population, dtype=records.dtype)
    return RecordFile.open(path)
