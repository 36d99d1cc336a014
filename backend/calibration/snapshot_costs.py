"""Measures how long the owner of the weights needs to store them for an evaluation."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.posix.run_folders import SHARED
from paceline.backend.status.recorder import Recorder
from paceline.records.trace import Snapshot

PIECE = 20
"""snapshots in one piece of a record; a run writes one every half second, so it has about as many"""
MOST_BYTES = 64 * 2**20
"""of a piece here, unless one snapshot is larger: it lies in memory twice"""


def snapshot_s(job: Job) -> float:
    """Returns the mean seconds in which a rank stores the weights of a job in its record.

    Args:
        job: the job.
    """
    with tempfile.TemporaryDirectory(prefix="snapshots-", dir=SHARED) as folder:
        recorder = Recorder(Rank(0), Path(folder, "record"))
        initial = job.learner.initial()
        count = max(1, min(PIECE, MOST_BYTES // max(1, int(initial.nbytes))))
        vectors = [initial + 0.0 for _ in range(count)]
        begun_s = time.perf_counter()
        for number, vector in enumerate(vectors):
            recorder.add("snapshot", Snapshot(0.0, number, 0, vector))
        recorder.close()
        return (time.perf_counter() - begun_s) / count
