"""Starts a program on two hosts as on a cluster: by torchrun, by Open MPI's mpirun, or by Slurm's srun.

Rules of this file:

* A host is a network namespace of this machine (`backend/emulation/emulated_hosts.py`). In it the host has its own
  name, and the names of all hosts resolve to their addresses, as on a cluster. Each host has half of the cores, so that
  hosts do not slow each other down.
* The launchers are the real ones. Slurm is started here: a controller, and a daemon for each host, with a separate key
  and folder. A Slurm installation that already runs on this machine is not used.
* Daemons end with the block. If the process that started them is killed, the kernel ends them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.backend.emulation.emulated_hosts import Hosts
from paceline.backend.posix.waits import wait_until

NAMES = ("node-a", "node-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
HOSTS_OF = Path("/etc/netns")
"""folder of files that replace those of /etc for `ip netns exec`"""
PORT = 29_411
"""port of torchrun's rendezvous, inside the namespaces"""
NEEDS: Mapping[str, Mapping[str, str]] = {
    "torchrun": {},
    "mpirun": {"mpirun": "openmpi-bin"},
    "srun": {"srun": "slurm-client", "slurmctld": "slurmctld", "slurmd": "slurmd", "munged": "munge"},
}
"""programs, and the Debian packages that contain them; torchrun is part of torch"""
READY_S = 30.0
"""seconds for Slurm's daemons to find each other"""
COMMAND = (sys.executable, "-c", "from paceline.cli import main; main()")
"""`paceline`, also where only the source tree is on the path"""
WITHIN_S = 900.0
"""seconds after which a command that a launcher started is stopped"""
SLURM = """\
ClusterName=paceline
SlurmctldHost={names[0]}({addresses[0]})
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
# Tasks are found by their parents, and not shut into cgroups, which a namespace has none of.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MailProg=/bin/true
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
# Hosts may say that they have more processors than this machine.
SlurmdParameters=config_overrides
NodeName={names[0]} NodeAddr={addresses[0]} CPUs=16
NodeName={names[1]} NodeAddr={addresses[1]} CPUs=16
PartitionName=all Nodes=ALL Default=YES
"""
RSH = """\
#!/bin/sh
# What mpirun takes for ssh: THIS_FILE HOST COMMAND…
host=$1; shift
case $host in {cases} esac
exec taskset --cpu-list "$cores" ip netns exec "$namespace" unshare --uts sh -c 'hostname "$0" && eval "$1"' \
    "$host" "$*"
"""


@dataclass(frozen=True, slots=True)
class Start:
    """Starts a program on all hosts.

    Args:
        commands: Run all at once; each ends when its part of the program has ended.
        variables: Added to the environment.
    """

    commands: Sequence[Sequence[str]]
    variables: Mapping[str, str] = field(default_factory=dict)


def missing(launcher: str) -> str | None:
    """Returns which packages a launcher lacks; None if none."""
    packages = [package for program, package in NEEDS[launcher].items() if _which(program) is None]
    return f"{launcher} needs `apt install {' '.join(packages)}`" if packages else None


@contextmanager
def start(launcher: str, made: Hosts, processes: int, program: Sequence[str]) -> Iterator[Start]:
    """Starts a program with this many processes on each of two hosts. Its files and daemons exist during the block.

    Raises:
        InputError: The launcher is not installed.
        RunFailed: Slurm's daemons do not find each other.
    """
    if (lacks := missing(launcher)) is not None:
        raise InputError(lacks)
    with named(made), LAUNCHERS[launcher](made, processes, program) as begun:
        yield begun


def launched(launcher: str, made: Hosts, processes: int, arguments: Sequence[str]) -> None:
    """Runs a command of Paceline in this many processes on each of two hosts.

    Raises:
        InputError: The launcher is not installed.
        RunFailed: The command failed. The message is its output.
    """
    with start(launcher, made, processes, [*COMMAND, *arguments]) as begun:
        performed(begun)


def performed(begun: Start) -> None:
    """Runs a start to its end, with one thread of OpenMP in each process.

    Raises:
        RunFailed: A command failed. The message is what all printed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **begun.variables}
    agents = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in begun.commands
    ]
    try:
        said = [agent.communicate(timeout=WITHIN_S)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.terminate()
            agent.wait()
    if any(agent.returncode for agent in agents):
        raise RunFailed("\n".join(said))


@contextmanager
def named(made: Hosts) -> Iterator[None]:
    """Makes the names of all hosts known on each of them during the block."""
    lines = [f"{address} {name}\n" for address, name in zip(ADDRESSES, NAMES, strict=True)]
    folders = [HOSTS_OF / name for name in made.names]
    try:
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def inside(made: Hosts, index: int, command: Sequence[str]) -> list[str]:
    """Returns the command that runs a command on a host."""
    naming = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', NAMES[index]]
    return ["taskset", "--cpu-list", cores_of(index), "ip", "netns", "exec", made.names[index], *naming, *command]


def cores_of(index: int) -> str:
    """Returns the cores of a host, with commas between them: half of this process's; all, if it has one."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    return ",".join(map(str, (cores[:half] if index == 0 else cores[half:]) if half else cores))


@contextmanager
def by_torchrun(made: Hosts, processes: int, program: Sequence[str], count: int = len(NAMES)) -> Iterator[Start]:
    """Returns one torchrun agent for each of the first `count` hosts; they meet on the first host."""
    agent = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={count}", f"--nproc-per-node={processes}"]
    agent += ["--rdzv-backend=c10d", f"--rdzv-endpoint={NAMES[0]}:{PORT}", "--no-python"]
    places = [[f"--local-addr={ADDRESSES[i]}", f"--rdzv-conf=is_host={1 - i}"] for i in range(count)]
    yield Start([inside(made, index, [*agent, *place, *program]) for index, place in enumerate(places)])


@contextmanager
def by_mpirun(made: Hosts, processes: int, program: Sequence[str]) -> Iterator[Start]:
    """Returns one mpirun on the first host, with a replacement of ssh that reaches the other host."""
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        rsh, hosts = Path(folder) / "rsh", enumerate(zip(NAMES, made.names, strict=True))
        cases = " ".join(f"{name}) namespace={where} cores={cores_of(i)};;" for i, (name, where) in hosts)
        rsh.write_text(RSH.format(cases=cases))
        rsh.chmod(0o755)
        command = ["mpirun", "--allow-run-as-root", "--host", ",".join(f"{name}:{processes}" for name in NAMES)]
        command += ["--mca", "plm_rsh_agent", str(rsh), "--mca", "oob_tcp_if_include", "eth0", "--bind-to", "none"]
        command += ["-x", f"MASTER_ADDR={NAMES[0]}", *program]
        yield Start([inside(made, 0, command)])


@contextmanager
def by_srun(made: Hosts, processes: int, program: Sequence[str]) -> Iterator[Start]:
    """Returns one step of a Slurm that runs during the block."""
    with slurm(made) as variables:
        command = ["srun", "--nodes=2", f"--ntasks-per-node={processes}", "--kill-on-bad-exit=1", *program]
        yield Start([inside(made, 0, command)], variables)


@contextmanager
def slurm(made: Hosts) -> Iterator[Mapping[str, str]]:
    """Runs a Slurm of these hosts during the block. Yields the variables by which its commands find it."""
    with tempfile.TemporaryDirectory(prefix="paceline-slurm-") as where, ExitStack() as daemons:
        folder = Path(where)
        folder.chmod(0o755)  # munged rejects a folder for its socket that other users cannot enter
        for name in NAMES:
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(SLURM.format(folder=folder, names=NAMES, addresses=ADDRESSES))
        (folder / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\n"
        )  # otherwise daemons search for plugins that are not installed
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        daemons.enter_context(_daemon(_munged(folder), {}))
        _until((folder / "munge.socket").exists, "munged has not begun")
        daemons.enter_context(_daemon(inside(made, 0, [_found("slurmctld"), "-D"]), variables))
        for index, name in enumerate(NAMES):
            daemons.enter_context(_daemon(inside(made, index, [_found("slurmd"), "-D", "-N", name]), variables))
        _until(lambda: _idle(made, variables) == "idle 2", "Slurm's daemons have not found each other")
        yield variables


def _munged(folder: Path) -> list[str]:
    command = [_found("munged"), "--foreground", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
    return [*command, *(f"--{what}-file={folder}/munge.{what}" for what in ("pid", "log", "seed"))]


@contextmanager
def _daemon(command: Sequence[str], variables: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig=KILL", *command],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _idle(made: Hosts, variables: Mapping[str, str]) -> str:
    """Returns the number of hosts in each of Slurm's states."""
    command = inside(made, 0, ["sinfo", "--noheader", "--format=%T %D"])
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _until(done: Callable[[], bool], otherwise: str) -> None:
    if not wait_until(done, within_s=READY_S, every_s=0.1):
        raise RunFailed(f"{otherwise} within {READY_S:g} s")


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _found(program: str) -> str:
    path = _which(program)
    assert path is not None, "`missing` has been asked"
    return path


LAUNCHERS = {"torchrun": by_torchrun, "mpirun": by_mpirun, "srun": by_srun}
