"""Logs of nccl-tests (``all_reduce_perf`` and others): seconds of NCCL's collectives by size.

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
* Each row must agree with itself: algbw = size / time, and busbw = algbw · factor, where the factor depends on the
  operation and on the number of ranks: FOUND (NVIDIA/nccl-tests, doc/PERFORMANCE.md). The tolerance is that of the
  printed digits. This check reveals times in another unit and logs that do not list all ranks. Before June 2020, algbw
  of an all-gather and a reduce-scatter was what busbw is now: FOUND (history of src/all_gather.cu).
* From NCCL 2.22 on ranks connect at the first call, so that lines of NCCL_DEBUG cut rows into pieces: FOUND
  (NVIDIA/nccl issue 1453). Pieces are joined; a row of which a piece is missing is left out, with a note.
* Several runs of one operation by the same ranks are repetitions of one experiment only if their commands have the same
  settings and their times agree within `AGREE`. Otherwise the file is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.topologies.catalogue.machine_profile import bus_factor
from paceline.topologies.importing.assembly import refuse
from paceline.topologies.importing.measured import MeasuredCurve, Printed, parse, read_lines, whole

TIMES = frozenset({"time", "cputime"})
"""names of the columns with which the results out-of-place and in place begin"""

UNITS = {"ns": 1e-3, "ms": 1e3, "s": 1e6}
"""microseconds of other units, in which a log may have been rewritten"""


SHARED = frozenset({"AllGather", "ReduceScatter"})
"""operations whose result is shared among the ranks, or their input"""
UNREDUCED = frozenset({"AllGather", "Broadcast"})


PROGRAMS = {
    "all_reduce": "AllReduce", "reduce_scatter": "ReduceScatter", "all_gather": "AllGather", "broadcast": "Broadcast",
    "reduce": "Reduce", "sendrecv": "message",
}  # fmt: skip
IN_PLACE = frozenset({"AllReduce", "Broadcast", "Reduce"})
EXPECTED = "the output of all_reduce_perf or another program of nccl-tests"
RUN = re.compile(r"(?:nccl-tests version|Collective test starting|nThread)\b", re.ASCII)
RANK = re.compile(
    r"Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s*(?:\[[^\]]*\])?\s*(.*)",
    re.ASCII,
)
PROGRAM = re.compile(r"\b([a-z]+(?:_[a-z]+)?)_perf(?![a-z])")
CALL = re.compile(r"_perf\S*\s+-\w")
"""how a command continues after the program, other than a message that mentions it"""
FOOTER = re.compile(r"(?:Out of bounds values|Avg bus bandwidth|Collective test concluded)")
VERSION = re.compile(r"nccl-tests version\s+(\S{1,40})", re.ASCII)
BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\S+)")
STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$", re.ASCII)
CHECKS = (["#wrong"], ["error"])
"""the column after busbw; before August 2022 it was the largest deviation, which is not checked"""
TIME_UNIT = re.compile(r"\([a-zµ]?s(?:ec)?\)")
NOISE = re.compile(r"NCCL (?:INFO|WARN|TRACE|VERSION|version)\b")
SPEAKER = re.compile(r"(?:\[\d+\] ?)?[A-Za-z][\w.-]*:\d+:\d+ \[", re.ASCII)
"""how a line of NCCL_DEBUG begins: host, process, thread and device"""
HEADINGS = ("Using devices", "out-of-place")
OPTIONS_OF_SIZE = frozenset({"-b", "-e", "-f", "-i", "-n", "-w", "-c", "--minbytes", "--maxbytes", "--stepfactor"})
"""options of the programs that choose sizes and repetitions, and change no setting"""
AGREE = 1.5
"""the largest ratio of the times of repetitions at their largest common size: INFERENCE, shared networks vary less"""


@dataclass(slots=True)
class LoggedRun:
    """One run of a program, as far as the log has been read."""

    program: str | None = None
    version: str = ""
    ranks: dict[tuple[int, int], str] = field(default_factory=dict)
    """hosts by group and rank"""
    gpus: list[str] = field(default_factory=list)
    command: str = ""
    """the command line, "" if the log does not contain it"""
    line: int = 0
    """the line of its command or of its first comment"""
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    """line numbers and words"""
    piece: tuple[int, list[str]] | None = None
    """the begin of a row that other output has cut"""
    cut: list[int] = field(default_factory=list)
    """lines of rows of which a piece is missing"""
    ended: bool = False
    """whether the lines below the table have begun"""
    broken: bool = False
    """whether the columns are not as expected, which is among the problems"""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the caller gives for logs that leave it out."""

    operation: str | None = None
    ranks: int | None = None
    nodes: int | None = None


def read(
    path: Path,
    *,
    operation: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
    in_place: bool | None = None,
) -> tuple[MeasuredCurve, ...]:
    """Returns the curves in a log of nccl-tests, one for each run in it.

    Args:
        path: the standard output of one or more programs of nccl-tests.
        operation: our name of the operation ("AllReduce", …), for logs that do not name the program.
        ranks: the number of ranks, for logs without the lines of the ranks.
        nodes: the number of their hosts, for such logs.
        in_place: which of the two times of each row to take; None: that of torch.distributed's calls.

    Raises:
        InputError: lists every line that is wrong.
    """
    lines = read_lines(path, EXPECTED)
    return curves(lines, str(path), operation=operation, ranks=ranks, nodes=nodes, in_place=in_place)


def curves(
    lines: Sequence[str],
    where: str,
    *,
    operation: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
    in_place: bool | None = None,
) -> tuple[MeasuredCurve, ...]:
    """Returns the curves in the lines of a log.

    Args:
        lines: the lines of the log.
        where: the file, for messages.
        operation: as in `read`.
        ranks: as in `read`.
        nodes: as in `read`.
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
    given = LogSettings(operation, ranks, nodes)
    runs = _runs(lines, problems)
    if not any(run.columns for run in runs):
        problems.append(f"has no line of columns '# size count type … time algbw busbw'; expected {EXPECTED}")
    whole_runs = [run for run in runs if run.columns and not run.broken]
    curves_of = [(run, _curve(run, where, given, in_place, problems)) for run in whole_runs]
    pairs = [(run, curve) for run, curve in curves_of if curve is not None]
    _check_repetitions(pairs, problems)
    refuse(where, problems)
    return tuple(curve for _, curve in pairs)


# --- reading ---------------------------------------------------------------------------------------------------------


def _runs(lines: Sequence[str], problems: list[str]) -> list[LoggedRun]:
    """Splits a log into runs: each begins with its command, with nThread, or with a second line of columns."""
    runs = [LoggedRun()]
    for number, line in enumerate(_without_continuations(lines), 1):
        run = runs[-1]
        text = line.strip().lstrip("#").strip()  # forums take "#" for headings and remove it
        words = text.split()
        if NOISE.search(line):
            _row_before_noise(run, number, line)
        elif RUN.match(text):
            if run.columns or run.ranks:
                run = LoggedRun(line=number)
                runs.append(run)
            run.line = run.line or number
            run.program = _program(line) or run.program
            if version := VERSION.search(line):
                run.version = version[1]
        elif rank := RANK.match(text):
            _rank(run, rank, number, problems)
        elif FOOTER.match(text):
            _footer(run, number, text, problems)
        elif words[:2] == ["size", "count"]:
            if run.columns:
                run = LoggedRun(line=number)
                runs.append(run)
            run.columns = words
            run.broken = not _columns_fit(words, number, problems)
        elif words[:1] == ["(B)"] and run.columns:
            _check_units(words, number, problems)
        elif named := _program(line):
            if run.columns or (run.ranks and CALL.search(line)):
                run = LoggedRun()
                runs.append(run)
            run.program, run.command, run.line = named, text, number
        elif line.lstrip().startswith("#") or text.startswith(HEADINGS):
            continue
        elif run.columns and words and not run.ended:
            _row(run, number, STAMP.sub("", line).split(), line, problems)
    for run in runs:
        _drop_piece(run)
    return runs


def _without_continuations(lines: Sequence[str]) -> list[str]:
    """Returns the lines, with commands of several lines (ending with a backslash) in the place of their last line."""
    lines_kept, begun = [], ""
    for line in lines:
        if line.rstrip().endswith("\\"):
            begun += line.rstrip()[:-1] + " "
            lines_kept.append("#")
        else:
            lines_kept.append(begun + line)
            begun = ""
    return lines_kept


def _row_before_noise(run: LoggedRun, number: int, line: str) -> None:
    """Keeps the begin of a row that is before a message of NCCL in the same line."""
    speaker = SPEAKER.search(line)
    before = line[: speaker.start()].split() if speaker else []
    if run.columns and not run.ended and before and run.piece is None and whole(before[0]) is not None:
        run.piece = number, before
    elif run.piece is not None and before and all(parse(word) or word == "N/A" for word in before):
        run.piece = run.piece[0], [*run.piece[1], *before]


def _row(run: LoggedRun, number: int, words: list[str], line: str, problems: list[str]) -> None:
    """Adds a row, or joins its pieces."""
    if run.piece is not None:
        first, begun = run.piece
        if len(begun) + len(words) <= len(run.columns):
            run.piece = first, [*begun, *words]
            if len(run.piece[1]) >= len(run.columns) - ("redop" in run.columns and not _sums(begun)):
                run.rows.append(run.piece)
                run.piece = None
            return
        _drop_piece(run)
    if whole(words[0]) is None:
        problems.append(f"line {number}: found {line.strip()[:60]!r}, expected a row of numbers or a comment (#)")
    else:
        run.rows.append((number, words))


def _sums(begun: Sequence[str]) -> bool:
    """Whether the begin of a row names a reduction or, as newer versions do, that there is none."""
    return len(begun) > 3 and begun[3].isidentifier()


def _drop_piece(run: LoggedRun) -> None:
    if run.piece is not None:
        run.cut.append(run.piece[0])
        run.piece = None


def _footer(run: LoggedRun, number: int, text: str, problems: list[str]) -> None:
    """Ends the table, and checks the number of wrong results below it."""
    run.ended = bool(run.columns)
    bounds = BOUNDS.match(text)
    if bounds and parse(bounds[1]) != Printed(0.0, 0.5):
        problems.append(f"line {number}: found {bounds[1]} values out of bounds, expected 0: the results were wrong")


def _program(line: str) -> str | None:
    named = PROGRAM.search(line)
    return named[1] if named else None


def _rank(run: LoggedRun, rank: re.Match[str], number: int, problems: list[str]) -> None:
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
        actual = " ".join(words)
        problems.append(f"line {number}: found {actual}, expected the columns time algbw busbw #wrong twice")
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
    run: LoggedRun, where: str, given: LogSettings, in_place: bool | None, problems: list[str]
) -> MeasuredCurve | None:
    """Returns the curve of a run; appends what is wrong with it to the problems."""
    before = len(problems)
    operation = given.operation
    known = PROGRAMS.get(run.program) if run.program else operation
    if known is None and run.program:
        programs = ", ".join(f"{name}_perf" for name in PROGRAMS)
        problems.append(f"found {run.program}_perf, expected {programs}")
    elif known is None:
        problems.append(
            "does not name its program; expected its command, such as '$ all_reduce_perf -b 8 -e 1G', in a line before "
            "the table, or --nccl-tests all_reduce=LOG (operation= in Python)"
        )
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
            measured = point(run.columns, words, known, ranks, inside)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
            continue
        points += [measured] if measured is not None else []
    if not points and len(problems) == before:
        problems.append("has only rows of size 0; expected sizes above 0")
    groups = len({group for group, _ in run.ranks})
    gpus = ", ".join(sorted({gpu for gpu in run.gpus if gpu}))
    tool = f"nccl-tests {run.program or known}"
    details = [gpus, "in place" if inside else "out-of-place"]
    details += [f"{groups} groups at the same time"] if groups > 1 else []
    details_text = ", ".join(filter(None, details))
    source = ", ".join(filter(None, [f"{where}: {tool}", *details]))
    notes = [f"line {line}: a row that other output cuts is left out" for line in run.cut]
    return MeasuredCurve(known, ranks, nodes, tuple(points), source, tool, run.version, details_text, tuple(notes))


def _members(run: LoggedRun, given: LogSettings, problems: list[str]) -> tuple[int, int | None] | None:
    """Returns the number of ranks and of hosts of a group."""
    if not run.ranks:
        if given.ranks is not None and given.ranks > 1:
            return given.ranks, given.nodes
        problems.append(
            "has no lines '#  Rank  0 … on HOST device 0'; expected one a rank, or --nccl-tests RANKS/HOSTS=LOG, "
            "such as 16/2=LOG (ranks= and nodes= in Python)"
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
    if sizes.most_common(1)[0][1] < 2:
        alone = "one rank" if len(sizes) == 1 else "groups of one rank"
        problems.append(f"line {run.line}: found a run of {alone}, which sends to no other; expected 2 or more")
        return None
    hosts = {group: {host for (other, _), host in run.ranks.items() if other == group} for group in sizes}
    return next(iter(sizes.values())), max(map(len, hosts.values()))


def _check_repetitions(curves_of: Sequence[tuple[LoggedRun, MeasuredCurve]], problems: list[str]) -> None:
    """Reports runs of one operation by the same ranks that are different experiments."""
    for at, (run, curve) in enumerate(curves_of):
        for before, other in curves_of[:at]:
            if (curve.operation, curve.ranks, curve.nodes) != (other.operation, other.ranks, other.nodes):
                continue
            settings, earlier = _settings(run.command), _settings(before.command)
            differ = sorted((settings - earlier) | (earlier - settings)) if run.command and before.command else []
            common = sorted(set(dict(curve.points)) & set(dict(other.points)))
            times = sorted((dict(curve.points)[common[-1]], dict(other.points)[common[-1]])) if common else [1.0, 1.0]
            if not differ and times[1] <= AGREE * times[0]:
                continue
            what = f"lines {before.line} and {run.line}: found two runs of {curve.operation} of {curve.ranks} ranks"
            why = (
                f"whose commands differ in {', '.join(differ[:4])}{' …' * (len(differ) > 4)}"
                if differ
                else f"with {times[0] * 1e3:.4g} and {times[1] * 1e3:.4g} ms for {common[-1]} bytes"
            )
            problems.append(f"{what} {why}; expected one experiment in a file, or repetitions of it")
            return


def _settings(command: str) -> frozenset[str]:
    """Returns what a command sets, without its sizes and repetitions.

    >>> sorted(_settings("$ mpirun -np 8 -x NCCL_ALGO=Ring ./build/all_reduce_perf -b 8 -e 1G -g 1"))
    ['-g 1', '-np 8', '-x NCCL_ALGO=Ring']
    """
    joined: list[str] = []
    for word in command.split():
        if joined and joined[-1].startswith("-") and not word.startswith("-") and " " not in joined[-1]:
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return frozenset(
        word
        for word in joined
        if (word.startswith("-") or "=" in word) and word.split()[0].split("=")[0] not in OPTIONS_OF_SIZE
    )


# --- rows ------------------------------------------------------------------------------------------------------------


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
