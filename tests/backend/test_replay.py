"""Replays without a clock of real runs whose result depends on the order of arrival."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import METHODS, find
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.partial_collectives import EagerSgd
from paceline.backend.local.launch import Launch, run_job
from paceline.checking.anyorder import AnyOrder
from paceline.checking.replay import Recording, ReplayError, replay
from paceline.records.tables import assemble
from paceline.records.trace import Schedule, Trace
from paceline.workloads import build
from tests.backend.jobs import run_for_real
from tests.impatient import Impatient
from tests.support import built, job_of, nodes_for, staleness_table
from tests.thorough import FAMILIES, sampled

pytestmark = pytest.mark.backend
UPDATES = 120
ELSEWHERE = """
import json, sys
import torch
torch.set_num_threads(1)
from paceline.algorithms.core.values import Rank
from paceline.checking.replay import Recording, replay
from tests.backend.test_replay import asynchronous
heard = [(Rank(receiver), Rank(source)) for receiver, source in json.load(sys.stdin)]
sys.stdout.write(replay(asynchronous(), Recording.of(heard)).weights.numpy().tobytes().hex())
"""


class Unlike:
    """Four workers whose steps take from 3 to 11 milliseconds, with jitter."""

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return 1e-3 * (3 + 2 * rank + (7 * step + rank) % 3)

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [1 / 6, 1 / 6], [1 / 3, 1 / 3]


def asynchronous() -> Job:
    learner: Any = build("digits-mlp", dataset="digits", learning="train", seed=3)
    nodes = [[Rank(rank)] for rank in range(4)]
    return Job.of(find("async-sgd")(), nodes, learner, batch=32, budget=Budget(samples=32 * UPDATES), seed=3)


@pytest.fixture(scope="module")
def job() -> Job:
    return asynchronous()


@pytest.fixture(scope="module")
def recorded(job: Job) -> Trace:
    return run_job(Launch(job=job, schedule=lambda: Schedule(every=UPDATES), pace=Unlike(), torch_threads=1))


def test_the_replay_ends_in_bit_identical_weights(job: Job, recorded: Trace) -> None:
    """With one torch thread on both sides; the lags differ, so the order matters, and it differs from the default
    order.
    """
    import torch

    torch.set_num_threads(1)
    again = replay(job, Recording.of(recorded.heard))
    assert len({update.staleness for update in recorded.updates}) > 2
    assert torch.equal(again.weights, recorded.weights)
    assert [u.staleness for u in again.updates] == [u.staleness for u in recorded.updates]
    assert [(u.rank, u.step) for u in again.updates] == [(u.rank, u.step) for u in recorded.updates]
    assert not torch.equal(AnyOrder(job).run().weights, recorded.weights)


def test_another_seeds_job_follows_the_order_and_ends_elsewhere(job: Job, recorded: Trace) -> None:
    """The recorded order alone is not enough: gradients are computed again."""
    import torch

    learner: Any = build("digits-mlp", dataset="digits", learning="train", seed=4)
    other = Job.of(job.method, [[Rank(rank)] for rank in range(4)], learner, batch=32, budget=job.budget, seed=4)
    assert not torch.equal(replay(other, Recording.of(recorded.heard)).weights, recorded.weights)


def test_a_shorter_job_is_not_the_recorded_one(job: Job, recorded: Trace) -> None:
    shorter = Job(job.method, job.team, job.learner, Budget(samples=32 * (UPDATES - 10)), job.seed)
    with pytest.raises(ReplayError):
        replay(shorter, Recording.of(recorded.heard))


@pytest.mark.thorough
def test_a_replay_in_another_process_ends_there_too(recorded: Trace) -> None:
    heard = json.dumps(recorded.heard)
    command, root = [sys.executable, "-c", ELSEWHERE], Path(__file__).resolve().parents[2]
    done = subprocess.run(command, input=heard, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout) == recorded.weights.numpy().tobytes()


# --- which of several started operations was first --------------------------------------------------------------------


def test_a_real_run_of_impatient_workers_is_replayed() -> None:
    """Gradients and receives that were cancelled in time, or too late, end in bit-identical weights on every worker."""
    import torch

    torch.set_num_threads(1)
    learner: Any = build("digits-mlp", dataset="digits", learning="train", seed=3)
    nodes = [[Rank(rank)] for rank in range(3)]
    job = Job.of(Impatient(), nodes, learner, batch=32, budget=Budget(samples=3 * 32 * 25), seed=3)
    recorded = run_job(Launch(job=job, schedule=lambda: Schedule(every=25), pace=Unlike(), torch_threads=1))
    kinds = {type(outcome) for outcomes in recorded.outcomes.values() for outcome in outcomes}
    assert kinds == {tuple, bool}
    recording = Recording.of_tables(assemble(recorded, num_samples=learner.num_samples, measured=True))
    assert recording == Recording.of_run(recorded)
    again = replay(job, recording)
    assert again.outcomes == recorded.outcomes
    for rank, state in recorded.states.items():
        assert torch.equal(again.states[rank].weights.vector, state.weights.vector)


# --- every asynchronous method ----------------------------------------------------------------------------------------


# Hogwild's order is not recorded: recording which of two ranks accessed a number in shared memory first would need a
# lock.
ASYNCHRONOUS = [name for name in METHODS if not built(name).deterministic and not built(name).shared]


@pytest.mark.parametrize("name", sampled(ASYNCHRONOUS, FAMILIES))
def test_a_real_run_of_every_asynchronous_method_is_replayed(name: str) -> None:
    """Bit-identical weights on every rank and the same staleness, with one torch thread on both sides.

    Gloo adds in another order than a replay, so after all-reduces among four workers one rounding per step is allowed.
    """
    import torch

    torch.set_num_threads(1)
    learner: Any = build("digits-mlp", dataset="digits", learning="train", seed=3)
    method = built(name)
    nodes = [[Rank(rank) for rank in node] for node in nodes_for(method)]
    job = Job.of(method, nodes, learner, batch=32, budget=Budget(samples=32 * 40), seed=3)
    recorded = run_job(Launch(job=job, schedule=lambda: Schedule(every=10), pace=Unlike(), torch_threads=1))
    recording = Recording.of_tables(assemble(recorded, num_samples=learner.num_samples, measured=True))
    assert recording == Recording.of_run(recorded)
    again = replay(job, recording)
    assert not torch.equal(recorded.weights, learner.initial())
    for rank, state in recorded.states.items():
        within = 10 * float(np.finfo(np.float32).eps) if name == "eager-sgd" else 0.0
        torch.testing.assert_close(again.states[rank].weights.vector, state.weights.vector, rtol=0.0, atol=within)
    rows = [
        sorted((u.rank, u.step, u.version_applied, u.staleness) for u in trace.updates) for trace in (recorded, again)
    ]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("kind", ["solo", "majority"])
def test_partial_all_reduces_of_two_workers_are_replayed_bit_for_bit(kind: Any) -> None:
    """A sum of two terms has one order."""
    job = job_of(EagerSgd(collective=kind, sync_every=7), 2, steps=40)
    recorded = run_for_real(job)
    again = replay(job, Recording.of_run(recorded))
    assert again.weights.tobytes() == recorded.weights.tobytes()
    assert staleness_table(again) == staleness_table(recorded)
