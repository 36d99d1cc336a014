"""From the ranks' streams to one record.

Rules of this file:

* Ranks of one host have one clock. Where there are several hosts, times are brought to the first one's (`clocks`): what
  a record says of different ranks can be compared. What a program was told by `Now` stays as it was told.
* When a message was sent is a time on its sender's clock, and stands in the sender's own record too: by that it is told
  whose clock it is on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import PacelineError, RunFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.staleness_ledger import LayerUpdate, Update
from paceline.backend.status.recorder import Heard, Kind, Tail
from paceline.backend.supervision.clock_sync import Alignment
from paceline.backend.transports.cells import landed
from paceline.records.trace import LostUpdates, Snapshot, Span, Trace


def stream_of(folder: Path, rank: Rank) -> Path:
    """The file that a rank appends its record to."""
    return folder / f"rank{rank}.stream"


@dataclass(frozen=True, slots=True)
class Failure:
    """A rank's last words."""

    rank: Rank
    role: str
    kind: type[BaseException]
    message: str
    traceback: str
    time_s: float
    follows: bool
    """it failed because another one had"""

    @staticmethod
    def first(folder: Path, team: Sequence[RankContext]) -> Failure | None:
        """The failure that came first and did not follow from another one's, if any rank has left word of one."""
        found = [value for me in team for kind, value in Tail(stream_of(folder, me.rank)).read() if kind == "error"]
        return min(found, key=lambda failure: (failure.follows, failure.time_s), default=None)

    def error(self) -> PacelineError:
        """The error for the launcher to raise: the rank's own if it is one of ours, else one that has the traceback as
        its note.
        """
        if issubclass(self.kind, PacelineError) and not self.follows:
            error = self.kind(self.message)
        else:
            error = RunFailed(f"rank {self.rank} ({self.role}) failed: {self.kind.__name__}: {self.message}")
            error.add_note(self.traceback)
        error.rank = self.rank
        return error


def gather(job: Job, folder: Path, *, start_s: float, clocks: Mapping[Rank, Alignment] | None = None) -> Trace:
    """Merges what the ranks wrote.

    Args:
        job: what they ran.
        folder: where their streams are.
        start_s: the common start on this host's monotonic clock, since which all times count.
        clocks: of the ranks on other hosts.
    """
    trace = Trace()
    clocks = clocks or {}
    sent_s: dict[float, float] = {}
    """of messages from other hosts: on the sender's clock, and on the first host's"""
    ends, late, weights = [], 0.0, []
    adds = Counter[tuple[Path, str]]()
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
                    trace.snapshots.append(value)
                case "heard":
                    heard.append(value)
                case "outcome":
                    trace.tell(me.rank, *value)
                case "now":
                    trace.now_s.setdefault(me.rank, []).append(value)
                case "state":
                    trace.states[me.rank] = value
                case "reads":
                    trace.reads[me.rank] = value
                case "weights":
                    weights.append(value)
                case "end":
                    ends.append(value)
                case "adds":
                    of_node, counted = value
                    adds.update({(folder / of_node, cell): times for cell, times in counted.items()})
                case "warning" | "device":
                    trace.notes.setdefault(f"{kind}s", []).append(value)
                case "late":
                    late = max(late, value)  # and what is left is "error", which the launcher has read
        for _, source, lane in sorted(heard):
            trace.hear(me.rank, source, lane)
    trace.spans = [
        span._replace(ready_s=sent_s[span.ready_s]) if span.ready_s in sent_s else span for span in trace.spans
    ]
    trace.spans.sort(key=lambda span: (span.start_s, span.rank))
    trace.updates.sort(key=lambda update: (update.time_s, update.rank))
    # a gradient that was given up may leave its device after the program has ended
    trace.wall_s = max([*ends, *(span.end_s for span in trace.spans)], default=0.0)
    trace.snapshots.sort(key=lambda shot: shot.time_s)  # of one keeper after the other, where the first has died
    last = [shot.vector for shot in trace.snapshots[-1:]]
    trace.weights = next(iter([*weights, *last]), None)  # those of the first who got to the end
    if len(ends) == len(job.team):  # a rank that was killed has not said what it added
        trace.lost_updates = lost_updates(adds)
    trace.notes |= {"started_monotonic_s": start_s, "pace_late_s": late}
    return trace


def _on_first(
    clock: Alignment | None, entries: Iterable[tuple[Kind, Any]], sent_s: dict[float, float]
) -> Iterator[tuple[Kind, Any]]:
    """The entries of a rank with their times on the first host's clock; None: they are.

    Notes in `sent_s` when messages were sent: on the rank's own clock, and on the first host's.
    """
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
    """What came of so many adds to these cells, each in its node's folder; None if there were none."""
    lost = sum(times - landed(folder, cell) for (folder, cell), times in adds.items())
    total = sum(adds.values())
    return LostUpdates(adds=total, lost_share=lost / total) if total else None
