"""This machine as a device of the catalogue: measures matrix products, copies, and the time to launch a kernel.

Torch is measured with its current number of threads, for a second or two, and only on request. Each figure is the best
of several repetitions, because other load can only slow a repetition down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from paceline.topologies.catalogue.device_catalogue import THIS_MACHINE, Spec

SIDE = 1536
"""side of the square matrices"""
COPY_BYTES = 128 * 2**20
"""larger than the caches"""
REPEATS = 5


def _best_s(action: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Returns the shortest of several repetitions after a warm-up."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def _product_flops_per_s(torch: Any, dtype: Any) -> float:
    left, right = torch.rand(SIDE, SIDE, dtype=dtype), torch.rand(SIDE, SIDE, dtype=dtype)
    out = torch.empty_like(left)
    return 2.0 * SIDE**3 / _best_s(lambda: torch.mm(left, right, out=out))


def _copy_bytes_per_s(torch: Any) -> float:
    source = torch.ones(COPY_BYTES // 4)
    target = torch.empty_like(source)
    return 2.0 * COPY_BYTES / _best_s(lambda: target.copy_(source))


def _launch_s(torch: Any) -> float:
    """Returns the time of a kernel with almost no work, forward and backward, in the framework."""
    weight, many = torch.ones(8, requires_grad=True), 200

    def chain() -> None:
        value = weight
        for _ in range(many):
            value = value * 1.0
        value.sum().backward()

    return _best_s(chain) / (2 * many)


def this_machine() -> Spec:
    """Measures the CPU of this machine, with as many threads as torch has here.

    >>> spec = this_machine()
    >>> spec.kind, spec.peak("fp64") < 2 * spec.peak("fp32")
    ('cpu', True)
    """
    import psutil  # here, like torch, because the catalogue needs neither
    import torch

    threads, bytes_per_s = torch.get_num_threads(), _copy_bytes_per_s(torch)
    peaks = {"fp32": _product_flops_per_s(torch, torch.float32), "fp64": _product_flops_per_s(torch, torch.float64)}
    how = f"measured here with {threads} threads, best of {REPEATS}"
    keys = {
        **{f"{precision}_tflops": f"{how}: product of {SIDE} × {SIDE} matrices" for precision in peaks},
        "memory_gb_per_s": f"{how}: copy of {COPY_BYTES / 2**20:g} MiB, bytes read and written",
        "memory_gb": "the operating system",
    }
    return Spec(
        name=THIS_MACHINE,
        title="this machine",
        kind="cpu",
        year=time.localtime().tm_year,
        peaks=peaks,
        gemms=peaks,
        bytes_per_s=bytes_per_s,
        sustained_bytes_per_s=bytes_per_s,
        memory_bytes=float(psutil.virtual_memory().total),
        cores=psutil.cpu_count(logical=False),
        launch_s=_launch_s(torch),
        provenance=keys,
    )
