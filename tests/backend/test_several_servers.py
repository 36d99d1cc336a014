"""Real runs with several servers: goals, checkpoints, replays and deaths; all servers end at the same step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Job, PlannedDeath
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.parameter_server import AsyncSgd, SyncSgdPs
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.rank.checkpoint import Checkpoint, Saving, find_last, read, steps_in
from paceline.checking.replay import Recording, replay
from paceline.records.tables import assemble
from paceline.records.trace import Schedule, Trace
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import refuse_simulated_only
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.backend.jobs import no_children, run_for_real
from tests.support import Bowl, FixedTiming, job_of, staleness_table

pytestmark = pytest.mark.backend


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr("paceline.backend.posix.run_folders.SHARED", shared)
    yield
    assert list(shared.iterdir()) == []
    assert no_children()


def run(job: Job, *, into: Path | None = None, start: Checkpoint | None = None) -> Trace:
    """Runs a job, with checkpoints at every fourth step if it is given a folder."""
    about = {"scenario": {}, "algorithm": job.method.name, "seed": job.seed}
    saving = None if into is None else Saving(folder=into / "checkpoints", every=4, keep=9, about=about)
    return run_job(Launch(job=job, schedule=lambda: Schedule(every=3), saving=saving, start=start))


def all_servers_end_together(job: Job, trace: Trace) -> None:
    steps = {trace.states[rank].step for rank in job.owners}
    assert len(steps) == 1
    versions = [shot.version for shot in trace.snapshots]
    assert versions == sorted(set(versions)) and versions[-1] == max(steps)
    np.testing.assert_array_equal(trace.snapshots[-1].vector, trace.weights)
    assert set(Counter(row.layer for row in trace.layers).values()) == {len(trace.updates)}


def test_a_goal_is_compared_with_the_joined_weights() -> None:
    """Neither shard alone says what the accuracy is."""
    job = job_of(AsyncSgd(servers=2, learning_rate=0.05), 4, steps=100_000, accuracy=0.4)
    trace = run_for_real(job)
    all_servers_end_together(job, trace)
    accuracies = [job.learner.evaluate(shot.vector).accuracy or 0.0 for shot in trace.snapshots]
    assert accuracies[0] < 0.4 <= max(accuracies)


def test_seconds_end_all_servers_at_the_same_step() -> None:
    job = job_of(AsyncSgd(servers=3), 3, steps=100_000, seconds=0.3)
    trace = run_for_real(job)
    assert trace.stop_reason == "seconds" and trace.updates
    all_servers_end_together(job, trace)


def test_a_resumed_synchronous_run_does_not_notice(tmp_path: Path) -> None:
    job = job_of(SyncSgdPs(servers=2, momentum=0.5), nodes=[[0, 1], [2]], steps=10)
    whole, paused = run(job), run(job, into=tmp_path / "paused")
    resumed = run(job, start=read(steps_in(tmp_path / "paused/checkpoints")[0]))
    for trace in (paused, resumed):
        all_servers_end_together(job, trace)
        np.testing.assert_array_equal(trace.weights, whole.weights)
        assert staleness_table(trace) == staleness_table(whole)
        assert [(s.version, s.vector.tobytes()) for s in trace.snapshots] == [
            (s.version, s.vector.tobytes()) for s in whole.snapshots
        ]


def test_a_resumed_asynchronous_run_makes_every_update_of_every_server(tmp_path: Path) -> None:
    method = AsyncSgd(servers=3)
    run(job_of(method, 3, steps=9), into=tmp_path)
    job = job_of(method, 3, steps=20)
    resumed = run(job, start=find_last(tmp_path))
    all_servers_end_together(job, resumed)
    for shard in {row.layer for row in resumed.layers}:
        assert sorted(row.version_applied for row in resumed.layers if row.layer == shard) == list(range(20))
    assert min(row.staleness for row in resumed.layers) >= 0


def test_a_replay_ends_with_the_same_bits() -> None:
    job = job_of(AsyncSgd(servers=2), 4, steps=40)
    recorded = run_for_real(job)
    recording = Recording.of_tables(assemble(recorded, num_samples=job.learner.num_samples, measured=True))
    again = replay(job, recording)
    np.testing.assert_array_equal(again.weights, recorded.weights)
    assert staleness_table(again) == staleness_table(recorded)


@pytest.mark.parametrize("real", [True, False])
def test_a_worker_dies_and_all_servers_go_on(real: bool) -> None:
    """A worker may die between its pushes: then some servers have its last gradient, and all make their updates."""
    job = replace(job_of(AsyncSgd(servers=2), 3, steps=60), deaths=(PlannedDeath(Rank(1), step=4),))
    trace = run_for_real(job) if real else simulate_job(job, FixedTiming(), NoCost(), Schedule(every=1))
    assert [lost["rank"] for lost in trace.failed_ranks] == [1]
    all_servers_end_together(job, trace)
    assert len(trace.updates) == 60
    assert {row.step for row in trace.updates if row.rank == 1} <= set(range(4))


def test_the_shards_of_an_evaluation_in_seconds_would_be_of_different_times() -> None:
    scenario = ["evaluate.every=2 s", "algorithms=[{name: async-sgd, servers: 2}]"]
    with pytest.raises(
        InputError, match=r"evaluate.every: found '2.0 s' for async-sgd with several servers.*'1 epoch'"
    ):
        refuse_simulated_only(load("quickstart", scenario))
    refuse_simulated_only(load("quickstart", ["evaluate.every=2 s", "algorithms=[async-sgd]"]))
    refuse_simulated_only(load("quickstart", [*scenario, "evaluate.every=20 updates"]))


def test_weights_of_unequal_batches_are_evaluated_at_the_same_versions() -> None:
    """Evaluations are due after a number of samples, and each server may have used other batches for its updates."""
    job = job_of(AsyncSgd(servers=2), 3, steps=40, batch=[2, 8, 5], learner=Bowl(size=6))
    launch = Launch(job=job, schedule=lambda: Schedule(every=32, unit="samples"))
    trace = run_job(launch)
    all_servers_end_together(job, trace)
    assert len(trace.snapshots) > 4
