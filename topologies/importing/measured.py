"""Curves of measured seconds by size, from logs of benchmarks; and how the text and numbers of these logs are read.

`bytes` of a point are those of `Asked.nbytes`: of one member's value, and of all members' values for an all-gather.
Points keep the order of the log, with repetitions. `profile_points` sorts them and takes medians. Prefixes that mpirun
and srun put before each line ("[1,0]<stdout>:", "0: ") and terminal colours are removed. A line of standard error
("[1,0]<stderr>:") counts as empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.machine_profile import Points
from paceline.topologies.importing.assembly import NUMBER

RATE = "message-rate"
"""the operation of a curve that was derived from a bandwidth of many messages in flight"""
RATE_BOTH_WAYS = "message-rate-both-ways"
"""the same, with as many messages in the other direction at the same time"""

LARGEST = 64 * 1024 * 1024
"""the maximum size of a log, in bytes: INFERENCE, over 500,000 rows"""

TAG = re.compile(r"\[\d+,\d+\]<std(out|err)>: ?|\d+: |\[\d+\] (?!\S*:\d+:\d+ \[)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
DECIMAL = re.compile(NUMBER, re.ASCII)
LONGEST_NUMBER = 40
"""the maximum number of characters of a number: INFERENCE, none of the tools prints more than 20"""


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """Measured times of one operation by size.

    Args:
        operation: our name of it ("AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce", "Barrier"),
            "message" for the seconds of one message, or `RATE` and `RATE_BOTH_WAYS`: seconds per message of a stream
            of messages, which do not contain the latency.
        ranks: the number of members.
        nodes: the number of hosts, None if the log does not tell.
        points: (bytes, seconds) in the order of the log; see the rules of this file.
        source: the file and the tool.
        tool: the tool and its program.
        version: the version of the tool, "" if the log does not tell.
        details: devices, library and settings that the log tells.
        notes: what was assumed or left out when the log was read.
    """

    operation: str
    ranks: int
    nodes: int | None
    points: tuple[tuple[int, float], ...]
    source: str
    tool: str = ""
    version: str = ""
    details: str = ""
    notes: tuple[str, ...] = ()


def profile_points(curves: Sequence[MeasuredCurve]) -> Points:
    """Returns the points of a machine profile: one for each size, smallest first, with the median of its times.

    Args:
        curves: curves of the same operation and the same number of ranks, such as those of repeated runs.

    Raises:
        ValueError: the curves are of different operations or numbers of ranks, or there are none.

    >>> curve = MeasuredCurve("AllReduce", 2, 1, ((8, 3.0), (4, 2.0), (8, 1.0)), "a log")
    >>> profile_points([curve])
    ((4, 2.0), (8, 2.0))
    """
    kinds = sorted({(curve.operation, curve.ranks) for curve in curves})
    if len(kinds) != 1:
        kinds_text = ", ".join(f"{operation} of {ranks} ranks" for operation, ranks in kinds) or "none"
        raise ValueError(f"found curves of {kinds_text}; expected curves of one operation and one number of ranks")
    times: dict[int, list[float]] = {}
    for curve in curves:
        for nbytes, seconds in curve.points:
            times.setdefault(nbytes, []).append(seconds)
    return tuple((nbytes, median(samples)) for nbytes, samples in sorted(times.items()))


def read_lines(path: Path, expected: str) -> list[str]:
    """Returns the lines of a log without prefixes and colours.

    Args:
        path: the log.
        expected: what the file should be, for messages.

    Raises:
        InputError: the file cannot be read, is too large, or is not text.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path}: found {path.stat().st_size} bytes, expected at most {LARGEST}")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text; expected {expected}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if "\0" in text:
        raise InputError(f"{path}: is not text; expected {expected}")
    return [_bare(line) for line in text.splitlines()]


def _bare(line: str) -> str:
    line = COLOUR.sub("", line)
    if (tag := TAG.match(line)) is None:
        return line
    return "" if tag[1] == "err" else line[tag.end() :]


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as printed: its value, and half of its last digit, by which the true number may differ.

    >>> parse("12.5"), parse("fast"), parse("nan")
    (Printed(value=12.5, half=0.05), None, None)
    """

    value: float
    half: float

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half


def parse(word: str) -> Printed | None:
    """Returns the number that a word is, or None; infinities and NaN are not numbers."""
    if len(word) > LONGEST_NUMBER or not DECIMAL.fullmatch(word):
        return None
    mantissa, _, exponent = word.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    value = float(word)
    half = float(f"0.5e{int(exponent or 0) - decimals}")
    return Printed(value, half) if abs(value) < float("inf") and half < float("inf") else None


def whole(word: str) -> int | None:
    """Returns the integer of 0 or more that a word is, or None.

    >>> whole("8388608"), whole("-1"), whole("1.5")
    (8388608, None, None)
    """
    return int(word) if len(word) <= LONGEST_NUMBER and re.fullmatch(r"\d+", word, re.ASCII) else None
