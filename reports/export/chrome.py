"""Traces of stored runs in Chrome's JSON format, which https://ui.perfetto.dev and chrome://tracing open.

* A process is a rank and a thread a lane. The first process holds the applications of gradients and the counters of
  the whole run.
* Times of a timeline are whole nanoseconds; those of the file are microseconds with three decimals, the format's unit.
* Slices of one track do not overlap: where two rows of a lane do, the later one is in a further track of that lane,
  since trace viewers require slices to be nested or apart.
* Every row of `updates` is an application of a gradient. Its source is the message that carried the gradient: the last
  communication with bytes that its rank began for this step, after the first part of the gradient was computed and no
  later than the application. Without such a message, as in local steps, the source is the gradient itself, and
  without its row in `spans`, which sampled records may lack, there is none.
* An arrow joins the slice with ``flow_out`` to all slices with ``flow_in`` and the same ``bind_id``, the row of the
  source in `spans`.
* Bytes are those that a rank has sent since the start of the run.

Source of the format: "Trace Event Format", the document that chrome://tracing links to
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import pandas as pd

from paceline.records import Run
from paceline.records.tables import NO_SOURCE, TRANSFERRED

NS_PER_S = 1e9
GRADIENT = ("compute", "redo")
WHOLE = 1
"""the process of the whole run; the format keeps 0 for the idle process"""
FIRST_RANK = 2
"""the process of rank 0"""
NS_PER_US = 1e3
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """One row of `spans`."""

    row: int
    """its number in the table"""
    name: str
    start_ns: int
    end_ns: int
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Application:
    """The application of one gradient: one row of `updates`."""

    name: str
    time_ns: int
    source: int | None
    """the row of `spans` from which the gradient came"""
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Counter:
    """A quantity over time; `rank` is None for one of the whole run."""

    name: str
    unit: str
    rank: int | None
    points: list[tuple[int, float]]
    """(time in nanoseconds, value), in the order of time"""


@dataclass(frozen=True, slots=True)
class Track:
    """A track of a rank."""

    rank: int
    name: str
    slices: list[Slice]


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """All tracks of a run."""

    title: str
    ranks: dict[int, str]
    """the name of each rank"""
    lanes: list[Track]
    applications: list[Application] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)


def timeline_of(run: Run) -> RunTimeline:
    """Returns the timeline of a run.

    Args:
        run: a run with its tables.
    """
    spans, updates = run.tables.spans, run.tables.updates
    return RunTimeline(
        title=f"{run.name}: {run.algorithm}, seed {run.seed}, {run.kind}",
        ranks=rank_names(spans),
        lanes=list(_lanes(run)),
        applications=list(_applications(spans, updates)),
        counters=[counter for counter in _counters(run) if counter.points],
    )


def nanoseconds(time_s: float) -> int:
    """Converts seconds to whole nanoseconds.

    >>> nanoseconds(0.25)
    250000000
    """
    return round(time_s * NS_PER_S)


def rank_names(spans: pd.DataFrame) -> dict[int, str]:
    """Returns a name for each rank with rows: a rank with gradients is a worker, one with updates only a server."""
    working = set(spans.loc[spans["activity"].isin(GRADIENT), "rank"])
    updating = set(spans.loc[spans["activity"] == "update", "rank"])
    roles = {
        rank: "worker" if rank in working else "server" if rank in updating else "" for rank in spans["rank"].unique()
    }
    return {int(rank): f"rank {rank} ({role})" if role else f"rank {rank}" for rank, role in sorted(roles.items())}


def _lanes(run: Run) -> Iterator[Track]:
    """Yields the tracks of all ranks: by rank, then lane, the main lane first."""
    tracks: dict[tuple[int, str], list[list[Slice]]] = defaultdict(list)
    for rank, lane, piece in _slices(run):
        free = tracks[rank, lane]
        for track in free:
            if track[-1].end_ns <= piece.start_ns:
                track.append(piece)
                break
        else:
            free.append([piece])
    for rank, lane in sorted(tracks, key=lambda key: (key[0], key[1] != "main", key[1])):
        for number, slices in enumerate(tracks[rank, lane], start=1):
            yield Track(rank, lane if number == 1 else f"{lane} ({number})", slices)


def _slices(run: Run) -> Iterator[tuple[int, str, Slice]]:
    """Yields rank, lane and slice of every row of `spans`, in the order of time."""
    waits_for = iter(run.tables.transfers["waits_for"].tolist())
    known = len(run.tables.transfers) > 0
    for row, (rank, lane, activity, layer, step, start_s, end_s, size) in enumerate(_rows(run.tables.spans)):
        details: dict[str, Any] = {"step": step}
        named = isinstance(layer, str)  # a missing layer is None or NaN
        details |= {"layer": layer} if named else {}
        details |= {"bytes": size} if size else {}
        if known and activity in TRANSFERRED and (rank_waited := next(waits_for)) != NO_SOURCE:
            details["waits_for"] = f"rank {rank_waited}"
        name = f"{activity} {layer}" if named else activity
        yield rank, lane, Slice(row, name, nanoseconds(start_s), nanoseconds(end_s), details)


def _rows(table: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a table as numbers of Python."""
    return zip(*(table[column].tolist() for column in table.columns), strict=True)


def _applications(spans: pd.DataFrame, updates: pd.DataFrame) -> Iterator[Application]:
    names = list(updates.columns)
    for values, source in zip(_rows(updates), sources(spans, updates), strict=True):
        details = {name: value for name, value in zip(names, values, strict=True) if _present(value)}
        time_ns = nanoseconds(details.pop("time_s"))
        yield Application(f"rank {details['rank']}, step {details['step']}", time_ns, source, details)


def sources(spans: pd.DataFrame, updates: pd.DataFrame) -> list[int | None]:
    """Returns the row of `spans` from which each row of `updates` got its gradient; see the rules of this file.

    Args:
        spans: the table of this name.
        updates: the table of this name.
    """
    sent: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    computed: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for row, (rank, _, activity, _, step, start_s, end_s, size) in enumerate(_rows(spans)):
        if activity in GRADIENT:
            computed[rank, step].append((end_s, row))
        elif activity == "communication" and size:
            sent[rank, step].append((start_s, row))
    steps: list[int | None] = []
    for time_s, rank, step in _rows(updates[["time_s", "rank", "step"]]):
        gradient = [span for span in computed[rank, step] if span[0] <= time_s]
        first_s = min(gradient, default=(math.inf, 0))[0]
        messages = [message for message in sent[rank, step] if first_s <= message[0] <= time_s]
        steps.append(max(messages or gradient)[1] if messages or gradient else None)
    return steps


def _counters(run: Run) -> Iterator[Counter]:
    updates, evaluations = run.tables.updates, run.tables.evaluations
    for column, unit in (("loss", ""), ("accuracy", "fraction")):
        yield Counter(column, unit, None, _points(evaluations["time_s"], evaluations[column]))
    yield Counter("staleness", "updates", None, _points(updates["time_s"], updates["staleness"]))
    sent = run.tables.spans.loc[run.tables.spans["bytes"] > 0].sort_values("end_s", kind="stable")
    yield Counter("bytes sent", "bytes", None, _points(sent["end_s"], sent["bytes"].cumsum()))
    for rank in sorted({*updates["rank"].tolist(), *sent["rank"].tolist()}):
        of_rank, sends = updates[updates["rank"] == rank], sent[sent["rank"] == rank]
        yield Counter("staleness", "updates", rank, _points(of_rank["time_s"], of_rank["staleness"]))
        yield Counter("bytes sent", "bytes", rank, _points(sends["end_s"], sends["bytes"].cumsum()))


def _points(times_s: Sequence[float] | pd.Series, values: Sequence[float] | pd.Series) -> list[tuple[int, float]]:
    """Returns the points of a counter, without missing values."""
    return [(nanoseconds(time_s), value) for time_s, value in zip(times_s, values, strict=True) if _present(value)]


def _present(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def write_chrome(timeline: RunTimeline, file: IO[str]) -> None:
    """Writes a timeline as a JSON document with one event per line.

    Args:
        timeline: the timeline.
        file: the file, opened for writing text.
    """
    about = json.dumps({"title": timeline.title}, ensure_ascii=False)
    file.write('{"displayTimeUnit": "ms", "otherData": ' + about + ', "traceEvents": [\n')
    for number, event in enumerate(chrome_events(timeline)):
        file.write((",\n" if number else "") + json.dumps(event, ensure_ascii=False, allow_nan=False))
    file.write("\n]}\n")


def chrome_events(timeline: RunTimeline) -> Iterator[Event]:
    """Yields the events of a timeline.

    Args:
        timeline: the timeline.
    """
    yield from _named("process", WHOLE, 0, timeline.title)
    yield from _named("thread", WHOLE, 1, "weights: gradients as they are applied")
    for rank, name in timeline.ranks.items():
        yield from _named("process", FIRST_RANK + rank, 0, name)
    for update in timeline.applications:
        event = _event("X", WHOLE, 1, update.name, update.time_ns) | {"dur": 0, "args": update.details}
        yield event if update.source is None else event | {"bind_id": hex(update.source), "flow_in": True}
    with_arrow = {application.source for application in timeline.applications}
    lanes: dict[int, int] = {}
    for lane in timeline.lanes:
        lanes[lane.rank] = lanes.get(lane.rank, 0) + 1
        yield from _lane(lane, lanes[lane.rank], with_arrow)
    for counter in timeline.counters:
        process = WHOLE if counter.rank is None else FIRST_RANK + counter.rank
        name = f"{counter.name} ({counter.unit})" if counter.unit else counter.name
        for time_ns, value in counter.points:
            yield _event("C", process, 0, name, time_ns) | {"args": {counter.name: value}}


def _lane(lane: Track, thread: int, with_arrow: set[int | None]) -> Iterator[Event]:
    process = FIRST_RANK + lane.rank
    yield from _named("thread", process, thread, lane.name)
    for piece in lane.slices:
        event = _event("X", process, thread, piece.name, piece.start_ns)
        event |= {"dur": (piece.end_ns - piece.start_ns) / NS_PER_US, "args": piece.details}
        yield event | {"bind_id": hex(piece.row), "flow_out": True} if piece.row in with_arrow else event


def _event(phase: str, process: int, thread: int, name: str, time_ns: int) -> Event:
    return {"ph": phase, "pid": process, "tid": thread, "name": name, "ts": time_ns / NS_PER_US}


def _named(kind: str, process: int, thread: int, name: str) -> Iterator[Event]:
    """Yields the events that name a process or a thread, and that keep the order of their numbers."""
    about = {"ph": "M", "pid": process, "tid": thread}
    yield about | {"name": f"{kind}_name", "args": {"name": name}}
    yield about | {"name": f"{kind}_sort_index", "args": {"sort_index": thread or process}}
