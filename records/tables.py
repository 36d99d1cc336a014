"""From a trace to tables: the one place where what was recorded gets its meaning.

Rules of this file:

* A collective is split in two rows: `wait`, from the rank's own entry to the entry of the last member, and
  `communication`, the rest. A receive likewise: `wait` until the message was sent, `communication` until it was there.
  Both are clipped to the span, so the rows of a span last exactly as long as the span.
* `bytes` are the bytes that the rank itself put in: those of a send, or of its own value in a collective. A receive
  has none, so that a sum over all ranks counts every message once.
* Rows are in order of time, ties in order of rank: the same trace gives the same tables, whatever order it was
  written in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import pandas as pd
import pyarrow as pa

from paceline.records.trace import Snapshot, Span, Trace

SCHEMAS: dict[str, pa.Schema] = {
    "spans": pa.schema(
        [
            ("rank", pa.int64()),
            ("lane", pa.string()),
            ("activity", pa.string()),
            ("layer", pa.string()),
            ("step", pa.int64()),
            ("start_s", pa.float64()),
            ("end_s", pa.float64()),
            ("bytes", pa.int64()),
        ]
    ),
    "updates": pa.schema(
        [
            ("time_s", pa.float64()),
            ("rank", pa.int64()),
            ("step", pa.int64()),
            ("version_read", pa.int64()),
            ("version_applied", pa.int64()),
            ("staleness", pa.int64()),
            ("samples", pa.int64()),
        ]
    ),
    "evaluations": pa.schema(
        [
            ("time_s", pa.float64()),
            ("samples", pa.int64()),
            ("epoch", pa.float64()),
            ("loss", pa.float64()),
            ("accuracy", pa.float64()),
        ]
    ),
}
"""columns and types of each table; a missing accuracy is NaN"""

ACTIVITIES = ("compute", "load", "update", "communication", "wait")
"""what a row of `spans` can be"""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a run, with the columns of `SCHEMAS`.

    `updates` has one row per input of an update; `rank` and `step` are those of who computed the input.
    """

    spans: pd.DataFrame
    updates: pd.DataFrame
    evaluations: pd.DataFrame


def assemble(trace: Trace, *, population: int) -> Tables:
    """The tables of a trace; snapshots without a score have no row.

    Args:
        trace: what an interpreter wrote down.
        population: samples in one epoch.
    """
    return Tables(
        spans=frame(
            "spans",
            sorted(split(trace.spans), key=lambda row: (row["start_s"], row["rank"], row["lane"], row["end_s"])),
        ),
        updates=frame(
            "updates",
            sorted(map(asdict, trace.updates), key=lambda row: (row["time_s"], row["version_applied"], row["rank"])),
        ),
        evaluations=frame("evaluations", _evaluations(trace.snapshots, population)),
    )


def frame(table: str, rows: Iterable[dict[str, object]]) -> pd.DataFrame:
    """A table of `SCHEMAS` from its rows; empty ones have their columns too."""
    made: pd.DataFrame = pa.Table.from_pylist(list(rows), schema=SCHEMAS[table]).to_pandas()
    return made


def split(spans: Iterable[Span]) -> Iterator[dict[str, object]]:
    """The rows of `spans`: each collective and receive as its wait and its communication.

    >>> early = Span(0, "main", "collective", None, 0, start_s=1.0, end_s=5.0, bytes=8, key="mean")
    >>> late = Span(1, "main", "collective", None, 0, start_s=4.0, end_s=5.0, bytes=8, key="mean")
    >>> [(row["rank"], row["activity"], row["start_s"], row["end_s"]) for row in split([early, late])]
    [(0, 'wait', 1.0, 4.0), (0, 'communication', 4.0, 5.0), (1, 'communication', 4.0, 5.0)]
    """
    spans = list(spans)
    last = _last_entries(spans)
    for number, span in enumerate(spans):
        if span.activity == "collective":
            yield from _parts(span, ready_s=last[number], sent=span.bytes)
        elif span.activity == "receive":
            yield from _parts(span, ready_s=span.start_s if span.ready_s is None else span.ready_s, sent=0)
        else:
            activity = "communication" if span.activity == "send" else span.activity
            yield _row(span, activity, start_s=span.start_s, end_s=span.end_s, sent=span.bytes)


def _last_entries(spans: list[Span]) -> dict[int, float]:
    """For each collective span, by its position: when the last member entered.

    A key may be used again; a rank's n-th entry belongs to the others' n-th.
    """
    entries: dict[tuple[str | None, int], list[int]] = defaultdict(list)
    uses: dict[tuple[str | None, int], int] = defaultdict(int)
    for number in sorted(
        (n for n, span in enumerate(spans) if span.activity == "collective"), key=lambda n: spans[n].start_s
    ):
        span = spans[number]
        entries[span.key, uses[span.key, span.rank]].append(number)
        uses[span.key, span.rank] += 1
    return {number: max(spans[n].start_s for n in members) for members in entries.values() for number in members}


def _parts(span: Span, *, ready_s: float, sent: int) -> Iterator[dict[str, object]]:
    turn_s = min(max(ready_s, span.start_s), span.end_s)
    if turn_s > span.start_s:
        yield _row(span, "wait", start_s=span.start_s, end_s=turn_s, sent=0)
    yield _row(span, "communication", start_s=turn_s, end_s=span.end_s, sent=sent)


def _row(span: Span, activity: str, *, start_s: float, end_s: float, sent: int) -> dict[str, object]:
    return {
        "rank": span.rank,
        "lane": span.lane,
        "activity": activity,
        "layer": span.layer,
        "step": span.step,
        "start_s": start_s,
        "end_s": end_s,
        "bytes": sent,
    }


def _evaluations(snapshots: Iterable[Snapshot], population: int) -> Iterator[dict[str, object]]:
    for shot in sorted(snapshots, key=lambda shot: (shot.time_s, shot.samples)):
        if shot.score is not None:
            yield {
                "time_s": shot.time_s,
                "samples": shot.samples,
                "epoch": shot.samples / population,
                "loss": shot.score.loss,
                "accuracy": float("nan") if shot.score.accuracy is None else shot.score.accuracy,
            }
