"""Short simulated runs of one plan that also record charges, arrivals of messages and starts of collectives.

* Weights have a size and no numbers, so a run costs only the time of its events.
* A run begins with a warm-up, until every worker has passed one longest period of the method. Then whole periods of
  each worker are evaluated.
* A change of the cost of a rank's own work is a factor in `RecordedTiming`; a change of the cluster is another plan.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import simpy

from paceline.algorithms.core.job import Budget
from paceline.algorithms.core.operations import Barrier, Charge
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.records.trace import Schedule, Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.kernel.crash_timeline import Timeline
from paceline.simulator.kernel.simpy_events import upon
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.run import PlanTiming, cluster_network, perform
from paceline.workloads.learners.timing_only import TimingOnly

FEWEST_STEPS, MOST_STEPS = 4, 100
"""evaluated steps of each worker, if the longest period allows; our choice"""
GRADIENTS = 1000
"""evaluated gradients of all workers together, if this is between these bounds; our choice"""
LONGEST = 2000
"""largest number of evaluated steps of each worker; our choice"""


@dataclass(frozen=True, slots=True)
class Length:
    """The length of a run, in steps of a worker."""

    steps: int
    """evaluated steps"""
    period: int
    """the longest period of the method"""
    note: str = ""
    """what the length leaves out"""

    @property
    def warm_up(self) -> int:
        return min(self.period, self.steps)


def length_of(plan: Plan, steps: int | None = None) -> Length:
    """Returns the length of a run: at least two of the longest periods of the method, up to `LONGEST`.

    Args:
        plan: the run.
        steps: the requested number of steps, rounded up to whole periods; None: a number by the number of workers.
    """
    workers = plan.job.workers
    period = plan.job.method.longest_period(workers)
    wanted = steps or max(2 * period, min(MOST_STEPS, max(FEWEST_STEPS, GRADIENTS // workers)))
    whole = -(-wanted // period) * period
    if whole <= LONGEST or steps is not None:
        return Length(whole, period)
    if period <= LONGEST:
        return Length(LONGEST // period * period, period)
    words = f"{plan.name}: its longest period is {period} steps, and {LONGEST} were simulated, which leave out what it"
    return Length(LONGEST, LONGEST, f"{words} does least often; --steps {period} includes it")


@dataclass
class RecordedTiming:
    """The timing of a plan with some costs changed, which records the charges.

    Args:
        plan: the run.
        compute: the factor on the time of a gradient, given the rank.
        work: the factor on charges of workers.
        server: the factor on charges of the server.
    """

    plan: Plan
    compute: Callable[[Rank], float] = lambda _: 1.0
    work: float = 1.0
    server: float = 1.0
    charges: dict[Rank, list[tuple[Charge, float]]] = field(default_factory=lambda: defaultdict(list))
    """the charges of each rank with their seconds, in order"""

    def __post_init__(self) -> None:
        self._timing = PlanTiming(self.plan)

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return self.compute(rank) * self._timing.compute_s(rank, step, samples)

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return self._timing.layer_shares()

    def timeline(self, rank: Rank) -> Timeline | None:
        return self._timing.timeline(rank)

    def work_s(self, rank: Rank, op: Charge) -> float:
        factor = self.server if rank == self.plan.job.team[0].server else self.work
        seconds = factor * self._timing.work_s(rank, op)
        self.charges[rank].append((op, seconds))
        return seconds

    def load_s(self, rank: Rank, samples: int) -> float:
        return self._timing.load_s(rank, samples)

    def rest_s(self, rank: Rank) -> float:
        return self._timing.rest_s(rank)


@dataclass(slots=True)
class Performed:
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
        self.performed: dict[str, list[Performed]] = defaultdict(list)
        """the collectives with each key of the record, in order"""
        self._ends: dict[tuple[Group, str], Performed] = {}

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        env, arrivals, sent_s = self._env, self.arrivals[source, to], self._env.now
        arrival = super().message(source, to, nbytes)
        upon(arrival, lambda _: arrivals.append((sent_s, env.now, nbytes)))
        return arrival

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        kind, root = type(op).__name__, getattr(op, "root", None)
        place = 0 if root is None else op.group.ranks.index(root)
        size = 0 if isinstance(op, Barrier) else nbytes
        one = Performed(kind, op.group, size, place, self._env.now, self._env.now)
        before = self._ends.get((op.group, stream))
        self._ends[op.group, stream] = one
        self.performed[f"{kind} {op.key} over {op.group}{stream}"].append(one)
        done = super().collective(op, nbytes, stream)

        def ended(_: simpy.Event) -> None:
            one.end_s = self._env.now
            if before is not None:
                one.begin_s = max(one.begin_s, before.end_s)

        upon(done, ended)
        return done


@dataclass(frozen=True, slots=True)
class Recorded:
    """A short run with what was recorded."""

    plan: Plan
    length: Length
    trace: Trace
    charges: dict[Rank, list[tuple[Charge, float]]]
    network: RecordedNetwork

    @property
    def workers(self) -> int:
        return self.plan.job.workers


def record(plan: Plan, length: Length, timing: RecordedTiming | None = None) -> Recorded:
    """Simulates the beginning of a plan's run, with weights that have a size and no numbers.

    Args:
        plan: the run.
        length: its length.
        timing: the timing; None: that of the plan.
    """
    job, timing = plan.job, timing or RecordedTiming(plan)
    learner = job.learner
    sizes = TimingOnly(learner.layout, learner.num_samples, learner.initial().nbytes // learner.layout.size)
    samples = (length.warm_up + length.steps + 1) * job.batch * job.workers
    short = replace(plan, job=replace(job, learner=sizes, budget=Budget(samples=samples)))
    network = cluster_network(short, RecordedNetwork)
    trace = perform(short, Schedule(every=math.inf), network=network, timing=timing)
    return Recorded(short, length, trace, timing.charges, network)


@dataclass(frozen=True, slots=True)
class Window:
    """The evaluated part of a worker's time: whole steps, and whole periods if there are any."""

    start_s: float
    end_s: float
    steps: int

    def holds(self, time_s: float) -> bool:
        """Returns whether a time is in the window."""
        return self.start_s <= time_s < self.end_s


def windows(run: Recorded) -> dict[Rank, Window]:
    """Returns the window of each worker: from the start of one gradient to the start of another."""
    starts: dict[Rank, dict[int, float]] = defaultdict(dict)
    for span in run.trace.spans:
        if span.activity == "compute" and span.rank < run.workers:
            mine = starts[span.rank]
            mine[span.step] = min(span.start_s, mine.get(span.step, span.start_s))
    times = {rank: sorted(starts[rank].values()) for rank in sorted(starts)}
    warm_s = max((each[min(run.length.warm_up, len(each) - 1)] for each in times.values()), default=0.0)
    found = {}
    for rank, began_s in times.items():
        period, first = run.length.period, bisect_left(began_s, warm_s)
        if (count := len(began_s) - 1 - first) <= 0:  # a worker with so few steps has no warm-up
            first, count = 0, len(began_s) - 1
        count = count // period * period or count
        if count > 0:
            found[rank] = Window(began_s[first], began_s[first + count], count)
    return found


def mean_step_s(run: Recorded) -> float:
    """Returns the mean time between the starts of successive gradients of a worker."""
    found = windows(run).values()
    steps = sum(window.steps for window in found)
    return sum(window.end_s - window.start_s for window in found) / steps if steps else math.nan
