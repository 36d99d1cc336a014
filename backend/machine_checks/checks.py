"""All checks of this machine, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paceline.backend.machine_checks import hardware, libraries, programs
from paceline.backend.machine_checks.result import MachineCheck

CHECKS: tuple[Callable[[], MachineCheck | list[MachineCheck]], ...] = (
    libraries.python,
    hardware.cores,
    hardware.memory,
    hardware.shared_memory,
    libraries.torch,
    libraries.gloo,
    libraries.nccl,
    hardware.gpus,
    programs.network,
    programs.mpi,
    programs.slurm,
    libraries.packages,
    programs.chromium,
)


def checks() -> Iterator[MachineCheck]:
    """Yields the result of each check when it is there; together they take a few seconds, most of them for torch."""
    for check in CHECKS:
        found = check()
        yield from found if isinstance(found, list) else [found]
