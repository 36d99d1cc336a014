"""From a trace to tables: the one place where what was recorded gets its meaning.

Rules of this file:

* A collective is split in two rows: `wait`, from the rank's own entry to the entry of the last member, and
  `communication`, the rest. A receive likewise: `wait` until the message was sent, `communication` until it was there.
  Both are clipped to the span, so the rows of a span last exactly as long as the span.
* `bytes` are the bytes that the rank itself put in: those of a send, or of its own value in a collective. A receive
  has none, so that a sum over all ranks counts every message once.
* An update's `age_s` is the time from the start of its input's gradient, the first moment that any layer of it was
  computed, to its application: null where the spans do not say when that was, 0 where what was applied did not need
  the gradient and came before it had begun (an elastic exchange travels beside it).
* `OPTIONAL` tables are stored where they have rows; where there is no file they are empty.
* The tables of `ORDERS` are of measured runs alone: what a replay needs beside the scenario. Their rows stand in the
  order in which each rank heard and was told things, and have no times.
* Rows are in order of time, ties in order of rank: the same trace gives the same tables, whatever order it was
  written in.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any

import pandas as pd
import pyarrow as pa

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.update_log import LayerUpdate, Update
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
            ("age_s", pa.float64()),
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
    "layers": pa.schema(
        [
            ("time_s", pa.float64()),
            ("rank", pa.int64()),
            ("step", pa.int64()),
            ("layer", pa.string()),
            ("version_read", pa.int64()),
            ("version_applied", pa.int64()),
            ("staleness", pa.int64()),
            ("age_s", pa.float64()),
        ]
    ),
    "drift": pa.schema(
        [
            ("time_s", pa.float64()),
            ("rank", pa.int64()),
            ("step", pa.int64()),
            ("staleness", pa.int64()),
            ("drift", pa.float64()),
        ]
    ),
    "probes": pa.schema(
        [
            ("time_s", pa.float64()),
            ("version", pa.int64()),
            ("staleness", pa.float64()),
            ("loss_before", pa.float64()),
            ("loss_after", pa.float64()),
        ]
    ),
    "heard": pa.schema([("rank", pa.int64()), ("source", pa.int64()), ("lane", pa.string())]),
    "outcomes": pa.schema([("rank", pa.int64()), ("lane", pa.string()), ("outcome", pa.string())]),
    "told": pa.schema([("rank", pa.int64()), ("now_s", pa.float64())]),
    "steps": pa.schema([("rank", pa.int64()), ("step", pa.int64())]),
}
"""columns and types of each table; a missing accuracy or age is NaN"""
ORDERS = ("heard", "outcomes", "told", "steps")
"""what a replay of a measured run follows: see `orders`"""
OPTIONAL = ("layers", "drift", "probes", *ORDERS)
"""tables that most runs have no rows for"""
NOBODY = -1
"""the source of a receive that timed out"""

ACTIVITIES: tuple[str, ...] = ("compute", "load", "update", "communication", "wait")
"""what a second of a rank can be spent on; rows of `spans` can also be of `FAULTS`"""
FAULTS: tuple[str, ...] = ("redo", "checkpoint", "crash", "recovery")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a run, with the columns of `SCHEMAS`.

    `updates` has one row per input of an update, `layers` one per input of a layer that was applied by itself; `rank`
    and `step` are those of who computed the input. `drift` and `probes` have rows where a simulation was asked for,
    those of `ORDERS` in measured runs.
    """

    spans: pd.DataFrame
    updates: pd.DataFrame
    evaluations: pd.DataFrame
    layers: pd.DataFrame = field(default_factory=lambda: frame("layers", ()))
    drift: pd.DataFrame = field(default_factory=lambda: frame("drift", ()))
    probes: pd.DataFrame = field(default_factory=lambda: frame("probes", ()))
    heard: pd.DataFrame = field(default_factory=lambda: frame("heard", ()))
    outcomes: pd.DataFrame = field(default_factory=lambda: frame("outcomes", ()))
    told: pd.DataFrame = field(default_factory=lambda: frame("told", ()))
    steps: pd.DataFrame = field(default_factory=lambda: frame("steps", ()))


Row = tuple[Any, ...]
"""the values of a row, in the order of its table's columns"""


def assemble(trace: Trace, *, num_samples: int, replayable: bool = False) -> Tables:
    """The tables of a trace; snapshots without a score have no row.

    Args:
        trace: what an interpreter wrote down.
        num_samples: samples in one epoch.
        replayable: whether to keep the order of things; a simulation is repeated by running it again.
    """
    begun_s = _beginnings(trace.spans)
    updates = _aged("updates", trace.updates, begun_s)
    layers = sorted(_aged("layers", trace.layers, begun_s), key=lambda row: (row[TIME], row[BY], row[STEP], row[NAME]))
    return Tables(
        spans=frame("spans", sorted(split(trace.spans), key=itemgetter(START, RANK, LANE, END))),
        updates=frame("updates", sorted(updates, key=itemgetter(TIME, VERSION, BY))),
        evaluations=frame("evaluations", list(_evaluations(trace.snapshots, num_samples))),
        layers=frame("layers", layers),
        drift=frame("drift", sorted(map(dataclasses.astuple, trace.drifts))),
        probes=frame("probes", list(map(dataclasses.astuple, trace.probes))),
        **({name: frame(name, rows) for name, rows in orders(trace).items()} if replayable else {}),
    )


def orders(trace: Trace) -> dict[str, list[Row]]:
    """The rows of `ORDERS`: whom each rank heard in which lane, what it was told of what it had started, by `Now`, and
    how many steps it took.

    An outcome is the places of the handles that were done, or whether a `Cancel` was in time, as JSON.

    >>> trace = Trace(now_s={Rank(0): [0.5]})
    >>> trace.hear(Rank(1), None, "main")
    >>> trace.tell(Rank(1), "main", (0, 2))
    >>> orders(trace)
    {'heard': [(1, -1, 'main')], 'outcomes': [(1, 'main', '[0, 2]')], 'told': [(0, 0.5)], 'steps': []}
    """
    heard = zip(trace.heard, trace.hearers, strict=True)
    return {
        "heard": [(rank, NOBODY if source is None else source, lane) for (rank, source), lane in heard],
        "outcomes": [
            (rank, lane, json.dumps(outcome)) for (rank, lane), mine in trace.outcomes.items() for outcome in mine
        ],
        "told": [(rank, now_s) for rank, times in trace.now_s.items() for now_s in times],
        "steps": [(rank, state.step) for rank, state in trace.states.items()],
    }


RANK, LANE, START, END = map(SCHEMAS["spans"].names.index, ("rank", "lane", "start_s", "end_s"))
TIME, BY, VERSION = map(SCHEMAS["updates"].names.index, ("time_s", "rank", "version_applied"))
STEP, NAME = map(SCHEMAS["layers"].names.index, ("step", "layer"))


def _beginnings(spans: Iterable[Span]) -> dict[tuple[Rank, int], float]:
    """When each gradient was begun, by the rank and step that computed it."""
    begun_s: dict[tuple[Rank, int], float] = {}
    for span in spans:
        if span.activity in ("compute", "redo"):
            who = span.rank, span.step
            begun_s[who] = min(span.start_s, begun_s.get(who, span.start_s))
    return begun_s


def _aged(table: str, entries: Iterable[Update | LayerUpdate], begun_s: Mapping[tuple[Rank, int], float]) -> list[Row]:
    """The rows of what the ledger wrote, each with its gradient's age at the end."""
    written = attrgetter(*SCHEMAS[table].names[:-1])
    rows = []
    for entry in entries:
        start_s = begun_s.get((entry.rank, entry.step))
        age_s = None if start_s is None else max(0.0, entry.time_s - start_s)
        rows.append((*written(entry), age_s))
    return rows


def frame(table: str, rows: Sequence[Row]) -> pd.DataFrame:
    """A table of `SCHEMAS` from its rows; empty ones have their columns too."""
    schema = SCHEMAS[table]
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema.names)
    arrays = [pa.array(column, type=kind.type) for column, kind in zip(columns, schema, strict=True)]
    made: pd.DataFrame = pa.Table.from_arrays(arrays, schema=schema).to_pandas()
    return made


def split(spans: Iterable[Span]) -> Iterator[Row]:
    """The rows of `spans`: each collective and receive as its wait and its communication.

    >>> early = Span(0, "main", "collective", None, 0, start_s=1.0, end_s=5.0, bytes=8, key="mean")
    >>> late = Span(1, "main", "collective", None, 0, start_s=4.0, end_s=5.0, bytes=8, key="mean")
    >>> for row in split([early, late]):
    ...     print(row)
    (0, 'main', 'wait', None, 0, 1.0, 4.0, 0)
    (0, 'main', 'communication', None, 0, 4.0, 5.0, 8)
    (1, 'main', 'communication', None, 0, 4.0, 5.0, 8)
    """
    spans = list(spans)
    last = _last_entries(spans)
    for number, span in enumerate(spans):
        rank, lane, activity, layer, step, start_s, end_s, size, ready_s, _ = span
        if activity == "collective":
            yield from _parts(span, ready_s=last[number], sent=size)
        elif activity == "receive":
            yield from _parts(span, ready_s=start_s if ready_s is None else ready_s, sent=0)
        else:
            yield (rank, lane, "communication" if activity == "send" else activity, layer, step, start_s, end_s, size)


def _last_entries(spans: Sequence[Span]) -> dict[int, float]:
    """For each collective span, by its position: when the last member entered.

    A key may be used again; a rank's n-th entry belongs to the others' n-th.
    """
    entries: dict[tuple[str | None, int], list[int]] = defaultdict(list)
    uses: Counter[tuple[str | None, int]] = Counter()
    collectives = (number for number, span in enumerate(spans) if span.activity == "collective")
    for number in sorted(collectives, key=lambda number: spans[number].start_s):
        span = spans[number]
        entries[span.key, uses[span.key, span.rank]].append(number)
        uses[span.key, span.rank] += 1
    lasts = ((members, max(spans[number].start_s for number in members)) for members in entries.values())
    return {number: last_s for members, last_s in lasts for number in members}


def _parts(span: Span, *, ready_s: float, sent: int) -> Iterator[Row]:
    turn_s = min(max(ready_s, span.start_s), span.end_s)
    if turn_s > span.start_s:
        yield (span.rank, span.lane, "wait", span.layer, span.step, span.start_s, turn_s, 0)
    yield (span.rank, span.lane, "communication", span.layer, span.step, turn_s, span.end_s, sent)


def _evaluations(snapshots: Iterable[Snapshot], num_samples: int) -> Iterator[Row]:
    for shot in sorted(snapshots, key=lambda shot: (shot.time_s, shot.samples)):
        if shot.score is not None:
            accuracy = float("nan") if shot.score.accuracy is None else shot.score.accuracy
            yield (shot.time_s, shot.samples, shot.samples / num_samples, shot.score.loss, accuracy)
