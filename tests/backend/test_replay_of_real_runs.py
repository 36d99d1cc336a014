"""A real run of an asynchronous method, heard again in the order the server heard it, ends in the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.algorithms import find
from paceline.algorithms.job import Job
from paceline.algorithms.values import Rank
from paceline.checking.anyorder import AnyOrder
from paceline.checking.replay import Recording, replay
from paceline.records.trace import Trace
from paceline.workloads import build
from tests.backend.jobs import job_with, run_for_real

pytestmark = pytest.mark.backend

UPDATES = 120
ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = """
import json, sys
import torch
torch.set_num_threads(1)
from paceline.algorithms.values import Rank
from paceline.checking.replay import Recording, replay
from tests.backend.test_replay_of_real_runs import asynchronous
heard = [(Rank(receiver), Rank(source)) for receiver, source in json.load(sys.stdin)]
sys.stdout.write(replay(asynchronous(), Recording.of(heard)).weights.numpy().tobytes().hex())
"""


def asynchronous() -> Job:
    learner = build("digits-mlp", data="digits", learning="train", seed=3)
    return job_with(find("async-sgd")(), learner, steps=UPDATES)


@pytest.fixture(scope="module")
def recorded() -> Trace:
    return run_for_real(asynchronous())


def test_the_record_is_of_an_asynchronous_run(recorded: Trace) -> None:
    """Unlike workers come at unlike lags, and the order is not one that a replay would choose by itself."""
    lags = Counter(update.staleness for update in recorded.updates)
    assert len(lags) >= 3
    pushes = Counter(update.rank for update in recorded.updates)
    assert pushes[Rank(0)] > 1.5 * pushes[Rank(3)] > 0
    assert (AnyOrder(asynchronous()).run().weights != recorded.weights).any()


def test_a_replay_ends_in_the_same_weights_bit_for_bit(recorded: Trace) -> None:
    assert torch.get_num_threads() == 1  # as the ranks had: a sum over threads has another order
    again = replay(asynchronous(), Recording.of(recorded.heard))
    np.testing.assert_array_equal(again.weights.numpy(), recorded.weights.numpy())
    rows = [(u.rank, u.step, u.version_read, u.version_applied, u.staleness) for u in recorded.updates]
    assert [(u.rank, u.step, u.version_read, u.version_applied, u.staleness) for u in again.updates] == rows


def test_a_replay_in_another_process_does_so_too(recorded: Trace) -> None:
    heard = json.dumps([(int(receiver), int(source)) for receiver, source in recorded.heard])
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=heard, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout) == recorded.weights.numpy().tobytes()
