"""The raw record that an interpreter writes during a run, the same for every kind of run.

* Times are seconds on the run's own clock (virtual or real), from the run's start.
* An interpreter records facts: when each rank entered a collective, when a message was sent and received. `records`
  derives waits, exposed communication and shares from them afterwards, in `tables` and `summary`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from paceline.algorithms.core.job import Evaluation, Reason
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.handles import Outcome
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.records.counters import Counters
from paceline.records.keeping import Keeping
from paceline.records.links import Links

Activity = Literal[
    "compute",
    "load",
    "read",
    "copy",
    "update",
    "collective",
    "receive",
    "send",
    "redo",
    "checkpoint",
    "crash",
    "recovery",
]

READER = "reader"
"""the lane of a rank's prefetching"""
COPY_TO_DEVICE, COPY_TO_HOST = "copy-to-device", "copy-to-host"
"""the lanes of a device's copy engines, which copy batches, gradients and weights"""


class Span(NamedTuple):
    """One activity of one lane of one rank. It is a tuple because there are many, and tuples are fast.

    A "collective" lasts from the rank's own entry to its own exit; `key` names the collective (key and group), so that
    the last entry can be found. `ready_s` is the time of the last entry, which is needed if spans are sampled. A
    "receive" lasts from the request to the arrival; `ready_s` is when the message was sent. A "send" is the hand-over
    to the network, with the bytes. Lane "main" is the program itself; other lanes are activities that it started. A
    "copy" is one between a host and a device, with its bytes; `key` says whether it is of a "batch" or a "vector". A
    "redo" repeats work that a crash lost; a "crash" has no length and is followed by its "recovery".
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
    """The weights being learned at some time; `score` is set when they have been evaluated."""

    time_s: float
    version: int
    samples: int
    vector: Any
    score: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """The distance of a worker's weights from the mean of all workers' after the same step, ‖x_i − mean x‖."""

    time_s: float
    """when this worker finished the step"""
    rank: Rank
    step: int
    staleness: int
    """of the step, of the method's own kind: the number of local steps between the last average and it"""
    drift: float


@dataclass(frozen=True, slots=True)
class LossProbe:
    """The effect of one update on the loss of held-out data."""

    time_s: float
    version: int
    """the version of the weights before the update"""
    staleness: float
    """mean over the inputs of the update"""
    loss_before: float
    loss_after: float


class Reads(NamedTuple):
    """The requests of a rank's reader."""

    requests: int = 0
    seeks: int = 0
    """requests that did not begin where the reader's last one ended"""
    bytes: int = 0
    stall_s: float = 0.0
    """seconds that its program waited for batches"""


class LostUpdates(TypedDict):
    """The additions to shared cells, and how many were lost."""

    adds: int
    """additions of a whole vector by all ranks"""
    lost_share: float
    """the share of them that others overwrote, as a mean over the numbers of the vector"""


class LostRank(TypedDict):
    """A rank that died. The run continued without it, or its stop reason is a failure."""

    rank: int
    role: str
    step: int
    """its step when it died"""
    time_s: float
    """when it died, on the run's own clock"""
    how: str
    """a sentence about the cause"""
    absent_s: NotRequired[float]
    """from its death to the end of the run, in the summary of a run"""


@dataclass
class Trace:
    """The complete record of a run."""

    spans: list[Span] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    layers: list[LayerUpdate] = field(default_factory=list)
    """updates of single layers, for methods that update layer by layer"""
    drifts: list[Drift] = field(default_factory=list)
    probes: list[LossProbe] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    wall_s: float = 0.0
    """the run's own clock at its end"""
    in_seconds: bool = True
    """whether times are in seconds; False in a run of the any-order interpreter, whose times are numbers of moves"""
    stop_reason: Reason | None = None
    """why the run ended; None if unknown"""
    states: dict[Rank, Any] = field(default_factory=dict)
    """the final state of each rank that ended normally"""
    weights: Any = None
    """the weights being learned, at the end"""
    heard: list[tuple[Rank, Rank | None]] = field(default_factory=list)
    """(receiver, source) of every receive, in order for each receiver, None for a timeout; a replay follows it"""
    hearers: list[str] = field(default_factory=list)
    """for each entry of `heard`: the receiver's lane, by the name that `Branches` gave it"""
    outcomes: dict[tuple[Rank, str], list[Outcome]] = field(default_factory=dict)
    """the outcomes of each lane's `WaitFor` and `Cancel`, in order"""
    now_s: dict[Rank, list[float]] = field(default_factory=dict)
    """the answers of each rank's `Now`; a replay returns the same"""
    lost_updates: LostUpdates | None = None
    """None without additions to shared cells, or if losses were not counted"""
    failed_ranks: list[LostRank] = field(default_factory=list)
    """ranks that died, in the order of their deaths"""
    ended: str | None = None
    """why the run ended, if a death that its job has planned ended it"""
    reads: dict[Rank, Reads] = field(default_factory=dict)
    """the requests of each rank that read from a file"""
    links: Links | None = None
    """what each link carried; only of simulated runs on a cluster's graph"""
    notes: dict[str, Any] = field(default_factory=dict)
    """facts about the machine and the run that are stored only in run.json"""
    free_on: list[str] | None = None
    """the devices and hosts on which updates and copies take no time; None: they take what was measured"""
    files: dict[str, bytes] = field(default_factory=dict)
    """further files such as logs, by path in the run's folder"""
    keeping: Keeping = field(default_factory=Keeping)
    """which records are kept"""
    counters: Counters | None = None
    """exact counts of all records; None if all are kept"""
    update_ages_s: list[float | None] | None = None
    """of each row of a sample of updates: seconds since its gradient began; None: they follow from the spans"""
    layer_ages_s: list[float | None] | None = None
    """the same of a sample of updates of layers"""


Unit = Literal["updates", "samples", "seconds"]


@dataclass
class Schedule:
    """When the weights being learned are evaluated: at intervals of updates, samples or seconds, and at start and end.

    With updates or samples, the weights after the update that completes the interval are evaluated. With seconds, the
    weights at the times k · every are evaluated.

    A simulation can measure more: `probes` is the interval in updates at which the loss is evaluated just before and
    after an update, `drift` the interval in steps at which the distance between workers is measured.

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
        """Returns whether an evaluation is due at these counts; each evaluation is due once.

        Args:
            updates: number of updates so far.
            samples: number of samples so far.
        """
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
        """Returns the first time k · every, k ≥ 1, in the interval from `since_s` to before `until_s`; None if none.

        Weights that lasted for this interval are evaluated once, because they are the same at later ticks.

        Args:
            since_s: the beginning of the interval.
            until_s: its end.
        """
        if self.unit != "seconds" or math.isinf(self.every):
            return None
        tick_s = max(1, math.ceil(since_s / self.every)) * self.every
        tick_s += self.every if tick_s < since_s else 0.0  # the quotient was rounded
        return tick_s if tick_s < until_s else None
