"""Gathers the records that ranks have written into one trace.

Rules of this file:

* The ranks of one host share a clock. With several hosts, times are converted to host 0's clock (`clock_sync`), so that
  times of different ranks can be compared. Answers of `Now` remain as the program received them.
* The time at which a message was sent is on its sender's clock. It is also in the sender's record, which shows to which
  clock it belongs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import PacelineError, RunFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank, join
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.backend.status.recorder import Heard, Kind, Tail
from paceline.backend.supervision.clock_sync import Alignment
from paceline.backend.transports.cells import landed
from paceline.records.learned import WholeSnapshots
from paceline.records.machine_speed import MachineSpeed
from paceline.records.recorder import Recorder
from paceline.records.trace import LostUpdates, Snapshot, Span, Trace


def stream_of(folder: Path, rank: Rank) -> Path:
    """Returns the file to which a rank appends its record."""
    return folder / f"rank{rank}.stream"


@dataclass(frozen=True, slots=True)
class Failure:
    """The error with which a rank has failed, as the rank has recorded it."""

    rank: Rank
    role: str
    kind: type[BaseException]
    message: str
    traceback: str
    time_s: float
    follows: bool
    """whether it is a consequence of another rank's failure"""

    @staticmethod
    def first(folder: Path, team: Sequence[RankContext]) -> Failure | None:
        """Returns the first recorded failure that is not a consequence of another; None if there is none."""
        return min(_failures(folder, team), key=lambda failure: (failure.follows, failure.time_s), default=None)

    @staticmethod
    def consequence(folder: Path, team: Sequence[RankContext]) -> Failure | None:
        """Returns the first failure of a rank that waited for one that had died; None if none waited."""
        waited = [failure for failure in _failures(folder, team) if failure.follows and ": waits " in failure.message]
        return min(waited, key=lambda failure: failure.time_s, default=None)

    def error(self) -> PacelineError:
        """Returns the error that the launcher raises: the rank's own `PacelineError`, or one with its traceback."""
        if issubclass(self.kind, PacelineError) and not self.follows:
            error = self.kind(self.message)
        else:
            error = RunFailed(f"rank {self.rank} ({self.role}) failed: {self.kind.__name__}: {self.message}")
            error.add_note(self.traceback)
        error.rank = self.rank
        return error


def _failures(folder: Path, team: Sequence[RankContext]) -> list[Failure]:
    return [value for me in team for kind, value in Tail(stream_of(folder, me.rank)).read() if kind == "error"]


STATES: tuple[Kind, Kind] = ("state", "reads")
"""what a rank has once; if it was resumed, the last holds"""


def gather(job: Job, folder: Path, *, start_s: float, clocks: Mapping[Rank, Alignment] | None = None) -> Trace:
    """Merges the ranks' streams.

    Args:
        job: the job that they ran.
        folder: contains their streams.
        start_s: the common start on this host's monotonic clock, the origin of all times.
        clocks: alignments of the clocks of ranks on other hosts.
    """
    recorder = Recorder()
    trace = recorder.trace
    clocks = clocks or {}
    sent_s: dict[float, float] = {}
    """when messages were sent from other hosts: converts the sender's clock to host 0's"""
    ends, late, weights = [], 0.0, list[Any]()
    shots: list[Snapshot | None] = []
    adds = Counter[tuple[Path, str]]()
    joined = WholeSnapshots(job)
    transports: list[Mapping[str, Iterable[str]]] = []
    of_rank = defaultdict[Kind, dict[Rank, list[Any]]](dict)
    for me in job.team:
        heard: list[Heard] = []
        clock = clocks.get(me.rank)
        for kind, value in _on_first(clock, Tail(stream_of(folder, me.rank)).read(), sent_s):
            match kind:
                case "span":
                    trace.spans.append(value)
                case "update":
                    trace.updates.append(value)
                case "layer":
                    trace.layers.append(value)
                case "snapshot":
                    shots.append(joined.add(me.rank, value))
                case "heard":
                    heard.append(value)
                case "outcome":
                    recorder.outcome(me.rank, *value)
                case "now":
                    recorder.looked(me.rank, value)
                case "state" | "reads" | "speed":
                    of_rank[kind].setdefault(me.rank, []).append(value)
                case "weights":
                    weights.append(value)
                case "end":
                    ends.append(value)
                case "adds":
                    of_node, counted = value
                    adds.update({(folder / of_node, cell): times for cell, times in counted.items()})
                case "transports":
                    transports.append(value)
                case "warning" | "device":
                    trace.notes.setdefault(f"{kind}s", []).append(value)
                case "late":
                    late = max(late, value)  # the remaining kind is "error", which the launcher reads
        for _, source, lane in sorted(heard):
            recorder.heard(me.rank, source, lane)
    trace.spans = [
        span._replace(ready_s=sent_s[span.ready_s]) if span.ready_s in sent_s else span for span in trace.spans
    ]
    trace.spans.sort(key=lambda span: (span.start_s, span.rank))
    trace.updates.sort(key=lambda update: (update.time_s, update.rank))
    # a cancelled gradient may finish on its device after the program has ended
    trace.wall_s = max([*ends, *(span.end_s for span in trace.spans)], default=0.0)
    # there are several owners if the first one has died
    trace.snapshots = sorted((shot for shot in shots if shot is not None), key=lambda shot: shot.time_s)
    last = [shot.vector for shot in trace.snapshots[-1:]]
    trace.weights = next(iter([*_whole(job, weights), *last]), None)  # of the first owner that has ended
    if len(ends) == len(job.team):  # a killed rank has not recorded its additions
        trace.lost_updates = lost_updates(adds)
    trace.notes |= {"started_monotonic_s": start_s, "pace_late_s": late}
    trace.states, trace.reads = ({rank: last for rank, (*_, last) in of_rank[kind].items()} for kind in STATES)
    trace.notes |= MachineSpeed.notes(of_rank["speed"])
    trace.notes["transports"] = {
        traffic: sorted({name for rank in transports for name in rank[traffic]})
        for traffic in ("collectives", "messages")
    }
    return trace


def _whole(job: Job, weights: Sequence[Any]) -> Sequence[Any]:
    """Returns the weights that owners had at their ends, joined if they are the shards of several servers."""
    if not (shards := job.team[0].shards):
        return weights
    return [join(weights)] if len(weights) == len(shards) else []


def _on_first(
    clock: Alignment | None, entries: Iterable[tuple[Kind, Any]], sent_s: dict[float, float]
) -> Iterator[tuple[Kind, Any]]:
    """Converts the times of a rank's entries to host 0's clock."""
    for kind, value in entries:
        match value:
            case Span() if clock is not None:
                own_s, first_s = value.start_s, clock.aligned(value.start_s)
                value = value._replace(start_s=first_s, end_s=clock.aligned(value.end_s))
                if value.activity == "send":
                    sent_s[own_s] = first_s
            case Update() | LayerUpdate() if clock is not None:
                value = value._replace(time_s=clock.aligned(value.time_s))
            case Snapshot() if clock is not None:
                value = replace(value, time_s=clock.aligned(value.time_s))
            case float() if clock is not None and kind == "end":
                value = clock.aligned(value)
        yield kind, value


def lost_updates(adds: Mapping[tuple[Path, str], int]) -> LostUpdates | None:
    """Returns how many additions to shared cells were lost; None if there were no additions."""
    lost = sum(times - landed(folder, cell) for (folder, cell), times in adds.items())
    total = sum(adds.values())
    return LostUpdates(adds=total, lost_share=lost / total) if total else None
