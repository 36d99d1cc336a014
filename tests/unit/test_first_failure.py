"""The failure that ends a run is the cause, not a consequence that was recorded earlier."""

from __future__ import annotations

from pathlib import Path

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.backend.status.recorder import FileRecorder
from paceline.backend.supervision.gather import Failure, stream_of
from tests.support import job_of


def test_a_consequence_is_not_named_although_it_came_first(tmp_path: Path) -> None:
    failures = (
        Failure(Rank(0), "worker", PeerFailed, "rank 1 has ended", "", time_s=1.0, follows=True),
        Failure(Rank(1), "worker", ValueError, "the cause", "", time_s=1.1, follows=False),
    )
    for failure in failures:
        path = stream_of(tmp_path, failure.rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        recorder = FileRecorder(failure.rank, path)
        recorder.add("error", failure)
        recorder.close()
    assert Failure.first(tmp_path, job_of(SyncSgd(), 2).team) == failures[1]
