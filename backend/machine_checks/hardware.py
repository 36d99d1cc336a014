"""Checks processor cores, memory, shared memory and GPUs."""

from __future__ import annotations

import shutil
from typing import Any

from paceline.backend.machine_checks.result import MachineCheck
from paceline.backend.posix.reserve import ADVICE
from paceline.backend.posix.run_folders import SHARED
from paceline.records.machine import gpu_driver, machine_facts

LEAST_SHARED_BYTES = 256 * 2**20
"""INFERENCE: four times Docker's default of 64 MiB, which is known to be too small for processes that share tensors"""
LEAST_MEMORY_BYTES = 4 * 2**30
"""INFERENCE: torch, pandas and the data of four ranks take about half of it"""


def cores() -> MachineCheck:
    """Checks the processor cores that this process may use."""
    facts = machine_facts()
    number = facts["cores"] or 1
    return MachineCheck(
        name="processor cores",
        status="ok" if number > 1 else "limited",
        found=f"{number} of {facts['processor']}",
        needed_for="real runs: ranks that share a core may not hold the pace of train.pace",
        remedy="" if number > 1 else "use a machine with more cores, or a larger train.time_dilation",
    )


def memory() -> MachineCheck:
    """Checks the main memory."""
    total = machine_facts()["memory_bytes"]
    enough = total >= LEAST_MEMORY_BYTES
    return MachineCheck(
        name="memory",
        status="ok" if enough else "limited",
        found=in_words(total),
        needed_for="real runs with many ranks, and simulations of thousands of workers that learn",
        remedy="" if enough else "use a machine with more memory, fewer workers, or a smaller workload.model",
    )


def shared_memory() -> MachineCheck:
    """Checks the free space of the file system in memory in which ranks exchange messages."""
    free = shutil.disk_usage(SHARED).free
    in_memory = str(SHARED) == "/dev/shm"
    enough = in_memory and free >= LEAST_SHARED_BYTES
    return MachineCheck(
        name="shared memory",
        status="ok" if enough else "limited",
        found=f"{in_words(free)} free in {SHARED}" + ("" if in_memory else ", since there is no /dev/shm"),
        needed_for="train and compare: ranks of one host exchange messages through it",
        remedy="" if enough else ADVICE if in_memory else "mount a tmpfs at /dev/shm; files on a disk are slow",
        required=True,
    )


def gpus() -> MachineCheck:
    """Checks the GPUs that torch can use."""
    needed_for = "train.device: cuda, and calibrate of GPUs"
    try:
        import torch
    except ImportError:
        return MachineCheck(
            name="GPUs", status="missing", found="unknown without torch", needed_for=needed_for, remedy="install torch"
        )
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
    return MachineCheck(name="GPUs", status="missing", found=found, needed_for=needed_for, remedy=remedy)


def in_words(nbytes: int) -> str:
    """Formats a size in GiB.

    >>> in_words(3 * 2**29)
    '1.5 GiB'
    """
    return f"{nbytes / 2**30:.1f} GiB"


def _gpu(properties: Any) -> str:
    return f"{properties.name} with {in_words(properties.total_memory)}"
