"""Rows of the tables of nccl-tests: sizes, times, and whether the columns agree with each other.

Rules of this file: each row must agree with itself: algbw = size / time, and busbw = algbw · factor, where the factor
depends on the operation and on the number of ranks: FOUND (NVIDIA/nccl-tests, doc/PERFORMANCE.md). The tolerance is
that of the printed digits. This check reveals times in another unit and logs that do not list all ranks. Before June
2020, algbw of an all-gather and a reduce-scatter was what busbw is now: FOUND (history of src/all_gather.cu).
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.topologies.importing.measured import Printed, parse, whole

TIMES = frozenset({"time", "cputime"})
"""names of the columns with which the results out-of-place and in place begin"""

UNITS = {"ns": 1e-3, "ms": 1e3, "s": 1e6}
"""microseconds of other units, in which a log may have been rewritten"""


SHARED = frozenset({"AllGather", "ReduceScatter"})
"""operations whose result is shared among the ranks, or their input"""
UNREDUCED = frozenset({"AllGather", "Broadcast"})


def bus_factor(operation: str, ranks: int) -> float:
    """Returns busbw over algbw; source: nccl-tests, doc/PERFORMANCE.md.

    Args:
        operation: our name of the operation.
        ranks: the number of ranks.

    >>> bus_factor("AllReduce", 8), bus_factor("AllGather", 8), bus_factor("Broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    share = (ranks - 1) / ranks
    return {"AllReduce": 2 * share, "ReduceScatter": share, "AllGather": share}.get(operation, 1.0)


def point(
    columns: Sequence[str], words: Sequence[str], operation: str, ranks: int, in_place: bool
) -> tuple[int, float] | None:
    """Returns the (bytes, seconds) of a row, or None for a row of size 0, which measures a call without data.

    Args:
        columns: the names of the columns.
        words: the words of the row. Versions of 2022 leave redop empty for operations that do not reduce.
        operation: our name of the operation.
        ranks: the number of ranks.
        in_place: whether to take the second of the two times.

    Raises:
        ValueError: says what is wrong with the row.

    >>> names = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong".split()
    >>> row = "4000 1000 float sum -1 10.00 0.40 0.40 0 20.00 0.20 0.20 N/A"
    >>> point(names, row.split(), "AllReduce", 2, in_place=True)
    (4000, 2e-05)
    >>> point(names, row.split(), "AllReduce", 8, in_place=True)
    Traceback (most recent call last):
    ValueError: found busbw 0.2 GB/s, expected 0.35, which is 1.75 times algbw for AllReduce of 8 ranks
    """
    first, second = (place for place, name in enumerate(columns) if name in TIMES)
    width = second - first
    keys, results = words[: -2 * width], words[-2 * width :]
    blank = "redop" in columns and operation in UNREDUCED and len(keys) == first - 1 and keys[-1].lstrip("-").isdigit()
    if len(keys) != first and not blank:
        raise ValueError(f"found {len(words)} columns, expected {first + 2 * width}: {' '.join(columns)}")
    size, count = whole(keys[0]), whole(keys[1])
    if size is None or count is None or not keys[2].isidentifier():
        raise ValueError(f"found {' '.join(keys[:3])!r}, expected a size, a count of elements and their type")
    if size == 0:
        return None
    parts = results[:width], results[width:]
    new = columns[first + 3] == "#wrong"
    if new:
        for name, part in zip(("out-of-place", "in place"), parts, strict=True):
            _check_wrong(part[3], name)
    return size, _seconds(parts[in_place], size, operation, ranks, new)


def _check_wrong(word: str, name: str) -> None:
    wrong = parse(word)
    if word != "N/A" and (wrong is None or wrong.value != 0):
        raise ValueError(f"found #wrong {word} {name}, expected 0 or N/A: the results of these calls were wrong")


def _seconds(part: Sequence[str], size: int, operation: str, ranks: int, new: bool) -> float:
    """Returns the time of a row whose time and bandwidths agree; `new` unless it may be from before June 2020."""
    time, algbw, busbw = (parse(word) for word in part[:3])
    if time is None or algbw is None or busbw is None or min(algbw.value, busbw.value) < 0:
        raise ValueError(f"found time, algbw, busbw {' '.join(part[:3])}, expected three numbers of 0 or more")
    if time.value <= 0:
        raise ValueError(f"found a time of {part[0]} us, expected a time above 0")
    factor = bus_factor(operation, ranks)
    if not new and operation in SHARED and part[1] == part[2] and _fits(size * factor, time, algbw):
        return time.value / 1e6
    if not _fits(size, time, algbw):
        units = [unit for unit, us in UNITS.items() if _fits(size, Printed(time.value * us, time.half * us), algbw)]
        hint = f"; the time seems to be in {units[0]}" if units else ""
        rate = f"{size / time.value / 1e3:.4g}, as {size} bytes take {time.value:g} us"
        raise ValueError(f"found algbw {algbw.value:g} GB/s, expected {rate}{hint}")
    if not (busbw.low <= algbw.high * factor * (1 + 1e-9) and busbw.high >= algbw.low * factor * (1 - 1e-9)):
        rate = f"{algbw.value * factor:.4g}, which is {factor:.4g} times algbw for {operation} of {ranks} ranks"
        raise ValueError(f"found busbw {busbw.value:g} GB/s, expected {rate}")
    return time.value / 1e6


def _fits(size: float, time: Printed, algbw: Printed) -> bool:
    """Whether size / time is algbw, up to the digits that are printed."""
    slowest = size / time.high / 1e3 * (1 - 1e-9)
    fastest = size / time.low / 1e3 * (1 + 1e-9) if time.low > 0 else float("inf")
    return algbw.high >= slowest and algbw.low <= fastest
