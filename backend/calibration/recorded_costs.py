"""Reads the costs of messages, collectives and own work in the records of probes, and pools those of several launches.

A collective is timed from its last entry, and a message from its sending: the model itself computes waits for others.
The programs are those of `probes`. Each has one lane, in which nothing overlaps except a started collective and the
update after it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import trim_mean

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.probes import ProbeCollectives, own_bytes
from paceline.backend.calibration.step_time_laws import correlations
from paceline.backend.rank.pacing import Pace
from paceline.records.probe_steps import ProbeSteps
from paceline.records.trace import Activity, Span, Trace
from paceline.topologies.catalogue.gradient_times import GradientVariation, slices
from paceline.topologies.catalogue.machine_profile import Collectives, Handled, Profile

How = Literal["entered", "started"]
Kind = tuple[str, int, int]
"""a collective's operation, members and bytes"""


def lasting(spans: Sequence[Span], activity: Activity) -> list[float]:
    """Returns the duration of each span of an activity, in seconds."""
    return [span.end_s - span.start_s for span in spans if span.activity == activity]


class Updates(NamedTuple):
    """The seconds of a worker's updates in a probe."""

    new: list[float]
    """of all weights, into new memory"""
    into: list[float]
    """of all weights, into memory in use"""
    beside: list[float]
    """of all weights, into new memory, while a collective was in flight"""
    few: list[float]
    """of a few numbers"""


def updates(spans: Sequence[Span], turns: int) -> Updates:
    """Returns the updates of a worker.

    Args:
        spans: the spans of the worker. The first update of a step is of all weights, the second of a few numbers.
        turns: the steps of a turn; all weights of odd turns are updated into memory in use. 0: those of no step.
    """
    collected = Updates([], [], [], [])
    overlapping = {span.step for span in spans if span.key is not None and unlabel(span.key)[2] == "started"}
    steps: dict[int, list[float]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_s):
        if span.activity == "update":
            steps[span.step].append(span.end_s - span.start_s)
    for step, (whole_s, *few_s) in steps.items():
        if step in overlapping:
            collected.beside.append(whole_s)
            continue
        odd = turns and step // turns % 2
        (collected.into if odd else collected.new).append(whole_s)
        collected.few.extend(few_s)
    return collected


def late(spans: Sequence[Span], batch: int, pace: Pace) -> list[float]:
    """Returns by how much each gradient took longer than its modelled time."""
    return [
        span.end_s - span.start_s - pace.compute_s(span.rank, span.step, batch, span.start_s)
        for span in spans
        if span.activity == "compute"
    ]


def served(spans: Sequence[Span]) -> list[float]:
    """Returns a server's time for each update without sends, from having the message to waiting for the next.

    Args:
        spans: the spans of the server.
    """
    return [last.start_s - first.end_s - sending_s for first, last, sending_s in handlings(spans)]


def handlings(spans: Sequence[Span]) -> list[tuple[Span, Span, float]]:
    """Returns the receive of each message that a server applied, its next receive, and the seconds of sends between.

    Args:
        spans: the spans of the server.
    """
    handled = []
    ordered = sorted(spans, key=lambda span: span.start_s)
    receives = [place for place, span in enumerate(ordered) if span.activity == "receive"]
    for first, last in itertools.pairwise(receives):
        between = ordered[first + 1 : last]
        if lasting(between, "update"):
            handled.append((ordered[first], ordered[last], sum(lasting(between, "send"))))
    return handled


def received(rank: Rank, trace: Trace) -> list[tuple[Rank, Span]]:
    """Returns a rank's receives with their sources, for a program of one lane, in whose order both are."""
    spans = [span for span in trace.spans if span.rank == rank and span.activity == "receive"]
    sources = [source for receiver, source in trace.heard if receiver == rank and source is not None]
    return list(zip(sources, spans, strict=True))


def uncovered(spans: Sequence[Span]) -> list[float]:
    """Returns, for each of a worker's steps except the last, the time until the next step that no span covers.

    The program and the interpreter need it between operations. Steps that start an operation are left out.
    """
    steps: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_s):
        steps[span.step].append(span)
    gaps_s = []
    for step, following in itertools.pairwise(sorted(steps)):
        if any(span.key is not None and unlabel(span.key)[2] == "started" for span in steps[step]):
            continue
        free_s, at_s = 0.0, steps[step][0].start_s
        for span in (*steps[step], steps[following][0]):
            free_s += max(0.0, span.start_s - at_s)
            at_s = max(at_s, span.end_s)
        gaps_s.append(free_s)
    return gaps_s


def started(spans: Sequence[Span], all_spans: Sequence[Span]) -> Mapping[Kind, list[float]]:
    """Returns how long a worker was busy with starting each collective, until its update began.

    Args:
        spans: the spans of the worker.
        all_spans: the spans of all ranks, which give the number of members of a collective.
    """
    members: dict[str | None, int] = defaultdict(int)
    for span in all_spans:
        members[span.key] += 1
    seconds: dict[Kind, list[float]] = defaultdict(list)
    updates: dict[int, float] = {}
    for span in spans:
        if span.activity == "update":
            updates[span.step] = min(span.start_s, updates.get(span.step, span.start_s))
    for span in spans:
        if span.key is None or span.step not in updates:
            continue
        operation, nbytes, how = unlabel(span.key)
        if how == "started":
            seconds[operation, members[span.key], nbytes].append(updates[span.step] - span.start_s)
    return seconds


def lanes(now_s: Sequence[float]) -> list[float]:
    """Returns how long a worker was busy with starting each sub-program: the difference of each pair of `Now`.

    >>> lanes([1.0, 1.5, 4.0, 4.25])
    [0.5, 0.25]
    """
    return [after_s - before_s for before_s, after_s in zip(now_s[::2], now_s[1::2], strict=False)]


def waits(spans: Sequence[Span], now_s: Sequence[float]) -> list[float]:
    """Returns how long after the end of a started collective its worker, which waited for it, went on.

    Args:
        spans: the spans of the worker.
        now_s: what it read from the clock; each first reading of a pair follows a wait.
    """
    waits_s = []
    ordered = sorted(spans, key=lambda span: span.end_s)
    ends_s = [span.end_s for span in ordered]
    for read_s in now_s[::2]:
        before = bisect_right(ends_s, read_s)
        last = ordered[before - 1]
        if before and last.key is not None and unlabel(last.key)[2] == "started":  # otherwise it was over before
            waits_s.append(read_s - last.end_s)
    return waits_s


def unlabel(key: str) -> tuple[str, int, How]:
    """Returns the operation, its bytes and how it was begun, from a key of `ProbeCollectives` after the interpreter's
    own.

    >>> unlabel("ranks 0,1/7 AllReduce 800 entered 7")
    ('AllReduce', 800, 'entered')
    """
    operation, nbytes, how, _ = key.split(" ")[-4:]
    return operation, int(nbytes), "started" if how == "started" else "entered"


# One launch has a single worker that talks to the server, another launch has all of them. In the second, every
# message and every handling overlaps with the work of other workers for some share s of its time, and has its full
# speed for the rest,
# time alone / time beside = 1 − s · (1 − speed)
# which gives the speed of a message, or of a server, while all other workers are busy.


SLOWEST = 0.05
"""the lowest speed: below, a difference of measured times means nothing"""
BUSY: frozenset[Activity] = frozenset(("compute", "update", "load", "send"))
"""what a worker does with a core"""


class BusyShares:
    """What share of the workers were busy during an interval of a record.

    Args:
        spans: the spans of all ranks, of programs with one lane.
        workers: the number of workers.
    """

    def __init__(self, spans: Iterable[Span], workers: int) -> None:
        self._workers = workers
        busy: dict[Rank, list[tuple[float, float]]] = defaultdict(list)
        for span in spans:
            if span.activity in BUSY and span.rank < workers:
                busy[span.rank].append((span.start_s, span.end_s))
        self._busy = {rank: _Cumulative.of(sorted(intervals)) for rank, intervals in busy.items()}

    def of(self, start_s: float, end_s: float, without: Rank) -> float:
        """Returns the mean share of the other workers that were busy, 0 to 1.

        Args:
            start_s: the start of the interval.
            end_s: its end.
            without: the worker that is not counted.

        >>> spans = [Span(Rank(1), "main", "compute", None, 0, 1.0, 3.0)]
        >>> BusyShares(spans, workers=2).of(0.0, 2.0, without=Rank(0))
        0.5
        """
        if end_s <= start_s or self._workers < 2:
            return 0.0
        busy_s = sum(busy.within(start_s, end_s) for rank, busy in self._busy.items() if rank != without)
        return busy_s / (end_s - start_s) / (self._workers - 1)


class _Cumulative(NamedTuple):
    """The busy seconds of a worker up to each start and end of its intervals; linear between them."""

    at_s: np.ndarray
    busy_s: np.ndarray

    @staticmethod
    def of(intervals: Sequence[tuple[float, float]]) -> _Cumulative:
        """Returns the sums for intervals that do not overlap, in the order of time."""
        at_s = np.array(intervals, dtype=np.float64)
        lengths_s = at_s[:, 1] - at_s[:, 0]
        until_s = np.cumsum(lengths_s)
        return _Cumulative(at_s.ravel(), np.column_stack([until_s - lengths_s, until_s]).ravel())

    def within(self, start_s: float, end_s: float) -> float:
        """Returns the busy seconds of an interval."""
        before_s, after_s = np.interp([start_s, end_s], self.at_s, self.busy_s)
        return float(after_s - before_s)


def message_shares(job: Job, trace: Trace, shares: BusyShares) -> list[float]:
    """Returns the share of other workers that were busy during each message for which a worker or server waited.

    Args:
        job: the job of the probe.
        trace: its record.
        shares: the shares of this record.
    """
    return [
        shares.of(span.ready_s, span.end_s, without=source if me.role == "server" else me.rank)
        for me in job.team
        for source, span in received(me.rank, trace)
        if span.ready_s is not None and span.start_s <= span.ready_s and span.bytes
    ]


def serving_shares(job: Job, trace: Trace, shares: BusyShares) -> list[float]:
    """Returns the share of workers, without the one that is served, that were busy while a server served each message.

    Args:
        job: the job of the probe.
        trace: its record.
        shares: the shares of this record.
    """
    server = job.team[0].server
    if server is None:
        return []
    spans = [span for span in trace.spans if span.rank == server and span.activity != "read"]
    sources = {id(span): source for source, span in received(server, trace)}
    return [shares.of(first.end_s, last.start_s, without=sources[id(first)]) for first, last, _ in handlings(spans)]


def speed(alone_s: float, beside_s: float, share: float) -> float:
    """Returns the speed while all other workers are busy.

    Args:
        alone_s: the time while no other worker is busy.
        beside_s: the time while a share of them is.
        share: this share, 0 to 1.

    >>> speed(alone_s=1.0, beside_s=1.6, share=0.75)
    0.5
    """
    if not alone_s or not share:
        return 1.0
    return min(1.0, max(SLOWEST, 1.0 - max(0.0, 1.0 - alone_s / beside_s) / min(1.0, share)))


WARM_UP = 10
"""steps at the beginning of a launch that are left out, at most a tenth: code and memory are used for the first time"""
TRIM = 0.05
"""share of messages left out at either end: an occasional timer tick of the kernel is not a cost of messages"""


class Cost(NamedTuple):
    """The kind of an operation that was timed."""

    operation: str
    members: int = 1
    nbytes: int = 0
    """0 if it has none"""
    inside: bool = False
    """whether it used a node's shared memory"""
    between: bool = False
    """whether its ranks are on several hosts"""
    beside: bool = False
    """whether other workers computed meanwhile, and another probe times it alone"""


Costs = dict[Cost, list[float]]
LOAD, LATE, REST, SERVE, LANE, WAIT = map(Cost, ("load", "late", "rest", "serve", "lane", "wait"))
SERVER_LOAD, SERVER_REST = Cost("load with a server"), Cost("rest with a server")
MESSAGE_SHARE, SERVE_SHARE = Cost("message share"), Cost("serve share")
"""not times: the shares of other workers that computed meanwhile"""
UPDATES = tuple(map(Cost, ("update", "update into", "update beside", "update of few")))
UPDATE = UPDATES[0]
SERVED = "gradient with a server, of rank"
STEP, COMPUTE = Cost("step"), Cost("compute")
"""the mean of the probe's own steps, and of the gradients in them"""
SLOWNESS = Cost("slowness")
"""not a time: that of the machine during the launch, whose times are then those at slowness 1"""
NO_TIMES = (SLOWNESS, MESSAGE_SHARE, SERVE_SHARE)
SNAPSHOT = Cost("snapshot")
MESSAGE = "message"
HANDLED: tuple[Handled, ...] = ("send", "receive", "start")


def costs(
    job: Job, trace: Trace, pace: Pace | None, *, inside: bool = False, hosts: Mapping[Rank, int] | None = None
) -> Costs:
    """Returns the times of all operations that a probe timed, in seconds.

    Args:
        job: the job of the probe.
        trace: its record.
        pace: the modelled times of its gradients; None: not paced.
        inside: whether it was launched with shared memory, which all its collectives then used.
        hosts: the host of every rank, if they are on several.
    """
    measured: Costs = defaultdict(list)
    server, places = job.team[0].server, hosts or {}
    turns = len(job.method.asked) if isinstance(job.method, ProbeCollectives) else 0
    together: dict[str, list[Span]] = defaultdict(list)
    first = first_steps(trace)
    for span in trace.spans:
        if span.key is not None and span.step >= first[span.rank]:
            together[span.key].append(span)
    spread = {key for key, spans in together.items() if len({places.get(span.rank) for span in spans}) > 1}
    for me in job.team:
        memory = inside and server is not None and job.team[server].host == me.host
        between = server is not None and places.get(server) != places.get(me.rank)
        # prefetching runs in parallel with the program, and belongs to a later step
        begin = first.get(me.rank, 0)
        spans = [
            span for span in trace.spans if span.rank == me.rank and span.step >= begin and span.activity != "read"
        ]
        if me.role == "server":
            measured[SERVE] += served(spans)
        else:
            for cost, seconds in zip(UPDATES, updates(spans, turns), strict=True):
                measured[cost] += seconds
            measured[LOAD if server is None else SERVER_LOAD] += lasting(spans, "load")
            measured[REST if server is None else SERVER_REST] += uncovered(spans)
            if server is not None and pace is None:
                measured[Cost(f"{SERVED} {me.rank}")] += lasting(
                    sorted(spans, key=lambda each: each.start_s), "compute"
                )
            if pace is not None:
                measured[LATE] += late(spans, job.batches[me.rank], pace)
            measured[WAIT] += waits(spans, trace.now_s.get(me.rank, ()))
            measured[LANE] += lanes(trace.now_s.get(me.rank, ()))
            for span in spans:
                if span.activity == "send":
                    measured[Cost("send", 2, span.bytes, memory, between)].append(span.end_s - span.start_s)
            for far in (False, True):
                these = [span for span in spans if span.key is None or (span.key in spread) is far]
                for (operation, members, nbytes), seconds in started(these, trace.spans).items():
                    measured[Cost("start", 2, own_bytes(operation, members, nbytes), inside, far)] += seconds
        for source, span in received(me.rank, trace):
            # only if the receiver was waiting: otherwise the time in its inbox would be counted
            if span.ready_s is None or span.step < begin:
                continue
            memory = inside and job.team[source].host == me.host
            between = places.get(source) != places.get(me.rank)
            if span.start_s <= span.ready_s:
                measured[Cost(MESSAGE, 2, span.bytes, memory, between)].append(span.end_s - span.ready_s)
            elif me.role == "worker":  # it has computed a gradient meanwhile, so the message has long arrived
                measured[Cost("receive", 2, span.bytes, memory, between)].append(span.end_s - span.start_s)
    for key, spans in together.items():
        operation, nbytes, how = unlabel(key)
        if how == "started":  # no rank was waiting for it
            continue
        last_s = max(span.start_s for span in spans)
        cost = Cost(operation, len(spans), nbytes, inside, key in spread)
        measured[cost] += [max(0.0, span.end_s - last_s) for span in spans]
    if (steps := ProbeSteps.of(trace.spans, job.team[0].workers.ranks)) is not None:
        measured[STEP], measured[COMPUTE] = [steps.step_s], [steps.compute_s]
    return measured


def first_steps(trace: Trace) -> dict[Rank, int]:
    """Returns the step of each rank with which its measurements begin."""
    steps: dict[Rank, int] = defaultdict(int)
    for span in trace.spans:
        steps[span.rank] = max(steps[span.rank], span.step + 1)
    return {rank: min(WARM_UP, count // 10) for rank, count in steps.items()}


def beside_gradients(job: Job, trace: Trace, measured: Costs) -> Costs:
    """Marks the costs that another task measures alone, and adds the shares of workers that computed meanwhile.

    Args:
        job: the job of the probe.
        trace: its record.
        measured: its costs.
    """
    also_alone = (*HANDLED, MESSAGE, SERVE.operation)
    marked = {cost._replace(beside=cost.operation in also_alone): times for cost, times in measured.items()}
    shares = BusyShares(trace.spans, job.workers)
    return {
        **marked,
        MESSAGE_SHARE: message_shares(job, trace, shares),
        SERVE_SHARE: serving_shares(job, trace, shares),
    }


def slowed(launch: Costs, factor: float) -> Costs:
    """Returns the costs of a launch on a machine that is slower by a factor; those of a paced launch are the same."""
    if SLOWNESS not in launch:
        return launch
    return {
        cost: list(times) if cost in NO_TIMES else [factor * each for each in times] for cost, times in launch.items()
    }


def pooled(launches: Sequence[Costs], *, between: bool = False) -> Profile:
    """Combines several launches to one profile: the median over launches of each launch's mean.

    The mean, because a step waits for the whole time of a collective, however rarely it is long. The median over
    launches, because the effect of another program on one launch is not a cost of this machine.

    Args:
        launches: the costs of each launch.
        between: combines those between hosts; otherwise those of a host.
    """
    every = dict.fromkeys(
        cost for launch in launches for cost, times in launch.items() if times and cost.between is between
    )
    centre: dict[Cost, float] = {
        cost: float(np.median([average(cost, launch[cost]) for launch in launches if launch.get(cost)]))
        for cost in every
    }
    by_size: dict[tuple[str, int, bool], dict[int, float]] = defaultdict(dict)
    for cost, seconds in centre.items():
        if cost.members > 1 and not (cost.beside and cost._replace(beside=False) in centre):
            by_size[cost.operation, cost.members, cost.inside][cost.nbytes] = seconds
    messages, inside_messages = (by_size.pop((MESSAGE, 2, inside), {}) for inside in (False, True))
    handled: dict[tuple[Handled, bool], dict[int, float]] = {
        (kind, inside): by_size.pop((kind, 2, inside), {}) for kind in HANDLED for inside in (False, True)
    }
    return Profile(
        collectives=_points(by_size, inside=False),
        inside=_points(by_size, inside=True),
        messages=tuple(sorted(messages.items())),
        inside_messages=tuple(sorted(inside_messages.items())),
        handling={key: tuple(sorted(times.items())) for key, times in handled.items() if times},
        load_s=centre.get(LOAD, centre.get(SERVER_LOAD, 0.0)),
        server_load_s=centre.get(SERVER_LOAD, 0.0),
        late_s=centre.get(LATE, 0.0),
        rest_s=centre.get(REST, centre.get(SERVER_REST, 0.0)),
        server_rest_s=centre.get(SERVER_REST, 0.0),
        lane_s=centre.get(LANE, 0.0),
        wait_s=centre.get(WAIT, 0.0),
        update_s=centre.get(UPDATES[0], 0.0),
        update_into_s=centre.get(UPDATES[1], 0.0),
        update_beside_s=centre.get(UPDATES[2], 0.0),
        update_few_s=centre.get(UPDATES[3], 0.0),
        serve_s=centre.get(SERVE, 0.0),
        message_beside=_speed(centre, MESSAGE, MESSAGE_SHARE),
        serve_beside=_speed(centre, SERVE.operation, SERVE_SHARE),
        served=_served(launches),
        snapshot_s=centre.get(SNAPSHOT, 0.0),
        samples={_words(cost): sum(len(launch.get(cost, ())) for launch in launches) for cost in every},
    )


def _served(launches: Sequence[Costs]) -> GradientVariation | None:
    """Returns how gradients vary while all workers use a server; None if that was not measured.

    With a server there are more threads than cores, and the operating system interrupts gradients for milliseconds.
    """
    sequences = [
        {(Rank(number), 0): times for number, times in enumerate(of_ranks)}
        for launch in launches
        if MESSAGE_SHARE in launch
        and (of_ranks := [times for cost, times in launch.items() if cost.operation.startswith(SERVED) and times])
    ]
    ratios = [time / float(np.mean(times)) for of_ranks in sequences for times in of_ranks.values() for time in times]
    return GradientVariation(slices(ratios), correlations(sequences).between_steps) if ratios else None


def _speed(centre: Mapping[Cost, float], operation: str, share: Cost) -> float:
    """Returns the speed of an operation beside gradients, at the largest size that was measured alone and beside."""
    alone = [cost for cost in centre if cost.operation == operation and cost._replace(beside=True) in centre]
    if not alone or share not in centre:
        return 1.0
    cost = max(alone, key=lambda cost: cost.nbytes)
    return speed(centre[cost], centre[cost._replace(beside=True)], centre[share])


def _points(by_size: Mapping[tuple[str, int, bool], Mapping[int, float]], *, inside: bool) -> Collectives:
    return {
        (operation, members): tuple(sorted(seconds.items()))
        for (operation, members, there), seconds in by_size.items()
        if there is inside
    }


def _words(cost: Cost) -> str:
    return f"{cost.operation} of {cost.members}" + " inside" * cost.inside


def average(cost: Cost, times: Sequence[float]) -> float:
    """Returns the mean; of messages without the tails, since an occasional timer tick is not a cost of messages."""
    return float(trim_mean(times, TRIM) if cost.operation == MESSAGE else np.mean(times))
