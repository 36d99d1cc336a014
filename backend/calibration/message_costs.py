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

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method, build_team
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.probe_runner import Runner
from paceline.backend.calibration.probes import ProbeCollectives, ProbeMessages
from paceline.backend.calibration.recorded_costs import SLOWNESS, SNAPSHOT, Costs, beside_gradients, costs
from paceline.backend.local.launch import Launch
from paceline.backend.posix.run_folders import SHARED
from paceline.backend.rank.pacing import Pace
from paceline.backend.status.recorder import FileRecorder
from paceline.records.machine_speed import steady
from paceline.records.trace import Schedule, Snapshot
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.machine_profile import Asked

COLLECTIVE_STEPS, MOST_STEPS = 80, 240
"""the fewest and the most steps of each launch"""
TIMES = 20
"""steps for each collective in a launch, unless there are too many"""
MESSAGE_STEPS = 40
UNPACED = 4
"""times as many steps of launches that are not paced, on one host; these last milliseconds"""


@dataclass(frozen=True, eq=False)
class MessageTask:
    """A probe of messages or of collectives, launched again in every round.

    Args:
        plan: the run with the most ranks.
        method: the program of the probe.
        steps: its steps.
        beside: whether its messages were exchanged beside gradients, and another task measures them alone.
        runner: the processes that perform it.
    """

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
        real, job = self.plan.real, self.job
        later = Later(self.plan, 10_000 * turn) if real.pace == "device" else None
        inside = self.method.inside if isinstance(self.method, ProbeCollectives) else real.shared_memory
        launch = replace(launch_of(self.plan, job), pace=later, shared_memory=inside)
        trace = self.runner.run(launch)
        if trace is None:
            return []
        slowness = None
        if later is None:  # the times of paced gradients are those of the devices
            trace, slowness = steady(trace)
        measured = costs(job, trace, later, inside=inside, hosts=self.runner.hosts_of(job))
        if slowness is not None:
            measured[SLOWNESS] = [slowness]
        if isinstance(self.method, ProbeMessages):  # once a round is enough
            measured[SNAPSHOT] = [snapshot_s(job) / (slowness or 1.0)]
        return [beside_gradients(job, trace, measured) if self.beside else measured]


def message_tasks(scenario: Scenario, asked: Sequence[Asked], runner: Runner | None = None) -> list[MessageTask]:
    """Returns the probes for the runs of a scenario, with an all-reduce if they ask for no collective."""
    plan, runner = max(scenario.plans(paced=True), key=lambda plan: plan.job.workers), runner or Runner()
    talking = MessageTask(plan, ProbeMessages(), MESSAGE_STEPS * plan.job.workers, runner=runner)
    # paced gradients leave the cores to messages, and one worker of several hosts measures nothing between them
    busy = scenario.train.pace == "none" and not runner.hosts_of(talking.job)
    times = UNPACED if busy else 1
    tasks = [replace(talking, steps=times * talking.steps)]
    if plan.job.workers < 2:
        return tasks
    if busy:
        alone = replace(talking, method=ProbeMessages(active=1), steps=times * MESSAGE_STEPS)
        tasks = [replace(tasks[0], beside=True), alone]
    asked = asked or [replace(global_all_reduce(plan.job), inside=plan.inside(plan.job.team[0].workers))]
    for inside in (False, True):
        if there := tuple(collective for collective in asked if collective.inside is inside):
            steps = times * min(max(COLLECTIVE_STEPS, TIMES * len(there)), MOST_STEPS)
            tasks.append(replace(talking, method=ProbeCollectives(asked=there, inside=inside), steps=steps))
    return tasks


def global_all_reduce(job: Job) -> Asked:
    """Returns the all-reduce of the whole weights by all workers."""
    return Asked("AllReduce", job.workers, job.learner.initial().nbytes, (job.team[0].workers.ranks,))


def job_of(like: Job, nodes: Sequence[Sequence[Rank]], method: Method, steps: int, batch: int | None = None) -> Job:
    """Returns a probe's job for the same ranks and learner; `batch` is that of all, instead of the first worker's."""
    batches = (like.batches[0] if batch is None else batch,) * sum(map(len, nodes))  # `like` may use one worker
    job = replace(like, method=method, team=build_team(method, nodes, like.learner.layout, batches), deaths=())
    return replace(job, budget=Budget(samples=job.samples_in(steps)))


def launch_of(plan: Plan, job: Job) -> Launch:
    """Returns the launch of a probe with the settings of a plan's real run, not paced."""
    real = plan.real
    return Launch(
        job=job,
        schedule=never,
        prefetch=plan.prefetch,
        torch_threads=real.torch_threads,
        cpu_affinity=real.cpu_affinity,
        shared_memory=real.shared_memory,
        interfaces=real.interfaces,
    )


def never() -> Schedule:
    """Returns a schedule without snapshots."""
    return Schedule(every=float("inf"))


@dataclass(frozen=True, slots=True)
class Later:
    """A pace that draws from other steps than the run to be predicted."""

    pace: Pace
    offset: int

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return self.pace.compute_s(rank, step + self.offset, samples, start_s)

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s  # slowdowns belong to the predicted run, not to the probed machine

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return self.pace.layer_shares()


PIECE = 20
"""snapshots in one piece of a record; a run writes one every half second, so it has about as many"""
MOST_BYTES = 64 * 2**20
"""of a piece here, unless one snapshot is larger: it lies in memory twice"""


def snapshot_s(job: Job) -> float:
    """Returns the mean seconds in which a rank stores the weights of a job in its record.

    Args:
        job: the job.
    """
    with tempfile.TemporaryDirectory(prefix="snapshots-", dir=SHARED) as folder:
        recorder = FileRecorder(Rank(0), Path(folder, "record"))
        initial = job.learner.initial()
        count = max(1, min(PIECE, MOST_BYTES // max(1, int(initial.nbytes))))
        vectors = [initial + 0.0 for _ in range(count)]
        begun_s = time.perf_counter()
        for number, vector in enumerate(vectors):
            recorder.evaluation(Snapshot(0.0, number, 0, vector))
        recorder.close()
        return (time.perf_counter() - begun_s) / count
