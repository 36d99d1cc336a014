"""Spawned ranks: the same run as with forked ones, and nothing of it remains afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from paceline.algorithms.core.errors import InputError
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.posix.processes import HostLock
from paceline.backend.training import train
from paceline.records import Run
from paceline.records.trace import Schedule
from paceline.scenarios import load
from tests.backend.jobs import job_with, no_children
from tests.support import Bowl, built

SCENARIO = """
name: two
algorithms: [sync-sgd, async-sgd]
workload: {model: digits-mlp, dataset: digits, batch_per_worker: 8}
cluster: {nodes: [{device: {name: any, overhead: 4 ms, per_sample: 0.1 ms},
    workers_per_node: 2}], network: {link: eth-10g}}
train: {pace: none}
evaluate: {every: 5 updates}
stop: {updates: 20}
seed: 5
"""


def runs(start: str, *changes: str) -> dict[str, Run]:
    return {run.algorithm: run for run in train(load(SCENARIO, [f"train.start_method={start}", *changes]))}


@pytest.mark.backend
def test_a_spawned_run_is_a_forked_one() -> None:
    (spawned,), (forked,) = (runs(start, "algorithms=[sync-sgd]").values() for start in ("spawn", "fork"))
    assert spawned.weights.numpy().tobytes() == forked.weights.numpy().tobytes()
    assert spawned.machine["devices"]["ranks"] == {str(rank): {"device": "cpu"} for rank in range(2)}
    assert no_children()


@pytest.mark.backend
@pytest.mark.thorough
def test_a_spawned_server_serves() -> None:
    (asynchronous,) = runs("spawn", "algorithms=[async-sgd]").values()
    assert asynchronous.summary["updates"] >= 20
    losses = asynchronous.tables.evaluations["loss"]
    assert losses.iloc[-1] < losses.iloc[0]
    said = asynchronous.machine["devices"]
    assert said["ranks"] == {str(rank): {"device": "cpu"} for rank in range(3)}
    assert no_children()


def test_too_few_gpus_and_forked_ones_are_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match=r"train\.device: found cuda, with 1 GPU for 2 ranks; expected one for each"):
        runs("auto", "train.device=cuda")
    with pytest.raises(InputError, match=r"train\.start_method: found fork with ranks on GPUs"):
        runs("fork", "train.device=cuda", "train.share_gpus=true")


@pytest.mark.backend
def test_what_is_not_of_a_scenario_is_not_spawned() -> None:
    launch = Launch(
        job=job_with(built("sync-sgd"), Bowl(), steps=2), schedule=lambda: Schedule(every=1), processes="spawn"
    )
    with pytest.raises(InputError, match="found spawn for a run that is not of a scenario; expected fork"):
        run_job(launch)
    assert no_children()


# --- the lock of spawned ranks ----------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from paceline.backend.posix.processes import HostLock
with HostLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_one_among_processes_and_threads_and_a_killed_process_does_not_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    paths = os.pathsep.join(sys.path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        lock = HostLock(path)
        assert not lock.acquire(timeout=0.01)
        holder.kill()
        holder.wait()
        assert lock.acquire(timeout=60.0)
    tried: list[bool] = []
    thread = threading.Thread(target=lambda: tried.append(lock.acquire(timeout=0.01)))
    thread.start()
    thread.join()
    assert tried == [False]
    lock.release()
    assert lock.acquire(timeout=0.0)
