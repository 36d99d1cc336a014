"""Ranks started by a launcher: they find each other, behave like forked ranks, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from paceline.backend.posix.waits import wait_until
from paceline.backend.training import train
from paceline.records.store import as_array, read_run
from tests.thorough import extra
from tests.warm import Program

pytestmark = [pytest.mark.backend, pytest.mark.timeout(300)]

MAIN = "from paceline.cli import main; main()"
PACELINE = [sys.executable, "-c", MAIN]
SMALL: dict[str, Any] = {
    "name": "small",
    "algorithms": ["sync-sgd", {"name": "async-sgd", "learning_rate": 0.05}],
    "workload": {"model": "digits-mlp", "batch_per_worker": 16},
    "cluster": {
        "nodes": [{"device": {"name": "cpu", "overhead": "1 ms", "per_sample": "0.1 ms"}, "workers_per_node": 2}],
        "network": {"topology": "star", "link": "eth-10g"},
    },
    "train": {"pace": "none"},
    "stop": {"updates": 30},
    "seed": 1,
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(json.dumps({**SMALL, **changes}))
    return path


def mpirun(process: int, of: int) -> dict[str, str]:
    """Returns the variables that Open MPI sets on one host."""
    return {
        "OMPI_COMM_WORLD_RANK": str(process),
        "OMPI_COMM_WORLD_SIZE": str(of),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(process),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(of),
        "PMIX_NAMESPACE": f"test-{os.getpid()}-{time.monotonic_ns() // 1_000_000_000}",
    }


def srun(process: int, of: int) -> dict[str, str]:
    """Returns the variables that Slurm sets for a step with tasks on two nodes; here, both are this machine."""
    half = of // 2
    return {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": str(time.monotonic_ns() // 1_000_000_000 % 10_000),
        "SLURM_STEP_NUM_TASKS": str(of),
        "SLURM_STEP_NODELIST": "node[1-2]",
        "SLURM_PROCID": str(process),
        "SLURM_LOCALID": str(process % half),
        "SLURM_NODEID": str(process // half),
        "MASTER_ADDR": "127.0.0.1",
    }


@dataclass(frozen=True)
class Ended:
    """A process that has."""

    status: int
    out: str
    err: str


@contextmanager
def started(variables: list[dict[str, str]], *options: str, program: str = MAIN) -> Iterator[list[Program]]:
    """Starts one process for each set of variables; all have ended after the block."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "OMPI_"))}
    processes = [
        Program(program, ["train", *options], env={**plain, "OMP_NUM_THREADS": "1", **one}) for one in variables
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def ended(processes: list[Program]) -> list[Ended]:
    found = [process.communicate(timeout=120) for process in processes]
    return [Ended(process.wait(), *said) for process, said in zip(processes, found, strict=True)]


def together(launcher: Any, of: int) -> list[dict[str, str]]:
    """The variables of all processes of one start."""
    first: Mapping[str, str] = launcher(0, of)
    names = ("PMIX_NAMESPACE", "SLURM_STEP_ID")
    return [launcher(process, of) | {name: first[name] for name in names if name in first} for process in range(of)]


def weights(folder: Path) -> Any:
    return as_array(read_run(folder).weights)


@pytest.mark.thorough
def test_torchrun_starts_the_ranks_of_every_algorithm(tmp_path: Path) -> None:
    """Three processes: sync-sgd does not use one, async-sgd uses all. sync-sgd ends with forked ranks' weights."""
    path, out = written(tmp_path), tmp_path / "runs"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", "--no-python"]
    done = subprocess.run(
        [*command, *PACELINE, "train", str(path), "--out", str(out), "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [run["algorithm"] for run in answer["runs"]] == ["sync-sgd", "async-sgd"]
    assert "process 2 takes no part" in done.stderr and "process 2 is rank 2 (server)" in done.stderr
    joined = [read_run(Path(run["path"])) for run in answer["runs"]]
    assert [run.machine["launched_by"] for run in joined] == ["torchrun", "torchrun"]
    assert [(one["role"], one["process"]) for one in joined[1].machine["seats"]] == [
        ("worker", 0),
        ("worker", 1),
        ("server", 2),
    ]
    forked = train({**SMALL, "algorithms": ["sync-sgd"]})[0]
    np.testing.assert_array_equal(as_array(joined[0].weights), as_array(forked.weights))


def test_slurm_tasks_on_two_hosts_stop_at_the_same_step(tmp_path: Path) -> None:
    """The run is ended by a time, and the hosts agree on the step through the store; both end with the same weights."""
    path, out = written(tmp_path, algorithms=["sync-sgd"], stop={"seconds": "700 ms"}), tmp_path / "runs"
    with started(together(srun, 2), str(path), "--out", str(out), "--verbose", "--watch") as processes:
        first, second = ended(processes)
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert (second.out, second.err) == ("", "")
    run = read_run(next(out.iterdir()))
    assert run.summary["stop_reason"] == "seconds"
    assert f"sync-sgd computed {run.summary['steps']} gradients in " in first.err, "the first process is watched"
    steps: dict[int, list[int]] = {0: [], 1: []}
    for activity, rank, step in zip(*(run.tables.spans[name] for name in ("activity", "rank", "step")), strict=True):
        if activity == "compute":
            steps[rank].append(step)
    assert steps[0] == steps[1] and len(steps[0]) == run.summary["updates"] > 5
    (clock,) = run.machine["clocks"]
    assert abs(clock["offset_s"]) <= clock["error_s"] < 0.5  # in fact both use the same clock


def test_too_few_processes_are_refused_once(tmp_path: Path) -> None:
    path = written(tmp_path)
    with started(together(mpirun, 2), str(path), "--out", str(tmp_path / "runs")) as processes:
        first, second = ended(processes)
    assert (first.status, second.status) == (2, 2)
    assert "found 2 processes, and async-sgd has 3 ranks, its server included; start 3 or more" in first.err
    assert second.err == ""


@pytest.mark.parametrize(("victim", "survivor"), [extra((1, 0)), (0, 1)])
def test_a_killed_process_is_named_and_the_record_kept(tmp_path: Path, victim: int, survivor: int) -> None:
    """This also holds for the first one, which would have written the record: then another process writes it."""
    path, out = written(tmp_path, algorithms=["sync-sgd"], stop={"updates": 1_000_000}), tmp_path / "runs"
    with started(together(mpirun, 2), str(path), "--out", str(out)) as processes:
        folder = at_work([process.pid for process in processes])
        time.sleep(0.4)
        processes[victim].send_signal(signal.SIGKILL)
        said = ended(processes)
    assert said[survivor].status == 1
    assert f"error: sync-sgd: rank {victim} (worker) was lost at step" in said[survivor].err
    assert "its process is gone" in said[survivor].err
    run = read_run(next(out.iterdir()))
    assert run.summary["stop_reason"] == "failure" and run.summary["updates"] > 0
    assert wait_until(lambda: not folder.exists(), within_s=60.0), "the guard process removes it"


@pytest.mark.parametrize(("launcher", "of", "victim"), [(mpirun, 2, 0), extra((srun, 4, 2))])
def test_a_process_that_is_stopped_for_too_long_is_named(tmp_path: Path, launcher: Any, of: int, victim: int) -> None:
    """This also holds for the first one of a host, which supervises the others, whether it holds the board's lock or
    not.
    """
    nodes = {**SMALL["cluster"], "nodes": [{**SMALL["cluster"]["nodes"][0], "count": of // 2}]}
    train = {"pace": "none", "timeout": "2 s"}
    path = written(tmp_path, algorithms=["sync-sgd"], stop={"updates": 1_000_000}, cluster=nodes, train=train)
    with started(together(launcher, of), str(path), "--out", str(tmp_path / "runs")) as processes:
        at_work([process.pid for process in processes])
        processes[victim].send_signal(signal.SIGSTOP)
        said = ended(processes)
    tells = 1 if victim == 0 else 0
    assert said[tells].status == 1 and said[victim].status == -signal.SIGKILL
    assert f"error: sync-sgd: rank {victim} (worker) was lost at step" in said[tells].err
    assert ": was stopped for 2 s, " in said[tells].err
    assert read_run(next((tmp_path / "runs").iterdir())).summary["stop_reason"] == "failure"


@pytest.mark.thorough
def test_a_process_that_is_stopped_for_a_moment_goes_on(tmp_path: Path) -> None:
    """It is left alone. A busy machine may take much longer than a second to let it go on: hence the timeout.

    How much is too much is tested with a fake clock, in tests/unit/test_stopped_neighbours.py.
    """
    train = {"pace": "none", "timeout": "60 s"}
    path = written(tmp_path, algorithms=["sync-sgd"], stop={"updates": 1500}, train=train)
    with started(together(mpirun, 2), str(path), "--out", str(tmp_path / "runs")) as processes:
        at_work([process.pid for process in processes])
        processes[0].send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        assert [process.poll() for process in processes] == [None, None]
        processes[0].send_signal(signal.SIGCONT)
        said = ended(processes)
    assert [one.status for one in said] == [0, 0], said
    assert read_run(next((tmp_path / "runs").iterdir())).summary["updates"] == 1500


UNCONNECTED = """
import os
from paceline.backend.multihost.world import World

connected = World.connect

def connect(self, name):
    if os.environ["SLURM_PROCID"] == "1" and name.endswith("/groups"):
        raise OSError("no descriptor left")
    return connected(self, name)

World.connect = connect
from paceline.cli import main; main()
"""


def test_a_rank_whose_program_cannot_begin_is_told(tmp_path: Path) -> None:
    """A failure before the program starts counts as a failure of the rank, and other ranks do not wait for it."""
    nodes = {**SMALL["cluster"], "nodes": [{**SMALL["cluster"]["nodes"][0], "workers_per_node": 1, "count": 2}]}
    path = written(tmp_path, algorithms=["sync-sgd"], cluster=nodes)
    with started(together(srun, 2), str(path), "--out", str(tmp_path / "runs"), program=UNCONNECTED) as processes:
        said = ended(processes)
    assert [one.status for one in said] == [1, 1], said
    assert "rank 1 (worker)" in said[0].err and "no descriptor left" in said[0].err


HANGS = """
import threading
from dataclasses import dataclass
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.core.program import program

@dataclass(frozen=True, kw_only=True)
class Hangs(SyncSgd):
    name = "hangs"

    @program
    def worker(self, me, state):
        if me.rank == {rank}:
            threading.Event().wait(300.0)
        return (yield from super().worker(me, state))
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("launcher", "of", "victim"), [(mpirun, 2, 0), (srun, 2, 1)])
def test_a_program_that_hangs_is_named_with_where_it_stands(
    tmp_path: Path, launcher: Any, of: int, victim: int
) -> None:
    method = tmp_path / "hanging.py"
    method.write_text(HANGS.format(rank=victim))
    nodes = {**SMALL["cluster"], "nodes": [{**SMALL["cluster"]["nodes"][0], "count": of // 2}]}
    train = {"pace": "none", "timeout": "2 s"}
    path = written(tmp_path, algorithms=[f"{method}:Hangs"], cluster=nodes, train=train)
    with started(together(launcher, of), str(path), "--out", str(tmp_path / "runs")) as processes:
        said = ended(processes)
    assert [one.status for one in said] == [1] * of
    words = f"rank {victim} (worker) was lost at step 0: made no progress for 2 s, running"
    assert words in said[0].err and "waits in AllReduce" in said[0].err
    stacks = said[victim].err.partition(f"rank {victim} does not end; stacks of its threads:")[2]
    assert "hanging.py" in stacks and "in worker" in stacks
    assert all("does not end" not in one.err for rank, one in enumerate(said) if rank != victim)


def at_work(launched: list[int]) -> Path:
    """The folder of a run that has written something of every rank."""
    until = time.monotonic() + 90.0
    while time.monotonic() < until:
        for pid in launched:
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                streams = [Path(file.path) for file in process.open_files() if file.path.endswith(".stream")]
                for stream in streams:
                    if all(one.stat().st_size > 0 for one in stream.parent.glob("*.stream")):
                        return stream.parent.parent
        time.sleep(0.1)
    raise AssertionError("found no ranks at work")


STORE = """
import sys, threading
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False)
threading.Event().wait()
"""
"""the store of torchrun's agent, which outlives a restart"""


def torchrun(process: int, of: int, port: int, restarts: int) -> dict[str, str]:
    """Returns the variables that torchrun sets on one host."""
    numbers = {"RANK": process, "LOCAL_RANK": process, "WORLD_SIZE": of, "MASTER_PORT": port, "GROUP_RANK": 0}
    return {name: str(number) for name, number in numbers.items()} | {
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RUN_ID": "1",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
    }


def test_who_is_started_anew_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    """torchrun restarts all processes when one was killed; the run ends with the bits of an undisturbed one.

    The previous run had been stored by then, and stays unchanged.
    """
    out = tmp_path / "runs"
    changes = {
        "algorithms": [{"name": "sync-sgd", "momentum": 0.5}, "k-avg"],
        "train": {"pace": "none", "checkpoint": {"every": "50 updates"}},
        "stop": {"updates": 400},
    }
    options = [str(written(tmp_path, **changes)), "--out", str(out), "--json"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    agent = Program(STORE, [str(port)])
    try:
        with started([torchrun(process, 2, port, 0) for process in (0, 1)], *options) as processes:
            assert wait_until(
                lambda: bool(list(out.glob("*k-avg*-unfinished-*/checkpoints/step-*"))),
                within_s=120,
            )
            processes[1].send_signal(signal.SIGKILL)
            ended(processes)
        with started([torchrun(process, 2, port, 1) for process in (0, 1)], *options) as processes:
            first, second = ended(processes)
    finally:
        agent.kill()
        agent.wait()
    assert (first.status, second.status) == (0, 0), first.err + second.err
    (run,) = json.loads(first.out)["runs"]
    again = read_run(Path(run["path"]))
    assert (again.algorithm, again.machine["resumed_from"]["step"] >= 50) == ("k-avg", True)
    assert "sync-sgd: made before the restart" in first.err
    undisturbed = {one.algorithm: one for one in train(options[0], out=tmp_path / "other")}
    for one in (again, read_run(next(out.glob("small-sync-sgd-1-measured-1")))):
        np.testing.assert_array_equal(as_array(one.weights), as_array(undisturbed[one.algorithm].weights))
    assert not list(out.glob("*unfinished*"))
