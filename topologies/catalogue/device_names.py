"""Devices by the names that people write: exact names, aliases, and free text of tables.

A text is split into runs of letters and of digits. An alias matches if each of its words occurs in the text, run by
run. Of several matches, the one with the most digits wins, then the longest; accelerators precede the sockets of their
hosts.

This machine as a device of the catalogue: measures matrix products, copies, and the time to launch a kernel.

Torch is measured with its current number of threads, for a second or two, and only on request. Each figure is the best
of several repetitions, because other load can only slow a repetition down.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.topologies.catalogue.device_catalogue import SPECS, THIS_MACHINE, Spec

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
    >>> spec.kind, list(spec.peaks)
    ('cpu', ['fp32', 'fp64'])
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


Runs = tuple[str, ...]


def _runs(text: str) -> Runs:
    return tuple(re.findall(r"[a-z]+|\d+", text.lower()))


def _words(alias: str) -> list[Runs]:
    """Splits an alias into words of runs.

    >>> _words("V100-SXM2 16GB")
    [('v', '100'), ('sxm', '2'), ('16', 'gb')]
    """
    return [_runs(word) for word in re.split(r"[\s\-_]+", alias)]


def _stands(word: Runs, text: Runs) -> bool:
    return any(text[at : at + len(word)] == word for at in range(len(text)))


@cache
def _aliases() -> dict[str, str]:
    """Returns the device's name for every alias and every name; words are joined by hyphens."""
    return {_joined(alias): spec.name for spec in SPECS.values() for alias in (spec.name, *spec.aliases)}


def _joined(alias: str) -> str:
    return re.sub(r"[\s_]+", "-", alias.lower())


@cache
def named(name: str) -> Spec:
    """Returns the device with this name or alias; `this-machine` is measured, which takes a second or two.

    Several sockets combined to one device have names like ``xeon-e5-2670-x2``, and one of several groups of a many-core
    chip's cores names like ``knl-7250/4``.

    Raises:
        InputError: there is none; the message suggests a similar name.

    >>> named("p100").name, named("knl").name, named("a100").name, named("xeon-e5-2670-x2").cores
    ('p100-sxm2', 'knl-7250', 'a100-sxm4-80', 16)
    >>> named("knl-7250/4").cores
    16
    >>> named("p-100")
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: unknown device 'p-100' (did you mean p100?)
    """
    if name == THIS_MACHINE:
        return _measured()
    known, key = _aliases(), _joined(name)
    if key in known:
        return SPECS[known[key]]
    several = re.fullmatch(r"(.+)-x(\d+)", key)
    if several and several[1] in known and SPECS[known[several[1]]].kind == "cpu" and 1 <= int(several[2]) <= 16:
        return SPECS[known[several[1]]].times(int(several[2]))
    group = re.fullmatch(r"(.+)/(\d+)", key)
    if group and group[1] in known:
        return SPECS[known[group[1]]].part(int(group[2]))
    hint = near_miss(key, [*known, THIS_MACHINE]) or f" (there are {', '.join([*SPECS, THIS_MACHINE])})"
    raise InputError(f"unknown device {name!r}{hint}")


def alias_of(name: str) -> Spec | None:
    """Returns the device of the catalogue with exactly this name or alias; None without one.

    >>> alias_of("V100").name, alias_of("my device")
    ('v100-sxm2', None)
    """
    known = _aliases().get(_joined(name))
    return None if known is None else SPECS[known]


@cache
def _measured() -> Spec:
    from paceline.topologies.catalogue.device_names import this_machine  # imports torch, unlike the catalogue

    return this_machine()


def find(text: str) -> Spec:
    """Returns the device that a table means by this text.

    Raises:
        InputError: the text contains no device of the catalogue.

    >>> [find(text).name for text in ("V100-SXM2-16GB", "P100-SXM2 (DGX-1)", "Tesla K80", "A100-PCIe-80GB")]
    ['v100-sxm2', 'p100-sxm2', 'k80', 'a100-pcie-80']
    >>> find("P100 + POWER8 (S822LC)").name, find("2x E5-2686 v4 (r4.16xlarge)").name
    ('p100-sxm2', 'xeon-e5-2686v4-x2')
    """
    whole = _runs(text)
    best, score = "", (False, 0, 0)
    for alias, name in _aliases().items():
        words = _words(alias)
        if all(_stands(word, whole) for word in words):
            digits = sum(len(run) for word in words for run in word if run.isdigit())
            agreement = SPECS[name].kind != "cpu", digits, sum(len(run) for word in words for run in word)
            best, score = (name, agreement) if agreement > score else (best, score)
    if not best:
        raise InputError(f"found no device of the catalogue in {text!r}; there are {', '.join(SPECS)}")
    several = re.match(r"\s*(?:(\d+)\s*[x×]|(dual))\W", text.lower())
    sockets = 1 if several is None or SPECS[best].kind != "cpu" else 2 if several[2] else int(several[1])
    return SPECS[best] if sockets == 1 else SPECS[best].times(sockets)
