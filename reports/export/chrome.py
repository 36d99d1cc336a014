"""Traces of stored runs in Chrome's JSON format, which https://ui.perfetto.dev and chrome://tracing open.

* A process is a rank and a thread a lane. The first process holds the applications of gradients and the counters of
  the whole run.
* Times are microseconds, the format's unit, with three decimals.
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
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pandas as pd

from paceline.records import Run
from paceline.records.tables import NO_SOURCE, TRANSFERRED

GRADIENT = ("compute", "redo")
WHOLE = 1
"""the process of the whole run; the format keeps 0 for the idle process"""
FIRST_RANK = 2
"""the process of rank 0"""
NS_PER_S, NS_PER_US = 1e9, 1e3
Event = dict[str, Any]


def write_chrome(run: Run, file: IO[str]) -> None:
    """Writes the timeline of a run as a JSON document with one event per line.

    Args:
        run: a run with its tables.
        file: the file, opened for writing text.
    """
    about = json.dumps({"title": _title(run)}, ensure_ascii=False)
    file.write('{"displayTimeUnit": "ms", "otherData": ' + about + ', "traceEvents": [\n')
    for number, event in enumerate(chrome_events(run)):
        file.write((",\n" if number else "") + json.dumps(event, ensure_ascii=False, allow_nan=False))
    file.write("\n]}\n")


def _title(run: Run) -> str:
    return f"{run.name}: {run.algorithm}, seed {run.seed}, {run.kind}"


def chrome_events(run: Run) -> Iterator[Event]:
    """Yields the events of a run: names of tracks, applications of gradients, slices of ranks, and counters.

    Args:
        run: a run with its tables.
    """
    spans, updates = run.tables.spans, run.tables.updates
    origins = sources(spans, updates)
    yield from _named("process", WHOLE, 0, _title(run))
    yield from _named("thread", WHOLE, 1, "weights: gradients as they are applied")
    for rank, name in rank_names(spans).items():
        yield from _named("process", FIRST_RANK + rank, 0, name)
    for row, source in zip(updates.to_dict("records"), origins, strict=True):
        details = {name: value for name, value in row.items() if _present(value)}
        at_ns = nanoseconds(details.pop("time_s"))
        event = _event("X", WHOLE, 1, f"rank {details['rank']}, step {details['step']}", at_ns)
        event |= {"dur": 0, "args": details}
        yield event if source is None else event | {"bind_id": hex(source), "flow_in": True}
    yield from _lanes(run, set(origins))
    yield from _counters(run)


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


def _lanes(run: Run, origins: set[int | None]) -> Iterator[Event]:
    """Yields the tracks of all ranks with their slices: by rank, then lane, the main lane first."""
    tracks: dict[tuple[int, str], list[list[tuple[int, Event]]]] = defaultdict(list)
    for rank, lane, start_ns, end_ns, event in _slices(run, origins):
        for track in tracks[rank, lane]:
            if track[-1][0] <= start_ns:
                track.append((end_ns, event))
                break
        else:
            tracks[rank, lane].append([(end_ns, event)])
    threads: Counter[int] = Counter()
    for rank, lane in sorted(tracks, key=lambda key: (key[0], key[1] != "main", key[1])):
        for number, track in enumerate(tracks[rank, lane], start=1):
            threads[rank] += 1
            name = lane if number == 1 else f"{lane} ({number})"
            yield from _named("thread", FIRST_RANK + rank, threads[rank], name)
            yield from (event | {"tid": threads[rank]} for _, event in track)


def _slices(run: Run, origins: set[int | None]) -> Iterator[tuple[int, str, int, int, Event]]:
    """Yields rank, lane, start, end and event of every row of `spans`, in the order of time."""
    waits_for = iter(run.tables.transfers["waits_for"].tolist())
    known = len(run.tables.transfers) > 0
    for row, (rank, lane, activity, layer, step, start_s, end_s, size) in enumerate(_rows(run.tables.spans)):
        details: dict[str, Any] = {"step": step}
        named = isinstance(layer, str)  # a missing layer is None or NaN
        details |= {"layer": layer} if named else {}
        details |= {"bytes": size} if size else {}
        if known and activity in TRANSFERRED and (rank_waited := next(waits_for)) != NO_SOURCE:
            details["waits_for"] = f"rank {rank_waited}"
        start_ns, end_ns = nanoseconds(start_s), nanoseconds(end_s)
        event = _event("X", FIRST_RANK + rank, 0, f"{activity} {layer}" if named else activity, start_ns)
        event |= {"dur": (end_ns - start_ns) / NS_PER_US, "args": details}
        event |= {"bind_id": hex(row), "flow_out": True} if row in origins else {}
        yield rank, lane, start_ns, end_ns, event


def _rows(table: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a table as numbers of Python."""
    return zip(*(table[column].tolist() for column in table.columns), strict=True)


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


def _counters(run: Run) -> Iterator[Event]:
    """Yields the counters of the whole run, and those of each rank."""
    updates, evaluations = run.tables.updates, run.tables.evaluations
    yield from _counter(WHOLE, "loss", "", evaluations["time_s"], evaluations["loss"])
    yield from _counter(WHOLE, "accuracy", "fraction", evaluations["time_s"], evaluations["accuracy"])
    sent = run.tables.spans.loc[run.tables.spans["bytes"] > 0].sort_values("end_s", kind="stable")
    ranks = sorted({*updates["rank"].tolist(), *sent["rank"].tolist()})
    for process, applied, sends in [
        (WHOLE, updates, sent),
        *((FIRST_RANK + rank, updates[updates["rank"] == rank], sent[sent["rank"] == rank]) for rank in ranks),
    ]:
        yield from _counter(process, "staleness", "updates", applied["time_s"], applied["staleness"])
        yield from _counter(process, "bytes sent", "bytes", sends["end_s"], sends["bytes"].cumsum())


def _counter(
    process: int, quantity: str, unit: str, times_s: Sequence[float] | pd.Series, values: Sequence[float] | pd.Series
) -> Iterator[Event]:
    """Yields the points of a counter, without missing values."""
    name = f"{quantity} ({unit})" if unit else quantity
    for time_s, value in zip(times_s, values, strict=True):
        if _present(value):
            yield _event("C", process, 0, name, nanoseconds(time_s)) | {"args": {quantity: value}}


def _present(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _event(phase: str, process: int, thread: int, name: str, time_ns: int) -> Event:
    return {"ph": phase, "pid": process, "tid": thread, "name": name, "ts": time_ns / NS_PER_US}


def _named(kind: str, process: int, thread: int, name: str) -> Iterator[Event]:
    """Yields the events that name a process or a thread, and that keep the order of their numbers."""
    about = {"ph": "M", "pid": process, "tid": thread}
    yield about | {"name": f"{kind}_name", "args": {"name": name}}
    yield about | {"name": f"{kind}_sort_index", "args": {"sort_index": thread or process}}
