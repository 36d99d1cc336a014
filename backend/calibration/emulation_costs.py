"""Measures the costs that this machine adds to a network that it emulates, by messages of a few numbers.

Rules of this file: messages between hosts are so small that only the handling of a message is measured, not the rates
of lines; whole vectors are measured on this machine alone. All probes are paced like the run to be predicted. If it is
not paced, gradients are measured beside an all-reduce over the emulated network, whose packets take time of the cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from scipy.stats import trim_mean

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import AllReduce, Gradient, Load, NextStep, RecordUpdate, Start, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Layer, Layout, Weights
from paceline.backend.calibration.message_costs import (
    Later,
    global_all_reduce,
    job_of,
    launch_of,
    message_tasks,
)
from paceline.backend.calibration.probe_runner import refuse_torn
from paceline.backend.calibration.probes import Probe, ProbeCollectives, ProbeMessages
from paceline.backend.calibration.recorded_costs import TRIM, Cost, costs
from paceline.backend.emulation.emulated_network import Emulation, emulated
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.multihost.rank_mapping import map_ranks, refuse
from paceline.backend.multihost.world import World
from paceline.records.trace import Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import (
    MESSAGE_LEGS,
    Asked,
    EmulationCosts,
)
from paceline.workloads.learners.stand_in import TimingOnly


@dataclass(frozen=True, kw_only=True)
class ProbeStarts(Probe):
    """After each gradient, two all-reduces of a few of its numbers; the second starts while the first is in flight."""

    name = "probe-starts"

    few: int
    """how many numbers each all-reduce has"""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            part = gradient.vector[: self.few]
            first = yield from Start(AllReduce(value=part, group=me.workers, key=f"first {step.number}"))
            second = yield from Start(AllReduce(value=part, group=me.workers, key=f"second {step.number}"))
            yield from Wait(first)
            yield from Wait(second)
            vector = state.weights.vector - 0.0 * gradient.vector
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version))
        return state


def start_s(trace: Trace) -> float:
    """Returns the median time between the two starts of a step."""
    starts: dict[tuple[int, int], list[float]] = defaultdict(list)
    for span in trace.spans:
        if span.activity == "collective":
            starts[span.rank, span.step].append(span.start_s)
    return median(max(starts_s) - min(starts_s) for starts_s in starts.values() if len(starts_s) == 2)


STEPS = 40
FEW = 16
"""numbers in a message whose transfer time is negligible"""


@dataclass(frozen=True, eq=False)
class EmulationTask:
    """The probes of an emulated network, launched again in every round.

    Args:
        plan: the run with the most ranks.
    """

    plan: Plan
    name = "the emulated network"

    def measure(self, turn: int) -> EmulationCosts:
        """Launches every probe once.

        Args:
            turn: the number of the round, from 1; rounds of paced probes draw different step times.
        """
        plan, job = self.plan, self.plan.job
        pace = Later(plan, 20_000 * turn) if plan.real.pace == "device" else None
        few = TimingOnly(Layout((Layer("few", 0, FEW),)), job.learner.num_samples)
        placement, workers = plan.cluster.placement, job.workers
        asking = job_of(replace(job, learner=few), placement, ProbeMessages(), STEPS * workers)
        all_reduce = replace(global_all_reduce(job), nbytes=_few_bytes(job))
        reducing = job_of(job, placement, ProbeCollectives(asked=(all_reduce,)), STEPS)
        starting = job_of(job, placement, ProbeStarts(few=FEW), STEPS)
        with emulated(replace(plan, job=asking)) as network:
            messages = run_job(_launch(asking, plan, pace, network))
            message_s = _handling_s(asking, messages, network)
            reduced = run_job(_launch(reducing, plan, pace, network)) if workers > 1 else None
            started = run_job(_launch(starting, plan, pace, network)) if workers > 1 else None
        if reduced is None or started is None:
            return EmulationCosts(
                message_s=message_s, all_reduce_s=0.0, few_bytes=_few_bytes(job), packet_bytes=network.packet_bytes
            )
        all_reduce_s = float(np.mean(costs(reducing, reduced, pace)[Cost("AllReduce", workers, all_reduce.nbytes)]))
        return EmulationCosts(
            message_s=message_s,
            all_reduce_s=all_reduce_s,
            few_bytes=_few_bytes(job),
            packet_bytes=network.packet_bytes,
            leads_s=_leads_s(reduced),
            start_s=start_s(started),
        )


def medians(launches: Sequence[EmulationCosts]) -> EmulationCosts:
    """Returns the medians over launches.

    Args:
        launches: the costs of each launch.
    """
    return replace(
        launches[0],
        message_s=max(0.0, median(launch.message_s for launch in launches)),
        all_reduce_s=median(launch.all_reduce_s for launch in launches),
        leads_s=tuple(median(leads) for leads in zip(*(launch.leads_s for launch in launches), strict=True)),
        start_s=median(launch.start_s for launch in launches),
    )


def emulation_task(scenario: Scenario) -> EmulationTask:
    """Returns the probes of the network that this machine emulates for a scenario."""
    return EmulationTask(max(scenario.plans(paced=True), key=lambda plan: plan.job.workers))


def asked_inside(scenario: Scenario, asked: Sequence[Asked]) -> list[Asked]:
    """Returns the collectives to measure on this machine alone: those inside hosts, and one of all workers.

    The latter is measured because the ranks' other work is measured with it.

    Args:
        scenario: the scenario.
        asked: the collectives of its runs.
    """
    plan = emulation_task(scenario).plan
    return [*(collective for collective in asked if collective.inside), global_all_reduce(plan.job)]


def without_overlap(times: GradientTimes) -> GradientTimes:
    """Returns gradient times that were measured on an emulated network, without the speed of the all-reduce.

    An all-reduce over an emulated network waits for its lines, and not for cores. So gradients hardly change its time,
    and the quotient of both times says nothing about cores. The speed of the gradient beside it remains: packets,
    threads of gloo and the forwarder take time of the cores.

    Args:
        times: the measured times.
    """
    return replace(times, overlap=1.0)


def _few_bytes(job: Job) -> int:
    """Returns the bytes of a few numbers of the job's number type."""
    initial = job.learner.initial()
    return FEW * int(initial.nbytes) // job.learner.layout.size


def _leads_s(trace: Trace) -> tuple[float, ...]:
    """Returns for each rank the median time by which it enters a collective before the last rank."""
    entries: dict[str, dict[int, float]] = defaultdict(dict)
    for span in trace.spans:
        if span.key is not None:
            entries[span.key][span.rank] = span.start_s
    ranks = sorted({rank for by_rank in entries.values() for rank in by_rank})
    return tuple(median(max(by_rank.values()) - by_rank[rank] for by_rank in entries.values()) for rank in ranks)


def _launch(job: Job, plan: Plan, pace: Later | None, network: Emulation) -> Launch:
    launch = launch_of(plan, job)
    return replace(launch, pace=pace, prefetch=None, shared_memory=False, interfaces=(), hosts=network.hosts)


def _handling_s(job: Job, trace: Trace, network: Emulation) -> float:
    """Returns the time of a message from the server to waiting workers on other hosts, less its route's latencies."""
    places, server = network.lines.places, job.team[0].server
    assert server is not None, "the probe has one"
    beside = [
        span.end_s - span.ready_s - MESSAGE_LEGS * network.lines.latency_s(places[server], places[span.rank])
        for span in trace.spans
        if span.activity == "receive" and span.ready_s is not None and span.start_s <= span.ready_s
        if places[span.rank] != places[server]
    ]
    return float(trim_mean(beside, TRIM)) if beside else 0.0


def refuse_probes(scenario: Scenario, world: World) -> None:
    """Checks that the processes of a launcher can perform the probes of a scenario.

    Args:
        scenario: the scenario.
        world: the processes.

    Raises:
        InputError: there are too few processes, a node would be on several hosts, or the network is an emulated one; in
            the leading process.
        RefusedElsewhere: the same in the others.
    """
    tasks = message_tasks(scenario, ())
    jobs = {f"the probe of {task.name}": task.job for task in tasks}
    with world.reported_once():
        world.refuse_emulation(scenario.train.network)
        refuse(world.hosts, jobs)
        largest = max(jobs.values(), key=lambda job: len(job.team))
        refuse_torn(map_ranks(world.hosts, largest.team))
