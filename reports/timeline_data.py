"""The data of a timeline: shares of time in bins for a whole run, and every span of some stretches of it.

A row is a rank, or a lane of a rank with several lanes (a lane is a stream of operations that runs beside the others).
The page draws single operations where they are known and few enough, and otherwise the bins.

* A report stays under 10 MB: curves and timelines are limited, and words say what was left out.
* Curves keep evenly spaced points, the first and the last included. Ranks are thinned in the same way.
* Timelines keep all spans of three stretches of time (start, middle, end), and shares of time in bins for the rest, so
  that nothing that is drawn as one operation is an average.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paceline.records import Run
from paceline.reports.palette import ACTIVITIES
from paceline.reports.words import kind_of

MOST_POINTS = 600
"""points of a curve; about half of the pixels of a chart; provenance: ours"""
MOST_RANKS = 128
"""rows of a timeline; more are thinner than 8 pixels; provenance: ours"""
MOST_SPANS = 100_000
"""spans of all timelines of a report; DERIVED: 21 bytes each in a typed array, 28 in base64, so 2.8 MB"""
MOST_SHARES = 600_000
"""shares of all timelines of a report; DERIVED: a byte each, 1.33 in base64, so 0.8 MB"""
LEAST_BINS, MOST_BINS = 60, 400


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineData:
    """The timeline of one run.

    Args:
        label: names the run.
        rows: the label of each row.
        activities: names of the activities in it, by number.
        layers: names of the layers in it, by number.
        wall_s: the length of the run.
        shares: percent of each bin (activities, rows, bins).
        spans: row, activity, start, length, step, bytes and layer of the spans in the stretches.
        stretches: begin and end of the stretches of which all spans are kept.
        words: what was left out; empty if nothing was.
    """

    label: str
    rows: Sequence[str]
    activities: Sequence[str]
    layers: Sequence[str]
    wall_s: float
    shares: NDArray[np.uint8]
    spans: pd.DataFrame
    stretches: Sequence[tuple[float, float]]
    words: str

    def document(self) -> dict[str, Any]:
        """Returns the data for the page; arrays are in base64."""
        return {
            "label": self.label,
            "rows": list(self.rows),
            "activities": list(self.activities),
            "layers": list(self.layers),
            "wall_s": self.wall_s,
            "bins": int(self.shares.shape[2]),
            "shares": _encoded(self.shares),
            "stretches": [list(stretch) for stretch in self.stretches],
            "words": self.words,
            "spans": {name: _encoded(self.spans[name].to_numpy()) for name in self.spans},
        }


def label_of(run: Run) -> str:
    """Returns the name of a run in a list of runs."""
    return f"{run.algorithm}, seed {run.seed}, {kind_of(run.summary)}"


def timeline_of(run: Run, runs: int = 1) -> TimelineData | None:
    """Returns the timeline of a run; None if its records have no spans.

    Args:
        run: the run.
        runs: number of timelines in the report, which share its limits.
    """
    spans = run.tables.spans
    spans = spans[spans["start_s"] < run.summary["wall_s"]]
    if not len(spans):
        return None
    ranks = np.unique(spans["rank"].to_numpy())
    kept = ranks[evenly(len(ranks), MOST_RANKS)]
    spans = spans[spans["rank"].isin(kept)].sort_values("start_s", kind="stable")
    pairs = spans[["rank", "lane"]].drop_duplicates().sort_values(["rank", "lane"], key=_main_first)
    rows = {(rank, lane): row for row, (rank, lane) in enumerate(pairs.itertuples(index=False, name=None))}
    activities = [name for name in ACTIVITIES if (spans["activity"] == name).any()]
    layers = [str(name) for name in spans["layer"].dropna().unique()]
    numbered = pd.DataFrame(
        {
            "row": [rows[key] for key in zip(spans["rank"], spans["lane"], strict=True)],
            "activity": spans["activity"].map({name: at for at, name in enumerate(activities)}).to_numpy(),
            "start": spans["start_s"].to_numpy(),
            "length": (spans["end_s"] - spans["start_s"]).to_numpy(),
            "step": spans["step"].to_numpy(),
            "bytes": spans["bytes"].to_numpy(),
            "layer": spans["layer"].map({name: at for at, name in enumerate(layers)}).fillna(-1).to_numpy(),
        }
    )
    wall_s = float(run.summary["wall_s"])
    parts = stretches(numbered["start"].to_numpy(), MOST_SPANS // runs, wall_s)
    inside = np.zeros(len(numbered), dtype=bool)
    for begin, end in parts:
        inside |= ((numbered["start"] < end) & (numbered["start"] + numbered["length"] >= begin)).to_numpy()
    bins = bins_for(len(rows), len(activities), runs)
    return TimelineData(
        label=label_of(run),
        rows=_labels(list(rows)),
        activities=activities,
        layers=layers,
        wall_s=wall_s,
        shares=_shares(numbered, len(activities), len(rows), bins, wall_s),
        spans=_small(numbered[inside]),
        stretches=parts,
        words=_words(run, len(kept), len(ranks), int(inside.sum()), len(numbered), bins),
    )


def _main_first(column: pd.Series[Any]) -> pd.Series[Any]:
    return column.map(lambda lane: (lane != "main", lane)) if column.name == "lane" else column


def _labels(rows: Sequence[tuple[int, str]]) -> list[str]:
    several = {rank for rank, lane in rows if lane != "main"}
    return [f"{rank}, lane {lane}" if lane != "main" and rank in several else f"{rank}" for rank, lane in rows]


def _words(run: Run, kept: int, ranks: int, inside: int, spans: int, bins: int) -> str:
    said = [thinned_words(kept, ranks, "ranks")]
    if inside < spans:
        said.append(
            f"Single operations are kept at the start, in the middle and at the end of the run ({inside:,} of "
            f"{spans:,}); elsewhere the timeline shows what each rank did most in each of {bins} intervals."
        )
    if (records := run.summary.get("records")) is not None:
        said.append(f"The run recorded the operations of {len(records['kept_ranks']):,} workers only.")
    return " ".join(part for part in said if part)


def _shares(spans: pd.DataFrame, activities: int, rows: int, bins: int, wall_s: float) -> NDArray[np.uint8]:
    """Returns the percentage of each bin that each row spends with each activity."""
    edges = np.linspace(0.0, wall_s, bins + 1)
    shares = np.zeros((activities, rows, bins))
    for key, part in spans.groupby(["row", "activity"], sort=False):
        row, activity = (int(str(number)) for number in key)
        start, end = part["start"].to_numpy(), (part["start"] + part["length"]).to_numpy()
        earlier = np.concatenate([[0.0], np.maximum.accumulate(end)[:-1]])
        start = np.maximum(start, earlier)  # overlaps count once
        ends = np.stack([start, np.maximum(end, start)], axis=1).ravel()
        busy = np.repeat(np.concatenate([[0.0], np.cumsum(ends[1::2] - ends[::2])]), 2)[1:-1]
        shares[activity, row] = np.diff(np.interp(edges, ends, busy)) / (wall_s / bins)
    return (100 * shares).round().clip(0, 100).astype(np.uint8)


def _small(spans: pd.DataFrame) -> pd.DataFrame:
    """Returns the spans with small types."""
    types = {"row": "uint16", "activity": "uint8", "start": "float64", "length": "float32", "step": "int32"}
    small = spans.astype(types | {"bytes": "float32", "layer": "int16"})
    dropped = [name for name, empty in (("bytes", 0), ("layer", -1)) if (small[name] == empty).all()]
    return small.drop(columns=dropped)


NAMES = {"u1": "Uint8", "u2": "Uint16", "i2": "Int16", "i4": "Int32", "f4": "Float32", "f8": "Float64"}
"""names of JavaScript's typed arrays by NumPy's"""


def _encoded(values: NDArray[Any]) -> dict[str, str]:
    """Returns an array for the page: its type in JavaScript, and its little-endian bytes in base64."""
    ordered = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
    name = NAMES[values.dtype.str[1:]]
    return {"type": name, "data": base64.b64encode(ordered.tobytes()).decode("ascii")}


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Returns up to `most` positions of `count`, evenly spaced, with the first and the last.

    >>> evenly(5, 10).tolist(), evenly(9, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 4, 8])
    """
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))


def thinned_words(kept: int, whole: int, what: str) -> str:
    """Returns a sentence about what is not shown; nothing if all is.

    >>> thinned_words(3, 9, "ranks"), thinned_words(9, 9, "ranks")
    ('Shown are 3 of 9 ranks, evenly spaced.', '')
    """
    return f"Shown are {kept:,} of {whole:,} {what}, evenly spaced." if kept < whole else ""


def bins_for(rows: int, kinds: int, runs: int) -> int:
    """Returns the number of bins of time in the timeline of a run.

    Args:
        rows: rows of the timeline.
        kinds: number of activities.
        runs: number of timelines in the report.

    >>> bins_for(4, 5, 1), bins_for(128, 5, 12)
    (400, 78)
    """
    return int(np.clip(MOST_SHARES // max(1, runs * rows * kinds), LEAST_BINS, MOST_BINS))


def stretches(starts_s: NDArray[Any], most: int, wall_s: float) -> list[tuple[float, float]]:
    """Returns the stretches of time of which all spans are kept: the whole run, or its start, middle and end.

    Args:
        starts_s: the starts of all spans, in order.
        most: the largest number of spans.
        wall_s: the length of the run.

    >>> stretches(np.arange(4.0), 9, 4.0), stretches(np.arange(90.0), 9, 90.0)
    ([(0.0, 4.0)], [(0.0, 3.0), (43.0, 46.0), (87.0, 90.0)])
    """
    count, third = len(starts_s), most // 3
    if count <= most or third < 1:
        return [(0.0, wall_s)]
    middle = (count - third) // 2
    return [
        (0.0, float(starts_s[third])),
        (float(starts_s[middle]), float(starts_s[middle + third])),
        (float(starts_s[count - third]), wall_s),
    ]
