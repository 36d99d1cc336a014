"""What an interpreter writes down while it runs: the raw record, the same for every kind of run.

Rules of this file:

* Times are seconds on the run's own clock (virtual or real), from the run's start.
* An interpreter records facts (who entered a collective when, when a message was sent and when it was received). What
  they mean (waiting, exposed communication, shares) is worked out afterwards, once, in `records.tables`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

from paceline.algorithms.job import Score
from paceline.algorithms.ledger import Update
from paceline.algorithms.values import Rank

Activity = Literal[
    "compute", "load", "update", "collective", "receive", "send", "redo", "checkpoint", "crash", "recovery"
]

Outcome = tuple[int, ...] | bool
"""what depends on who was first: of a `WaitFor` for some of its handles, which were done; of a `Cancel`, its answer"""


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
    score: Score | None = None


class LostUpdates(TypedDict):
    """What came of the additions to shared cells."""

    adds: int
    """additions of a whole vector, by everybody"""
    lost_share: float
    """of them, the share that somebody else overwrote, by numbers"""


@dataclass
class Trace:
    """Everything a run leaves behind, before any arithmetic."""

    spans: list[Span] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    wall_s: float = 0.0
    """the run's own clock at its end"""
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
    notes: dict[str, Any] = field(default_factory=dict)
    """facts about the machine and the run that belong into run.json only"""

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

    >>> plan = Schedule(every=100, unit="samples")
    >>> [plan.due(updates=n, samples=32 * n, time_s=0.0) for n in range(1, 8)]
    [False, False, False, True, False, False, True]
    """

    every: float
    unit: Unit = "updates"
    _next: float | None = None

    def due(self, *, updates: int, samples: int, time_s: float) -> bool:
        """Whether an evaluation is due now; each is due once."""
        now = {"updates": updates, "samples": samples, "seconds": time_s}[self.unit]
        if self._next is None:
            self._next = self.every
        if now < self._next:
            return False
        self._next = (now // self.every + 1) * self.every
        return True
