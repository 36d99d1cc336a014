"""Checks torch, the libraries of its messages, and the optional packages."""

from __future__ import annotations

import platform
from importlib import metadata
from importlib.util import find_spec

from paceline.backend.machine_checks.result import MachineCheck

EXTRAS: dict[str, tuple[str, str]] = {
    "optuna": ("planning", "paceline plan"),
    "dask": ("dask", "sweep --engine dask: sweeps on several machines"),
    "tensorboardX": ("tensorboard", "train --tensorboard, and export --format tensorboard"),
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
        return MachineCheck(
            name="torch",
            status="missing",
            found=f"cannot be imported: {error}",
            needed_for=needed_for,
            remedy="pip install torch, see https://pytorch.org/get-started/locally",
            required=True,
        )
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
    return MachineCheck(
        name=name,
        status="ok" if there else "missing",
        found=found,
        needed_for=needed_for,
        remedy="" if there else remedy,
        required=required,
    )


def packages() -> list[MachineCheck]:
    """Checks the optional packages."""
    results = []
    for package, (extra, needed_for) in EXTRAS.items():
        there = find_spec(package) is not None
        results.append(
            MachineCheck(
                name=package,
                status="ok" if there else "missing",
                found=metadata.version(package) if there else "not installed",
                needed_for=needed_for,
                remedy="" if there else f"pip install 'paceline[{extra}]'",
            )
        )
    return results
