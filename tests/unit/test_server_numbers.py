"""The number of gradients per update, for any number of workers, and refused values."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.algorithms.core.rules import Lars
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.parameter_server import AsyncSgd, Softsync, SyncSgdPs
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KBatchAsync, KSync


@pytest.mark.parametrize(
    ("method", "needed"),
    [
        (SyncSgdPs(), [1, 2, 3, 4, 5, 30]),
        (AsyncSgd(), [1, 1, 1, 1, 1, 1]),
        (Softsync(), [1, 2, 3, 4, 5, 30]),
        (KSync(), [1, 1, 2, 2, 3, 15]),
        (KAsync(), [1, 1, 2, 2, 3, 15]),
        (KBatchAsync(k=2), [2, 2, 2, 2, 2, 2]),
        (BackupWorkers(), [1, 2, 3, 3, 4, 23]),
        (BackupWorkers(backups=0), [1, 2, 3, 4, 5, 30]),
    ],
    ids=repr,
)
def test_a_step_is_as_many_batches_as_an_update_has_gradients(method: Any, needed: list[int]) -> None:
    """Samples of a step of the server; the defaults suit any number of workers."""
    crews = (1, 2, 3, 4, 5, 30)
    assert [method.needed(workers) for workers in crews] == needed
    assert [method.samples_per_step(8, workers) for workers in crews] == [8 * number for number in needed]
    assert not any(method.problems([[Rank(i)] for i in range(workers)]) for workers in crews)


def test_softsync_rounds_down() -> None:
    assert [Softsync(n=n).needed(30) for n in (1, 2, 4, 15, 16, 30)] == [30, 15, 7, 2, 1, 1]


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (Softsync(n=5), "n: found 5, expected at most 4 for 4 workers"),
        (Softsync(n=0), "n: found 0, expected a whole number of 1 or more"),
        (KSync(k=5), "k: found 5, expected at most 4 for 4 workers"),
        (KAsync(k=5), "k: found 5, expected at most 4 for 4 workers"),
        (KBatchAsync(k=0), "k: found 0, expected a whole number of 1 or more"),
        (BackupWorkers(backups=4), "backups: found 4, expected at most 3 for 4 workers"),
        (BackupWorkers(backups=-1), "backups: found -1, expected a whole number of 0 or more"),
        (SyncSgdPs(servers=0), "servers: found 0, expected a whole number of 1 or more"),
        (
            AsyncSgd(servers=2, max_grad_norm=1.5),
            (
                "max_grad_norm: found 1.5, expected null with servers = 2: no server is certain to have the norm of a "
                "whole gradient"
            ),
        ),
        (
            SyncSgdPs(servers=3, lars=Lars()),
            "lars: found it, expected null with servers = 3: no server is certain to have whole layers",
        ),
        (AsyncSgd(damping_base=0.5), "damping_base: found 0.5, expected a number of 1 or more"),
    ],
    ids=repr,
)
def test_what_four_workers_cannot_do_is_refused(method: Any, problem: str) -> None:
    assert method.problems([[Rank(0), Rank(1)], [Rank(2), Rank(3)]]) == [problem]
