"""From the ranks' streams to one record.

Rules of this file:

* Ranks of one host have one clock. Where there are several hosts, times are brought to the first one's (`clocks`): what
  a record says of different ranks can be compared. What a program was told by `Now` stays as it was told.
* When a message was sent is a time on its sender's clock, and stands in the sender's own record too: by that it is told
  whose clock it is on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.algorithms.errors import PacelineError, RunFailed
from paceline.algorithms.job import Job
from paceline.algorithms.ledger import LayerUpdate, Update
from paceline.algorithms.method import Me
from paceline.algorithms.values import Rank
from paceline.backend.cells import landed
from paceline.backend.clocks import Alignment
from paceline.backend.recorder import Heard, Tail
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
    def first(folder: Path, team: Sequence[Me]) -> Failure | None:
        """The failure that came first and did not follow from another one's, if any rank has left word of one."""
        found = [value for me in team for kind, value in Tail(stream_of(folder, me.rank)).read() if kind == "error"]
        return min(found, key=lambda failure: (failure.follows, failure.time_s), default=None)

    def error(self) -> PacelineError:
        """The error for the launcher to raise: the rank's own if it is one of ours, else one with the traceback."""
        if issubclass(self.kind, PacelineError) and not self.follows:
            return self.kind(self.message)
        return RunFailed(
            f"rank {self.rank} ({self.role}) failed: {self.kind.__name__}: {self.message}\n{self.traceback}"
        )


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
    ends, late = [], 0.0
    adds = Counter[tuple[Path, str]]()
    for me in job.team:
        heard: list[Heard] = []
        clock = clocks.get(me.rank)
        for kind, value in Tail(stream_of(folder, me.rank)).read():
            if clock is not None:
                own, value = value, on_first(clock, value)
                if kind == "span" and own.activity == "send":
                    sent_s[own.start_s] = value.start_s
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
                    trace.weights = value
                case "end":
                    ends.append(value if clock is None else clock.aligned(value))
                case "adds":
                    of_node, counted = value
                    adds.update({(folder / of_node, cell): times for cell, times in counted.items()})
                case "warning" | "device":
                    trace.notes.setdefault(f"{kind}s", []).append(value)
                case "late":
                    late = max(late, value)  # and what is left is "error", which the launcher has read
        for _, source, lane in sorted(heard):
            trace.hear(me.rank, source, lane)
    if sent_s:
        trace.spans = [
            span if span.ready_s is None else span._replace(ready_s=sent_s.get(span.ready_s, span.ready_s))
            for span in trace.spans
        ]
    trace.spans.sort(key=lambda span: (span.start_s, span.rank))
    trace.updates.sort(key=lambda update: (update.time_s, update.rank))
    # a gradient that was given up may leave its device after the program has ended
    trace.wall_s = max([*ends, *(span.end_s for span in trace.spans)], default=0.0)
    if trace.weights is None and trace.snapshots:
        trace.weights = trace.snapshots[-1].vector
    if len(ends) == len(job.team):  # a rank that was killed has not said what it added
        trace.lost_updates = lost_updates(adds)
    trace.notes |= {"started_monotonic_s": start_s, "pace_late_s": late}
    return trace


def on_first(clock: Alignment, value: Any) -> Any:
    """An entry of another host's rank with its times on the first host's clock; whose it is not stays."""
    match value:
        case Span():
            return value._replace(start_s=clock.aligned(value.start_s), end_s=clock.aligned(value.end_s))
        case Update() | LayerUpdate() | Snapshot():
            return replace(value, time_s=clock.aligned(value.time_s))
        case _:
            return value


def lost_updates(adds: Mapping[tuple[Path, str], int]) -> LostUpdates | None:
    """What came of so many adds to these cells, each in its node's folder; None if there were none."""
    lost = sum(times - landed(folder, cell) for (folder, cell), times in adds.items())
    total = sum(adds.values())
    return LostUpdates(adds=total, lost_share=lost / total) if total else None
