"""Measures the costs of messages and collectives on this machine, with the operations that programs use.

Rules of this file:

* Probes are programs. The same launcher and interpreter run them as any method, paced by the devices of the run to be
  predicted. Probing back to back instead is wrong by a factor of three (the network is then never idle).
* A collective is timed from its last entry, and a message from its sending: the model itself computes waits for others.
* A worker's other work is separated by the spans that every run records (`span_costs`), as its time shares are.
* Collectives that runs perform in a node's shared memory are probed there; a launch without shared memory probes the
  others. In a probe, which has no server, the groups of these may be inside a node too. Messages are probed in a launch
  that has shared memory if runs have it, and messages through it are separated from the others.
* Several launches are pooled, since they differ in how the processes are placed on cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import trim_mean

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method, build_team
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.message_loads import message_shares, serving_shares, speed
from paceline.backend.calibration.probe_runner import Runner
from paceline.backend.calibration.probes import ProbeCollectives, ProbeMessages, own_bytes
from paceline.backend.calibration.snapshot_costs import snapshot_s
from paceline.backend.calibration.span_costs import (
    lanes,
    lasting,
    late,
    received,
    served,
    started,
    uncovered,
    unlabel,
    updates,
    waits,
)
from paceline.backend.local.launch import Launch
from paceline.backend.rank.pacing import Pace
from paceline.records.trace import Schedule, Span, Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.machine_profile import Asked, Collectives, Handled, Profile

Progress = Callable[[str, float], None]
LAUNCHES = 5
COLLECTIVE_STEPS, MOST_STEPS = 80, 240
"""the fewest and the most steps of each launch"""
TIMES = 20
"""steps for each collective in a launch, unless there are too many"""
MESSAGE_STEPS = 40
TRIM = 0.05
"""share of messages left out at either end: an occasional timer tick of the kernel is not a cost of messages"""


def probe(scenario: Scenario, asked: Sequence[Asked], *, progress: Progress | None = None) -> Profile:
    """Returns a profile of this machine for the runs of a scenario.

    Args:
        scenario: the scenario with the workers, their device times, and the sizes of vectors.
        asked: the collectives of its runs; if there are none, an all-reduce is measured, and the workers' other work
            with it.
        progress: called with what is being measured and the completed share, 0 … 1.
    """
    return pooled(probe_costs(scenario, asked, progress=progress))


def probe_costs(
    scenario: Scenario, asked: Sequence[Asked], *, progress: Progress | None = None, runner: Runner | None = None
) -> list[Costs]:
    """Returns the costs of every launch of the probes, as for `probe`; nothing if another process has them.

    Args:
        scenario: the scenario.
        asked: the collectives of its runs.
        progress: called with what is being measured and the completed share, 0 … 1.
        runner: the processes that measure; by default they are forked on this machine.
    """
    found: list[Costs] = []
    tasks = message_tasks(scenario, asked, runner)
    for turn in range(1, LAUNCHES + 1):
        for number, task in enumerate(tasks):
            if progress is not None:
                progress(task.name, ((turn - 1) * len(tasks) + number) / (LAUNCHES * len(tasks)))
            found += task.measure(turn)
    return found


@dataclass(frozen=True, eq=False)
class MessageTask:
    """A probe of messages or of collectives, launched again in every round.

    Args:
        scenario: the scenario of the runs to be predicted.
        plan: the run with the most ranks.
        method: the program of the probe.
        steps: its steps.
        beside: whether its messages were exchanged beside gradients, and another task measures them alone.
        runner: the processes that perform it.
    """

    scenario: Scenario
    plan: Plan
    method: Method
    steps: int
    beside: bool = False
    runner: Runner = field(default_factory=Runner)

    @property
    def name(self) -> str:
        """What it measures."""
        return self.method.name.removeprefix("probe-")

    @property
    def job(self) -> Job:
        """The job of each launch."""
        return job_of(self.plan.job, self.plan.cluster.placement, self.method, self.steps)

    def measure(self, turn: int) -> list[Costs]:
        """Launches the probe once; returns its costs, or nothing if another process has them.

        Args:
            turn: the number of the round, from 1; rounds draw different step times.
        """
        train, job = self.scenario.train, self.job
        later = Later(self.plan, 10_000 * turn) if train.pace == "device" else None
        inside = self.method.inside if isinstance(self.method, ProbeCollectives) else train.shared_memory
        launch = replace(launch_of(self.scenario, job), pace=later, shared_memory=inside)
        trace = self.runner.run(launch)
        if trace is None:
            return []
        found = costs(job, trace, later, inside=inside, hosts=self.runner.hosts_of(job))
        found[SNAPSHOT] = [snapshot_s(job)]
        return [beside_gradients(job, trace, found) if self.beside else found]


def message_tasks(scenario: Scenario, asked: Sequence[Asked], runner: Runner | None = None) -> list[MessageTask]:
    """Returns the probes for the runs of a scenario, as for `probe_costs`."""
    plan, runner = max(scenario.plans(paced=True), key=lambda plan: plan.job.workers), runner or Runner()
    probes: list[tuple[Method, int]] = []
    messages = [MessageTask(scenario, plan, ProbeMessages(), MESSAGE_STEPS * plan.job.workers, runner=runner)]
    # paced gradients leave the cores to messages, and one worker of several hosts measures nothing between them
    if plan.job.workers > 1 and scenario.train.pace == "none" and not runner.hosts_of(messages[0].job):
        alone = MessageTask(scenario, plan, ProbeMessages(active=1), MESSAGE_STEPS, runner=runner)
        messages = [replace(messages[0], beside=True), alone]
    if plan.job.workers > 1:
        asked = asked or [replace(global_all_reduce(plan.job), inside=plan.inside(plan.job.team[0].workers))]
        for inside in (False, True):
            if there := tuple(one for one in asked if one.inside is inside):
                steps = min(max(COLLECTIVE_STEPS, TIMES * len(there)), MOST_STEPS)
                probes.append((ProbeCollectives(asked=there, inside=inside), steps))
    return messages + [MessageTask(scenario, plan, method, steps, runner=runner) for method, steps in probes]


def global_all_reduce(job: Job) -> Asked:
    """Returns the all-reduce of the whole weights by all workers."""
    return Asked("AllReduce", job.workers, job.learner.initial().nbytes, (job.team[0].workers.ranks,))


def job_of(like: Job, nodes: Sequence[Sequence[Rank]], method: Method, steps: int) -> Job:
    """Returns a probe's job for the same ranks and learner."""
    job = replace(like, method=method, team=build_team(method, nodes, like.learner.layout))
    return replace(job, budget=Budget(samples=steps * job.samples_per_step))


def launch_of(scenario: Scenario, job: Job) -> Launch:
    """Returns the launch of a probe with the settings of a scenario's real runs, not paced."""
    train = scenario.train
    return Launch(
        job=job,
        schedule=never,
        prefetch=scenario.prefetch,
        torch_threads=train.torch_threads,
        cpu_affinity=train.cpu_affinity,
        shared_memory=train.shared_memory,
        interfaces=train.interfaces,
    )


def never() -> Schedule:
    """Returns a schedule without snapshots."""
    return Schedule(every=float("inf"))


@dataclass(frozen=True, slots=True)
class Later:
    """A pace that draws from other steps than the run to be predicted."""

    pace: Pace
    offset: int

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return self.pace.compute_s(rank, step + self.offset, samples)

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s  # slowdowns belong to the predicted run, not to the probed machine

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return self.pace.layer_shares()


# --- from records to costs ----------------------------------------------------------------------------------------


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


Costs = dict[Cost, list[float]]
LOAD, LATE, REST, SERVE, LANE, WAIT = map(Cost, ("load", "late", "rest", "serve", "lane", "wait"))
SERVER_LOAD, SERVER_REST = Cost("load with a server"), Cost("rest with a server")
MESSAGE_SHARE, SERVE_SHARE = Cost("message share"), Cost("serve share")
"""not times: the shares of other workers that computed meanwhile"""
UPDATES = tuple(map(Cost, ("update", "update into", "update beside", "update of few")))
UPDATE = UPDATES[0]
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
    found: Costs = defaultdict(list)
    server, places = job.team[0].server, hosts or {}
    turns = len(job.method.asked) if isinstance(job.method, ProbeCollectives) else 0
    together: dict[str, list[Span]] = defaultdict(list)
    for span in trace.spans:
        if span.key is not None:
            together[span.key].append(span)
    spread = {key for key, spans in together.items() if len({places.get(span.rank) for span in spans}) > 1}
    for me in job.team:
        memory = inside and server is not None and job.team[server].host == me.host
        between = server is not None and places.get(server) != places.get(me.rank)
        # prefetching runs in parallel with the program, and belongs to a later step
        spans = [span for span in trace.spans if span.rank == me.rank and span.activity != "read"]
        if me.role == "server":
            found[SERVE] += served(spans)
        else:
            for cost, seconds in zip(UPDATES, updates(spans, turns), strict=True):
                found[cost] += seconds
            found[LOAD if server is None else SERVER_LOAD] += lasting(spans, "load")
            found[REST if server is None else SERVER_REST] += uncovered(spans)
            if pace is not None:
                found[LATE] += late(spans, job.batch, pace)
            found[WAIT] += waits(spans, trace.now_s.get(me.rank, ()))
            found[LANE] += lanes(trace.now_s.get(me.rank, ()))
            for span in spans:
                if span.activity == "send":
                    found[Cost("send", 2, span.bytes, memory, between)].append(span.end_s - span.start_s)
            for far in (False, True):
                these = [span for span in spans if span.key is None or (span.key in spread) is far]
                for (operation, members, nbytes), seconds in started(these, trace.spans).items():
                    found[Cost("start", 2, own_bytes(operation, members, nbytes), inside, far)] += seconds
        for source, span in received(me.rank, trace):
            # only if the receiver was waiting: otherwise the time in its inbox would be counted
            if span.ready_s is None:
                continue
            memory = inside and job.team[source].host == me.host
            between = places.get(source) != places.get(me.rank)
            if span.start_s <= span.ready_s:
                found[Cost(MESSAGE, 2, span.bytes, memory, between)].append(span.end_s - span.ready_s)
            elif me.role == "worker":  # it has computed a gradient meanwhile, so the message has long arrived
                found[Cost("receive", 2, span.bytes, memory, between)].append(span.end_s - span.start_s)
    for key, spans in together.items():
        operation, nbytes, how = unlabel(key)
        if how == "started":  # no rank was waiting for it
            continue
        last_s = max(span.start_s for span in spans)
        cost = Cost(operation, len(spans), nbytes, inside, key in spread)
        found[cost] += [max(0.0, span.end_s - last_s) for span in spans]
    return found


def beside_gradients(job: Job, trace: Trace, found: Costs) -> Costs:
    """Renames the costs that another task measures alone, and adds the shares of workers that computed meanwhile.

    Args:
        job: the job of the probe.
        trace: its record.
        found: its costs.
    """
    renamed = {
        cost._replace(operation=f"{cost.operation} beside")
        if cost.operation in (*HANDLED, MESSAGE, "serve")
        else cost: times
        for cost, times in found.items()
    }
    return {**renamed, MESSAGE_SHARE: message_shares(job, trace), SERVE_SHARE: serving_shares(job, trace)}


def pooled(found: Sequence[Costs], *, between: bool = False) -> Profile:
    """Combines several launches to one profile: the median over launches of each launch's mean.

    The mean, because a step waits for the whole time of a collective, however rarely it is long. The median over
    launches, because the effect of another program on one launch is not a cost of this machine.

    Args:
        found: the costs of each launch.
        between: combines those between hosts; otherwise those of a host.
    """
    every = dict.fromkeys(
        cost for launch in found for cost, times in launch.items() if times and cost.between is between
    )
    centre: dict[Cost, float] = {
        cost: float(np.median([average(cost, launch[cost]) for launch in found if launch.get(cost)])) for cost in every
    }
    by_size: dict[tuple[str, int, bool], dict[int, float]] = defaultdict(dict)
    for cost, seconds in centre.items():
        operation = cost.operation.removesuffix(" beside")
        if cost.members > 1 and (operation == cost.operation or cost._replace(operation=operation) not in centre):
            by_size[operation, cost.members, cost.inside][cost.nbytes] = seconds
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
        serve_beside=_speed(centre, "serve", SERVE_SHARE),
        snapshot_s=centre.get(SNAPSHOT, 0.0),
        samples={_words(cost): sum(len(launch.get(cost, ())) for launch in found) for cost in every},
    )


def _speed(centre: Mapping[Cost, float], operation: str, share: Cost) -> float:
    """Returns the speed of an operation beside gradients, at the largest size that was measured alone and beside."""
    both = [
        cost
        for cost in centre
        if cost.operation == operation and cost._replace(operation=f"{operation} beside") in centre
    ]
    if not both or share not in centre:
        return 1.0
    cost = max(both, key=lambda cost: cost.nbytes)
    return speed(centre[cost], centre[cost._replace(operation=f"{operation} beside")], centre[share])


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
