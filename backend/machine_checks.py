"""Checks what this machine can do, for ``paceline doctor``.

Network namespaces and traffic control are tried in a namespace that is deleted at once, because the rights of the user,
the kernel and the container decide on them, which the presence of a program does not show.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Literal

from paceline.backend.emulation.emulated_hosts import shaped
from paceline.backend.posix.network_namespaces import NoHosts, namespaces, run_ip
from paceline.backend.posix.reserve import ADVICE
from paceline.backend.posix.run_folders import SHARED
from paceline.records.machine import gpu_driver, machine_facts

Status = Literal["ok", "limited", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCheck:
    """What was found, what it is needed for, and how to get it.

    Args:
        name: what was looked for.
        status: whether it is usable, usable with a limit, or missing.
        found: what was found, in words.
        needed_for: the commands and options that use it.
        remedy: how to get it; empty if it is there.
        required: whether simulate, train and compare do not work without it.
    """

    name: str
    status: Status
    found: str
    needed_for: str
    remedy: str = ""
    required: bool = False


def _check(
    name: str,
    enough: bool,
    found: str,
    needed_for: str,
    *,
    remedy: str,
    otherwise: Status = "missing",
    required: bool = False,
) -> MachineCheck:
    """Returns the check of something that is usable, or else has another status and a remedy."""
    return MachineCheck(
        name=name,
        status="ok" if enough else otherwise,
        found=found,
        needed_for=needed_for,
        remedy="" if enough else remedy,
        required=required,
    )


LEAST_SHARED_BYTES = 256 * 2**20
"""INFERENCE: four times Docker's default of 64 MiB, which is known to be too small for processes that share tensors"""
LEAST_MEMORY_BYTES = 4 * 2**30
"""INFERENCE: torch, pandas and the data of four ranks take about half of it"""


def cores() -> MachineCheck:
    """Checks the processor cores that this process may use."""
    facts = machine_facts()
    number = facts["cores"] or 1
    needed_for = "real runs: ranks that share a core may not hold the pace of train.pace"
    remedy = "use a machine with more cores, or a larger train.time_dilation"
    found = f"{number} of {facts['processor']}"
    return _check("processor cores", number > 1, found, needed_for, remedy=remedy, otherwise="limited")


def memory() -> MachineCheck:
    """Checks the main memory."""
    total = machine_facts()["memory_bytes"]
    enough = total >= LEAST_MEMORY_BYTES
    needed_for = "real runs with many ranks, and simulations of thousands of workers that learn"
    remedy = "use a machine with more memory, fewer workers, or a smaller workload.model"
    return _check("memory", enough, in_words(total), needed_for, remedy=remedy, otherwise="limited")


def shared_memory() -> MachineCheck:
    """Checks the free space of the file system in memory in which ranks exchange messages."""
    free = shutil.disk_usage(SHARED).free
    in_memory = str(SHARED) == "/dev/shm"
    enough = in_memory and free >= LEAST_SHARED_BYTES
    found = f"{in_words(free)} free in {SHARED}" + ("" if in_memory else ", since there is no /dev/shm")
    needed_for = "train and compare: ranks of one host exchange messages through it"
    remedy = ADVICE if in_memory else "mount a tmpfs at /dev/shm; files on a disk are slow"
    return _check("shared memory", enough, found, needed_for, remedy=remedy, otherwise="limited", required=True)


def gpus() -> MachineCheck:
    """Checks the GPUs that torch can use."""
    needed_for = "train.device: cuda, and calibrate of GPUs"
    try:
        import torch
    except ImportError:
        return _check("GPUs", False, "unknown without torch", needed_for, remedy="install torch")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        names = [_gpu(torch.cuda.get_device_properties(number)) for number in range(count)]
        return MachineCheck(name="GPUs", status="ok", found="; ".join(names), needed_for=needed_for)
    driver = gpu_driver()
    if torch.version.cuda is None:
        found = f"none: torch {torch.__version__} is a build without CUDA"
        remedy = "install a build of torch with CUDA (https://pytorch.org/get-started/locally) on a machine with a GPU"
    else:
        found = f"none; NVIDIA driver: {driver or 'not found'}"
        remedy = (
            "use a machine with an NVIDIA GPU and its driver; in a container, pass the GPUs (docker run --gpus all)"
        )
    return _check("GPUs", False, found, needed_for, remedy=remedy)


def in_words(nbytes: int) -> str:
    """Formats a size in GiB.

    >>> in_words(3 * 2**29)
    '1.5 GiB'
    """
    return f"{nbytes / 2**30:.1f} GiB"


def _gpu(properties: Any) -> str:
    return f"{properties.name} with {in_words(properties.total_memory)}"


EXTRAS: dict[str, tuple[str, str]] = {
    "optuna": ("planning", "paceline plan"),
    "dask": ("dask", "sweep --engine dask: sweeps on several machines"),
    "tensorboardX": ("tensorboard", "--log tensorboard, and export --format tensorboard"),
    "wandb": ("wandb", "--log wandb, and export --format wandb: Weights & Biases"),
    "mlflow": ("mlflow", "--log mlflow, and export --format mlflow"),
    "hypothesis": ("checking", "tests of your own methods with paceline.testing, and drawn counterexamples"),
}
"""optional packages: the extra of paceline that installs each, and the commands that use it"""


def python() -> MachineCheck:
    """Reports Python and the version of Paceline."""
    found = f"{platform.python_version()}, with paceline {metadata.version('paceline')}"
    return MachineCheck(name="Python", status="ok", found=found, needed_for="everything", required=True)


def torch() -> MachineCheck:
    """Checks torch."""
    needed_for = "simulations that learn, train, and compare"
    try:
        import torch as module
    except (ImportError, OSError) as error:  # OSError: a shared library of it is missing
        remedy = "pip install torch, see https://pytorch.org/get-started/locally"
        return _check("torch", False, f"cannot be imported: {error}", needed_for, remedy=remedy, required=True)
    built = "without CUDA" if module.version.cuda is None else f"with CUDA {module.version.cuda}"
    found = f"{module.__version__}, a build {built}"
    return MachineCheck(name="torch", status="ok", found=found, needed_for=needed_for, required=True)


def gloo() -> MachineCheck:
    """Checks that torch has gloo."""
    return _of_torch(
        "gloo", "train and compare: collectives and messages of processors", "pip install torch", required=True
    )


def nccl() -> MachineCheck:
    """Checks that torch has NCCL."""
    return _of_torch("NCCL", "train.device: cuda, for collectives of GPUs", "install a build of torch with CUDA")


def _of_torch(name: str, needed_for: str, remedy: str, *, required: bool = False) -> MachineCheck:
    try:
        from torch import distributed

        there = distributed.is_available() and bool(getattr(distributed, f"is_{name.lower()}_available")())
        found = "in this build of torch" if there else "this build of torch is without it"
    except (ImportError, OSError):
        there, found = False, "unknown without torch"
    return _check(name, there, found, needed_for, remedy=remedy, required=required)


def packages() -> list[MachineCheck]:
    """Checks the optional packages."""
    results = []
    for package, (extra, needed_for) in EXTRAS.items():
        spec = find_spec(package)
        there = spec is not None and spec.origin is not None  # without an origin: a folder of this name, such as wandb/
        found = _version(package) if there else "not installed"
        results.append(_check(package, there, found, needed_for, remedy=f"pip install 'paceline[{extra}]'"))
    return results


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # it is in a distribution of another name: mlflow in mlflow-skinny
        return "installed"


LIMIT_S = 10.0
"""INFERENCE: programs print their version within a second"""
RATE, DELAY_S = 1.25e6, 1e-3
"""the link that is tried; any would do"""
EMULATED = "train.network: emulated, in train, compare and calibrate"


def network() -> list[MachineCheck]:
    """Checks network namespaces, and traffic control in one."""
    try:
        with namespaces(["doctor"]) as (name,):
            return [
                MachineCheck(name="network namespaces", status="ok", found="one was made", needed_for=EMULATED),
                _traffic_control(name),
            ]
    except (NoHosts, OSError) as error:
        remedy = "run as root with iproute2 (apt install iproute2); in a container, with --privileged"
        missing = _check("network namespaces", False, str(error), EMULATED, remedy=remedy)
        return [missing, _control("missing", "cannot be tried without network namespaces", remedy)]


def _traffic_control(name: str) -> MachineCheck:
    """Checks rates and delays of links in a namespace."""
    try:
        for command in shaped(name, "lo", RATE):
            run_ip(*command)
    except NoHosts as error:
        remedy = "apt install iproute2, and a kernel with the module sch_tbf"
        return _control("missing", f"no rates: {error}", remedy)
    try:
        run_ip("tc", "-n", name, "qdisc", "del", "dev", "lo", "root")
        for command in shaped(name, "lo", RATE, DELAY_S):
            run_ip(*command)
    except NoHosts:
        found = "rates work; the kernel has no netem, so Paceline delays packets itself, which is less exact"
        remedy = "a kernel with the module sch_netem (apt install linux-modules-extra-$(uname -r))"
        return _control("limited", found, remedy)
    return _control("ok", "rates (tbf) and delays (netem) of links work", "")


def _control(status: Status, found: str, remedy: str) -> MachineCheck:
    return MachineCheck(name="traffic control (tc)", status=status, found=found, needed_for=EMULATED, remedy=remedy)


def slurm() -> MachineCheck:
    """Checks the client of Slurm."""
    return _program(
        "Slurm",
        ("srun",),
        needed_for="starting ranks with srun; train --slurm prints its script without it",
        remedy="on a cluster: load its module; for a test: apt install slurm-client",
    )


def mpi() -> MachineCheck:
    """Checks the launcher of MPI."""
    remedy = "apt install openmpi-bin; on a cluster: load its module"
    return _program("MPI", ("mpirun", "mpiexec"), needed_for="starting ranks with mpirun", remedy=remedy)


def chromium() -> MachineCheck:
    """Checks the browser of the tests of reports."""
    return _program(
        "Chromium",
        ("chromium", "chromium-browser", "google-chrome", "chrome"),
        needed_for="tests of HTML reports, for contributors; any browser opens a report",
        remedy="apt install chromium chromium-driver",
    )


def _program(name: str, programs: Sequence[str], *, needed_for: str, remedy: str) -> MachineCheck:
    """Checks that one of several programs is there and prints its version."""
    for program in programs:
        if (path := shutil.which(program)) is None:
            continue
        runs, said = version_of(path)
        found = f"{said} ({path})" if runs else f"{path}, which does not run: {said}"
        return _check(name, runs, found, needed_for, remedy=remedy)
    return _check(name, False, f"no program {' or '.join(programs)}", needed_for, remedy=remedy)


def version_of(path: str) -> tuple[bool, str]:
    """Returns whether a program prints its version, and the first line of its output, or the last of its error.

    Args:
        path: the program.
    """
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    runs = done.returncode == 0
    lines = [line.strip() for line in (done.stdout if runs else done.stderr).splitlines() if line.strip()]
    # of an error, the last line: the first ones of Slurm are about its attempts
    return runs, lines[0 if runs else -1] if lines else f"exit status {done.returncode}"


CHECKS: tuple[Callable[[], MachineCheck | list[MachineCheck]], ...] = (
    python,
    cores,
    memory,
    shared_memory,
    torch,
    gloo,
    nccl,
    gpus,
    network,
    mpi,
    slurm,
    packages,
    chromium,
)


def checks() -> Iterator[MachineCheck]:
    """Yields the result of each check when it is there; together they take a few seconds, most of them for torch."""
    for check in CHECKS:
        result = check()
        yield from result if isinstance(result, list) else [result]
