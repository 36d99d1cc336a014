"""Facts about the machine of a run, and the load of other processes during the run."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import psutil

PACKAGES = ("paceline", "simpy", "torch", "numpy", "scipy", "networkx", "pandas", "pyarrow")


def package_versions() -> dict[str, str]:
    """Returns the versions of Python and of the installed packages that figures depend on."""
    versions = {package: version for package in PACKAGES if (version := _version(package)) is not None}
    return {"python": platform.python_version(), **versions}


@cache  # every run is stored with all versions, each of which is read from a file
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def machine_facts() -> dict[str, Any]:
    """Returns processor, usable cores, memory and system, but nothing that identifies the machine or its user."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
    }


def _processor() -> str:
    """Returns the processor's name; `platform.processor` is empty on most Linux systems."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8", errors="replace").splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


DRIVER = Path("/proc/driver/nvidia/version")


def gpu_driver(listing: Path = DRIVER) -> str | None:
    """Returns the version of NVIDIA's kernel module; None without one."""
    if not listing.exists():
        return None
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", listing.read_text(encoding="utf-8", errors="replace"))
    return None if match is None else match[1]


QUIET, BUSY = 0.05, 0.2
"""shares of other programs in the processor time up to which the figures are good, and from which they are poor"""
PROBES = 3
"""the most probes of a comparison, of which those are repeated that other programs disturbed; provenance: ours"""
Measured = TypeVar("Measured")


class ProcessorLoad(Protocol):
    """A measured load by other programs."""

    @property
    def share(self) -> float: ...


class OtherLoad:
    """A context manager that measures the share of all cores used by processes other than this one and its children.

    share = (busy CPU seconds of the machine − those of our processes) / (cores · elapsed seconds)

    Time stolen by a hypervisor counts as load of others. CPU time is counted in ticks of about 10 ms, so a share
    measured over much less than a second is coarse.

    >>> with OtherLoad() as other:
    ...     _ = sum(range(1000))
    >>> 0.0 <= other.share <= 1.0
    True

    Args:
        ours: ids of further processes that belong to the run, if it was not started by this process.
    """

    share: float = 0.0
    """0 … 1, of the whole machine; set at the exit"""
    own_share: float = 0.0
    """the same of this process, its children and `ours`"""
    stolen_share: float = 0.0
    """the part of `share` that a hypervisor has stolen"""

    def __init__(self, ours: Sequence[int] = ()) -> None:
        self._ours = ours

    def __enter__(self) -> Self:
        self._began = (time.monotonic(), *busy_and_stolen_s(), _own_s(self._ours))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        began_s, busy_before_s, stolen_before_s, own_s = self._began
        elapsed_s = time.monotonic() - began_s
        ours_s = _own_s(self._ours) - own_s
        busy_s, stolen_s = busy_and_stolen_s()
        stolen_s -= stolen_before_s
        others_s = (busy_s - busy_before_s) + stolen_s - ours_s
        available_s = (psutil.cpu_count() or 1) * elapsed_s
        if available_s > 0:
            self.share, self.own_share, self.stolen_share = (
                min(max(each_s / available_s, 0.0), 1.0) for each_s in (others_s, ours_s, stolen_s)
            )


def busy_and_stolen_s() -> tuple[float, float]:
    """Returns the busy CPU seconds of all cores since the start, and those that a hypervisor has stolen from them.

    A core counts as stolen while it has work and the hypervisor runs something else. Guest time is part of user time.
    """
    times = psutil.cpu_times()
    busy_s = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
    return busy_s, getattr(times, "steal", 0.0)


def _own_s(ours: Sequence[int] = ()) -> float:
    """Returns the CPU seconds of this process, its descendants, children that were waited for, and `ours`."""
    own = psutil.Process()
    total_s = 0.0
    for process in (own.pid, *(child.pid for child in own.children(recursive=True)), *ours):
        try:
            times = psutil.Process(process).cpu_times()
        except psutil.NoSuchProcess:  # it has ended since the listing, and its parent's count includes it
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


def least_disturbed(
    measure: Callable[[], Measured],
    *,
    load: Callable[[int], AbstractContextManager[ProcessorLoad]] = lambda _: OtherLoad(),
    decide: Callable[[Callable[[], bool]], bool] = lambda value: value(),
) -> tuple[Measured, str]:
    """Measures again while other programs disturb it, at most `PROBES` times in all; returns the quietest result.

    Args:
        measure: makes the measurement.
        load: returns the context manager that measures the load by other programs, by the number of the measurement.
        decide: evaluates a decision, which all processes of a job must share.

    Returns:
        The result of the measurement with the least load, and its verdict, which says what happened.
    """
    results: list[Measured] = []
    shares: list[float] = []
    while True:
        with load(len(results) + 1) as other:
            results.append(measure())
        shares.append(other.share)
        if not decide(lambda: shares[-1] > BUSY and len(shares) < PROBES):
            break
    best = min(range(len(shares)), key=lambda number: shares[number])
    return results[best], probe_verdict(shares)


def probe_verdict(shares: Sequence[float]) -> str:
    """Returns the verdict of a probe, from the shares of the cores that other programs used in each attempt.

    >>> probe_verdict([0.01])
    'good: other programs used 1 % of the cores during the probe'
    >>> probe_verdict([0.4, 0.1])
    'fair: other programs used 10 % of the cores during the probe, the quietest of 2, since they used 40 % in the first'
    """
    load = min(shares)
    quality = "good" if load <= QUIET else "poor" if load > BUSY else "fair"
    said = f"{quality}: other programs used {100 * load:.0f} % of the cores during the probe"
    if len(shares) == 1:
        return said
    return f"{said}, the quietest of {len(shares)}, since they used {100 * shares[0]:.0f} % in the first"
