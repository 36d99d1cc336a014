"""Starting a program on two hosts as a cluster does it: by torchrun, by Open MPI's mpirun, by Slurm's srun.

Rules of this file:

* A host is a network namespace of this machine (`backend/emulation/emulated_hosts.py`) in which it has a name of its
  own, and where the names of all lead to their addresses, as on a cluster.
* The launchers are the real ones. Slurm is one of this file's own: a controller and a daemon for each host, with a key
  and a folder that nobody else uses; a Slurm that this machine may have is neither asked nor touched.
* Daemons end with the block; where the process that started them is killed, the kernel ends them.
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
from paceline.backend.posix.polling import wait_until

NAMES = ("node-a", "node-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
HOSTS_OF = Path("/etc/netns")
"""where `ip netns exec` finds files that a namespace has in place of those in /etc"""
PORT = 29_411
"""of torchrun's rendezvous, inside the namespaces"""
NEEDS: Mapping[str, Mapping[str, str]] = {
    "torchrun": {},
    "mpirun": {"mpirun": "openmpi-bin"},
    "srun": {"srun": "slurm-client", "slurmctld": "slurmctld", "slurmd": "slurmd", "munged": "munge"},
}
"""programs, and Debian's packages that have them; torchrun comes with torch"""
READY_S = 30.0
"""how long Slurm's daemons may take to find each other"""
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
exec ip netns exec "$namespace" unshare --uts sh -c 'hostname "$0" && eval "$1"' "$host" "$*"
"""


@dataclass(frozen=True, slots=True)
class Start:
    """What starts a program on all hosts.

    Args:
        commands: all of them at once; each ends when its part of the program has.
        variables: to be added to the environment.
    """

    commands: Sequence[Sequence[str]]
    variables: Mapping[str, str] = field(default_factory=dict)


def missing(launcher: str) -> str | None:
    """What has to be installed for a launcher; None if nothing."""
    packages = [package for program, package in NEEDS[launcher].items() if _which(program) is None]
    return f"{launcher} needs `apt install {' '.join(packages)}`" if packages else None


@contextmanager
def start(launcher: str, made: Hosts, processes: int, program: Sequence[str]) -> Iterator[Start]:
    """A program, as so many processes on each of two hosts; what it takes is there for the block.

    Raises:
        InputError: the launcher is not installed.
        RunFailed: Slurm's daemons do not find each other.
    """
    if (lacks := missing(launcher)) is not None:
        raise InputError(lacks)
    with named(made), LAUNCHERS[launcher](made, processes, program) as found:
        yield found


@contextmanager
def named(made: Hosts) -> Iterator[None]:
    """For the block all hosts know each other by name."""
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
    """The command that does this on a host."""
    naming = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', NAMES[index]]
    return ["ip", "netns", "exec", made.names[index], *naming, *command]


@contextmanager
def by_torchrun(made: Hosts, processes: int, program: Sequence[str]) -> Iterator[Start]:
    """One agent on each host, which meet on the first."""
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={processes}"]
    agent += ["--rdzv-backend=c10d", f"--rdzv-endpoint={NAMES[0]}:{PORT}", "--no-python"]
    places = [[f"--local-addr={address}", f"--rdzv-conf=is_host={1 - i}"] for i, address in enumerate(ADDRESSES)]
    yield Start([inside(made, index, [*agent, *place, *program]) for index, place in enumerate(places)])


@contextmanager
def by_mpirun(made: Hosts, processes: int, program: Sequence[str]) -> Iterator[Start]:
    """One mpirun on the first host, which comes to the other one by what it takes for ssh."""
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        rsh, hosts = Path(folder) / "rsh", zip(NAMES, made.names, strict=True)
        rsh.write_text(RSH.format(cases=" ".join(f"{name}) namespace={where};;" for name, where in hosts)))
        rsh.chmod(0o755)
        command = ["mpirun", "--allow-run-as-root", "--host", ",".join(f"{name}:{processes}" for name in NAMES)]
        command += ["--mca", "plm_rsh_agent", str(rsh), "--mca", "oob_tcp_if_include", "eth0", "--bind-to", "none"]
        command += ["-x", f"MASTER_ADDR={NAMES[0]}", *program]
        yield Start([inside(made, 0, command)])


@contextmanager
def by_srun(made: Hosts, processes: int, program: Sequence[str]) -> Iterator[Start]:
    """One step of a Slurm that is there for the block."""
    with slurm(made) as variables:
        command = ["srun", "--nodes=2", f"--ntasks-per-node={processes}", "--kill-on-bad-exit=1", *program]
        yield Start([inside(made, 0, command)], variables)


@contextmanager
def slurm(made: Hosts) -> Iterator[Mapping[str, str]]:
    """A Slurm of these hosts, for the block; answers the variables by which its commands find it."""
    with tempfile.TemporaryDirectory(prefix="paceline-slurm-") as where, ExitStack() as daemons:
        folder = Path(where)
        folder.chmod(0o755)  # munged refuses a socket that not everybody can come to
        for name in NAMES:
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(SLURM.format(folder=folder, names=NAMES, addresses=ADDRESSES))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # else daemons look for what is not there
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
    """In which state how many hosts are, in Slurm's words."""
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
