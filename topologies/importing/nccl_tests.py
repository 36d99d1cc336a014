"""Logs of nccl-tests (``all_reduce_perf`` and others): seconds of NCCL's collectives by size.

Rules of this file:

* The formats are those of nccl-tests 2.4 to 2.19: FOUND (NVIDIA/nccl-tests, src/common.cu, src/util.cu). Columns are
  found by their names, since versions differ in them. A file may hold several runs one after the other.
* Versions before June 2025 do not print which collective they measure. Then a command line in the log has to contain
  the name of the program, or the caller gives the operation.
* ``size`` is the larger of a rank's two buffers: FOUND (TimeTest in src/common.cu). It is the bytes of one rank's value
  for an all-reduce, a broadcast and a reduce, of all ranks' values for an all-gather, and of the input of one rank for
  a reduce-scatter. These are the bytes of `Asked.nbytes`. Rows of size 0 measure calls without data and are left out.
* Times are out-of-place, or in place for operations that torch.distributed calls in place (all_reduce, broadcast,
  reduce): FOUND for all_reduce (pytorch, ProcessGroupNCCL.cpp), MEMORY high for the others. ``sendrecv_perf`` measures
  out-of-place only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.topologies.importing.assembly import refuse
from paceline.topologies.importing.measured import MeasuredCurve, Printed, parse, read_lines, whole
from paceline.topologies.importing.nccl_rows import TIMES, point

PROGRAMS = {
    "all_reduce": "AllReduce", "reduce_scatter": "ReduceScatter", "all_gather": "AllGather", "broadcast": "Broadcast",
    "reduce": "Reduce", "sendrecv": "message",
}  # fmt: skip
IN_PLACE = frozenset({"AllReduce", "Broadcast", "Reduce"})
EXPECTED = "the output of all_reduce_perf or another program of nccl-tests"
RUN = re.compile(r"#\s*(?:nccl-tests version|Collective test starting|nThread)\b", re.ASCII)
RANK = re.compile(
    r"#\s*Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s*(?:\[[^\]]*\])?\s*(.*)",
    re.ASCII,
)
PROGRAM = re.compile(r"\b([a-z]+(?:_[a-z]+)?)_perf(?![a-z])")
FOOTER = re.compile(r"#\s*(?:Out of bounds values|Avg bus bandwidth|Collective test concluded)")
VERSION = re.compile(r"nccl-tests version\s+(\S{1,40})", re.ASCII)
BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\S+)")
STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$", re.ASCII)
CHECKS = (["#wrong"], ["error"])
"""the column after busbw; before August 2022 it was the largest deviation, which is not checked"""
TIME_UNIT = re.compile(r"\([a-zµ]?s(?:ec)?\)")
NOISE = re.compile(r"NCCL (?:INFO|WARN|TRACE|VERSION)")


@dataclass(slots=True)
class Run:
    """One run of a program, as far as the log has been read."""

    program: str | None = None
    version: str = ""
    ranks: dict[tuple[int, int], str] = field(default_factory=dict)
    """hosts by group and rank"""
    gpus: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    """line numbers and words"""
    ended: bool = False
    """whether the lines below the table have begun"""
    broken: bool = False
    """whether the columns are not as expected, which is among the problems"""


def read(
    path: Path, *, operation: str | None = None, ranks: int | None = None, in_place: bool | None = None
) -> tuple[MeasuredCurve, ...]:
    """Returns the curves in a log of nccl-tests, one for each run in it.

    Args:
        path: the standard output of one or more programs of nccl-tests.
        operation: our name of the operation ("AllReduce", …), for logs that do not name the program.
        ranks: the number of ranks, for logs without the lines of the ranks.
        in_place: which of the two times of each row to take; None: that of torch.distributed's calls.

    Raises:
        InputError: lists every line that is wrong.
    """
    return curves(read_lines(path, EXPECTED), str(path), operation=operation, ranks=ranks, in_place=in_place)


def curves(
    lines: Sequence[str],
    where: str,
    *,
    operation: str | None = None,
    ranks: int | None = None,
    in_place: bool | None = None,
) -> tuple[MeasuredCurve, ...]:
    """Returns the curves in the lines of a log.

    Args:
        lines: the lines of the log.
        where: the file, for messages.
        operation: as in `read`.
        ranks: as in `read`.
        in_place: as in `read`.

    Raises:
        InputError: lists every line that is wrong.

    >>> log = '''$ ./build/broadcast_perf -b 1M -e 1M -g 2
    ... #  Rank  0 Group  0 Pid 7 on node1 device 0 [0x07] NVIDIA A100
    ... #  Rank  1 Group  0 Pid 7 on node1 device 1 [0x0f] NVIDIA A100
    ... #  size    count   type  redop  root   time  algbw  busbw #wrong   time  algbw  busbw #wrong
    ... #   (B) (elements)                      (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)
    ...  1048576  262144  float   none     0  52.43  20.00  20.00      0  26.21  40.01  40.01      0'''
    >>> curves(log.splitlines(), "log")[0].points
    ((1048576, 2.621e-05),)
    """
    problems: list[str] = []
    runs = _runs(lines, problems)
    if not any(run.columns for run in runs):
        problems.append(f"has no line of columns '# size count type … time algbw busbw'; expected {EXPECTED}")
    found = [_curve(run, where, operation, ranks, in_place, problems) for run in runs if run.columns and not run.broken]
    refuse(where, problems)
    return tuple(curve for curve in found if curve is not None)


# --- reading ---------------------------------------------------------------------------------------------------------


def _runs(lines: Sequence[str], problems: list[str]) -> list[Run]:
    """Splits a log into runs: each begins with its program's name, with nThread, or with a second line of columns."""
    runs = [Run()]
    for number, line in enumerate(lines, 1):
        run = runs[-1]
        if not line.lstrip().startswith("#"):
            _outside_comments(run, runs, number, line, problems)
        elif RUN.match(line.strip()):
            if run.columns or run.ranks:
                run = Run()
                runs.append(run)
            run.program = _program(line) or run.program
            if version := VERSION.search(line):
                run.version = version[1]
        elif rank := RANK.match(line.strip()):
            _rank(run, rank, number, problems)
        elif FOOTER.match(line.strip()):
            _footer(run, number, line, problems)
        else:
            words = line.strip().lstrip("#").split()
            if words[:2] == ["size", "count"]:
                if run.columns:
                    run = Run()
                    runs.append(run)
                run.columns = words
                run.broken = not _columns_fit(words, number, problems)
            elif words[:1] == ["(B)"] and run.columns:
                _check_units(words, number, problems)
    return runs


def _footer(run: Run, number: int, line: str, problems: list[str]) -> None:
    """Ends the table, and checks the number of wrong results below it."""
    run.ended = bool(run.columns)
    bounds = BOUNDS.match(line.strip())
    if bounds and parse(bounds[1]) != Printed(0.0, 0.5):
        problems.append(f"line {number}: found {bounds[1]} values out of bounds, expected 0: the results were wrong")


def _program(line: str) -> str | None:
    named = PROGRAM.search(line)
    return named[1] if named else None


def _outside_comments(run: Run, runs: list[Run], number: int, line: str, problems: list[str]) -> None:
    """Reads a row, or the name of the program in a command line."""
    words = STAMP.sub("", line).split()
    if named := _program(line):
        if run.columns:
            runs.append(Run(program=named))
        else:
            run.program = named
    elif run.columns and words and not run.ended and not NOISE.search(line):
        if whole(words[0]) is None:
            problems.append(f"line {number}: found {line.strip()[:60]!r}, expected a row of numbers or a comment (#)")
        else:
            run.rows.append((number, words))


def _rank(run: Run, rank: re.Match[str], number: int, problems: list[str]) -> None:
    key = int(rank[2] or 0), int(rank[1])
    if key in run.ranks:
        problems.append(f"line {number}: found rank {key[1]} a second time; expected a program built with MPI")
    run.ranks[key] = rank[3]
    run.gpus.append(rank[4].strip())


def _columns_fit(words: Sequence[str], number: int, problems: list[str]) -> bool:
    """Whether the columns are those of times out-of-place and in place."""
    starts = [place for place, word in enumerate(words) if word in TIMES]
    parts = [words[at : at + 4] for at in starts]
    if len(parts) != 2 or any(part[1:3] != ["algbw", "busbw"] or part[3:] not in CHECKS for part in parts):
        found = " ".join(words)
        problems.append(f"line {number}: found {found}, expected the columns time algbw busbw #wrong twice")
    elif words[starts[0]] == "cputime":
        problems.append(f"line {number}: found the time of the CPU (cputime), expected time: run without -C 1")
    else:
        return True
    return False


def _check_units(units: Sequence[str], number: int, problems: list[str]) -> None:
    if wrong := [unit for unit in units if TIME_UNIT.fullmatch(unit) and unit != "(us)"]:
        problems.append(f"line {number}: found times in {wrong[0]}, expected (us)")


# --- from rows to curves ---------------------------------------------------------------------------------------------


def _curve(
    run: Run, where: str, operation: str | None, given: int | None, in_place: bool | None, problems: list[str]
) -> MeasuredCurve | None:
    """Returns the curve of a run; appends what is wrong with it to the problems."""
    before = len(problems)
    known = PROGRAMS.get(run.program) if run.program else operation
    if known is None:
        said = f"found {run.program}_perf, expected" if run.program else "does not name its program; expected"
        problems.append(f"{said} {', '.join(f'{name}_perf' for name in PROGRAMS)}, or the operation as an argument")
    elif operation is not None and operation != known:
        problems.append(f"found {run.program}_perf, which is {known}; expected {operation}")
    members = _members(run, given, problems)
    if not run.rows:
        problems.append("has no rows of measurements below the line of columns")
    if known is None or members is None or len(problems) > before:
        return None
    ranks, nodes = members
    inside = known in IN_PLACE if in_place is None else in_place
    if inside and known == "message":
        problems.append("in place: sendrecv_perf measures out-of-place only")
        return None
    points: list[tuple[int, float]] = []
    for number, words in run.rows:
        try:
            found = point(run.columns, words, known, ranks, inside)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
            continue
        points += [found] if found is not None else []
    if not points and len(problems) == before:
        problems.append("has only rows of size 0; expected sizes above 0")
    groups = len({group for group, _ in run.ranks})
    gpus = ", ".join(sorted({gpu for gpu in run.gpus if gpu}))
    tool = f"nccl-tests {run.program or known}"
    details = [gpus, "in place" if inside else "out-of-place"]
    details += [f"{groups} groups at the same time"] if groups > 1 else []
    told = ", ".join(filter(None, details))
    source = ", ".join(filter(None, [f"{where}: {tool}", *details]))
    return MeasuredCurve(known, ranks, nodes, tuple(points), source, tool, run.version, told)


def _members(run: Run, given: int | None, problems: list[str]) -> tuple[int, int | None] | None:
    """Returns the number of ranks and of hosts of a group."""
    if not run.ranks:
        if given is not None and given > 0:
            return given, None
        problems.append(
            "has no lines '#  Rank  0 … on HOST device 0'; expected one for each rank, or ranks as an argument"
        )
        return None
    numbers = sorted(rank for _, rank in run.ranks)
    if numbers != list(range(len(numbers))):
        missing = sorted(set(range(numbers[-1] + 1)) - set(numbers))
        problems.append(f"found lines of {len(numbers)} ranks up to rank {numbers[-1]}, expected also {missing[:5]}")
        return None
    sizes = Counter(group for group, _ in run.ranks)
    if len(set(sizes.values())) > 1:
        problems.append(f"found groups of {sorted(set(sizes.values()))} ranks, expected groups of one size")
        return None
    hosts = {group: {host for (other, _), host in run.ranks.items() if other == group} for group in sizes}
    return next(iter(sizes.values())), max(map(len, hosts.values()))
