"""Converts a trace to tables; the only module that interprets recorded spans.

* A collective is split into two rows: `wait`, from the rank's own entry to the entry of the last member, and
  `communication`, the rest. A receive is split into `wait` until the message was sent and `communication` until it
  arrived. Both rows are clipped to the span, so their total length is that of the span.
* `bytes` are the bytes that the rank itself sent: those of a send, or of its own value in a collective. A receive has
  none, so that a sum over all ranks counts every message once. A copy between a host and a device has none either.
* The `age_s` of an update is the time from the start of its input's gradient (of its first layer) to the update. It is
  null if the spans do not contain this start, and 0 if the input did not need the gradient and was applied before the
  gradient began (an elastic exchange is sent concurrently).
* `OPTIONAL` tables are stored only if they have rows; a table without a file is empty.
* The tables of `ORDERS` exist for measured runs only. They hold what a replay needs besides the scenario. Their rows
  are in the order in which each rank received messages and answers, and have no times.
* `transfers` exists for measured runs only, too. It has a row for each row of `spans` that is a wait or communication,
  in the same order: the activity (collective, receive or send), and the rank that is waited for.
* `ranks` exists if spans and updates are not all kept, see `records.keeping`. It has the exact figures of each rank:
  the mean time of its steps, staleness of its inputs of updates, clock gaps, and the length of its
  spans by activity, in which lanes that are busy at once all count. A maximum without values is −1.
* `links` exists for simulated runs on a cluster's graph, see `records.links`. Its rows are sorted by utilisation.
* Rows of other tables are sorted by time, ties by rank. So the tables do not depend on the order in which a trace was
  written.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any

import pandas as pd
import pyarrow as pa

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.records.links import link_rows
from paceline.records.trace import Snapshot, Span, Trace
from paceline.records.waits import collective_members, waits_of

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
    "transfers": pa.schema([("activity", pa.string()), ("waits_for", pa.int64())]),
    "ranks": pa.schema(
        [
            ("rank", pa.int64()),
            ("gradients", pa.int64()),
            ("step_s", pa.float64()),
            ("updates", pa.int64()),
            ("staleness_sum", pa.int64()),
            ("staleness_max", pa.int64()),
            ("gap_sum", pa.int64()),
            ("gap_max", pa.int64()),
            *((f"{activity}_s", pa.float64()) for activity in ("compute", "load", "update", "communication", "wait")),
        ]
    ),
    "links": pa.schema(
        [
            ("from", pa.string()),
            ("to", pa.string()),
            ("kind", pa.string()),
            ("medium", pa.string()),
            ("bytes", pa.int64()),
            ("bandwidth", pa.float64()),
            ("utilisation", pa.float64()),
        ]
    ),
}
"""columns and types of each table; a missing accuracy or age is NaN"""
ORDERS = ("heard", "outcomes", "told", "steps")
"""tables that a replay of a measured run follows; see `orders`"""
OPTIONAL = ("layers", "drift", "probes", *ORDERS, "transfers", "ranks", "links")
"""tables that are empty in most runs"""
NO_SOURCE = -1
"""the source of a receive that timed out; in `transfers`: no rank, or an unknown one"""
TRANSFERRED = ("wait", "communication")
"""the activities of the rows of `spans` that have a row in `transfers`"""

FAULTS: tuple[str, ...] = ("redo", "checkpoint", "crash", "recovery")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a run, with the columns of `SCHEMAS`.

    `updates` has one row per input of an update, `layers` one per input of the update of a single layer; `rank` and
    `step` are those at which the input was computed. `drift` and `probes` have rows in simulations that measure them,
    the tables of `ORDERS` and `transfers` in measured runs.
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
    transfers: pd.DataFrame = field(default_factory=lambda: frame("transfers", ()))
    ranks: pd.DataFrame = field(default_factory=lambda: frame("ranks", ()))
    links: pd.DataFrame = field(default_factory=lambda: frame("links", ()))


Row = tuple[Any, ...]
"""the values of a row, in the order of its table's columns"""


def assemble(trace: Trace, *, num_samples: int, measured: bool = False) -> Tables:
    """Returns the tables of a trace; snapshots that were not evaluated have no row.

    Args:
        trace: the record of an interpreter.
        num_samples: samples in one epoch.
        measured: whether to include the tables of measured runs: those of `ORDERS`, which a simulation does not need
            for a repetition, and `transfers`, since a simulation can be repeated to divide its waits.
    """
    numbered = sorted(_numbered(trace.spans), key=_place)
    begun_s = _beginnings(trace.spans)
    updates = _aged("updates", trace.updates, trace.update_ages_s, begun_s)
    layers = sorted(
        _aged("layers", trace.layers, trace.layer_ages_s, begun_s),
        key=lambda row: (row[TIME], row[BY], row[STEP], row[NAME]),
    )
    links = () if trace.links is None else link_rows(trace.links, trace.wall_s)
    return Tables(
        spans=frame("spans", [row for row, _ in numbered]),
        updates=frame("updates", sorted(updates, key=itemgetter(TIME, VERSION, BY))),
        evaluations=frame("evaluations", list(_evaluations(trace.snapshots, num_samples))),
        layers=frame("layers", sorted(layers, key=itemgetter(TIME, BY, STEP, NAME))),
        drift=frame("drift", sorted(map(dataclasses.astuple, trace.drifts))),
        probes=frame("probes", list(map(dataclasses.astuple, trace.probes))),
        links=frame("links", links),
        **({name: frame(name, rows) for name, rows in orders(trace).items()} if measured else {}),
        **({"transfers": frame("transfers", list(_transfers(trace, numbered)))} if measured else {}),
    )


def _transfers(trace: Trace, numbered: Iterable[tuple[Row, int]]) -> Iterator[Row]:
    """Yields the rows of `transfers`, from the rows of `spans` with the indices of their spans."""
    waits = waits_of(trace)
    for row, number in numbered:
        if row[ACTIVITY] in TRANSFERRED:
            rank = waits[number].rank if row[ACTIVITY] == "wait" else None
            yield trace.spans[number].activity, NO_SOURCE if rank is None else rank


def orders(trace: Trace) -> dict[str, list[Row]]:
    """Returns the rows of `ORDERS`.

    These are the source of each receive of a rank's lane, the outcomes of `WaitFor` and `Cancel`, the answers of `Now`,
    and the number of steps of each rank. An outcome is the indices of the handles that were done, or whether a `Cancel`
    was in time, as JSON.

    >>> from paceline.records.recorder import Recorder
    >>> trace = Trace(now_s={Rank(0): [0.5]})
    >>> recorder = Recorder(trace)
    >>> recorder.heard(Rank(1), None, "main")
    >>> recorder.outcome(Rank(1), "main", (0, 2))
    >>> orders(trace)
    {'heard': [(1, -1, 'main')], 'outcomes': [(1, 'main', '[0, 2]')], 'told': [(0, 0.5)], 'steps': []}
    """
    heard = zip(trace.heard, trace.hearers, strict=True)
    return {
        "heard": [(rank, NO_SOURCE if source is None else source, lane) for (rank, source), lane in heard],
        "outcomes": [
            (rank, lane, json.dumps(outcome))
            for (rank, lane), outcomes in trace.outcomes.items()
            for outcome in outcomes
        ],
        "told": [(rank, now_s) for rank, times in trace.now_s.items() for now_s in times],
        "steps": [(rank, state.step) for rank, state in trace.states.items()],
    }


RANK, LANE, ACTIVITY, START, END = map(SCHEMAS["spans"].names.index, ("rank", "lane", "activity", "start_s", "end_s"))
TIME, BY, VERSION = map(SCHEMAS["updates"].names.index, ("time_s", "rank", "version_applied"))
STEP, NAME = map(SCHEMAS["layers"].names.index, ("step", "layer"))


def _beginnings(spans: Iterable[Span]) -> dict[tuple[Rank, int], float]:
    """Returns when each gradient began, by rank and step."""
    begun_s: dict[tuple[Rank, int], float] = {}
    for span in spans:
        if span.activity in ("compute", "redo"):
            key = span.rank, span.step
            begun_s[key] = min(span.start_s, begun_s.get(key, span.start_s))
    return begun_s


def _aged(
    table: str,
    entries: Sequence[Update | LayerUpdate],
    ages_s: Sequence[float | None] | None,
    begun_s: Mapping[tuple[Rank, int], float],
) -> list[Row]:
    """Returns the rows of the update log, each followed by the age of its gradient."""
    written = attrgetter(*SCHEMAS[table].names[:-1])
    rows = []
    for entry, age_s in zip(entries, repeat(None) if ages_s is None else ages_s, strict=False):
        if age_s is None and (start_s := begun_s.get((entry.rank, entry.step))) is not None:
            age_s = max(0.0, entry.time_s - start_s)
        rows.append((*written(entry), age_s))
    return rows


def frame(table: str, rows: Sequence[Row]) -> pd.DataFrame:
    """Returns a table of `SCHEMAS` with the given rows; an empty table has its columns, too.

    Args:
        table: its name.
        rows: its rows.
    """
    schema = SCHEMAS[table]
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema.names)
    arrays = [pa.array(column, type=kind.type) for column, kind in zip(columns, schema, strict=True)]
    made: pd.DataFrame = pa.Table.from_arrays(arrays, schema=schema).to_pandas()
    return made


def split(spans: Iterable[Span]) -> Iterator[Row]:
    """Yields the rows of `spans`, with each collective and receive split into its wait and its communication.

    >>> early = Span(0, "main", "collective", None, 0, start_s=1.0, end_s=5.0, bytes=8, key="mean")
    >>> late = Span(1, "main", "collective", None, 0, start_s=4.0, end_s=5.0, bytes=8, key="mean")
    >>> for row in split([early, late]):
    ...     print(row)
    (0, 'main', 'wait', None, 0, 1.0, 4.0, 0)
    (0, 'main', 'communication', None, 0, 4.0, 5.0, 8)
    (1, 'main', 'communication', None, 0, 4.0, 5.0, 8)
    """
    return (row for row, _ in _numbered(list(spans)))


def _numbered(spans: Sequence[Span]) -> Iterator[tuple[Row, int]]:
    """Yields the rows of `spans`, each with the index of its span."""
    last = _last_entries(spans)
    for number, span in enumerate(spans):
        for row in _split(span, last.get(number, span.ready_s)):
            yield row, number


def _split(span: Span, ready_s: float | None) -> Iterator[Row]:
    """Yields the rows of a span; `ready_s` is when the last member of a collective entered, or a message was sent."""
    rank, lane, activity, layer, step, start_s, end_s, size, _, _ = span
    if activity in ("collective", "receive"):
        sent = size if activity == "collective" else 0
        yield from _parts(span, ready_s=start_s if ready_s is None else ready_s, sent=sent)
    elif activity == "copy":
        yield (rank, lane, activity, layer, step, start_s, end_s, 0)
    else:
        yield (rank, lane, "communication" if activity == "send" else activity, layer, step, start_s, end_s, size)


def _place(numbered: tuple[Row, int]) -> tuple[Any, ...]:
    """Returns the key by which rows of `spans` are sorted."""
    row, _ = numbered
    return row[START], row[RANK], row[LANE], row[END]


def _last_entries(spans: Sequence[Span]) -> dict[int, float]:
    """Returns the entry of the last member for each collective span, by the index of the span."""
    lasts = ((members, max(spans[number].start_s for number in members)) for members in collective_members(spans))
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
