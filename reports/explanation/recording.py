"""Short simulated runs of one plan that also record charges, arrivals of messages and starts of collectives.

* The length of a run and the steps that are evaluated are those of `simulator.runs.short_runs`.
* A change of the cost of a rank's own work is a factor in `RecordedTiming`; a change of the cluster is another plan.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import simpy

from paceline.algorithms.core.job import Death
from paceline.algorithms.core.operations import Barrier, Charge
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.records.trace import Schedule, Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.kernel.simpy_events import upon
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.simulator.runs.run import cluster_network, perform
from paceline.simulator.runs.short_runs import Length, Window, mean_of, shortened, windows_of


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

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        seconds = self.compute(rank) * super().compute_s(rank, step, samples)
        if self.clock is not None:
            self.gradients_s.append(seconds)
        return seconds

    def many(self, ranks: Sequence[int]) -> None:
        """Returns None: each gradient has a factor of its own."""

    def work_s(self, rank: Rank, op: Charge) -> float:
        seconds = super().work_s(rank, op) * (self.server if rank == self.plan.job.team[0].server else self.work)
        if seconds > 0 and self.clock is not None:
            self.charges[rank, self.clock()].append(Charged(op, seconds))
        return seconds


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
    charges: dict[tuple[Rank, float], list[Charged]]
    """the charges that take time, by their rank and start"""
    network: RecordedNetwork
    gradients_s: float
    """the sum of all gradients' times, as long as nothing else uses their devices"""

    @property
    def workers(self) -> int:
        return self.plan.job.workers


def record(plan: Plan, length: Length, deaths: tuple[Death, ...] = ()) -> Recorded:
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
    return Recorded(short, length, trace, timing.charges, network, sum(timing.gradients_s))


def windows(run: Recorded) -> dict[Rank, Window]:
    """Returns the window of each worker: from the start of one gradient to the start of another."""
    return windows_of(run.trace, run.workers, run.length)


def mean_step_s(
    plan: Plan, length: Length, timing: RecordedTiming | None = None, network: ClusterNetwork | None = None
) -> float:
    """Returns the mean time between the starts of successive gradients of a worker, in such a short run.

    Messages and collectives are not recorded, so that the fastest interpreter can do the run.

    Args:
        plan: the run.
        length: its length.
        timing: the timing; None: that of the plan.
        network: a network of the same links, whose choices are used again; None: a new one.
    """
    trace = perform(shortened(plan, length), Schedule(every=math.inf), network=network, timing=timing)
    return mean_of(windows_of(trace, plan.job.workers, length))
