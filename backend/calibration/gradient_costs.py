"""Measures how long gradients take on this machine's cores, with one rank busy, with two, and so on.

Each launch has the ranks, threads and cores of the run that will be predicted. Launches differ in how the processes are
placed on cores, so several are pooled: the median over launches of each launch's mean.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.message_costs import job_of, launch_of
from paceline.backend.calibration.probe_runner import Runner
from paceline.backend.calibration.probes import GRADIENTS, Phase, ProbeGradients, phase_of
from paceline.backend.calibration.step_time_laws import Sequences
from paceline.records.machine_speed import steady
from paceline.records.trace import Span, Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.device import FORWARD
from paceline.topologies.catalogue.gradient_times import GradientTimes, slices

SECONDS = 1.5
"""how long a launch computes gradients, about"""
MOST_REDUCING_S = 5.0
"""how long a launch performs all-reduces at most, about; on slow emulated networks they take longer than gradients"""
FEWEST, MOST = 3, 60
"""steps of each number of busy ranks in a launch"""
SLOWEST = 0.02
"""the lowest speed of overlapping activities: below, a difference of measured times means nothing"""
WARM_UP = 2
"""gradients at the beginning of a step that are left out: the ranks do not begin together, and caches are cold"""


@dataclass(frozen=True, eq=False)
class GradientTask:
    """A probe of gradients at one batch size, launched again in every round.

    Args:
        plan: the run with the most ranks.
        batch: samples of a gradient.
        runner: the processes that perform it.
    """

    plan: Plan
    batch: int
    runner: Runner = field(default_factory=Runner)

    @property
    def name(self) -> str:
        """What it measures."""
        return f"gradients of {self.batch} samples"

    def measure(self, steps: int) -> list[LaunchGradients]:
        """Launches the probe once; returns its times, or nothing if another process has them.

        Args:
            steps: steps for each number of busy ranks.
        """
        cores = self.runner.decide(available_cores)
        hosts = tuple(self.runner.workers_of_hosts(self.plan.job).values())
        like, method = self.plan.job, ProbeGradients(hosts=hosts, cores=cores)
        steps *= len(method.phases(like.team[0].workers))
        job = job_of(like, self.plan.cluster.placement, method, steps, self.batch)
        trace = self.runner.run(launch_of(self.plan, job), self.plan)
        if trace is None:
            return []
        first_s = min((span.start_s for span in trace.spans), default=0.0)
        launched_s = trace.notes.get("startup_s")
        startup_s = None if launched_s is None else launched_s + first_s
        trace, slowness = steady(trace)
        return [replace(gradients_of(job, trace), startup_s=startup_s, slowness=slowness)]

    def steps(self) -> int:
        """Returns how many steps fill a launch, from the times of a short one; the same in every process."""
        launches = self.measure(FEWEST)
        return self.runner.decide(lambda: steps_of(launches[0]))


def steps_of(times: LaunchGradients) -> int:
    """Returns how many steps fill a launch, given the times of one."""
    pauses_s = sum(pause_s + float(np.mean(value)) for pause_s, value in times.paused.items())
    each_s = (pauses_s + sum(float(np.mean(value)) for value in times.by_busy.values())) * GRADIENTS
    most = [SECONDS / each_s]
    if times.overlap is not None:
        most.append(MOST_REDUCING_S / (GRADIENTS * (times.overlap.alone_s + times.overlap.beside_s)))
    return min(MOST, max(FEWEST, round(min(most))))


def gradient_tasks(scenario: Scenario, batches: Sequence[int] = (), runner: Runner | None = None) -> list[GradientTask]:
    """Returns the probes of gradients for the runs of a scenario.

    Args:
        scenario: the scenario with its model, batch, ranks and threads.
        batches: the batch sizes; by default those of the scenario.
        runner: the processes that perform them; by default each launch forks its own.
    """
    plan = max(scenario.plans(paced=False), key=lambda plan: plan.job.workers)
    return [GradientTask(plan, batch, runner or Runner()) for batch in batches or sorted(set(plan.job.batches))]


@dataclass(frozen=True, slots=True)
class LaunchGradients:
    """The gradients of one launch.

    Args:
        by_busy: their seconds, by the number of ranks that computed at the same time.
        paused: their seconds after pauses, by the pause in seconds.
        layers_s: the mean seconds of each layer of a layer-wise gradient on all ranks, last layer first. That of the
            last layer contains the forward pass.
        overlap: an all-reduce beside gradients; None for one rank.
        started_s: the mean seconds of a gradient that is started and then waited for, on all ranks; 0: not measured.
        sequences: successive gradients with all ranks busy, by rank and step.
        startup_s: from the launch to the first gradient; None if a launcher started the ranks.
        slowness: that of the machine meanwhile; `GradientTask` gives all seconds at slowness 1 (see `machine_speed`).
    """

    by_busy: dict[int, list[float]]
    paused: dict[float, list[float]] = field(default_factory=dict)
    layers_s: tuple[float, ...] = ()
    overlap: Overlap | None = None
    started_s: float = 0.0
    sequences: Sequences = field(default_factory=dict)
    startup_s: float | None = None
    slowness: float = 1.0

    def slowed(self, factor: float) -> LaunchGradients:
        """Returns the times on a machine that is slower by a factor.

        >>> LaunchGradients({1: [0.5]}).slowed(2.0).by_busy
        {1: [1.0]}
        """
        overlap = self.overlap
        return replace(
            self,
            by_busy={count: [factor * each for each in times] for count, times in self.by_busy.items()},
            paused={pause_s: [factor * each for each in times] for pause_s, times in self.paused.items()},
            layers_s=tuple(factor * each for each in self.layers_s),
            overlap=None if overlap is None else Overlap(*(factor * each for each in astuple(overlap))),
            started_s=factor * self.started_s,
        )


@dataclass(frozen=True, slots=True)
class Overlap:
    """The mean seconds of an all-reduce from its last entry, alone and beside gradients, and of these gradients."""

    alone_s: float
    beside_s: float
    gradient_s: float

    def speeds(self, gradient_s: float) -> tuple[float, float]:
        """Returns the speeds of gradient and all-reduce while both run, each over its speed without the other.

        Both overlap for min(gradient, all-reduce) seconds, after which the longer one continues at full speed:

            gradient:    alone = overlap · speed + (beside − overlap)
            all-reduce:  the same

        Args:
            gradient_s: the seconds of a gradient without an all-reduce, with all ranks busy.

        >>> Overlap(alone_s=1.0, beside_s=2.0, gradient_s=10.0).speeds(gradient_s=9.0)
        (0.5, 0.5)
        """
        both_s = min(self.beside_s, self.gradient_s)
        speeds = [
            (alone_s - (beside_s - both_s)) / both_s
            for alone_s, beside_s in ((gradient_s, self.gradient_s), (self.alone_s, self.beside_s))
        ]
        return min(1.0, max(SLOWEST, speeds[0])), min(1.0, max(SLOWEST, speeds[1]))


def gradients_of(job: Job, trace: Trace) -> LaunchGradients:
    """Returns the times in the record of a probe.

    Args:
        job: the job of a `ProbeGradients`.
        trace: its record.
    """
    method = job.method
    assert isinstance(method, ProbeGradients), "the record of another program"
    workers = job.team[0].workers
    phases = method.phases(workers)
    starts: dict[tuple[Rank, int], list[tuple[float, float]]] = defaultdict(list)
    beside, started = list[float](), list[float]()
    layers: dict[str, list[float]] = defaultdict(list)
    for span in trace.spans:
        if span.activity != "compute":
            continue
        seconds = span.end_s - span.start_s
        if (phase := phase_of(span.step, phases)).name == "started":
            started.append(seconds)
        elif phase.name == "beside":
            beside.append(seconds)
        elif span.layer is None:
            starts[span.rank, span.step].append((span.start_s, seconds))
        else:
            layers[span.layer].append(seconds)
    by_phase: dict[Phase, list[float]] = defaultdict(list)
    sequences: dict[tuple[Rank, int], list[float]] = {}
    for (rank, step), own_times in starts.items():
        # the last one may have been alone: another rank was ready before
        kept, phase = [seconds for _, seconds in sorted(own_times)[WARM_UP:-1]], phase_of(step, phases)
        phase = phase._replace(busy=min(phase.busy, len(method.beside(rank, workers))))
        by_phase[phase] += kept
        if phase == phases[0]._replace(busy=max(other.busy for other in phases)):
            sequences[rank, step] = kept
    by_busy = {phase.busy: times for phase, times in by_phase.items() if phase.name == "busy"}
    paused: dict[float, list[float]] = defaultdict(list)
    for phase, times in by_phase.items():
        if phase.name == "paused":
            paused[phase.pause_s] += times
    ordered = [layers[layer.name] for layer in reversed(job.learner.layout.layers) if layer.name in layers]
    means = tuple(float(np.mean(times)) for times in ordered)
    started_s = float(np.mean(started)) if started else 0.0
    if not beside:
        return LaunchGradients(by_busy, paused, means, started_s=started_s, sequences=sequences)
    alone_s, beside_s = (_all_reduce_s(trace, how) for how in ("alone", "beside"))
    overlap = Overlap(alone_s, beside_s, float(np.mean(beside)))
    return LaunchGradients(by_busy, paused, means, overlap, started_s, sequences)


def _all_reduce_s(trace: Trace, how: str) -> float:
    """Returns the mean seconds from the last entry into an all-reduce of a probe to an exit."""
    together, label = defaultdict[str, list[Span]](list), re.compile(rf"\b{how} \d+ \d+\b")  # as `beside` names them
    for span in trace.spans:
        if span.key is not None and label.search(span.key):
            together[span.key].append(span)
    return float(
        np.mean([span.end_s - max(other.start_s for other in spans) for spans in together.values() for span in spans])
    )


def means_s(launches: Sequence[LaunchGradients], count: int) -> list[float]:
    """Returns the mean seconds of a gradient in each launch, with so many ranks busy."""
    return [float(np.mean(launch.by_busy[count])) for launch in launches]


def pooled(batch: int, launches: Sequence[LaunchGradients], forward: float = FORWARD) -> GradientTimes:
    """Combines launches.

    Args:
        batch: the samples of a gradient.
        launches: the times of each launch.
        forward: the share of the forward pass in a gradient, which cannot be seen in the times of layers.
    """
    counts = sorted(launches[0].by_busy)
    busy = tuple((count, float(np.median(means_s(launches, count)))) for count in counts)
    times = GradientTimes(batch=batch, busy=busy, factors=slices(ratios_of(launches)), pauses=_pauses(launches))
    if all(launch.started_s for launch in launches):
        started = float(np.median([launch.started_s for launch in launches])) / busy[-1][1]
        times = replace(times, started=max(1.0, started))
    if overlaps := [launch.overlap for launch in launches if launch.overlap is not None]:
        middle = Overlap(
            *(float(np.median(column)) for column in zip(*map(astuple, overlaps), strict=True)),
        )
        # the gradient follows a wait for the all-reduce before it, and is as long as after a pause without another one
        beside, overlap = middle.speeds(busy[-1][1] + times.paused_s(middle.alone_s))
        times = replace(times, beside=beside, overlap=overlap)
    if not all(launch.layers_s for launch in launches):
        return times
    layers_s = np.median([launch.layers_s for launch in launches], axis=0)
    whole_s = float(layers_s.sum())
    passed = min(forward, float(layers_s[0]) / whole_s)
    backward = layers_s / whole_s
    backward[0] -= passed
    return replace(
        times,
        layered=whole_s / busy[-1][1],
        forward=passed,
        backward=tuple(float(share) for share in reversed(backward)),
    )


def _pauses(launches: Sequence[LaunchGradients]) -> tuple[tuple[float, float], ...]:
    """Returns by how much gradients are longer after each pause than without one, with as many busy ranks."""
    pauses = []
    for pause_s in sorted(launches[0].paused):
        extra_s = [
            float(np.mean(launch.paused[pause_s]))
            - float(np.mean(launch.by_busy[min(available_cores(), max(launch.by_busy))]))
            for launch in launches
        ]
        pauses.append((pause_s, max(0.0, float(np.median(extra_s)))))
    return tuple(pauses)


def ratios_of(launches: Sequence[LaunchGradients]) -> list[float]:
    """Returns gradient times with all ranks busy, over the mean of their launch."""
    most = max(launches[0].by_busy)
    return [
        second / mean_s
        for launch, mean_s in zip(launches, means_s(launches, most), strict=True)
        for second in launch.by_busy[most]
    ]


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
