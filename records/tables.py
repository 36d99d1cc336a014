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
from paceline.records.figures import ACTIVITIES
from paceline.records.links import link_rows
from paceline.records.trace import Snapshot, Span, Trace
from paceline.records.waits import collective_members, waits_of

INTEGER, NUMBER, TEXT = pa.int64(), pa.float64(), pa.string()
Column = tuple[str, pa.DataType, str]
"""name, type and meaning of a column"""
RANK_COLUMN: Column = ("rank", INTEGER, "number of the rank")
TIME_COLUMN: Column = ("time_s", NUMBER, "seconds since the start of the run")
COMPUTED_AT: tuple[Column, ...] = (
    ("rank", INTEGER, "number of the rank that computed the gradient"),
    ("step", INTEGER, "its step"),
)
STALENESS_COLUMN: Column = (
    "staleness", INTEGER, "of the method's own kind: number of updates or steps, see the summary"
)  # fmt: skip
VERSIONS: tuple[Column, ...] = (
    ("version_read", INTEGER, "number of updates in the weights that the gradient was computed with"),
    ("version_applied", INTEGER, "number of updates in the weights that it was applied to"),
    STALENESS_COLUMN,
)
AGE_COLUMN: Column = ("age_s", NUMBER, "seconds from the start of the gradient to its application")


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table of a run: what its rows are, and its columns."""

    rows: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are stored."""
        return pa.schema([(name, kind) for name, kind, _ in self.columns])


FORMS: Mapping[str, TableForm] = {
    "spans": TableForm(
        "one row for each activity of a rank",
        (
            RANK_COLUMN,
            ("lane", TEXT, "main is the program of the rank; other lanes are activities that it started"),
            ("activity", TEXT, "compute, load, update, communication, wait, copy, read, or of a fault"),
            ("layer", TEXT, "name of the layer, if the activity is of one layer"),
            ("step", INTEGER, "step of the rank"),
            ("start_s", NUMBER, TIME_COLUMN[2]),
            ("end_s", NUMBER, TIME_COLUMN[2]),
            ("bytes", INTEGER, "bytes that the rank sent"),
        ),
    ),
    "updates": TableForm(
        "one row for each input of an update of the weights",
        (TIME_COLUMN, *COMPUTED_AT, *VERSIONS, ("samples", INTEGER, "number of samples of the gradient"), AGE_COLUMN),
    ),
    "evaluations": TableForm(
        "one row for each evaluation of the weights on held-out samples",
        (
            TIME_COLUMN,
            ("samples", INTEGER, "number of samples learned until then"),
            ("epoch", NUMBER, "the same in passes over the training set"),
            ("loss", NUMBER, "mean loss, without unit"),
            ("accuracy", NUMBER, "fraction of samples, 0 to 1"),
        ),
    ),
    "layers": TableForm(
        "one row for each input of the update of a single layer",
        (TIME_COLUMN, *COMPUTED_AT, ("layer", TEXT, "name of the layer"), *VERSIONS, AGE_COLUMN),
    ),
    "drift": TableForm(
        "distances of workers from their mean",
        (
            TIME_COLUMN,
            ("rank", INTEGER, "number of the worker"),
            ("step", INTEGER, "step of the worker"),
            STALENESS_COLUMN,
            ("drift", NUMBER, "Euclidean distance of its weights from the mean of all workers"),
        ),
    ),
    "probes": TableForm(
        "the loss just before and just after an update",
        (
            TIME_COLUMN,
            ("version", INTEGER, "number of updates before this one"),
            ("staleness", NUMBER, "mean over the inputs of the update"),
            ("loss_before", NUMBER, "mean loss, without unit"),
            ("loss_after", NUMBER, "mean loss, without unit"),
        ),
    ),
    "heard": TableForm(
        "one row for each receive of a rank, in order",
        (
            ("rank", INTEGER, "number of the receiving rank"),
            ("source", INTEGER, "number of the sender; -1: the receive timed out"),
            ("lane", TEXT, "lane of the receiving program"),
        ),
    ),
    "outcomes": TableForm(
        "answers that depended on an order, in order",
        (RANK_COLUMN, ("lane", TEXT, "its lane"), ("outcome", TEXT, "the answer, as JSON")),
    ),
    "told": TableForm("the times that programs asked for, in order", (RANK_COLUMN, ("now_s", NUMBER, TIME_COLUMN[2]))),
    "steps": TableForm("the number of steps of each rank", (RANK_COLUMN, ("step", INTEGER, "number of its steps"))),
    "transfers": TableForm(
        "one row for each row of spans that is a wait or communication, in the same order",
        (
            ("activity", TEXT, "collective, receive or send"),
            ("waits_for", INTEGER, "number of the rank that is waited for; -1: none, or unknown"),
        ),
    ),
    "ranks": TableForm(
        "exact figures of each rank of a run whose records are sampled",
        (
            RANK_COLUMN,
            ("gradients", INTEGER, "number of gradients"),
            ("step_s", NUMBER, "mean seconds of its steps"),
            ("updates", INTEGER, "number of updates that got its gradients"),
            ("staleness_sum", INTEGER, "sum of their staleness"),
            ("staleness_max", INTEGER, "largest staleness; -1: none"),
            ("gap_sum", INTEGER, "sum of the steps by which the rank was ahead of the slowest"),
            ("gap_max", INTEGER, "largest of them; -1: none"),
            *((f"{activity}_s", NUMBER, "seconds") for activity in ACTIVITIES),
        ),
    ),
    "links": TableForm(
        "the busiest links of the cluster, at most 1,000, the busiest first",
        (
            ("from", TEXT, "vertex of the graph, or rank, at which the link begins"),
            ("to", TEXT, "vertex or rank at which it ends"),
            ("kind", TEXT, "name of its kind, such as eth-10g"),
            ("medium", TEXT, "memory, nvlink, pcie or network"),
            ("bytes", INTEGER, "bytes that it carried"),
            ("bandwidth", NUMBER, "bytes per second without faults"),
            ("utilisation", NUMBER, "bytes / (bandwidth x length of the run), 0 to 1"),
        ),
    ),
}
"""all tables, as they are stored, exported and documented; a missing accuracy or age is NaN"""
SCHEMAS: Mapping[str, pa.Schema] = {name: form.schema for name, form in FORMS.items()}
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
