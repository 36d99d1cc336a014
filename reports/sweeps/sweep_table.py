"""The table of a sweep: a row per point, algorithm and seed, with its figures and those relative to other rows.

* Columns: varied paths, `KEYS`, the figures of a summary, those of messages and of the busiest link, ``records`` (which
  were kept), the intervals of predictions, `DERIVED`, the figures of `COSTS` that are known, ``record`` if records are
  stored, and ``error``. A figure that a run does not have is missing.
* Runs that failed have a row in the files, with their error and without figures. They are not part of means and
  comparisons.
* A row is compared with the row of the smallest cluster among those that differ from it only in size: same algorithm,
  seed and other values. The first one is used if several are equally small. If the size does not vary, there is no
  comparison.
* The size of a cluster is its number of workers, whichever path changes it. Paths that change together are one axis.
* While a sweep runs, the table of the runs that have ended is rewritten from time to time, under a temporary name that
  is then renamed: a reader sees a complete table. Speed-ups in it are those over the smallest cluster so far.
* The folder of an unfinished sweep has a file with the checksum of its runs, which the sweep locks. The same sweep
  continues in this folder if no other process has the lock. The lock of a killed process ends with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from paceline.algorithms.core.checksums import checksum, reading
from paceline.algorithms.core.files import replacing
from paceline.records.figures import (
    BYTES_PER_STEP,
    BYTES_SENT,
    COST,
    COST_TO_ACCURACY,
    COST_TO_LOSS,
    DIVERGED,
    EFFICIENCY,
    ENERGY,
    IN_SUMMARY,
    LINK_UTILISATION,
    PERIODS,
    SPEED_UP,
    SPEED_UP_TO_ACCURACY,
    SPEED_UP_TO_LOSS,
    STEPS,
    THROUGHPUT,
    TIME_TO_ACCURACY,
    TIME_TO_LOSS,
    Figure,
)
from paceline.records.metrics import student
from paceline.records.prediction_interval import FIGURES as INTERVALS
from paceline.records.store import NumberedFolder, numbered_folder
from paceline.reports.comparison.ranking import Aim, common_aim
from paceline.reports.link_words import name_of
from paceline.reports.sweeps.sweep import SweepEntry, SweepResult, assemble, keys_of
from paceline.scenarios.resolution.grid import Point

KEYS = {"algorithm": "string", "seed": "Int64", "workers": "Int64", "batch_per_worker": "Int64"}
LINK, LINK_BYTES, LINK_USE = "busiest_link", "busiest_link_bytes", "busiest_link_utilisation"
"""columns of the link with the largest utilisation: its name, what it carried, and its utilisation"""
BASE_WORKERS, BASE_PERIODS = "base_workers", "base_periods"
"""columns of the row that a row is compared with: its number of workers, and the periods of the method in its run"""
DERIVED = (SPEED_UP, EFFICIENCY, SPEED_UP_TO_ACCURACY, SPEED_UP_TO_LOSS)
"""figures from two rows"""
COSTS = (COST, COST_TO_ACCURACY, COST_TO_LOSS, ENERGY)
"""figures from prices and powers"""
BOUNDS = {
    figure: (f"{name}_low", f"{name}_high")
    for name, key in INTERVALS.items()
    for figure in IN_SUMMARY
    if figure.key == key
}
"""the figures that have an interval of predictions, and the columns of its ends"""
NUMBERS = ("Int64", "Float64")
HALF_WIDTH = "_half"
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "string": (pa.string(), pd.StringDtype()),
    "Int64": (pa.int64(), pd.Int64Dtype()),
    "Float64": (pa.float64(), pd.Float64Dtype()),
    "boolean": (pa.bool_(), pd.BooleanDtype()),
}


@dataclass(frozen=True, slots=True)
class SweepTable:
    """The rows of a sweep, and the roles of its paths."""

    scenario: str
    frame: pd.DataFrame
    paths: tuple[str, ...]
    sizes: tuple[str, ...]
    """paths that change the number of workers"""
    target: Aim | None = None
    share: float | None = None
    """the share of similar predictions in the intervals; None if no run has one"""
    whole: pd.DataFrame = field(default_factory=pd.DataFrame)
    """the rows of the files: those of `frame` and of the runs that failed, in the order of the grid"""
    axes: tuple[tuple[str, ...], ...] = ()
    """the paths of each axis of the grid: several if they change together"""
    scaling: str | None = None

    @property
    def failed(self) -> pd.DataFrame:
        """The rows of the runs that failed."""
        return self.whole[self.whole["error"].notna()]

    @property
    def x(self) -> str:
        """The horizontal axis of figures: the number of workers if it varies, else the first varied path."""
        return "workers" if self.sizes else self._along

    @property
    def others(self) -> tuple[str, ...]:
        """The varied paths that do not vary along a line of a figure."""
        along = next((axis for axis in self.axes if self._along in axis), (self._along,))
        return tuple(path for path in self._varied if path not in along)

    @property
    def _along(self) -> str:
        return (*self.sizes, *self._varied, *self.paths)[0]

    @property
    def _varied(self) -> list[str]:
        """The paths with several values; an axis of one value is not compared."""
        return [path for path in self.paths if self.frame[path].nunique(dropna=False) > 1]

    def combinations(self, rows: pd.DataFrame) -> int:
        """Returns the number of combinations of the values of `others` in these rows."""
        return len(rows[list(self.others)].drop_duplicates()) if self.others else 1

    def means(self) -> pd.DataFrame:
        """Returns means over seeds, one row per point and algorithm; a figure that one seed lacks is missing.

        A column ``<figure>_half`` next to each figure gives half of its 95 % interval (`prediction_errors.interval`). A
        point is `unfinished` if one of its runs ended before the method's longest period had passed once. It is
        `comparable` if neither it nor the point that it is compared with is unfinished.
        """
        figures = (*IN_SUMMARY, BYTES_PER_STEP, *DERIVED, *COSTS)
        names = [figure.column for figure in figures if figure.type in NUMBERS]
        names += [BASE_WORKERS, LINK_BYTES, LINK_USE, *(end for ends in BOUNDS.values() for end in ends)]
        names = [name for name in names if name in self.frame]
        groups = self.frame.groupby([*self.paths, "algorithm"], sort=False, dropna=False)
        values, count = groups[names], groups.size()
        halves = values.std().mul(pd.Series(student(count - 1), index=count.index) / np.sqrt(count), axis=0)
        means = pd.concat([values.mean(), halves.add_suffix(HALF_WIDTH)], axis=1)
        whole = values.count().eq(count, axis=0)
        means = means.where(pd.concat([whole, whole.add_suffix(HALF_WIDTH)], axis=1))
        means.insert(0, "workers", groups["workers"].first())
        means[LINK] = groups[LINK].first()
        means[DIVERGED.column] = groups[DIVERGED.column].any()
        means["unfinished"] = groups[PERIODS.column].min() < 1
        means["comparable"] = ~means["unfinished"] & ~(groups[BASE_PERIODS].min() < 1).fillna(False)
        return means.reset_index()

    def save(self, folder: Path) -> None:
        """Writes ``sweep.csv`` and ``sweep.parquet``, which have the same content."""
        with replacing(folder / "sweep.csv") as hidden:
            self.whole.to_csv(hidden, index=False)
        schema = pa.schema([(name, TYPES[str(dtype)][0]) for name, dtype in self.whole.dtypes.items()])
        table = pa.Table.from_pandas(self.whole, schema=schema, preserve_index=False).replace_schema_metadata(None)
        with replacing(folder / "sweep.parquet") as hidden, hidden.open("wb") as file:
            pq.write_table(table, file)


def stored_table(folder: Path, document: Mapping[str, Any], request: Mapping[str, Any]) -> SweepTable:
    """Returns the table of a stored sweep.

    Args:
        folder: the folder of the sweep.
        document: the content of its sweep.json.
        request: the content of its request.json; empty if there is none.

    Raises:
        InputError: the table is missing or damaged.
    """
    path = folder / "sweep.parquet"
    types = dict(TYPES.values())
    with reading(path, "the table of `paceline sweep`"):
        with path.open("rb") as file:
            whole: pd.DataFrame = pq.read_table(file).to_pandas(types_mapper=types.get)
        paths = tuple(whole.columns[: list(whole.columns).index("algorithm")])
        frame = whole[whole["error"].isna()].drop(columns="error").reset_index(drop=True)
        axes = tuple(tuple(axis) for axis in request.get("axes", ()))
        summaries = [point["summary"] for point in document["points"]]
        target = common_aim(summaries)
    return SweepTable(
        scenario=request.get("scenario", {}).get("name") or folder.name.partition("-sweep")[0],
        frame=frame,
        paths=paths,
        sizes=sizes_of(frame, paths, axes),
        target=target,
        share=_share(summaries),
        whole=whole,
        axes=axes,
        scaling=request.get("scaling"),
    )


def tabulate(sweep: SweepResult) -> SweepTable:
    """Returns the table of a sweep with at least one run that succeeded."""
    entries = sorted([*sweep.entries, *sweep.failed], key=lambda entry: entry.number)  # stable: the order of the grid
    columns: dict[str, pd.Series[Any]] = {
        path: _column([entry.vary[path] for entry in entries]) for path in sweep.paths
    }
    for name, dtype in KEYS.items():
        columns[name] = pd.Series([getattr(entry, name) for entry in entries], dtype=dtype)
    for figure in IN_SUMMARY:
        columns[figure.column] = pd.Series([figure.of(entry.summary) for entry in entries], dtype=figure.type)
    columns[BYTES_PER_STEP.column] = _over(columns[BYTES_SENT.column], columns[STEPS.column])
    links = [(entry.summary.get("links") or {}).get("busiest") or {} for entry in entries]
    columns[LINK] = pd.Series([name_of(link) if link else None for link in links], dtype="string")
    columns[LINK_BYTES] = pd.Series([link.get("bytes") for link in links], dtype="Int64")
    columns[LINK_USE] = pd.Series([LINK_UTILISATION.of(entry.summary) for entry in entries], dtype="Float64")
    columns["records"] = pd.Series([_records(entry) for entry in entries], dtype="string")
    for name in INTERVALS:
        ends = [(entry.summary.get("prediction_interval") or {}).get(name) or {} for entry in entries]
        for end in ("low", "high"):
            columns[f"{name}_{end}"] = pd.Series([bounds.get(end) for bounds in ends], dtype="Float64")
    every = pd.DataFrame(columns)
    succeeded = pd.Series([not entry.error for entry in entries], dtype=bool)
    frame = every[succeeded]
    sizes = sizes_of(frame, sweep.paths, sweep.axes)
    derived = _derived(frame, [path for path in sweep.paths if path not in sizes])
    every = pd.concat([every, derived.reindex(every.index)], axis=1)
    costs = [entry.cost or {} for entry in entries]
    for figure in COSTS:
        if any(figure.key in cost for cost in costs):
            every[figure.column] = pd.Series([cost.get(figure.key) for cost in costs], dtype=figure.type)
    if any(entry.path for entry in entries):
        every["record"] = pd.Series([entry.path for entry in entries], dtype="string")
    every["error"] = pd.Series([entry.error or None for entry in entries], dtype="string")
    return SweepTable(
        scenario=sweep.scenario,
        frame=every[succeeded].drop(columns="error").reset_index(drop=True),
        paths=sweep.paths,
        sizes=sizes,
        target=sweep.target,
        share=_share([entry.summary for entry in sweep.entries]),
        whole=every,
        axes=sweep.axes,
        scaling=sweep.scaling,
    )


def _records(entry: SweepEntry) -> str | None:
    """Returns which records a run kept; of sampled ones and summaries, the shares of time are estimates."""
    return None if entry.error else entry.summary.get("records", {"kind": "full"})["kind"]


def _share(summaries: Sequence[Mapping[str, Any]]) -> float | None:
    """Returns the share of similar predictions in the intervals; None if no run has an interval."""
    intervals = (summary.get("prediction_interval") for summary in summaries)
    return min((interval["share"] for interval in intervals if interval), default=None)


def _column(values: Sequence[Any]) -> pd.Series[Any]:
    """Returns the values of a path: numbers if all are numbers, else text in YAML (JSON if not plain)."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean")
    if kinds == {int}:
        return pd.Series(values, dtype="Int64")
    if kinds <= {int, float}:
        return pd.Series(values, dtype="Float64")
    return pd.Series([value if isinstance(value, str) else json.dumps(value) for value in values], dtype="string")


def sizes_of(frame: pd.DataFrame, paths: Sequence[str], axes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the paths of the axes that change the number of workers if all other axes are constant."""
    sentences: list[str] = []
    for axis in axes or [(path,) for path in paths]:
        rest = ["algorithm", "seed", *(other for other in paths if other not in axis)]
        if (frame.groupby(rest, sort=False, dropna=False)["workers"].nunique() > 1).any():
            sentences += axis
    return tuple(sentences)


def _derived(frame: pd.DataFrame, fixed: Sequence[str]) -> pd.DataFrame:
    """Returns `DERIVED` and the compared row's size for every row; compared rows agree in the paths of `fixed`."""
    parts = [
        _against(group)
        for _, group in frame.groupby(["algorithm", "seed", *fixed], sort=False, dropna=False)
        if group["workers"].nunique() > 1
    ]
    types = {BASE_WORKERS: "Int64", BASE_PERIODS: "Float64", **{figure.column: figure.type for figure in DERIVED}}
    empty = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in types.items()})
    return pd.concat([empty, *parts]).reindex(frame.index).astype(types)


def _against(group: pd.DataFrame) -> pd.DataFrame:
    """Compares the rows of a group with the smallest cluster among them."""
    base = lowest(group, "workers")
    speed_up = _over(group[THROUGHPUT.column], base[THROUGHPUT.column])
    sooner = {
        SPEED_UP_TO_ACCURACY: _over(base[TIME_TO_ACCURACY.column], group[TIME_TO_ACCURACY.column]),
        SPEED_UP_TO_LOSS: _over(base[TIME_TO_LOSS.column], group[TIME_TO_LOSS.column]),
    }
    return pd.DataFrame(
        {
            BASE_WORKERS: pd.Series(base["workers"], index=group.index, dtype="Int64"),
            BASE_PERIODS: pd.Series(base[PERIODS.column], index=group.index, dtype="Float64"),
            SPEED_UP.column: speed_up,
            EFFICIENCY.column: speed_up / (group["workers"] / base["workers"]),
            **{figure.column: values for figure, values in sooner.items()},
        }
    )


def _over(part: Any, whole: Any) -> Any:
    """Returns part / whole; missing if the whole is 0 or missing."""
    if isinstance(whole, pd.Series):
        return part / whole.where(whole > 0)
    return part / (whole if not pd.isna(whole) and whole > 0 else pd.NA)


def value_of(row: Any, figure: Figure) -> Any:
    """Returns a figure of a row of the means: a number, with several seeds ``{mean, low, high}``; None if missing."""
    mean = row.get(figure.column)
    if mean is None or pd.isna(mean):
        return None
    half = row[f"{figure.column}{HALF_WIDTH}"]
    if pd.isna(half):
        return float(mean)
    return {"mean": float(mean), "low": float(mean - half), "high": float(mean + half)}


def lowest(rows: pd.DataFrame, column: str) -> Any:
    """Returns the first row with the smallest value of a figure."""
    return rows.sort_values(column, kind="stable").iloc[0]


def short_names(paths: Sequence[str]) -> Mapping[str, str]:
    """Shortens each path to as few of its last keys as distinguish it from the others.

    >>> list(short_names(["cluster.nodes[0].count", "cluster.nodes[1].count", "cluster.network.link"]).values())
    ['nodes[0].count', 'nodes[1].count', 'link']
    """
    names = {}
    for path in paths:
        keys = path.split(".")
        endings = [".".join(keys[-length:]) for length in range(1, len(keys) + 1)]
        names[path] = next(
            ending for ending in endings if sum(f".{other}".endswith(f".{ending}") for other in paths) == 1
        )
    return names


def brief(value: Any) -> str:
    """Formats a value of a path for a label, without the brackets and quotes of a mapping.

    >>> brief(8), brief('{"latency": "2 us", "bandwidth": "40 Gbit/s"}')
    ('8', 'latency 2 us, bandwidth 40 Gbit/s')
    """
    text = str(value)
    return text.replace('": ', " ").translate(dict.fromkeys(map(ord, '"{}'))) if text.startswith("{") else text


def label(entry: Mapping[Any, Any], paths: Sequence[str]) -> str:
    """Formats the values of some paths: ``link=eth-10g, batch_per_worker=32``."""
    names = short_names(paths)
    return ", ".join(f"{names[path]}={brief(entry[path])}" for path in paths)


PARTIAL = "sweep-partial.csv"
"""the table in the sweep's folder until the sweep has ended"""
IDENTITY = "sweep-runs.txt"
"""the file in the sweep's folder with the checksum of its runs, until the sweep has ended"""
INTERVAL_S = 5.0
"""least seconds between two versions of the table"""
LARGEST_SHARE = 0.05
"""largest part of the time that is spent on the table: of 100,000 runs, writing it takes seconds"""


class PartialTable:
    """Writes the table of the runs that have ended.

    Args:
        folder: the folder of the sweep.
        points: the points of the grid.
        clock: returns seconds of real time.
    """

    def __init__(self, folder: Path, points: Sequence[Point], clock: Callable[[], float] = time.monotonic) -> None:
        self.path = folder / PARTIAL
        self._points, self._clock = points, clock
        self._entries: dict[int, SweepEntry] = {}
        self._next_s = clock() + INTERVAL_S
        self._written = 0

    @property
    def ended(self) -> int:
        """Number of runs that have ended."""
        return len(self._entries)

    @property
    def succeeded(self) -> int:
        """Number of runs that have succeeded."""
        return sum(not entry.error for entry in self._entries.values())

    def add(self, entry: SweepEntry) -> None:
        """Adds a run that has ended; rewrites the table if the last version is old enough.

        Args:
            entry: the run.
        """
        self._entries[entry.number] = entry
        began_s = self._clock()
        if began_s >= self._next_s:
            self.write()
            now_s = self._clock()
            self._next_s = now_s + max(INTERVAL_S, (now_s - began_s) / LARGEST_SHARE)

    def write(self) -> None:
        """Writes the table; nothing before a run has succeeded, or if no run has ended since the last version."""
        if not self.succeeded or self._written == len(self._entries):
            return
        ended = [self._entries[number] for number in sorted(self._entries)]
        with replacing(self.path) as building:
            tabulate(assemble(self._points, ended)).whole.to_csv(building, index=False)
        self._written = len(self._entries)

    def remove(self) -> None:
        """Removes the table, since the complete one exists."""
        self.path.unlink(missing_ok=True)
        for abandoned in self.path.parent.glob(f".{self.path.stem}-*"):  # of processes that were killed
            abandoned.unlink(missing_ok=True)


@contextmanager
def sweep_folder(out: Path, stem: str, points: Sequence[Point]) -> Iterator[NumberedFolder]:
    """Yields the folder of a sweep: that of the same sweep if it was interrupted, else a new one.

    Args:
        out: the parent folder.
        stem: the name of the folder without its number.
        points: the points of the grid.
    """
    identity = checksum("\n".join(keys_of(points)).encode())
    held = _claimed(out, stem, identity)
    with numbered_folder(out, stem, building=None if held is None else held[0]) as folder:
        handle = _claim(folder.building / IDENTITY, identity) if held is None else held[1]
        try:
            yield folder
            (folder.building / IDENTITY).unlink(missing_ok=True)
        finally:
            os.close(handle)


def _claimed(out: Path, stem: str, identity: str) -> tuple[Path, int] | None:
    """Returns the folder of the same sweep that no process uses, and its lock; None if there is none."""
    for path in sorted(out.glob(f"{stem}-unfinished-*/{IDENTITY}")):
        try:
            if path.read_text(encoding="utf-8").strip() != identity:
                continue
            handle = os.open(path, os.O_RDWR)
        except OSError:  # it has ended since
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = path.stat().st_ino == os.fstat(handle).st_ino
        except OSError:  # another process uses it, or has ended it
            held = False
        if not held:
            os.close(handle)
            continue
        for half in path.parent.glob("*/.*"):  # records that were being written when the process was killed
            shutil.rmtree(half, ignore_errors=True)
        return path.parent, handle
    return None


def _claim(path: Path, identity: str) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.write(handle, f"{identity}\n".encode())
    return handle
