"""How this process was started: by itself, or as one of several by `torchrun`, `mpirun` or `srun`.

Rules of this file:

* Nothing is asked but the environment, and nothing is done: `joined` is a function from variables to a value.
* Where variables of several launchers are there, the innermost counts: `torchrun`, then `mpirun`, then `srun`, since
  `srun` starts the other two on clusters and they start the processes.
* A Slurm step of one task is somebody's shell or a batch script, not a rank; a plain command in it forks its ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.algorithms.core.errors import InputError, PacelineError, RunFailed

Launcher = Literal["torchrun", "mpirun", "srun"]
LOOPBACK_ADDRESS = "127.0.0.1"
RANK_THREAD = "rank"
"""the name of the thread that performs the program of a joined process"""
GLOO_THREAD = "gloo"
"""of one that waits in gloo for somebody else's sake, and may be left behind"""
SIGKILL_TIMEOUT = "OMPI_MCA_odls_base_sigkill_timeout"
"""how many seconds Open MPI waits before SIGTERM, and again before SIGKILL; 1 if nobody says"""
LEAVING_S = 10
"""how long a failed run may take to store its record: what waits for the dead, and what is sent between hosts"""
FIRST_PORT, PORTS = 20_000, 10_000
"""where the store is, if nobody says: a port that follows from the job's name, below those that systems give away"""


class SaidElsewhere(PacelineError):
    """Something that every process finds, and that the first one tells of."""


class FailedElsewhere(SaidElsewhere, RunFailed):
    """A run has failed; another process says how."""


class RefusedElsewhere(SaidElsewhere, InputError):
    """The input is wrong; another process says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """One process among those that a launcher has started.

    Args:
        launcher: which it was.
        process: this one's number among all.
        processes: how many there are.
        intra_node_link: this one's number among those of its host.
        address, port: where the processes meet: the store of torch.distributed.
        node: what the launcher calls the host; None where it has no name for it.
        hosted: whether the launcher runs the store; otherwise process 0 does.
        restarts: how often the launcher has started all of them anew after a failure.
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


def joined(environment: Mapping[str, str]) -> Joined | None:
    """How this process was started; None where no launcher did.

    Raises:
        InputError: a launcher's variables are incomplete or make no sense; it says which.

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


def hasty(started: Joined, environment: Mapping[str, str]) -> str | None:
    """What a launcher should be asked that would otherwise end all too soon after a failure; None if nothing.

    >>> started = Joined(launcher="mpirun", process=0, processes=2, local=0, address="a", port=1)
    >>> hasty(started, {SIGKILL_TIMEOUT: "10"}) is None
    True
    """
    found = environment.get(SIGKILL_TIMEOUT, "1")
    if started.launcher != "mpirun" or (found.isascii() and found.isdigit() and int(found) >= LEAVING_S):
        return None
    return (
        f"when a rank fails, mpirun tells the others to end after {found} s and kills them {found} s later: the record "
        f"may be lost; `mpirun --mca odls_base_sigkill_timeout {LEAVING_S}` leaves the time to store it"
    )


def tell_torchrun(message: str) -> None:
    """Leaves the message where torchrun looks for it: it prints it last, below its own traceback.

    Without effect where another launcher has started this process.
    """
    if not (file := os.environ.get("TORCHELASTIC_ERROR_FILE")):
        return
    about = {"message": f"error: {message}", "extraInfo": {"timestamp": str(int(time.time()))}}
    with contextlib.suppress(OSError):  # the message stands on standard error in any case
        Path(file).write_text(json.dumps({"message": about}), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Variables:
    """What a launcher has left in the environment, read with care."""

    launcher: Launcher
    found: Mapping[str, str]

    def text(self, name: str, *, why: str = "") -> str:
        """A variable that has to be there."""
        if not (value := self.found.get(name, "")):
            raise InputError(f"{self.launcher}: found no {name} in the environment; {why or 'expected one'}")
        return value

    def number(self, name: str, default: int | None = None, *, below: int | None = None) -> int:
        """A variable that is a number from 0 on."""
        if default is not None and name not in self.found:
            return default
        text = self.text(name)
        if not text.isascii() or not text.isdigit() or (below is not None and int(text) >= below):
            limit = "" if below is None else f" below {below}"
            raise InputError(f"{self.launcher}: found {name}={text!r}, expected a number from 0 on{limit}")
        return int(text)

    def count(self, name: str) -> int:
        """A number of processes."""
        if (found := self.number(name)) < 1:
            raise InputError(f"{self.launcher}: found {name}={found}, expected 1 or more")
        return found

    def port(self, job: str) -> int:
        """Where the store is: as told, or as it follows from the name that the launcher has for the job."""
        return self.number("MASTER_PORT", FIRST_PORT + zlib.crc32(job.encode()) % PORTS, below=1 << 16)


def _by_torchrun(variables: Variables) -> Joined:
    processes = variables.count("WORLD_SIZE")
    return Joined(
        launcher="torchrun",
        process=variables.number("RANK", below=processes),
        processes=processes,
        local=variables.number("LOCAL_RANK", below=processes),
        address=variables.text("MASTER_ADDR"),
        port=variables.number("MASTER_PORT", below=1 << 16),
        node=variables.number("GROUP_RANK") if "GROUP_RANK" in variables.found else None,
        hosted=variables.found.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        restarts=variables.number("TORCHELASTIC_RESTART_COUNT", 0),
    )


def _by_mpirun(variables: Variables) -> Joined:
    processes = variables.count("OMPI_COMM_WORLD_SIZE")
    here = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE") == processes
    address = variables.found.get("MASTER_ADDR") or (LOOPBACK_ADDRESS if here else "")
    why = "on several hosts give the first one's: `mpirun -x MASTER_ADDR=…`"
    job = variables.found.get("PMIX_NAMESPACE") or variables.found.get("OMPI_MCA_ess_base_jobid") or ""
    return Joined(
        launcher="mpirun",
        process=variables.number("OMPI_COMM_WORLD_RANK", below=processes),
        processes=processes,
        local=variables.number("OMPI_COMM_WORLD_LOCAL_RANK", below=processes),
        address=address or variables.text("MASTER_ADDR", why=why),
        port=variables.port(job),
    )


def _by_srun(variables: Variables) -> Joined | None:
    tasks = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in variables.found else "SLURM_NTASKS"
    processes = variables.count(tasks)
    if processes == 1:
        return None
    listed = "SLURM_STEP_NODELIST" if "SLURM_STEP_NODELIST" in variables.found else "SLURM_JOB_NODELIST"
    address = variables.found.get("MASTER_ADDR") or first_host(variables.text(listed))
    return Joined(
        launcher="srun",
        process=variables.number("SLURM_PROCID", below=processes),
        processes=processes,
        local=variables.number("SLURM_LOCALID", below=processes),
        address=address,
        port=variables.port(f"{variables.found.get('SLURM_JOB_ID', '')}.{variables.text('SLURM_STEP_ID')}"),
        node=variables.number("SLURM_NODEID") if "SLURM_NODEID" in variables.found else None,
        restarts=variables.number("SLURM_RESTART_COUNT", 0),
    )


def first_host(nodes: str) -> str:
    """The first host of a list as Slurm writes it.

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
