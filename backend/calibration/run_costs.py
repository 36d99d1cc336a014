"""Imports costs of a machine from a stored run of `paceline train`.

Rules of this file:

* Only runs that were not paced have the machine's own gradient times.
* The gradients of the first steps are left out, because caches are cold.
* Communication of a worker's program is that of a collective if the run has exactly one collective with these bytes.
  Its time is that from the last entry to an exit. Collectives in sub-programs overlap other work, so they are left
  out, and so are messages, whose ends the tables of a run do not join.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.gradient_costs import WARM_UP
from paceline.backend.calibration.imported_costs import gradient_part
from paceline.backend.calibration.machine_imports import Imported
from paceline.backend.calibration.probes import own_bytes
from paceline.backend.calibration.span_costs import uncovered
from paceline.records import Run
from paceline.records.store import read_run
from paceline.records.trace import Span
from paceline.scenarios.machine_file import BytesPart, CurvePart, OriginPart
from paceline.topologies.catalogue.machine_profile import Asked

OWN_WORK = frozenset({"compute", "load", "update"})
EXPECTED = "expected a run of `paceline train` with train.pace: none"


def stored_run(folder: Path) -> Run:
    """Reads a measured run that was not paced.

    Args:
        folder: the folder of the run, or the run.json in it.

    Raises:
        InputError: it is not such a run.
    """
    run = read_run(folder.parent if folder.name == "run.json" else folder)
    if run.kind != "measured":
        raise InputError(f"--run {folder}: found a {run.kind} run, {EXPECTED}")
    if run.scenario["train"]["pace"] != "none":
        raise InputError(f"--run {folder}: found a paced run, whose gradients have modelled times; {EXPECTED}")
    if run.summary["stop_reason"] == "failure":
        raise InputError(f"--run {folder}: found a run that failed, {EXPECTED}, which has ended")
    return run


def costs_of_run(run: Run, workers: int, asked: Sequence[Asked]) -> Imported:
    """Returns the costs that a run recorded.

    Args:
        run: a measured run that was not paced.
        workers: its number of workers.
        asked: the collectives of its method.

    Raises:
        InputError: it has too few steps.
    """
    name = run.path.name if run.path is not None else run.name
    origin = OriginPart(
        file=name,
        tool="paceline train",
        version=run.versions.get("paceline", ""),
        details=f"{run.algorithm}, {workers} ranks, {run.machine.get('processor', '')}",
    )
    spans: dict[int, list[Span]] = defaultdict(list)
    for row in run.tables.spans.to_dict("records"):
        spans[int(row["rank"])].append(_span(row))
    mine = [spans[rank] for rank in range(workers)]
    sequences = {
        (Rank(rank), 0): times[WARM_UP:] for rank, times in enumerate(_gradients(one) for one in mine) if times
    }
    if not any(sequences.values()):
        raise InputError(
            f"--run {name}: found no gradients after the first {WARM_UP} steps; {EXPECTED}, and more steps"
        )
    hosts = _hosts(run, workers)
    part = gradient_part(int(run.scenario["workload"]["batch_per_worker"]), max(hosts), sequences, origin)
    updates = [_length(span) for span in _of(mine, "update")]
    served = [_length(span) for span in _of([spans[rank] for rank in spans if rank >= workers], "update")]
    own = {
        "load": _mean([_length(span) for span in _of(mine, "load")]),
        "update": _mean(updates),
        "rest": _mean([seconds for one in mine for seconds in uncovered(one)]),
    }
    if served:
        own["serve"] = fmean(served)
    curves = tuple(_curves(asked, mine, len(hosts), origin))
    processor, cores = str(run.machine.get("processor", "")), int(run.machine.get("cores", 0))
    return Imported((part,), curves, own, (origin,), processor, cores)


def _of(ranks: Sequence[Sequence[Span]], activity: str) -> list[Span]:
    return [span for spans in ranks for span in spans if span.activity == activity]


def _span(row: Mapping[Any, Any]) -> Span:
    """Returns a row of the table as a span. Waits are receives here, and other communication is a send."""
    named: str = row["activity"]
    activity: Any = {"communication": "send", "wait": "receive"}.get(named, named)
    names = ("rank", "lane", "layer", "step", "start_s", "end_s", "bytes")
    return Span(**{name: row[name] for name in names}, activity=activity)


def _length(span: Span) -> float:
    return span.end_s - span.start_s


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _gradients(spans: Sequence[Span]) -> list[float]:
    """Returns the seconds of a rank's gradients in order; the layers of a layer-wise gradient are added."""
    found: dict[int, float] = defaultdict(float)
    for span in spans:
        if span.activity == "compute":
            found[span.step] += _length(span)
    return [found[step] for step in sorted(found)]


def _hosts(run: Run, workers: int) -> list[int]:
    """Returns the number of workers of each host; without a record of hosts, all ranks were on one."""
    seats = [seat["host"] for seat in run.machine.get("seats", ())][:workers]
    return list(Counter(seats).values()) or [workers]


def sent_by_each(one: Asked) -> int | None:
    """Returns the bytes that each member of a collective sends; None if members differ (see `sent_bytes`).

    >>> sent_by_each(Asked("AllReduce", 4, 1000, ())), sent_by_each(Asked("Broadcast", 4, 1000, ()))
    (1500, None)
    """
    match one.operation:
        case "AllReduce":
            return 2 * (one.members - 1) * one.nbytes // one.members
        case "AllGather":
            return (one.members - 1) * own_bytes(one.operation, one.members, one.nbytes)
        case _:
            return None


def _curves(
    asked: Sequence[Asked], workers: Sequence[Sequence[Span]], hosts: int, origin: OriginPart
) -> list[CurvePart]:
    """Returns the curves of the collectives that are the only ones with their bytes."""
    if hosts > 1:
        asked = [one for one in asked if one.members == len(workers)]
    sent = {one: sent_by_each(one) for one in asked}
    often, points = Counter(sent.values()), defaultdict[tuple[str, int, bool], list[BytesPart]](list)
    every = [(span.bytes, _length(span)) for spans in workers for span in _alone(spans)]
    for one, own in sorted(sent.items(), key=lambda pair: pair[0].nbytes):
        seconds = [length for nbytes, length in every if nbytes == own]
        if own and often[own] == 1 and seconds:
            point = BytesPart.model_construct(bytes=one.nbytes, time=fmean(seconds))
            points[one.operation, one.members, one.inside].append(point)
    return [
        CurvePart.model_construct(
            operation=operation, ranks=ranks, shared_memory=inside, hosts=hosts, points=tuple(found), origin=origin
        )
        for (operation, ranks, inside), found in points.items()
    ]


def _alone(spans: Sequence[Span]) -> list[Span]:
    """Returns the communication of a rank's program during which nothing else began or went on."""
    found, others = list[Span](), sorted((one.start_s, one.end_s) for one in spans if one.activity in OWN_WORK)
    starts = [start_s for start_s, _ in others]
    for span in spans:
        if span.activity != "send" or span.lane != "main":
            continue
        at = bisect_left(starts, span.end_s)
        if not any(end_s > span.start_s for _, end_s in others[max(0, at - 2) : at]):
            found.append(span)
    return found
