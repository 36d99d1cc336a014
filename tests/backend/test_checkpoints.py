"""Resuming a real run from a checkpoint: the result is that of an undisturbed run, with one complete record."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Budget, Job, Learner
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.periodic import KAvg
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.posix.waits import wait_until
from paceline.backend.rank.checkpoint import Checkpoint, Saving, find_last, read, steps_in
from paceline.backend.training import train
from paceline.records import RunsFailed, store
from paceline.records.trace import Schedule, Trace
from paceline.scenarios import load
from paceline.workloads import build
from tests.backend.jobs import no_children, ranks_of
from tests.support import built, nodes_for, staleness_table
from tests.thorough import sampled

pytestmark = pytest.mark.backend

STEPS, EVERY = 10, 4
DETERMINISTIC = [name for name in METHODS if built(name).deterministic]
SCENARIO = """
name: cut
algorithms: [sync-sgd-ps]
workload: {model: digits-mlp, dataset: digits, batch_per_worker: 8}
cluster:
  nodes: [{device: {name: any, overhead: 2 ms, per_sample: 0.1 ms}, count: 2}]
  network: {link: eth-10g}
train: {pace: none, checkpoint: {every: 10 updates}}
evaluate: {every: 7 updates}
stop: {updates: 60}
"""


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A separate folder for the shared folders of runs; it and this process have no leftovers afterwards."""
    place = tmp_path / "shared"
    place.mkdir()
    monkeypatch.setattr("paceline.backend.posix.run_folders.SHARED", place)
    yield place
    assert list(place.iterdir()) == []
    assert no_children()


@cache
def digits() -> Learner:
    return build("digits-mlp", dataset="digits", learning="train", seed=3)


@cache
def dropping() -> Learner:
    """A small decoder with dropout."""
    sizes = "n_layer=1, n_embd=8, n_head=2, n_positions=64, vocab_size=28"
    return build(f"gpt2({sizes}, resid_pdrop=0.2, attn_pdrop=0.1, embd_pdrop=0.1)", learning="train", seed=3)


def job_for(method: Method, steps: int, learner: Callable[[], Learner] = digits) -> Job:
    nodes = [[Rank(rank) for rank in node] for node in nodes_for(method, [[0, 1], [2]])]
    job = Job.of(method, nodes, learner(), batch=8, budget=Budget(), seed=3)
    return dataclasses.replace(job, budget=Budget(samples=job.samples_in(steps)))


def run(job: Job, *, into: Path | None = None, start: Checkpoint | None = None) -> Trace:
    about = {"scenario": {}, "algorithm": job.method.name, "seed": job.seed}
    saving = None if into is None else Saving(folder=into / "checkpoints", every=EVERY, keep=9, about=about)
    return run_job(Launch(job=job, schedule=lambda: Schedule(every=3), saving=saving, start=start))


def assert_same(found: Trace, expected: Trace) -> None:
    """Bit for bit: weights, the state of every rank, every row except its time, every evaluation."""
    np.testing.assert_array_equal(np.asarray(found.weights), np.asarray(expected.weights))
    for rank, state in expected.states.items():
        np.testing.assert_array_equal(found.states[rank].weights.vector, state.weights.vector)
    assert staleness_table(found) == staleness_table(expected)
    assert [(one.version, one.samples) for one in found.snapshots] == [
        (one.version, one.samples) for one in expected.snapshots
    ]
    for one, other in zip(found.snapshots, expected.snapshots, strict=True):
        np.testing.assert_array_equal(one.vector, other.vector)


@pytest.mark.parametrize("name", sampled(DETERMINISTIC, ["easgd", "layerwise-sgd"]))
def test_deterministic_methods_do_not_notice(name: str, tmp_path: Path) -> None:
    """Neither the checkpoints of a run nor resuming it after any of them changes the result."""
    job = job_for(built(name), STEPS)
    whole, paused = run(job), run(job, into=tmp_path / "paused")
    assert_same(paused, whole)
    made = steps_in(tmp_path / "paused/checkpoints")
    assert [path.name for path in made] == ["step-4", "step-8"]
    first = read(made[0])
    resumed = run(job, start=first)
    assert_same(resumed, whole)
    for rank in range(job.workers):
        times = [u.time_s for u in sorted(resumed.updates, key=lambda u: u.step) if u.rank == rank]
        assert times == sorted(times) and times[0] < first.time_s < times[-1]


def test_masks_of_a_dropout_do_not_notice(tmp_path: Path) -> None:
    job = job_for(built("sync-sgd"), STEPS, dropping)
    whole = run(job)
    assert_same(run(job, into=tmp_path / "paused"), whole)
    assert_same(run(job, start=read(steps_in(tmp_path / "paused/checkpoints")[0])), whole)


def test_local_staleness_goes_on_from_the_step_within_its_round(tmp_path: Path) -> None:
    """Averages every 3 steps, checkpoints every 4: the first checkpoint lies one step after an average."""
    job = job_for(KAvg(k=3), STEPS)
    whole = run(job, into=tmp_path)
    resumed = run(job, start=read(steps_in(tmp_path / "checkpoints")[0]))
    assert staleness_table(resumed) == staleness_table(whole)


@pytest.mark.parametrize("name", sampled(["async-sgd", "hogwild-sgd", "ssp", "ad-psgd"], ["async-sgd", "hogwild-sgd"]))
def test_asynchronous_methods_go_on_where_they_stopped(name: str, tmp_path: Path) -> None:
    """Versions continue to rise by 1, no step of a worker is missing or duplicated, and the budget is used exactly."""
    job = job_for(built(name), STEPS)
    run(job_for(built(name), STEPS - 1), into=tmp_path)
    resumed = run(job, into=tmp_path / "again", start=find_last(tmp_path))
    assert len(resumed.updates) == STEPS
    for rank in range(job.workers):
        steps = sorted(u.step for u in resumed.updates if u.rank == rank)
        assert steps == list(range(len(steps)))
    assert all(u.staleness >= 0 for u in resumed.updates)
    if job.method.has_server:
        assert [u.version_applied for u in resumed.updates] == list(range(STEPS))


class Killer:
    """Kills a rank from the launcher's own loop, once there is a checkpoint."""

    def __init__(self, rank: int, out: Path) -> None:
        self.rank, self.out, self.done = rank, out, False

    def __call__(self, what: str, share: float) -> None:
        if not self.done and list(self.out.glob("*/checkpoints/step-*")):
            started = ranks_of(os.getpid())
            assert started is not None
            self.done = True
            started.ranks[self.rank].kill()


def steps_of(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    columns = ["rank", "step", "version_read", "version_applied", "staleness", "samples"]
    return list(table[columns].itertuples(index=False, name=None))


def test_a_dead_server_leaves_its_checkpoint_and_its_record(tmp_path: Path) -> None:
    """The folder of the failed run has both, and the resumed run equals the undisturbed one, with one record."""
    scenario = load(SCENARIO)
    with pytest.raises(RunsFailed, match=r"rank 2 \(server\) died") as caught:
        train(scenario, progress=Killer(2, tmp_path), out=tmp_path, keep=lambda run: store.save(run, tmp_path))
    (failed,) = caught.value.runs
    assert failed.path is not None and failed.summary["stop_reason"] == "failure"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "shared"] == [failed.path.name]
    assert store.read_run(failed.path).checkpoints == failed.path / "checkpoints"
    last = find_last(failed.path)
    assert last.step % 10 == 0 and 10 <= last.step < 60

    (resumed,) = train(scenario, resume=failed.path, out=tmp_path, keep=lambda run: store.save(run, tmp_path))
    (whole,) = train(load(SCENARIO, ["train.checkpoint=null"]))
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    assert steps_of(resumed.tables.updates) == steps_of(whole.tables.updates)
    assert resumed.tables.updates["time_s"].is_monotonic_increasing
    assert list(resumed.tables.evaluations["samples"]) == list(whole.tables.evaluations["samples"])
    assert list(resumed.tables.evaluations["loss"]) == list(whole.tables.evaluations["loss"])
    computed = resumed.tables.spans.query("activity == 'compute'")
    assert set(zip(computed["rank"], computed["step"], strict=True)) >= {(r, s) for r in (0, 1) for s in range(60)}
    assert resumed.machine["resumed_from"] == {
        "checkpoint": str(last.path),
        "step": last.step,
        "time_s": last.time_s,
    }
    assert resumed.summary["stop_reason"] == "updates"
    assert resumed.summary["wall_s"] > last.time_s


def test_a_killed_launcher_leaves_its_checkpoints(tmp_path: Path) -> None:
    """SIGKILL, which cannot be caught: the folder of the unfinished run exists, and it can be resumed and extended."""
    if (launcher := os.fork()) == 0:
        train(load(SCENARIO, ["stop.updates=100000"]), out=tmp_path)
        os._exit(0)
    wait_until(lambda: bool(list(tmp_path.glob("*/checkpoints/step-2*"))), within_s=120)
    started = ranks_of(launcher)
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    assert started is not None and started.gone(within_s=30.0)
    left = tmp_path / "cut-sync-sgd-ps-1-unfinished-1"
    more = find_last(left).step + 15
    (resumed,) = train(load(SCENARIO, [f"stop.updates={more}"]), resume=left, out=tmp_path)
    (whole,) = train(load(SCENARIO, [f"stop.updates={more}", "train.checkpoint=null"]))
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    assert steps_of(resumed.tables.updates) == steps_of(whole.tables.updates)
    assert wait_until(lambda: not list((tmp_path / "shared").iterdir()), within_s=120)  # the guard removes them


def test_an_interrupted_run_says_where_its_checkpoint_is(tmp_path: Path) -> None:
    def interrupt(what: str, share: float) -> None:
        if list(tmp_path.glob("*/checkpoints/step-*")):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        train(load(SCENARIO, ["stop.updates=100000"]), progress=interrupt, out=tmp_path)
    (note,) = caught.value.__notes__
    left = tmp_path / "cut-sync-sgd-ps-1-unfinished-1"
    said = re.fullmatch(r"checkpoint of step (\d+); resume it with: paceline train --resume (.+)", note)
    assert said is not None
    assert (int(said[1]), Path(said[2])) == (find_last(left).step, left)


def test_another_run_is_refused_in_words(tmp_path: Path) -> None:
    (ended,) = train(load(SCENARIO, ["stop.updates=11"]), out=tmp_path, keep=lambda run: store.save(run, tmp_path))
    assert ended.path is not None
    other = ["workload.batch_per_worker=16", "cluster.nodes[0].count=3", "stop.updates=99", "train.checkpoint=null"]
    with pytest.raises(InputError) as caught:
        train(load(SCENARIO, other), resume=ended.path, out=tmp_path)
    assert str(caught.value).splitlines() == [
        f"{ended.path}/checkpoints/step-10: is of another run; only `stop` and `train.checkpoint` may differ from it:",
        "  cluster.nodes[0].count: found 3, expected 2",
        "  workload.batch_per_worker: found 16, expected 8",
    ]
