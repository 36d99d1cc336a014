"""A forked process does not touch objects of its parent."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.algorithms.methods.baseline import SyncSgd
from paceline.backend.posix.processes import fork
from tests.backend.jobs import Steps, run_for_real
from tests.support import Bowl, job_of

pytestmark = pytest.mark.backend


class Leftover:
    """Garbage that only a collector finds, and that says which process has destroyed it."""

    def __init__(self, told: Path) -> None:
        self.told, self.itself = told, self

    def __del__(self) -> None:
        self.told.write_text(str(os.getpid()))


@pytest.mark.parametrize("collects", [True, False])
def test_a_child_collects_its_own_garbage_and_none_of_its_parents(tmp_path: Path, collects: bool) -> None:
    of_parent, of_child = tmp_path / "parent", tmp_path / "child"
    gc.disable()
    try:
        Leftover(of_parent)
        if collects:
            gc.enable()
        if (child := fork()) == 0:
            Leftover(of_child)
            gc.collect()
            os._exit(gc.isenabled())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert (status, gc.isenabled()) == (collects, collects)
        assert of_child.read_text() == str(child)
        assert not of_parent.exists() or of_parent.read_text() == str(os.getpid())
        gc.collect()
        assert of_parent.read_text() == str(os.getpid())
    finally:
        gc.enable()


@dataclass(frozen=True)
class Collecting(Bowl):
    """Every rank's collector runs."""

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        gc.collect()
        return super().gradient(vector, data)


def test_ranks_destroy_nothing_of_their_launchers(tmp_path: Path) -> None:
    """Such as a process group of torch's, whose destructor waits for a thread that no rank has."""
    told = tmp_path / "destroyed by"
    gc.disable()
    try:
        Leftover(told)
        trace = run_for_real(job_of(SyncSgd(), 2, steps=2, learner=Collecting()), pace=Steps())
        assert len(trace.updates) > 0
        assert not told.exists()
    finally:
        gc.enable()
