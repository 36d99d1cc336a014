"""Logs of the OSU micro-benchmarks (``osu_latency``, ``osu_allreduce``, …): seconds of MPI's operations by size.

* The formats are those of versions 5 to 7, with or without ``-f``: FOUND (c/util/osu_util_mpi.c of 7.4, and 5.x). A
  file may hold several benchmarks one after the other.
* A benchmark prints neither its number of ranks nor its hosts. So the caller gives them, or the log contains the
  command line before the benchmark, as a prompt or in a comment. Messages have 2 ranks. `launched` reads the options of
  mpirun, mpiexec, mpirun_rsh, srun, flux, jsrun, lrun, ibrun and aprun: MEMORY high, of their manuals. Where a command
  tells the ranks and not their hosts, one host is assumed, with a note.
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
PROGRAM = re.compile(r"(?:\S*/)?osu_[a-z_]+")
TIME_COLUMN = re.compile(r"(?:Avg )?Latency ?\((\w+)\)", re.ASCII)
RATE_COLUMN = re.compile(r"Bandwidth ?\((\S+)\)", re.ASCII)


@dataclass(slots=True)
class BenchmarkTable:
    """One benchmark of a log, as far as it has been read."""

    title: str
    version: str
    library: str
    line: int
    command: tuple[int, str] | None = None
    """the line number and text of the command before it"""
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str], list[str]]] = field(default_factory=list)
    """line numbers, columns and words"""


def read(path: Path, *, ranks: int | None = None, nodes: int | None = None) -> tuple[MeasuredCurve, ...]:
    """Returns the curves in a log of OSU micro-benchmarks, one for each benchmark in it.

    Args:
        path: the standard output of one or more benchmarks.
        ranks: the number of ranks of the collectives; None: that of the command line in the log.
        nodes: the number of hosts; None: that of the command line in the log.

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
    curves_of = [_curve(table, where, ranks, nodes, problems) for table in tables]
    refuse(where, problems)
    return tuple(curve for curve in curves_of if curve is not None)


# --- reading ---------------------------------------------------------------------------------------------------------


def _tables(lines: Sequence[str], problems: list[str]) -> list[BenchmarkTable]:
    """Splits a log into benchmarks; a command line after a table ends it."""
    tables: list[BenchmarkTable] = []
    reading = False
    command: tuple[int, str] | None = None
    begun = ""
    for number, line in enumerate(lines, 1):
        if line.rstrip().endswith("\\"):
            begun += line.rstrip()[:-1] + " "
            continue
        line, begun = begun + line, ""
        words = line.split()
        if "osu_" in line and COMMAND.match(line):
            command = number, line
        if title := TITLE.fullmatch(line.strip()):
            tables.append(BenchmarkTable(title[2].lower(), title[3] or "", title[1], number, command))
            reading, command = True, None
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


# --- commands of launchers -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launched:
    """What a command tells of the ranks that it starts, and of their hosts."""

    ranks: int | None = None
    hosts: int | None = None
    spread: bool = False
    """whether it spreads the ranks over hosts without telling how many there are"""


@dataclass(frozen=True, slots=True)
class Launcher:
    """The names of a launcher's options, each with one value.

    Args:
        ranks: the number of ranks.
        nodes: the number of hosts.
        per_node: the ranks of each host.
        lists: hosts with their slots.
        sets: resource sets, of which `per_set` ranks each, `sets_per_node` on a host.
    """

    ranks: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    per_node: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()
    per_set: frozenset[str] = frozenset()
    sets_per_node: frozenset[str] = frozenset()


def _options(**names: str) -> Launcher:
    return Launcher(**{name: frozenset(text.split()) for name, text in names.items()})


MPIRUN = _options(
    ranks="-n -np --n --np -c",
    per_node="-N --npernode -npernode -ppn --ppn -perhost --perhost",
    lists="-H -host --host -hosts --hosts",
)
SRUN = _options(
    ranks="-n --ntasks",
    nodes="-N --nodes",
    per_node="--ntasks-per-node --tasks-per-node",
    lists="-w --nodelist",
)
LAUNCHERS = {
    "mpirun": MPIRUN, "mpiexec": MPIRUN, "orterun": MPIRUN, "prterun": MPIRUN, "prun": MPIRUN,
    "mpiexec.hydra": MPIRUN, "mpirun.hydra": MPIRUN, "mpiexec_mpt": MPIRUN, "ibrun": MPIRUN,
    "mpirun_rsh": _options(ranks="-n -np"),
    "srun": SRUN,
    "flux": _options(ranks="-n --ntasks", nodes="-N --nodes", per_node="--tasks-per-node"),
    "aprun": _options(ranks="-n --pes", per_node="-N --pes-per-node", lists="-L --node-list"),
    "jsrun": _options(
        ranks="-p --np", sets="-n --nrs", per_set="-a --tasks_per_rs", sets_per_node="-r --rs_per_host"
    ),
    "lrun": _options(ranks="-n", nodes="-N", per_node="-T"),
}  # fmt: skip
ONE_PER_NODE = frozenset({"-pernode", "--pernode"})
BY_NODE = frozenset({"--bynode", "-bynode"})
MAPPED = frozenset({"--map-by", "-map-by"})
HOST_FILES = frozenset({"-hostfile", "--hostfile", "-machinefile", "--machinefile", "--default-hostfile", "-f", "-F"})


def launched(command: str) -> Launched:
    """Returns the ranks and hosts that a command line tells.

    Args:
        command: the line, with or without a prompt.

    >>> launched("$ mpirun -np 8 --map-by ppr:4:node ./osu_allreduce")
    Launched(ranks=8, hosts=2, spread=False)
    >>> launched("$ srun -N2 --ntasks-per-node=4 osu_allreduce") == launched("$ mpiexec -n 8 -ppn 4 osu_allreduce")
    True
    >>> launched("$ jsrun -n 2 -a 4 -c 40 osu_allreduce")
    Launched(ranks=8, hosts=None, spread=False)
    """
    words = command.split()
    end = next((at for at, word in enumerate(words) if PROGRAM.fullmatch(word)), len(words))
    start = next((at for at, word in enumerate(words[:end]) if word.rsplit("/", 1)[-1] in LAUNCHERS), None)
    if start is None:
        return Launched()
    name = words[start].rsplit("/", 1)[-1]
    launcher, options = LAUNCHERS[name], words[start + 1 : end]

    def number(names: frozenset[str]) -> int | None:
        match = re.match(r"\d{1,7}", _value(options, names) or "")
        return int(match[0]) or None if match else None

    ranks, hosts, per_node = number(launcher.ranks), number(launcher.nodes), number(launcher.per_node)
    slots = _slots(_value(options, launcher.lists) or "")
    if name == "mpirun_rsh":
        slots = _slots(",".join(word for word in _arguments(options) if "=" not in word))
    if sets := number(launcher.sets):
        ranks = sets * (number(launcher.per_set) or 1)
        on_host = number(launcher.sets_per_node)
        return Launched(ranks, -(-sets // on_host) if on_host else None)
    mapped = _value(options, MAPPED) or ""
    if ppr := re.match(r"ppr:(\d{1,5}):node", mapped):
        per_node = int(ppr[1])
    if ONE_PER_NODE & set(options):
        per_node = 1
    if hosts is None and slots and launcher is not MPIRUN:
        hosts = len(slots)
    if ranks is None and launcher is MPIRUN and slots:
        ranks = per_node * len(slots) if per_node else None if mapped.startswith("ppr:") else sum(slots.values())
    if ranks is None and hosts is not None:
        ranks = hosts * (per_node or 1)  # srun and flux start one task on each node if nothing else is said
    if hosts is None and ranks is not None:
        by_node = bool(BY_NODE & set(options)) or mapped.startswith("node")
        if per_node:
            hosts = -(-ranks // per_node)
        elif slots:
            hosts = min(ranks, len(slots)) if by_node else _filled(ranks, list(slots.values()))
        elif by_node and ranks == 2:
            hosts = 2  # more ranks may share hosts, whose number is not told
    spread = bool((BY_NODE | HOST_FILES) & set(options)) or mapped.startswith("node")
    return Launched(ranks, hosts, hosts is None and spread)


def _value(options: Sequence[str], names: frozenset[str]) -> str | None:
    """Returns the last value of an option, in the next word, after "=" or, for one letter, in the same word."""
    value = None
    for at, word in enumerate(options):
        head, _, tail = word.partition("=")
        if word in names:
            value = options[at + 1] if at + 1 < len(options) else None
        elif head in names:
            value = tail
        elif word[:2] in names and word[2:].isdecimal():
            value = word[2:]
    return value


def _arguments(options: Sequence[str]) -> list[str]:
    """Returns the words that are neither options nor their values."""
    return [
        word
        for before, word in zip(("", *options), options, strict=False)
        if not word.startswith("-") and not (before.startswith("-") and "=" not in before)
    ]


def _slots(text: str) -> dict[str, int]:
    """Returns the slots of the hosts in a list; equal hosts add up.

    >>> _slots("a:2,b"), list(_slots("node[01-03,7]"))
    ({'a': 2, 'b': 1}, ['node01', 'node02', 'node03', 'node7'])
    """
    slots: dict[str, int] = {}
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        span = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        names = [part]
        if span:
            names = []
            for piece in span[2].split(","):
                first, _, last = piece.partition("-")
                if first.isdecimal() and (last or first).isdecimal() and int(last or first) - int(first) < 100_000:
                    numbers = range(int(first), int(last or first) + 1)
                    names += [f"{span[1]}{number:0{len(first)}}{span[3]}" for number in numbers]
        for name in names:
            host, _, count = name.rpartition(":")
            if not host or not count.isdecimal():
                host, count = name, "1"
            slots[host] = slots.get(host, 0) + int(count)
    return slots


def _filled(ranks: int, slots: Sequence[int]) -> int:
    """Returns the hosts that get ranks, if the slots of one are filled before those of the next."""
    for used, count in enumerate(slots, 1):
        ranks -= count
        if ranks <= 0:
            return used
    return len(slots)


# --- from rows to curves ---------------------------------------------------------------------------------------------


def _curve(
    table: BenchmarkTable, where: str, ranks: int | None, nodes: int | None, problems: list[str]
) -> MeasuredCurve | None:
    """Returns the curve of a benchmark; appends what is wrong with it to the problems."""
    at = f"line {table.line}"
    if table.title not in BENCHMARKS:
        known = ", ".join(program for program, _ in BENCHMARKS.values())
        problems.append(f"{at}: found the benchmark {table.title!r}, expected one of {known}")
        return None
    program, operation = BENCHMARKS[table.title]
    begun = launched(table.command[1]) if table.command else Launched()
    members = 2 if operation in PAIRS else ranks or begun.ranks
    hint = "give both as --osu RANKS/HOSTS=LOG, such as 16/2=LOG (ranks= and nodes= in Python)"
    if members is None or members < 2:
        missing = (
            f"the command in line {table.command[0]} tells {f'{members} rank' if members else 'no number of ranks'}"
            if table.command
            else "its command is not in the log before it"
        )
        problems.append(f"{at}: {program} does not print its number of ranks, and {missing}; {hint}")
        return None
    hosts, notes = nodes, list[str]()
    if hosts is None and begun.ranks == members:
        hosts = begun.hosts
    if hosts is None and ranks is None:
        known = f"the command in line {table.command[0]}" if table.command else "the log, without its command,"
        untold = f"{at}: {program}: {known} does not tell the hosts of its {members} ranks"
        if begun.spread or table.command is None:
            problems.append(f"{untold}; {hint}")
            return None
        notes = [f"{untold}, so one is assumed; {hint}"]
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
        operation,
        members,
        hosts,
        tuple(points),
        source.replace("  ", " "),
        tool,
        table.version,
        table.library,
        tuple(notes),
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
        actual = f"{row['Min Latency(us)']} to {row['Max Latency(us)']}"
        raise ValueError(f"found times of {actual} us of the ranks, expected a range that contains their mean")
