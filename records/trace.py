"""What an interpreter writes down while it runs: the raw record, the same for every kind of run.

Rules of this file:

* Times are seconds on the run's own clock (virtual or real), from the run's start.
* An interpreter records facts (who entered a collective when, when a message was sent and when it was received). What
  they mean (waiting, exposed communication, shares) is worked out afterwards, once, in `records.tables`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

from paceline.algorithms.core.job import Evaluation, Reason
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.handles import Outcome
from paceline.algorithms.runtime.update_log import LayerUpdate, Update

Activity = Literal[
    "compute", "load", "read", "update", "collective", "receive", "send", "redo", "checkpoint", "crash", "recovery"
]

READER = "reader"
"""the lane of what is read ahead, beside a rank's program"""


class Span(NamedTuple):
    """One activity of one lane of one rank. A tuple, as there are many: these are made, and read, most quickly.

    A "collective" goes from the rank's own entry to its own exit; `key` names the collective (key and group), so that
    the last entry can be found. A "receive" goes from the request to the arrival; `ready_s` is when the message was
    sent. A "send" is the moment of the hand-over, with the bytes. Lane "main" is the program itself; others are what it
    started. A "redo" computes again what a crash lost; a "crash" is a moment, its "recovery" follows.
    """

    rank: Rank
    lane: str
    activity: Activity
    layer: str | None
    step: int
    start_s: float
    end_s: float
    bytes: int = 0
    ready_s: float | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The weights being learned at a moment; `score` is there once they have been evaluated."""

    time_s: float
    version: int
    samples: int
    vector: Any
    score: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """How far one worker's weights were from the mean of all workers' after the same step, ‖x_i − mean x‖."""

    time_s: float
    """when this worker had made the step"""
    rank: Rank
    step: int
    staleness: int
    """of the step, in the method's own notion: the local steps since the last average that came before it"""
    drift: float


@dataclass(frozen=True, slots=True)
class Probe:
    """What one update did to the loss on data held out."""

    time_s: float
    version: int
    """of the weights that it replaced"""
    staleness: float
    """mean over its inputs"""
    loss_before: float
    loss_after: float


class Reads(NamedTuple):
    """What a rank's reader asked of a file."""

    requests: int = 0
    seeks: int = 0
    """requests that did not begin where the reader's last one had ended"""
    bytes: int = 0
    stall_s: float = 0.0
    """for how long its program waited for batches"""


class LostUpdates(TypedDict):
    """What came of the additions to shared cells."""

    adds: int
    """additions of a whole vector, by everybody"""
    lost_share: float
    """of them, the share that somebody else overwrote, by numbers"""


class LostRank(TypedDict):
    """A rank that died, and that the run went on without."""

    rank: int
    role: str
    step: int
    """that it was in"""
    time_s: float
    """on the run's own clock"""
    how: str
    """a sentence about it"""


@dataclass
class Trace:
    """Everything a run leaves behind, before any arithmetic."""

    spans: list[Span] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    layers: list[LayerUpdate] = field(default_factory=list)
    """of the layers, in methods that apply them one by one"""
    drifts: list[Drift] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    wall_s: float = 0.0
    """the run's own clock at its end"""
    stop_reason: Reason | None = None
    """why it did; None where nobody knows"""
    states: dict[Rank, Any] = field(default_factory=dict)
    """each rank's state at its end, for those that got there"""
    weights: Any = None
    """the weights being learned, at the end"""
    heard: list[tuple[Rank, Rank | None]] = field(default_factory=list)
    """(receiver, source) of every receive, in order per receiver, None where it timed out: what a replay follows"""
    hearers: list[str] = field(default_factory=list)
    """beside each entry of `heard`: the lane of the receiver that heard it, by the name that `Branches` gave it"""
    outcomes: dict[tuple[Rank, str], list[Outcome]] = field(default_factory=dict)
    """what each rank's lane was told of what it had started, in the lane's order"""
    now_s: dict[Rank, list[float]] = field(default_factory=dict)
    """what each rank's `Now` was answered: a replay answers the same"""
    lost_updates: LostUpdates | None = None
    """None where nobody added to a shared cell, or where nobody counts what is lost"""
    failed_ranks: list[LostRank] = field(default_factory=list)
    """of a real run: those that it went on without, in the order of their deaths"""
    reads: dict[Rank, Reads] = field(default_factory=dict)
    """of each rank that read from a file"""
    notes: dict[str, Any] = field(default_factory=dict)
    """facts about the machine and the run that belong into run.json only"""
    files: dict[str, bytes] = field(default_factory=dict)
    """what is kept beside the tables as it is, by its path in the run's folder: logs"""

    def hear(self, receiver: Rank, source: Rank | None, lane: str) -> None:
        """Notes whom a lane of the receiver heard; None if nobody was in time."""
        self.heard.append((receiver, source))
        self.hearers.append(lane)

    def look(self, rank: Rank, now_s: float) -> float:
        """Notes what a rank's `Now` is answered, and answers it."""
        self.now_s.setdefault(rank, []).append(now_s)
        return now_s

    def tell(self, rank: Rank, lane: str, outcome: Outcome) -> None:
        """Notes what a `WaitFor` or a `Cancel` of this lane was told."""
        self.outcomes.setdefault((rank, lane), []).append(outcome)


Unit = Literal["updates", "samples", "seconds"]


@dataclass
class Schedule:
    """When the weights being learned are evaluated: every so many updates, samples or seconds, and at start and end.

    By counts, the weights are evaluated that an update made when the count was full. By seconds, it is the weights as
    they were at k · every: those that the last update up to then had made.

    A simulation may be asked for more: `probes`, the loss just before and after every so many updates, and `drift`, how
    far workers are from each other after every so many of their steps.

    >>> plan = Schedule(every=100, unit="samples")
    >>> [plan.due(updates=n, samples=32 * n) for n in range(1, 8)]
    [False, False, False, True, False, False, True]
    >>> Schedule(every=0.5, unit="seconds").tick(0.4, 1.7), Schedule(every=0.5, unit="seconds").tick(0.6, 0.9)
    (0.5, None)
    """

    every: float
    unit: Unit = "updates"
    probes: int | None = None
    drift: int | None = None
    _next: float | None = None

    def due(self, *, updates: int, samples: int) -> bool:
        """Whether an evaluation is due by these counts; each is due once."""
        if self.unit == "seconds":
            return False
        now = updates if self.unit == "updates" else samples
        if self._next is None:
            self._next = self.every
        if now < self._next:
            return False
        self._next = (now // self.every + 1) * self.every
        return True

    def tick(self, since_s: float, until_s: float) -> float | None:
        """The first time k · every, k ≥ 1, from `since_s` on and before `until_s`; None where there is none.

        Weights that lasted so long are evaluated then, once: at the ticks that follow they were the same.
        """
        if self.unit != "seconds" or math.isinf(self.every):
            return None
        tick_s = max(1, math.ceil(since_s / self.every)) * self.every
        tick_s += self.every if tick_s < since_s else 0.0  # the quotient was rounded
        return tick_s if tick_s < until_s else None
