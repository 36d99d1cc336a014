"""Checks network namespaces, traffic control, and programs of other packages.

Rules of this file: namespaces and traffic control are tried in a namespace that is deleted at once, because the rights
of the user, the kernel and the container decide on them, which the presence of a program does not show.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from paceline.backend.emulation.emulated_hosts import shaped
from paceline.backend.machine_checks.result import MachineCheck, Status
from paceline.backend.posix.network_namespaces import NoHosts, namespaces, run_ip

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
        missing = MachineCheck(
            name="network namespaces", status="missing", found=str(error), needed_for=EMULATED, remedy=remedy
        )
        unknown = MachineCheck(
            name="traffic control (tc)",
            status="missing",
            found="cannot be tried without network namespaces",
            needed_for=EMULATED,
            remedy=remedy,
        )
        return [missing, unknown]


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
        if not runs:
            found = f"{path}, which does not run: {said}"
            return MachineCheck(name=name, status="missing", found=found, needed_for=needed_for, remedy=remedy)
        return MachineCheck(name=name, status="ok", found=f"{said} ({path})", needed_for=needed_for)
    found = f"no program {' or '.join(programs)}"
    return MachineCheck(name=name, status="missing", found=found, needed_for=needed_for, remedy=remedy)


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
