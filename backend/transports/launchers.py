"""The launchers `torchrun`, `mpirun` and `srun`: how one of them has started this process, and a script for Slurm.

Each launcher has one adapter from its environment variables to a `LaunchedProcess`; the rest of a run does not differ.

Rules of this file:

* Only the environment is read and nothing is changed: `joined` is a function from variables to a value.
* If variables of several launchers are set, the innermost launcher counts: `torchrun`, then `mpirun`, then `srun`,
  since on clusters `srun` starts the other two and they start the processes.
* A Slurm step of one task is a shell or a batch script, not a rank; a plain command in it forks its ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from paceline.algorithms.core.errors import InputError, PacelineError, RunFailed

if TYPE_CHECKING:
    from paceline.scenarios.resolution.schema import Scenario  # a large module, and every command imports this one

Launcher = Literal["torchrun", "mpirun", "srun"]
LOOPBACK_ADDRESS = "127.0.0.1"
RANK_THREAD = "rank"
"""the name of the thread that runs the program in a process started by a launcher"""
GLOO_THREAD = "gloo"
"""the name of a thread that waits in gloo and may be abandoned"""
SIGKILL_TIMEOUT = "OMPI_MCA_odls_base_sigkill_timeout"
"""the variable for how many seconds Open MPI waits before SIGTERM and again before SIGKILL; 1 by default"""
LEAVING_S = 10
"""how long a failed run may take to store its record, with waits for dead ranks and transfers between hosts"""
FIRST_PORT, PORTS = 20_000, 10_000
"""the default port of the store: derived from the job's name, below the range of ephemeral ports"""


class SaidElsewhere(PacelineError):
    """An error that all processes find and that process 0 reports."""


class FailedElsewhere(SaidElsewhere, RunFailed):
    """The run has failed; another process reports the cause."""


class RefusedElsewhere(SaidElsewhere, InputError):
    """The input is wrong; another process reports why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedProcess:
    """One process of those that a launcher has started.

    Args:
        launcher: the launcher's name.
        process: the number of this process among all.
        processes: the number of processes.
        local: the number of this process among those of its host.
        address, port: the rendezvous address: the store of torch.distributed.
        node: the launcher's name of the host; None if it has none.
        hosted: whether the launcher runs the store; otherwise process 0 does.
        restarts: how often the launcher has restarted all processes after a failure.
    """

    launcher: Launcher
    process: int
    processes: int
    local: int
    address: str
    port: int
    node: int | None = None
    hosted: bool = False
    restarts: int = 0


def joined(environment: Mapping[str, str]) -> LaunchedProcess | None:
    """Returns how this process was started, or None if no launcher started it.

    Raises:
        InputError: names the variable of a launcher that is missing or not valid.

    >>> joined({}) is None
    True
    >>> started = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
    >>> joined(started).process
    1
    """
    if "TORCHELASTIC_RUN_ID" in environment or {"RANK", "WORLD_SIZE"} <= environment.keys():
        return _by_torchrun(Variables("torchrun", environment))
    if "OMPI_COMM_WORLD_SIZE" in environment or "OMPI_COMM_WORLD_RANK" in environment:
        return _by_mpirun(Variables("mpirun", environment))
    if "SLURM_STEP_ID" in environment and "SLURM_PROCID" in environment:
        return _by_srun(Variables("srun", environment))
    return None


def hasty(started: LaunchedProcess, environment: Mapping[str, str]) -> str | None:
    """Returns a warning with the remedy if the launcher kills processes too soon after a failure; None if it does not.

    Args:
        started: how this process was started.
        environment: the environment variables.

    >>> started = LaunchedProcess(launcher="mpirun", process=0, processes=2, local=0, address="a", port=1)
    >>> hasty(started, {SIGKILL_TIMEOUT: "10"}) is None
    True
    """
    grace = environment.get(SIGKILL_TIMEOUT, "1")
    if started.launcher != "mpirun" or (grace.isascii() and grace.isdigit() and int(grace) >= LEAVING_S):
        return None
    return (
        f"when a rank fails, mpirun sends the others SIGTERM after {grace} s and SIGKILL {grace} s later: the record "
        f"may be lost; `mpirun --mca odls_base_sigkill_timeout {LEAVING_S}` gives enough time to store it"
    )


def tell_torchrun(message: str) -> None:
    """Writes the message to the file that torchrun prints last, below its own traceback.

    Does nothing if another launcher has started this process.
    """
    if not (file := os.environ.get("TORCHELASTIC_ERROR_FILE")):
        return
    about = {"message": f"error: {message}", "extraInfo": {"timestamp": str(int(time.time()))}}
    with contextlib.suppress(OSError):  # the message is on standard error in any case
        Path(file).write_text(json.dumps({"message": about}), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment variables of a launcher, with checks."""

    launcher: Launcher
    environment: Mapping[str, str]

    def text(self, name: str, *, why: str = "") -> str:
        """Returns a variable that must exist."""
        if not (value := self.environment.get(name, "")):
            raise InputError(f"{self.launcher}: found no {name} in the environment; {why or 'expected one'}")
        return value

    def number(self, name: str, default: int | None = None, *, below: int | None = None) -> int:
        """Returns a variable that is a number of at least 0."""
        if default is not None and name not in self.environment:
            return default
        text = self.text(name)
        if not text.isascii() or not text.isdigit() or (below is not None and int(text) >= below):
            limit = "" if below is None else f" below {below}"
            raise InputError(f"{self.launcher}: found {name}={text!r}, expected a number from 0 on{limit}")
        return int(text)

    def count(self, name: str) -> int:
        """Returns a number of processes."""
        if (number := self.number(name)) < 1:
            raise InputError(f"{self.launcher}: found {name}={number}, expected 1 or more")
        return number

    def port(self, job: str) -> int:
        """Returns the port of the store: as set, or derived from the launcher's name of the job."""
        return self.number("MASTER_PORT", FIRST_PORT + zlib.crc32(job.encode()) % PORTS, below=1 << 16)


def _by_torchrun(variables: Variables) -> LaunchedProcess:
    processes = variables.count("WORLD_SIZE")
    return LaunchedProcess(
        launcher="torchrun",
        process=variables.number("RANK", below=processes),
        processes=processes,
        local=variables.number("LOCAL_RANK", below=processes),
        address=variables.text("MASTER_ADDR"),
        port=variables.number("MASTER_PORT", below=1 << 16),
        node=variables.number("GROUP_RANK") if "GROUP_RANK" in variables.environment else None,
        hosted=variables.environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        restarts=variables.number("TORCHELASTIC_RESTART_COUNT", 0),
    )


def _by_mpirun(variables: Variables) -> LaunchedProcess:
    processes = variables.count("OMPI_COMM_WORLD_SIZE")
    here = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE") == processes
    address = variables.environment.get("MASTER_ADDR") or (LOOPBACK_ADDRESS if here else "")
    why = "on several hosts give the first one's: `mpirun -x MASTER_ADDR=…`"
    job = variables.environment.get("PMIX_NAMESPACE") or variables.environment.get("OMPI_MCA_ess_base_jobid") or ""
    return LaunchedProcess(
        launcher="mpirun",
        process=variables.number("OMPI_COMM_WORLD_RANK", below=processes),
        processes=processes,
        local=variables.number("OMPI_COMM_WORLD_LOCAL_RANK", below=processes),
        address=address or variables.text("MASTER_ADDR", why=why),
        port=variables.port(job),
    )


def _by_srun(variables: Variables) -> LaunchedProcess | None:
    tasks = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in variables.environment else "SLURM_NTASKS"
    processes = variables.count(tasks)
    if processes == 1:
        return None
    listed = "SLURM_STEP_NODELIST" if "SLURM_STEP_NODELIST" in variables.environment else "SLURM_JOB_NODELIST"
    address = variables.environment.get("MASTER_ADDR") or first_host(variables.text(listed))
    return LaunchedProcess(
        launcher="srun",
        process=variables.number("SLURM_PROCID", below=processes),
        processes=processes,
        local=variables.number("SLURM_LOCALID", below=processes),
        address=address,
        port=variables.port(f"{variables.environment.get('SLURM_JOB_ID', '')}.{variables.text('SLURM_STEP_ID')}"),
        node=variables.number("SLURM_NODEID") if "SLURM_NODEID" in variables.environment else None,
        restarts=variables.number("SLURM_RESTART_COUNT", 0),
    )


def first_host(nodes: str) -> str:
    """Returns the first host of a list in Slurm's notation.

    >>> first_host("gpu[07-12,14],login1"), first_host("node1,node2"), first_host("r[1-2]c[03,05]-ib")
    ('gpu07', 'node1', 'r1c03-ib')
    """
    first, inside = [], False
    skipping = False
    for letter in nodes:
        if letter == "," and not inside:
            break
        if letter == "[":
            inside = True
        elif letter == "]":
            inside = skipping = False
        elif inside and letter in ",-":
            skipping = True
        elif not skipping:
            first.append(letter)
    return "".join(first)


SCRIPT = """\
#!/bin/bash
# Trains {name} on {nodes} node{s} with Slurm. Written by `paceline train --slurm`; adapt it to your site,
# then: sbatch THIS_FILE
#SBATCH --job-name={job}
#SBATCH --nodes={nodes}
# {why}
#SBATCH --ntasks-per-node={tasks}
# train.torch_threads of the scenario
#SBATCH --cpus-per-task={threads}
{gpus}# No node is shared: other jobs would slow single ranks, and all wait for the slowest.
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out
# Perhaps also: --partition, --account, --constraint{perhaps}.

# The environment that has paceline: `module load …`, or `source …/bin/activate`.

# Each task is one rank. Tasks find each other by the variables that srun sets: the first node hosts their store, at a
# port derived from the job's number; set MASTER_ADDR and MASTER_PORT to have it elsewhere, and
# GLOO_SOCKET_IFNAME (such as ib0) if messages should use another network than the one to the first node.
export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"

# The runs' folder is written by the first task: --out has to be on a file system that outlives the job.
# --kill-on-bad-exit ends all tasks when one has failed; --cpu-bind=none lets train.cpu_affinity decide about cores.
srun --kill-on-bad-exit=1 --cpu-bind=none {command}
"""

GPUS = """\
# {whose}; all tasks of a node see all of its GPUs and use them in order
#SBATCH --gpus-per-node={count}
"""
WHOSE = {False: "a GPU for each task", True: "train.share_gpus: one is enough for all tasks of a node"}


def script(scenario: Scenario, arguments: Sequence[str]) -> str:
    """Returns the script.

    Args:
        scenario: the scenario with its changes.
        arguments: the arguments of the `paceline` command that runs it: the scenario's name and all options.
    """
    plans = scenario.plans()
    placed = scenario.cluster.build(scenario.workload).placement
    workers, servers = max(map(len, placed)), max(plan.job.method.num_servers for plan in plans)
    served = -(-servers // len(placed))
    amount = f"{workers} worker{'s' * (workers > 1)}"
    why = f"{amount} on each node of the scenario's cluster"
    if servers > 1:
        why += f"; {served} more for the {servers} servers, which are on the nodes in turn"
    elif servers:
        why += "; one task more, since the first node also has the server: on other nodes it takes no part"
    tasks, train = workers + served, scenario.train
    gpus = 1 if train.share_gpus else tasks
    return SCRIPT.format(
        name=scenario.name,
        job=scenario.name.replace(" ", "-"),
        nodes=len(placed),
        s="s" * (len(placed) > 1),
        why=why,
        tasks=tasks,
        threads=train.torch_threads,
        gpus=GPUS.format(count=gpus, whose=WHOSE[train.share_gpus]) if train.device == "cuda" else "",
        perhaps=f", --gpus-per-node={gpus} (train.device is auto)" if train.device == "auto" else "",
        command=shlex.join(["paceline", *arguments]),
    )
