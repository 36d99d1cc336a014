"""Short simulated runs of one plan, and the time of their steps by cause: charge, collective, message, copy and wait.

* Charges, arrivals of messages and starts of collectives are recorded. The length of a run and the steps that are
  evaluated are those of `simulator.runs.short_runs`.
* A change of the cost of a rank's own work is a factor in `RecordedTiming`; a change of the cluster is another plan.
* The activities are those of `timeline`, with the same precedence. A cause is a detail of an activity.
* A wait for a message that answers the worker's own message is followed: the transfer of the own message, the time
  until the other rank takes it, and the time until the answer is sent.
* Communication, and the copy of a batch, during a gradient cost no time; they are counted separately, as hidden.
* The part of a load, a collective or a message during which its data are copied between a host and a device belongs to
  the copy.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import simpy

from paceline.algorithms.core.job import PlannedDeath
from paceline.algorithms.core.operations import Barrier, Charge
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.records.trace import COPY_TO_DEVICE, COPY_TO_HOST, Schedule, Span, Trace
from paceline.records.waits import waits_of
from paceline.reports.attribution.timeline import WAIT, TimelinePiece, Timelines, from_trace
from paceline.reports.attribution.variation import MeanStep
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.collectives.contention import LinkTraffic
from paceline.simulator.kernel.simpy_events import upon
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.simulator.runs.run import perform
from paceline.simulator.runs.short_runs import Length, MeasuredWindow, mean_of, shortened, windows_of
from paceline.topologies.catalogue.machine_profile import MeasuredCosts


class Charged(NamedTuple):
    """A charge and its time."""

    op: Charge
    seconds: float


@dataclass(frozen=True)
class RecordedTiming(PlanTiming):
    """The timing of a plan with some costs changed, which records the charges.

    Args:
        compute: the factor on the time of a gradient, given the rank.
        work: the factor on charges of workers.
        server: the factor on charges of the server.
        clock: the virtual time; None: nothing is recorded.
    """

    compute: Callable[[Rank], float] = lambda _: 1.0
    work: float = 1.0
    server: float = 1.0
    clock: Callable[[], float] | None = None
    charges: dict[tuple[Rank, float], list[Charged]] = field(default_factory=lambda: defaultdict(list))
    """the charges that take time, by their rank and start"""
    gradients_s: list[float] = field(default_factory=list)
    """the time of each gradient, as long as nothing else uses its device"""

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        seconds = self.compute(rank) * super().compute_s(rank, step, samples, start_s)
        if self.clock is not None:
            self.gradients_s.append(seconds)
        return seconds

    def many(self, ranks: Sequence[int]) -> None:
        """Returns None: each gradient has a factor of its own."""

    def work_s(self, rank: Rank, op: Charge) -> float:
        seconds = super().work_s(rank, op) * (self.server if self.plan.job.team[rank].role == "server" else self.work)
        if seconds > 0 and self.clock is not None:
            self.charges[rank, self.clock()].append(Charged(op, seconds))
        return seconds


@dataclass(slots=True)
class PerformedCollective:
    """A collective that the network performed."""

    kind: str
    group: Group
    nbytes: int
    root: int
    called_s: float
    """when its last member had entered, and all values were where the library reads them"""
    begin_s: float
    """when it began, after those before it in its program order"""
    end_s: float = math.nan


class RecordedNetwork(ClusterNetwork):
    """The network of a cluster, which records messages and collectives."""

    def attach(self, env: simpy.Environment) -> None:
        super().attach(env)
        self.arrivals: dict[tuple[Rank, Rank], list[tuple[float, float, int]]] = defaultdict(list)
        """for each pair: when each message was sent and arrived, and its bytes; in order of arrival"""
        self.performed: dict[str, list[PerformedCollective]] = defaultdict(list)
        """the collectives with each key of the record, in order"""
        self._ends: dict[tuple[Group, str], PerformedCollective] = {}

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return self._env.now

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        env, arrivals, sent_s = self._env, self.arrivals[source, to], self._env.now
        arrival = super().message(source, to, nbytes)
        upon(arrival, lambda _: arrivals.append((sent_s, env.now, nbytes)))
        return arrival

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        kind, root = type(op).__name__, getattr(op, "root", None)
        place = 0 if root is None else op.group.ranks.index(root)
        size = 0 if isinstance(op, Barrier) else nbytes
        performed = PerformedCollective(kind, op.group, size, place, self._env.now, self._env.now)
        before = self._ends.get((op.group, stream))
        self._ends[op.group, stream] = performed
        self.performed[f"{kind} {op.key} over {op.group}{stream}"].append(performed)
        done = super().collective(op, nbytes, stream)

        def ended(_: simpy.Event) -> None:
            performed.end_s = self._env.now
            if before is not None:
                performed.begin_s = max(performed.begin_s, before.end_s)

        upon(done, ended)
        return done

    def price_ahead(self, traffic: LinkTraffic) -> str | None:
        return "its network observes each message"


@dataclass(frozen=True)
class RecordedRun:
    """A short run with what was recorded."""

    plan: Plan
    length: Length
    trace: Trace
    charges: dict[tuple[Rank, float], list[Charged]]
    """the charges that take time, by their rank and start"""
    network: RecordedNetwork
    gradients_s: float
    """the sum of all gradients' times, as long as nothing else uses their devices"""

    @property
    def workers(self) -> int:
        return self.plan.job.workers

    @cached_property
    def shared_network(self) -> ClusterNetwork | None:
        """A network for runs with the same links, which use its choices again; None if links change."""
        return None if self.plan.cluster.links_change else cluster_network(self.plan)


def record(plan: Plan, length: Length, deaths: tuple[PlannedDeath, ...] = ()) -> RecordedRun:
    """Simulates the beginning of a plan's run, with weights that have a size and no numbers.

    Args:
        plan: the run.
        length: its length.
        deaths: the workers that die, instead of those of the plan.
    """
    short = shortened(plan, length)
    short = replace(short, job=replace(short.job, deaths=deaths))
    network = cluster_network(short, RecordedNetwork)
    timing = RecordedTiming(plan, clock=lambda: network.now_s)
    trace = perform(short, Schedule(every=math.inf), network=network, timing=timing)
    return RecordedRun(short, length, trace, timing.charges, network, sum(timing.gradients_s))


def windows(run: RecordedRun) -> dict[Rank, MeasuredWindow]:
    """Returns the window of each worker: from the start of one gradient to the start of another."""
    return windows_of(run.trace, run.workers, run.length)


def short_trace(
    plan: Plan,
    length: Length,
    timing: RecordedTiming | None = None,
    network: ClusterNetwork | None = None,
    machine: MeasuredCosts | None = None,
) -> Trace:
    """Returns the record of such a short run without its messages and collectives, by the fastest interpreter.

    Args:
        plan: the run.
        length: its length.
        timing: the timing; None: that of the plan.
        network: a network of the same links, whose choices are used again; None: a new one.
        machine: the measured costs of a machine; None: those of the scenario's cluster.
    """
    short = shortened(plan, length)
    return perform(short, Schedule(every=math.inf), network=network, timing=timing, machine=machine)


def mean_step_s(
    plan: Plan, length: Length, timing: RecordedTiming | None = None, network: ClusterNetwork | None = None
) -> float:
    """Returns the mean time between the starts of successive gradients of a worker; arguments as for `short_trace`."""
    return mean_of(windows_of(short_trace(plan, length, timing, network), plan.job.workers, length))


def mean_step(trace: Trace, workers: int, length: Length) -> MeanStep:
    """Returns the mean step of a short run.

    Args:
        trace: its record.
        workers: the number of workers, ranks 0 … workers − 1.
        length: its length.
    """
    of_workers = windows_of(trace, workers, length)
    timelines = Timelines(activity for activity in from_trace(trace) if activity.rank < workers)
    waits_s = (timelines.own(rank, each.start_s, each.end_s).get(WAIT, 0.0) for rank, each in of_workers.items())
    steps = sum(each.steps for each in of_workers.values())
    return MeanStep(mean_of(of_workers), math.fsum(waits_s) / steps if steps else math.nan)


CLOSE = 1e-9
"""relative difference of times that are the same except for rounding"""

Interval = tuple[float, float]
"""start and end, seconds"""


class WaitCause(NamedTuple):
    """What a worker spends time on; `about` holds the details that distinguish the rows of a group."""

    group: str
    about: tuple[Any, ...] = ()


Caused = tuple[float, float, WaitCause]
"""start and end of an interval, seconds, and its cause"""
BATCH_COPY, VECTOR_COPY = WaitCause("staging", ("batch",)), WaitCause("staging", ("vector",))
ACCESS = WaitCause("charge", ("access", "host", 0))
"""an update without a charge: the ranks of a node share its memory, and their accesses are simulated as flows"""
TRANSFERS = ("collective", "message", "staging")
"""groups of causes that are counted as hidden during gradients"""
SAME: dict[str, WaitCause] = {
    "compute": WaitCause("gradient"),
    "redo": WaitCause("lost work"),
    "send": WaitCause("sending"),
}
"""causes of activities without further details"""


@dataclass(slots=True)
class AttributedSteps:
    """The seconds of all workers, in their windows."""

    steps: int = 0
    whole_s: float = 0.0
    exposed_s: defaultdict[WaitCause, float] = field(default_factory=lambda: defaultdict(float))
    """by cause; their sum is the whole"""
    hidden_s: defaultdict[WaitCause, float] = field(default_factory=lambda: defaultdict(float))
    """communication and copies during gradients"""


def attribute(run: RecordedRun) -> AttributedSteps:
    """Divides the windows of all workers of a run among causes."""
    attributed, details = AttributedSteps(), Details(run)
    for rank, window in windows(run).items():
        attributed.steps += window.steps
        attributed.whole_s += window.end_s - window.start_s
        pieces = list(details.timelines.during(rank, window.start_s, window.end_s))
        for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
            for start_s, end_s, cause in details.causes(piece, following):
                attributed.exposed_s[cause] += end_s - start_s
        hidden: dict[WaitCause, list[Interval]] = defaultdict(list)
        for piece in details.timelines.hidden(rank, window.start_s, window.end_s):
            for start_s, end_s, cause in details.causes(piece):
                if cause.group in TRANSFERS:
                    hidden[cause].append((start_s, end_s))
        for cause, intervals in hidden.items():
            attributed.hidden_s[cause] += covered_s(intervals)
    return attributed


def covered_s(intervals: Iterable[Interval]) -> float:
    """Returns the length of a union of intervals.

    >>> covered_s([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    length_s, until_s = 0.0, float("-inf")
    for start_s, end_s in sorted(intervals):
        length_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return length_s


class TakenTime(NamedTuple):
    """A message that a rank received: end and start of its receive, when it was sent, and its bytes."""

    end_s: float
    start_s: float
    sent_s: float
    bytes: int


class Details:
    """The causes of the time of all ranks of a run.

    Args:
        run: the run.
    """

    def __init__(self, run: RecordedRun) -> None:
        self._run, self._spans, self._waits = run, run.trace.spans, waits_of(run.trace)
        self.timelines = Timelines(from_trace(run.trace, self._waits))
        self._performed: dict[int, PerformedCollective] = {}
        """what the network performed, by the index of the span of each member"""
        self._taken: dict[tuple[Rank, Rank], list[TakenTime]] = defaultdict(list)
        """the messages of each receiver from each sender"""
        self._copies: dict[tuple[Rank, str | None, str], list[Interval]] = defaultdict(list)
        """the copies of each rank, of batches or vectors, on each lane"""
        uses: Counter[tuple[str | None, Rank]] = Counter()
        for number, span in sorted(enumerate(self._spans), key=lambda entry: entry[1].start_s):
            if span.activity == "copy":
                self._copies[span.rank, span.key, span.lane].append((span.start_s, span.end_s))
            elif span.activity == "collective":  # the n-th use of a key by every rank is the same collective
                known, use = run.network.performed.get(span.key or "", []), uses[span.key, span.rank]
                uses[span.key, span.rank] += 1
                if use < len(known):
                    self._performed[number] = known[use]
            elif span.activity == "receive":
                sent_s, source = self._waits[number]
                if source is not None:
                    taken = TakenTime(span.end_s, span.start_s, sent_s, span.bytes)
                    self._taken[span.rank, Rank(source)].append(taken)
        for messages in self._taken.values():
            messages.sort()

    def causes(self, piece: TimelinePiece, following: TimelinePiece | None = None) -> Iterator[Caused]:
        """Yields the causes of a piece of a timeline, in any order.

        Args:
            piece: the piece.
            following: the next piece of this timeline.
        """
        if piece.span is None:
            locked = following is not None and following.span is not None and self._is_access(following.span)
            yield piece.start_s, piece.end_s, WaitCause("lock" if locked else "other waiting")
            return
        for start_s, end_s, cause in self._parts(piece.span):
            start_s, end_s = max(start_s, piece.start_s), min(end_s, piece.end_s)
            if end_s > start_s:
                yield start_s, end_s, cause

    def _is_access(self, number: int) -> bool:
        return self._spans[number].activity == "update" and self._charge(self._spans[number]).about[0] == "access"

    def _charge(self, span: Span) -> WaitCause:
        charges = self._run.charges.get((span.rank, span.start_s))
        if not charges:
            return ACCESS
        length_s = span.end_s - span.start_s
        charge = min(charges, key=lambda charge: abs(charge.seconds - length_s))  # lanes may begin at one time
        return WaitCause("charge", (charge.op.kind, charge.op.where, charge.op.bytes))

    def _parts(self, number: int) -> Iterator[Caused]:
        """Yields the causes of a whole span."""
        span = self._spans[number]
        match span.activity:
            case "load":
                copies = self._copies[span.rank, "batch", COPY_TO_DEVICE]
                yield from divided(copies, span.start_s, span.end_s, BATCH_COPY, WaitCause("loading"))
            case "collective":
                yield from self._collective(number, span)
            case "receive":
                yield from self._receive(number, span)
            case "update":
                yield span.start_s, span.end_s, self._charge(span)
            case "copy":
                yield span.start_s, span.end_s, WaitCause("staging", (span.key,))
            case activity:
                yield span.start_s, span.end_s, SAME.get(activity, WaitCause(activity))

    def _collective(self, number: int, span: Span) -> Iterator[Caused]:
        done = self._performed.get(number)
        about = (str(span.key).partition(" ")[0], 0, 0) if done is None else about_collective(done)
        turn_s = min(max(self._waits[number].until_s, span.start_s), span.end_s)
        called_s, begin_s, done_s = turn_s, turn_s, span.end_s
        if done is not None:
            called_s = min(max(done.called_s, turn_s), span.end_s)
            begin_s = min(max(done.begin_s, called_s), span.end_s)
            done_s = done.end_s if begin_s <= done.end_s <= span.end_s else span.end_s
        copies = any(self._copies[span.rank, "vector", lane] for lane in (COPY_TO_HOST, COPY_TO_DEVICE))
        queue, collective = WaitCause("collective queue", about[:1]), WaitCause("collective", about)
        yield span.start_s, turn_s, WaitCause("slowest member", about[:1])
        yield turn_s, called_s, VECTOR_COPY if copies else queue
        yield called_s, begin_s, queue
        yield begin_s, done_s, collective
        yield done_s, span.end_s, VECTOR_COPY if copies else collective

    def _receive(self, number: int, span: Span) -> Iterator[Caused]:
        sent_s, waited_for = self._waits[number]
        source = None if waited_for is None else Rank(waited_for)
        turn_s = min(max(sent_s, span.start_s), span.end_s)
        copies = self._copies[span.rank, "vector", COPY_TO_DEVICE]
        if source is None:
            yield span.start_s, turn_s, WaitCause("other waiting")
        else:
            yield from self._waiting(span.rank, source, sent_s)
            copies = sorted([*copies, *self._copy_of(source, sent_s)])
        about = ("" if source is None else self._role(source), self._role(span.rank), span.bytes)
        yield from divided(copies, turn_s, span.end_s, VECTOR_COPY, WaitCause("message", about))

    def _copy_of(self, source: Rank, sent_s: float) -> list[Interval]:
        """Returns the copy to the host of a message that was sent at this time, if there is one."""
        copies = self._copies[source, "vector", COPY_TO_HOST]
        at = bisect_left(copies, (sent_s * (1 - CLOSE), 0.0))
        return [copy for copy in copies[at : at + 1] if copy[0] <= sent_s * (1 + CLOSE)]

    def _waiting(self, rank: Rank, source: Rank, sent_s: float) -> Iterator[Caused]:
        """Yields what delayed a message of `source` to `rank` until it was sent."""
        role = self._role(source)
        taken = self._taken.get((source, rank), [])
        at = bisect_right(taken, (sent_s * (1 + CLOSE), float("inf"))) - 1
        if at < 0:
            yield 0.0, sent_s, WaitCause("late sender", (role,))
            return
        asked = taken[at]
        arrived_s = self._arrived_s(rank, source, asked)
        taken_s = asked.start_s if asked.start_s > arrived_s else asked.end_s
        message = WaitCause("message", (self._role(rank), role, asked.bytes))
        yield 0.0, asked.sent_s, WaitCause("late sender", (role,))
        yield from divided(self._copy_of(rank, asked.sent_s), asked.sent_s, arrived_s, VECTOR_COPY, message)
        for piece in self.timelines.during(source, arrived_s, taken_s):
            yield piece.start_s, piece.end_s, WaitCause("queue" if piece.activity == "update" else "turn", (role,))
        for piece in self.timelines.during(source, taken_s, sent_s):
            yield (
                piece.start_s,
                piece.end_s,
                WaitCause("server work" if piece.activity == "update" else "others", (role,)),
            )

    def _arrived_s(self, source: Rank, to: Rank, taken: TakenTime) -> float:
        """Returns when a message arrived, before a receive took it."""
        arrivals = self._run.network.arrivals.get((source, to), [])
        at = bisect_left(arrivals, (taken.sent_s * (1 - CLOSE), 0.0, 0))
        return min(arrivals[at][1], taken.end_s) if at < len(arrivals) else taken.end_s

    def _role(self, rank: Rank) -> str:
        return self._run.plan.job.team[rank].role


def divided(
    intervals: Sequence[Interval], start_s: float, end_s: float, inside: WaitCause, outside: WaitCause
) -> Iterator[Caused]:
    """Divides the time from `start_s` to `end_s` into that inside and outside of intervals.

    Args:
        intervals: by their starts.
        start_s: the start of the time.
        end_s: its end.
        inside: the cause of the time inside an interval.
        outside: that of the rest.
    """
    for begin_s, until_s in intervals[max(0, bisect_left(intervals, (start_s, 0.0)) - 1) :]:
        if begin_s >= end_s:
            break
        if until_s <= start_s:
            continue
        yield start_s, max(start_s, begin_s), outside
        yield max(start_s, begin_s), min(end_s, until_s), inside
        start_s = min(end_s, until_s)
    yield start_s, end_s, outside


def about_collective(performed: PerformedCollective) -> tuple[str, int, int]:
    """Returns the details of a collective: kind, bytes and number of members."""
    return performed.kind, performed.nbytes, len(performed.group)
