"""Real launchers on two hosts: Open MPI's mpirun, torchrun and a separate Slurm. Needs root, iproute2, the launcher.

`test_joined` tests the environment variables of launchers without launchers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest

from paceline.algorithms import METHODS, find
from paceline.backend.emulation.emulated_hosts import hosts
from paceline.backend.training import train
from paceline.records.store import as_array, read_run
from tests.backend.test_hosts import RATE, left_alone, needs_hosts  # noqa: F401
from tests.thorough import extra

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.backend,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository"),
    needs_hosts,
]
PACELINE = [sys.executable, "-c", "from paceline.cli import main; main()"]
SOON_LOST = [
    sys.executable,
    "-c",
    "from paceline.backend.multihost import host_sync; host_sync.VANISHED_S = 5.0; " + PACELINE[2],
]
"""the same command, which gives up a host after 5 s without a heartbeat instead of 15"""
BUSY = 4
"""threads of a process that runs a rank's program; a process that waits for others has fewer, and so has a guard"""
RANKED = {"mpirun": "OMPI_COMM_WORLD_RANK", "srun": "SLURM_PROCID"}
SMALL: dict[str, Any] = {
    "name": "small",
    "algorithms": ["sync-sgd"],
    "workload": {"model": "digits-mlp", "batch_per_worker": 16},
    "cluster": {
        "nodes": [{"device": {"name": "cpu", "overhead": "1 ms", "per_sample": "0.1 ms"}, "count": 2}],
        "network": {"topology": "star", "link": "eth-10g"},
    },
    "train": {"pace": "none"},
    "stop": {"updates": 30},
}


@pytest.fixture
def launchers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns the module benchmarks/emulated_network/launchers.py."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("emulated_network.launchers")


def needed(launchers: ModuleType, launcher: str) -> None:
    if (lacks := launchers.missing(launcher)) is not None:
        pytest.skip(lacks)


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(json.dumps(SMALL | changes))
    return path


@contextmanager
def under_way(launchers: ModuleType, launcher: str, path: Path, out: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a launcher with a rank on each host; it has ended after the block."""
    program = [*PACELINE, "train", str(path), "--out", str(out)]
    with hosts(2, bytes_per_s=RATE) as made, launchers.start(launcher, made, 1, program) as found:
        (command,) = found.commands
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **found.variables}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.communicate()


def ranks_of(path: Path) -> dict[str, psutil.Process]:
    """Returns the processes that train a scenario, by the number that the launcher gave them."""
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.cmdline()[3:5] == ["train", str(path)] and len(process.threads()) >= BUSY:
                said = process.environ()
                found |= {said[name]: process for name in RANKED.values() if name in said}
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def trained(path: Path, process: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """Returns the ranks, after they have computed for a moment."""
    until = time.monotonic() + 120
    while len(ranks := ranks_of(path)) < 2:
        assert process.poll() is None and time.monotonic() < until, process.communicate()[0]
        time.sleep(0.1)
    time.sleep(1.0)
    return ranks


@pytest.mark.parametrize(
    ("launcher", "methods"),
    [("mpirun", ["easgd"]), extra(("mpirun", ["sync-sgd", "async-sgd"])), extra(("torchrun", list(METHODS)))],
    ids=["mpirun", "mpirun-others", "torchrun"],
)
def test_methods_train_on_two_hosts(
    left_alone: None,  # noqa: F811
    launchers: ModuleType,
    launcher: str,
    methods: list[str],
) -> None:
    """Each worker runs on its own host; deterministic methods end with the weights of forked ranks, bit for bit."""
    if launcher != "torchrun":
        needed(launchers, launcher)
    command = [sys.executable, str(ROOT / "benchmarks/two_hosts.py"), f"--launcher={launcher}", "--per-host=1"]
    done = subprocess.run(
        [*command, "--samples=128", f"--methods={','.join(methods)}", "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {row["algorithm"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows.keys() == set(methods)
    for name, row in rows.items():
        assert row["updates"] > 0
        assert row["same_as_forked"] is (True if find(name)().deterministic else None)
        alone = find(name).alone or find(name).shared or name == "chip-partitioned-sgd"
        assert bool(row["hosts"][1]) is not alone, "its second worker is on the second host"
    if launcher == "mpirun":
        assert all(row["hosts"] == [[0, 2] if find(name).has_server else [0], [1]] for name, row in rows.items())


@pytest.mark.thorough
@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_launcher_that_ends_all_after_a_death_leaves_the_time_to_keep_the_record(
    left_alone: None,  # noqa: F811
    launchers: ModuleType,
    launcher: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slurm waits longer than necessary; Open MPI is configured to wait, because this machine may be slow."""
    needed(launchers, launcher)
    monkeypatch.setenv("OMPI_MCA_odls_base_sigkill_timeout", "3")
    path, out = written(tmp_path, stop={"seconds": "200 s"}), tmp_path / "runs"
    with under_way(launchers, launcher, path, out) as process:
        trained(path, process)["1"].kill()
        said = process.communicate(timeout=120)[0]
    assert process.returncode != 0
    assert "rank 1 (worker) was lost at step" in said, said
    assert "host 1 (node-b) is gone: it has closed its connection" in said
    (folder,) = out.iterdir()
    run = read_run(folder)
    assert run.summary["stop_reason"] == "failure" and run.summary["updates"] > 0
    assert not ranks_of(path)


@pytest.mark.thorough
def test_the_script_that_is_printed_is_one_that_slurm_runs(
    left_alone: None,  # noqa: F811
    launchers: ModuleType,
    tmp_path: Path,
) -> None:
    needed(launchers, "srun")
    path, out, script = written(tmp_path), tmp_path / "runs", tmp_path / "job.sh"
    options = ["train", str(path), "--out", str(out)]
    printed = subprocess.run([*PACELINE, *options, "--slurm"], capture_output=True, text=True, check=True)
    script.write_text(printed.stdout)
    with hosts(2, bytes_per_s=RATE) as made, launchers.named(made), launchers.slurm(made) as variables:
        batch: Sequence[str] = ["sbatch", "--wait", f"--chdir={tmp_path}", str(script)]
        done = subprocess.run(
            launchers.inside(made, 0, batch),
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables},
            capture_output=True,
            text=True,
            check=False,
        )
    (output,) = tmp_path.glob("small-*.out")
    assert done.returncode == 0, done.stderr + output.read_text()
    assert "2 processes of srun, hosts: 2" in output.read_text()
    (folder,) = out.iterdir()
    run, (forked,) = read_run(folder), train(SMALL)
    np.testing.assert_array_equal(as_array(run.weights), as_array(forked.weights))
    assert [(one["rank"], one["host"], one["name"]) for one in run.machine["seats"]] == [
        (0, 0, "node-a"),
        (1, 1, "node-b"),
    ]


@pytest.mark.thorough
def test_a_host_that_is_cut_off_ends_on_both_sides(
    left_alone: None,  # noqa: F811
    launchers: ModuleType,
    tmp_path: Path,
) -> None:
    """Without a launcher that would detect the failure: each process gets the environment variables of Slurm."""
    path, out = written(tmp_path, stop={"seconds": "200 s"}), tmp_path / "runs"
    told = {
        "OMP_NUM_THREADS": "1",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "1",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "node-[a-b]",
        "SLURM_LOCALID": "0",
    }
    command = [*SOON_LOST, "train", str(path), "--out", str(out)]
    with hosts(2, bytes_per_s=RATE) as made, launchers.named(made):
        processes = [
            subprocess.Popen(
                launchers.inside(made, place, command),
                env={**os.environ, **told, "SLURM_PROCID": str(place), "SLURM_NODEID": str(place)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for place in (0, 1)
        ]
        try:
            trained(path, processes[0])
            subprocess.run(["ip", "-n", made.names[1], "link", "set", "eth0", "down"], check=True)
            said = [process.communicate(timeout=120)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    assert [process.returncode for process in processes] == [1, 1]
    assert "rank 1 (worker) was lost at step" in said[0] and "no heartbeat from host 1 (node-b)" in said[0]
    assert "process 1: the store is gone" in said[1]
    (folder,) = out.iterdir()
    run = read_run(folder)
    assert run.summary["stop_reason"] == "failure" and run.machine["missing"] == ["host 1: it is gone"]
