"""Logs of the OSU micro-benchmarks (``osu_latency``, ``osu_allreduce``, …): seconds of MPI's operations by size.

Rules of this file:

* The formats are those of versions 5 to 7, with or without ``-f``: FOUND (c/util/osu_util_mpi.c of 7.4, and 5.x). A
  file may hold several benchmarks one after the other.
* A benchmark does not print its number of ranks. So the caller gives it for collectives, or the log contains the
  command line of mpirun or srun before the benchmark. Messages have 2.
* ``Size`` is the bytes of one rank's value, and for ``osu_reduce_scatter`` those of its whole input: FOUND
  (osu_allgather.c, osu_reduce_scatter.c). For an all-gather it is multiplied by the number of ranks, as in
  `Asked.nbytes`.
* The time of a collective is ``Avg Latency``: the mean over ranks of the time that a rank spends in the call.
* ``osu_bw`` sends windows of messages and reports bytes per second. Its curve has seconds = bytes / rate for each
  message of a stream, which does not contain the latency, so it is of another operation, `RATE`. ``osu_bibw`` adds the
  rates of both directions, so seconds = 2 · bytes / rate, `RATE_BOTH_WAYS`. MB are 10⁶ bytes: FOUND (osu_bw.c,
  osu_bibw.c).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.algorithms.core.errors import InputError
from paceline.topologies.importing.assembly import refuse
from paceline.topologies.importing.measured import RATE, RATE_BOTH_WAYS, MeasuredCurve, parse, read_lines, whole

BENCHMARKS = {
    "latency": ("osu_latency", "message"), "bandwidth": ("osu_bw", RATE),
    "bi-directional bandwidth": ("osu_bibw", RATE_BOTH_WAYS), "allreduce latency": ("osu_allreduce", "AllReduce"),
    "reduce_scatter latency": ("osu_reduce_scatter", "ReduceScatter"),
    "reduce_scatter_block latency": ("osu_reduce_scatter_block", "ReduceScatter"),
    "allgather latency": ("osu_allgather", "AllGather"), "broadcast latency": ("osu_bcast", "Broadcast"),
    "reduce latency": ("osu_reduce", "Reduce"), "barrier latency": ("osu_barrier", "Barrier"),
}  # fmt: skip
"""by the title of a benchmark in lower case: its program, and our name of the operation"""

PAIRS = frozenset({"message", RATE, RATE_BOTH_WAYS})
"""operations of exactly two ranks"""

EXPECTED = "the output of osu_latency, osu_allreduce or another OSU micro-benchmark"
TITLE = re.compile(r"#\s*OSU\s+([A-Za-z]+\S*)\s+(.*?)\s+Test(?:\s+v(\S+))?\s*", re.ASCII)
COMMAND = re.compile(r"\s*(?:[$+>]\s|.*\bosu_[a-z_]+)", re.ASCII)
RANKS = re.compile(r"\s(?:-np?|--ntasks|--np)(?:\s+|=)(\d{1,7})\b", re.ASCII)
TIME_COLUMN = re.compile(r"(?:Avg )?Latency ?\((\w+)\)", re.ASCII)
RATE_COLUMN = re.compile(r"Bandwidth ?\((\S+)\)", re.ASCII)


@dataclass(slots=True)
class Table:
    """One benchmark of a log, as far as it has been read."""

    title: str
    version: str
    library: str
    line: int
    launched: int | None = None
    """the ranks in the command line before it"""
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str], list[str]]] = field(default_factory=list)
    """line numbers, columns and words"""


def read(path: Path, *, ranks: int | None = None, nodes: int | None = None) -> tuple[MeasuredCurve, ...]:
    """Returns the curves in a log of OSU micro-benchmarks, one for each benchmark in it.

    Args:
        path: the standard output of one or more benchmarks.
        ranks: the number of ranks of the collectives; None: that of the command line in the log.
        nodes: the number of hosts, if it is known.

    Raises:
        InputError: lists every line that is wrong.
    """
    return curves(read_lines(path, EXPECTED), str(path), ranks=ranks, nodes=nodes)


def curves(
    lines: Sequence[str], where: str, *, ranks: int | None = None, nodes: int | None = None
) -> tuple[MeasuredCurve, ...]:
    """Returns the curves in the lines of a log.

    Args:
        lines: the lines of the log.
        where: the file, for messages.
        ranks: as in `read`.
        nodes: as in `read`.

    Raises:
        InputError: lists every line that is wrong.

    >>> log = '''# OSU MPI Allgather Latency Test v5.6.2
    ... # Size       Avg Latency(us)
    ... 1024                    7.25'''
    >>> curves(log.splitlines(), "log", ranks=4)[0].points
    ((4096, 7.25e-06),)
    """
    if ranks is not None and ranks < 2:
        raise InputError(f"ranks: found {ranks}, expected at least 2")
    problems: list[str] = []
    tables = _tables(lines, problems)
    if not tables:
        problems.append(f"has no line '# OSU MPI … Test'; expected {EXPECTED}")
    found = [_curve(table, where, ranks, nodes, problems) for table in tables]
    refuse(where, problems)
    return tuple(curve for curve in found if curve is not None)


# --- reading ---------------------------------------------------------------------------------------------------------


def _tables(lines: Sequence[str], problems: list[str]) -> list[Table]:
    """Splits a log into benchmarks; a command line after a table ends it."""
    tables: list[Table] = []
    reading = False
    launched: int | None = None
    for number, line in enumerate(lines, 1):
        words = line.split()
        if "osu_" in line and COMMAND.match(line):
            count = RANKS.search(line)
            launched = int(count[1]) if count and int(count[1]) > 1 else None
        if title := TITLE.fullmatch(line.strip()):
            tables.append(Table(title[2].lower(), title[3] or "", title[1], number, launched))
            reading, launched = True, None
        elif not reading or not words:
            continue
        elif words[0].startswith("#"):
            names = re.split(r"\s{2,}|\t", line.strip().lstrip("#").strip())
            if any(TIME_COLUMN.search(name) or RATE_COLUMN.search(name) for name in names) or names[0] == "Size":
                tables[-1].columns = names
        elif COMMAND.match(line):
            reading = False
        elif parse(words[0]) is None:
            problems.append(f"line {number}: found {line.strip()[:60]!r}, expected a row of numbers or a comment (#)")
        else:
            tables[-1].rows.append((number, tables[-1].columns, words))
    return tables


# --- from rows to curves ---------------------------------------------------------------------------------------------


def _curve(table: Table, where: str, ranks: int | None, nodes: int | None, problems: list[str]) -> MeasuredCurve | None:
    """Returns the curve of a benchmark; appends what is wrong with it to the problems."""
    at = f"line {table.line}"
    if table.title not in BENCHMARKS:
        known = ", ".join(program for program, _ in BENCHMARKS.values())
        problems.append(f"{at}: found the benchmark {table.title!r}, expected one of {known}")
        return None
    program, operation = BENCHMARKS[table.title]
    members = 2 if operation in PAIRS else ranks or table.launched
    if members is None:
        problems.append(
            f"{at}: {program} does not print its number of ranks, and no line of its command is before it; give it"
        )
        return None
    if not table.rows:
        problems.append(f"{at}: {program} has no rows of measurements")
    points: list[tuple[int, float]] = []
    for number, columns, words in table.rows:
        try:
            nbytes, seconds = _point(columns, words, operation)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
            continue
        points.append((nbytes * members if operation == "AllGather" else nbytes, seconds))
    source = f"{where}: OSU micro-benchmarks {table.version} {program}, {table.library}"
    tool = f"OSU micro-benchmarks {program}"
    return MeasuredCurve(
        operation, members, nodes, tuple(points), source.replace("  ", " "), tool, table.version, table.library
    )


def _point(columns: Sequence[str], words: Sequence[str], operation: str) -> tuple[int, float]:
    """Returns the (bytes, seconds) of a row; raises `ValueError` with what is wrong."""
    sized = operation != "Barrier"
    pattern, unit = (RATE_COLUMN, "MB/s") if operation in {RATE, RATE_BOTH_WAYS} else (TIME_COLUMN, "us")
    title = "Bandwidth (MB/s)" if unit == "MB/s" else "Avg Latency(us)"
    expected = f"# Size  {title}" if sized else f"# {title}"
    if len(columns) <= sized or (columns[0] == "Size") != sized:
        raise ValueError(f"found columns {' | '.join(columns) or 'none'}, expected {expected}")
    heading = pattern.fullmatch(columns[sized])
    if heading is None or heading[1] != unit:
        raise ValueError(f"found the column {columns[sized]}, expected {title}")
    if len(words) != len(columns):
        raise ValueError(f"found {len(words)} columns, expected {len(columns)}: {', '.join(columns)}")
    row = dict(zip(columns, words, strict=True))
    if row.get("Validation", "Pass") != "Pass":
        raise ValueError(f"found the validation {row['Validation']}, expected Pass: the results were wrong")
    nbytes = whole(words[0]) if sized else 0
    if nbytes is None:
        raise ValueError(f"found the size {words[0]}, expected a whole number of bytes")
    figure = parse(words[sized])
    if figure is None or figure.value <= 0:
        raise ValueError(f"found {words[sized]} {unit}, expected a number above 0")
    _check_range(row, figure.low, figure.high)
    if unit == "us":
        return nbytes, figure.value / 1e6
    if nbytes == 0:
        raise ValueError("found a bandwidth of messages of 0 bytes, expected a size above 0")
    return nbytes, nbytes * (2 if operation == RATE_BOTH_WAYS else 1) / (figure.value * 1e6)


def _check_range(row: dict[str, str], low: float, high: float) -> None:
    """Checks that the mean is between the smallest and the largest time of a rank, if they are printed."""
    if "Min Latency(us)" not in row or "Max Latency(us)" not in row:
        return
    smallest, largest = parse(row["Min Latency(us)"]), parse(row["Max Latency(us)"])
    if smallest is None or largest is None or smallest.low > high or largest.high < low:
        found = f"{row['Min Latency(us)']} to {row['Max Latency(us)']}"
        raise ValueError(f"found times of {found} us of the ranks, expected a range that contains their mean")
