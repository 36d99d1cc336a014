"""The table of a sweep: one row per point, algorithm and seed, with its figures and those relative to other rows.

Rules of this file:

* Columns: varied paths, `KEYS`, `FIGURES`, `PER_STEP`, `LINK` and `LINKS`, ``records`` (which were kept), `BOUNDS`,
  `DERIVED`, those of
  `COSTS` that are known, ``record`` if records are stored, and ``error``. A figure that a run does not have is missing.
* Runs that failed have a row in the files, with their error and without figures. They are not part of means and
  comparisons.
* A row is compared with the row of the smallest cluster among those that differ from it only in size: same algorithm,
  seed and other values. The first one is used if several are equally small. If the size does not vary, there is no
  comparison.
* The size of a cluster is its number of workers, whichever path changes it. Paths that change together are one axis.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from paceline.algorithms.core.files import replacing
from paceline.records.figures import ACTIVITIES
from paceline.records.metrics import student
from paceline.records.prediction_interval import FIGURES as INTERVALS
from paceline.reports.comparison.prediction_errors import AIMS, AT_TARGETS, figure_at
from paceline.reports.comparison.time_to_target import Aim
from paceline.reports.link_words import name_of
from paceline.reports.sweeps.entries import Entry, Sweep

KEYS = {"algorithm": "string", "seed": "Int64", "workers": "Int64", "batch_per_worker": "Int64"}

FIGURES = {
    "wall_s": ("wall_s", "Float64"),
    "steps": ("steps", "Int64"),
    "longest_period": ("longest_period", "Int64"),
    "periods": ("periods", "Float64"),
    "updates": ("updates", "Int64"),
    "evaluations": ("evaluations", "Int64"),
    "samples": ("samples", "Int64"),
    "samples_per_s": ("samples_per_s", "Float64"),
    "step_s_mean": ("step_s.mean", "Float64"),
    "step_s_p50": ("step_s.p50", "Float64"),
    "step_s_p95": ("step_s.p95", "Float64"),
    **{f"time_fraction_{activity}": (f"time_fraction.{activity}", "Float64") for activity in ACTIVITIES},
    "bytes_sent": ("bytes_sent", "Int64"),
    "staleness_mean": ("staleness.mean", "Float64"),
    "staleness_max": ("staleness.max", "Int64"),
    **{name: (name, "Float64") for name in AT_TARGETS},
    "final_loss": ("final_loss", "Float64"),
    "final_accuracy": ("final_accuracy", "Float64"),
    "diverged": ("diverged", "boolean"),
    "stop_reason": ("stop_reason", "string"),
}
"""columns: the path of each in a summary, and its type"""

LINK = "busiest_link"
"""column of the name of the link with the largest utilisation"""

LINKS = {
    f"{LINK}_{name}": (f"links.busiest.{name}", dtype)
    for name, dtype in (("bytes", "Int64"), ("utilisation", "Float64"))
}
"""columns of the busiest link: the path of each in a summary, and its type"""

BOUNDS = {
    f"{name}_{end}": (f"prediction_interval.{name}.{end}", "Float64") for name in INTERVALS for end in ("low", "high")
}
"""columns of the intervals of predictions: the path of each in a summary, and its type"""

DERIVED = {
    "base_workers": "Int64",
    "base_periods": "Float64",
    "speed_up": "Float64",
    "efficiency": "Float64",
    "speed_up_to_accuracy": "Float64",
    "speed_up_to_loss": "Float64",
}
"""columns from two rows: workers and periods of the base row; samples per second over the base row's;
speed-up over workers / base_workers; its time to the target accuracy or loss over this row's"""

PER_STEP = "mb_per_step"
"""column of the megabytes that a worker sends per gradient: its messages, and its vectors in collectives"""

COSTS = ("cost_usd", "cost_to_accuracy_usd", "cost_to_loss_usd", "energy_kwh")
"""columns of costs: the price of the cluster per hour times the hours of the run, or of its time to a target; and its
power times the hours of the run"""

NUMBERS = ("Int64", "Float64")
HALF_WIDTH = "_half"

ARROW = {"string": pa.string(), "Int64": pa.int64(), "Float64": pa.float64(), "boolean": pa.bool_()}


@dataclass(frozen=True, slots=True)
class Table:
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
        figures_and_bounds = {**FIGURES, **LINKS, **BOUNDS}
        names = [name for name, (_, dtype) in figures_and_bounds.items() if dtype in NUMBERS] + [PER_STEP, *DERIVED]
        names += [name for name in COSTS if name in self.frame]
        groups = self.frame.groupby([*self.paths, "algorithm"], sort=False, dropna=False)
        figures, count = groups[names], groups.size()
        halves = figures.std().mul(half_widths(count) / np.sqrt(count), axis=0)
        means = pd.concat([figures.mean(), halves.add_suffix(HALF_WIDTH)], axis=1)
        whole = figures.count().eq(count, axis=0)
        means = means.where(pd.concat([whole, whole.add_suffix(HALF_WIDTH)], axis=1))
        means.insert(0, "workers", groups["workers"].first())
        means[LINK] = groups[LINK].first()
        means["diverged"] = groups["diverged"].any()
        means["unfinished"] = groups["periods"].min() < 1
        means["comparable"] = ~means["unfinished"] & ~(groups["base_periods"].min() < 1).fillna(False)
        return means.reset_index()

    def save(self, folder: Path) -> None:
        """Writes ``sweep.csv`` and ``sweep.parquet``, which have the same content."""
        with replacing(folder / "sweep.csv") as hidden:
            self.whole.to_csv(hidden, index=False)
        schema = pa.schema([(name, ARROW[str(dtype)]) for name, dtype in self.whole.dtypes.items()])
        table = pa.Table.from_pandas(self.whole, schema=schema, preserve_index=False).replace_schema_metadata(None)
        with replacing(folder / "sweep.parquet") as hidden, hidden.open("wb") as file:
            pq.write_table(table, file)


def half_widths(count: pd.Series[Any]) -> Any:
    """Returns half of the 95 % interval of a mean, in standard errors, by the number of values; missing for one."""
    return pd.Series(student(count - 1), index=count.index)


def tabulate(sweep: Sweep) -> Table:
    """Returns the table of a sweep with at least one run that succeeded."""
    entries = sorted([*sweep.entries, *sweep.failed], key=lambda entry: entry.number)  # stable: the order of the grid
    columns: dict[str, pd.Series[Any]] = {
        path: _column([entry.vary[path] for entry in entries]) for path in sweep.paths
    }
    for name, dtype in KEYS.items():
        columns[name] = pd.Series([getattr(entry, name) for entry in entries], dtype=dtype)
    for name, (place, dtype) in FIGURES.items():
        found = [None if entry.error else figure_at(entry.summary, place) for entry in entries]
        columns[name] = pd.Series(found, dtype=dtype)
    columns[PER_STEP] = _over(columns["bytes_sent"], columns["steps"]) / 1e6
    columns[LINK] = pd.Series([_busiest(entry) for entry in entries], dtype="string")
    for name, (place, dtype) in LINKS.items():
        columns[name] = pd.Series([_optional(entry.summary, place) for entry in entries], dtype=dtype)
    columns["records"] = pd.Series([_records(entry) for entry in entries], dtype="string")
    for name, (place, dtype) in BOUNDS.items():
        columns[name] = pd.Series([_optional(entry.summary, place) for entry in entries], dtype=dtype)
    every = pd.DataFrame(columns)
    succeeded = pd.Series([not entry.error for entry in entries], dtype=bool)
    frame = every[succeeded]
    sizes = sizes_of(frame, sweep.paths, sweep.axes)
    derived = _derived(frame, [path for path in sweep.paths if path not in sizes])
    every = pd.concat([every, derived.reindex(every.index)], axis=1)
    costs = [entry.cost or {} for entry in entries]
    for name in COSTS:
        if any(name in cost for cost in costs):
            every[name] = pd.Series([cost.get(name) for cost in costs], dtype="Float64")
    if any(entry.path for entry in entries):
        every["record"] = pd.Series([entry.path for entry in entries], dtype="string")
    every["error"] = pd.Series([entry.error or None for entry in entries], dtype="string")
    shares = [share for entry in sweep.entries if (share := _optional(entry.summary, "prediction_interval.share"))]
    return Table(
        scenario=sweep.scenario,
        frame=every[succeeded].drop(columns="error").reset_index(drop=True),
        paths=sweep.paths,
        sizes=sizes,
        target=sweep.target,
        share=min(shares, default=None),
        whole=every,
        axes=sweep.axes,
        scaling=sweep.scaling,
    )


def _records(entry: Entry) -> str | None:
    """Returns which records a run kept; of sampled ones and summaries, the shares of time are estimates."""
    return None if entry.error else entry.summary.get("records", {"kind": "full"})["kind"]


def _busiest(entry: Entry) -> str | None:
    """Returns the name of the busiest link of a run; None if links were not counted, or carried nothing."""
    found = _optional(entry.summary, "links.busiest")
    return None if found is None else name_of(found)


def _optional(summary: Mapping[str, Any], place: str) -> Any:
    """Returns the figure at a path; None where the path ends before."""
    found: Any = summary
    for name in place.split("."):
        found = None if found is None else found.get(name)
    return found


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
    found: list[str] = []
    for axis in axes or [(path,) for path in paths]:
        rest = ["algorithm", "seed", *(other for other in paths if other not in axis)]
        if (frame.groupby(rest, sort=False, dropna=False)["workers"].nunique() > 1).any():
            found += axis
    return tuple(found)


def _derived(frame: pd.DataFrame, fixed: Sequence[str]) -> pd.DataFrame:
    """Returns `DERIVED` for every row; compared rows agree in the paths of `fixed`."""
    parts = [
        _against(group)
        for _, group in frame.groupby(["algorithm", "seed", *fixed], sort=False, dropna=False)
        if group["workers"].nunique() > 1
    ]
    empty = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in DERIVED.items()})
    made = pd.concat([empty, *parts]).reindex(frame.index)
    return made.astype(DERIVED)


def _against(group: pd.DataFrame) -> pd.DataFrame:
    """Compares the rows of a group with the smallest cluster among them."""
    base = lowest(group, "workers")
    speed_up = _over(group["samples_per_s"], base["samples_per_s"])
    return pd.DataFrame(
        {
            "base_workers": pd.Series(base["workers"], index=group.index, dtype="Int64"),
            "base_periods": pd.Series(base["periods"], index=group.index, dtype="Float64"),
            "speed_up": speed_up,
            "efficiency": speed_up / (group["workers"] / base["workers"]),
            **{f"speed_up_to_{aim}": _over(base[f"time_to_{aim}_s"], group[f"time_to_{aim}_s"]) for aim in AIMS},
        }
    )


def _over(part: Any, whole: Any) -> Any:
    """Returns part / whole; missing if the whole is 0 or missing."""
    if isinstance(whole, pd.Series):
        return part / whole.where(whole > 0)
    return part / (whole if not pd.isna(whole) and whole > 0 else pd.NA)


def figures_of(rows: pd.DataFrame, column: str) -> dict[Any, Any]:
    """Returns a figure of each row by the row's label: a number or, with several seeds, its interval."""
    found = {}
    for place, row in rows.iterrows():
        mean, half = row[column], row[f"{column}{HALF_WIDTH}"]
        found[place] = (
            float(mean)
            if pd.isna(half)
            else {"mean": float(mean), "low": float(mean - half), "high": float(mean + half)}
        )
    return found


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
