"""The sets of published measurements, and how a table becomes groups of rows that are predicted together.

A set of step times only has to turn a line of its table into a `steps.Row`; the rules of `steps` and `machines` do the
rest. A set of other figures brings its own prediction.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.validation import steps
from paceline.validation.outcome import LeftOut, Outcome

DATA = Path(__file__).parent.parent / "data"
PART = 150
"""rows that one process predicts together"""
QUICK, QUICK_DEVICES = 25, 64
"""predicted rows of a set in a quick run, and their most devices"""
SETS = (
    "mlperf",
    "gavel",
    "reports",
    "horovod",
    "pollux",
    "throughput",
    "devices",
    "collectives",
    "diloco",
    "decentralised",
    "epochs",
    "noise_scales",
    "times",
)
"""names in the order of the page; the module of a set has its name and holds `SET`"""
ALONE = "no row of its group has more devices or nodes"
"""why a group is left out that has nothing to predict"""
OWN = "own"
"""the set of users' rows, which has no table of its own"""

Line = Mapping[str, str]
"""a line of a table by the names of its columns; "line" is its number in the file"""


@dataclass(frozen=True, kw_only=True)
class MeasurementSet:
    """Published measurements of one kind, and their prediction.

    Args:
        name: The name of the set.
        title: What was measured, and by whom.
        file: Its table in `DATA`.
        columns: The columns by which another file with the same table is recognised.
        aim: The errors to aim for: median and 90th percentile, as fractions; None: none is set.
        groups: Divides the lines of a table into groups that are predicted together, and those that are left out.
        predict: Predicts a group.
        quick: Chooses the groups of a quick run.
        in_sight: Whether rows of both halves were looked at while the prediction was made.
        remark: Returns a sentence about the outcomes of all sets, or "".
    """

    name: str
    title: str
    file: str
    columns: frozenset[str]
    aim: tuple[float | None, float | None] = (None, None)
    groups: Callable[[Sequence[Line]], tuple[Sequence[Sequence[Any]], list[LeftOut]]]
    predict: Callable[[Sequence[Any]], list[Outcome | LeftOut]]
    quick: Callable[[Sequence[Sequence[Any]]], Sequence[Sequence[Any]]] = tuple
    """returns the groups of a quick run, of all groups"""
    in_sight: bool = False
    remark: Callable[[Sequence[Outcome]], str] | None = None

    def lines(self, path: Path | None = None) -> list[Line]:
        """Reads its table, or another file with the same columns."""
        return read_table(path or DATA / self.file)


def of_steps(
    *,
    name: str,
    title: str,
    file: str,
    columns: frozenset[str],
    aim: tuple[float | None, float | None] = (None, None),
    row: Callable[[Line], steps.Row | None],
    in_sight: bool = False,
) -> MeasurementSet:
    """Returns a set of step times.

    Args:
        name: The name of the set.
        title: What was measured, and by whom.
        file: Its table in `DATA`.
        columns: The columns by which another file with the same table is recognised.
        aim: The errors to aim for.
        in_sight: Whether rows of both halves were looked at while the prediction was made.
        row: Returns the row of a line; None for a line that belongs to no group. Raises `PacelineError` for one that
            cannot be read.
    """
    return MeasurementSet(
        name=name, title=title, file=file, columns=columns, aim=aim, groups=partial(_groups_of_steps, name, row),
        predict=partial(steps.outcomes, name), quick=_quick_steps, in_sight=in_sight,
    )  # fmt: skip


def _groups_of_steps(
    name: str, row: Callable[[Line], steps.Row | None], lines: Sequence[Line]
) -> tuple[list[list[steps.Row]], list[LeftOut]]:
    groups: dict[str, list[steps.Row]] = {}
    left_out: list[LeftOut] = []
    for line in lines:
        try:
            found = row(line)
        except (PacelineError, ValueError) as error:
            left_out.append(LeftOut(name, f"line {line['line']}", str(error)))
            continue
        if found is not None:
            groups.setdefault(found.group, []).append(found)
    for group in groups.values():
        if not steps.given_and_predicted(group)[1]:
            left_out += [LeftOut(name, row.name, ALONE) for row in group]
    return [part for group in groups.values() for part in _parts(group)], left_out


def _parts(group: Sequence[steps.Row]) -> Iterator[list[steps.Row]]:
    """Yields a group in parts that are predicted by several processes, each with all given rows.

    Rows of one placement are neighbours, so that they share a network.
    """
    given, others = steps.given_and_predicted(group)
    others.sort(key=lambda row: (row.devices, row.per_node))
    for begin in range(0, len(others), PART):
        yield [*given, *others[begin : begin + PART]]


def _quick_steps(groups: Sequence[Sequence[steps.Row]]) -> list[list[steps.Row]]:
    """Returns a sample of `QUICK` rows with few devices, in the order of a hash."""
    rows = [(row, steps.given_and_predicted(group)[0]) for group in groups for row in group]
    small = [(row, given) for row, given in rows if row not in given and row.devices <= QUICK_DEVICES]
    small.sort(key=lambda pair: hashlib.sha256(pair[0].name.encode()).hexdigest())
    return [[*given, row] for row, given in small[:QUICK]]


def set_named(name: str) -> MeasurementSet:
    """Returns a set by its name in `SETS`."""
    found: MeasurementSet = import_module(f"{__name__}.{name}").SET
    return found


def set_of_columns(columns: Sequence[str], path: Path) -> MeasurementSet:
    """Returns the set whose table has these columns, for a file of the user.

    Raises:
        InputError: No set has.
    """
    sets = [set_named(name) for name in (*SETS, OWN)]
    for known in sets:
        if known.columns <= set(columns):
            return known
    nearest = min(sets, key=lambda known: len(known.columns - set(columns)))
    missing = ", ".join(sorted(nearest.columns - set(columns)))
    raise InputError(f"{path}: found the columns {', '.join(columns)}; missing for {nearest.title}: {missing}")


def columns_of(path: Path) -> list[str]:
    """Returns the columns of a table; raises `InputError` as `read_table`, and if it has no line."""
    lines = read_table(path)
    if not lines:
        raise InputError(f"{path}: found no line below the names of the columns; expected a measurement in each")
    return [key for key in lines[0] if key != "line"]


def read_table(path: Path) -> list[Line]:
    """Returns the lines of a CSV file, which may be gzipped; lines that begin with # are comments.

    Raises:
        InputError: There is no such file, or it is no table.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise InputError(f"{path}: found no readable table ({error}); expected a CSV file") from None
    first = len([None for line in text.splitlines() if line.startswith("#")]) if text.startswith("#") else 0
    body = "\n".join(text.splitlines()[first:])
    reader = csv.DictReader(io.StringIO(body))
    lines: list[Line] = [
        {"line": str(number), **{key: value or "" for key, value in line.items() if isinstance(key, str)}}
        for number, line in enumerate(reader, start=first + 2)
    ]
    if not reader.fieldnames:
        raise InputError(f"{path}: found no line; expected a CSV file with names of columns in the first line")
    return lines
