"""Facts about the machine a run was made on, and how much of it others used meanwhile."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

PACKAGES = ("paceline", "simpy", "torch", "numpy", "scipy", "networkx", "pandas", "pyarrow", "scikit-learn")


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that figures depend on; those that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine_facts() -> dict[str, Any]:
    """Processor, cores this process may use, memory and system; nothing that names the machine or its user."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
    }


def _processor() -> str:
    """The processor's own name; `platform.processor` is empty on most Linux systems."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8", errors="replace").splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


DRIVER = Path("/proc/driver/nvidia/version")


def gpu_driver(listing: Path = DRIVER) -> str | None:
    """The version of NVIDIA's driver, as the kernel's module says it; None where there is none."""
    if not listing.exists():
        return None
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", listing.read_text(encoding="utf-8", errors="replace"))
    return None if found is None else found[1]


class OtherLoad:
    """Measures the share of all cores that processes other than this one and its children took, while it is entered.

    share = (busy CPU seconds of the machine − those of our processes) / (cores · elapsed seconds)

    Time stolen by a hypervisor counts as others'. CPU time is counted in ticks of about 10 ms, so a share measured over
    much less than a second is coarse.

    >>> with OtherLoad() as other:
    ...     _ = sum(range(1000))
    >>> 0.0 <= other.share <= 1.0
    True

    Args:
        ours: more processes that are not others, by their ids: of a run that somebody else has started.
    """

    share: float = 0.0
    """0 … 1, of the whole machine; there after the exit"""

    def __init__(self, ours: Sequence[int] = ()) -> None:
        self._ours = ours

    def __enter__(self) -> Self:
        self._began = (time.monotonic(), _busy_s(), _own_s(self._ours))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        began_s, busy_s, own_s = self._began
        elapsed_s = time.monotonic() - began_s
        others_s = (_busy_s() - busy_s) - (_own_s(self._ours) - own_s)
        cores = psutil.cpu_count() or 1
        self.share = min(max(others_s / (cores * elapsed_s), 0.0), 1.0) if elapsed_s > 0 else 0.0


def _busy_s() -> float:
    """CPU seconds that the machine has spent on anything; guest time is part of user time already."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))


def _own_s(ours: Sequence[int] = ()) -> float:
    """CPU seconds of this process, of its living descendants, of those that have been waited for, and of `ours`."""
    own = psutil.Process()
    total_s = 0.0
    for process in (own.pid, *(child.pid for child in own.children(recursive=True)), *ours):
        try:
            times = psutil.Process(process).cpu_times()
        except psutil.NoSuchProcess:  # it ended since the listing; its parent's count has it
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s
