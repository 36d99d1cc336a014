"""Measures the costs that this machine adds to a network that it emulates, by messages of a few numbers.

Rules of this file: messages between hosts are so small that only the handling of a message is measured, not the rates
of lines; whole vectors are measured on this machine alone. All probes are paced like the run to be predicted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
from scipy.stats import trim_mean

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Layer, Layout
from paceline.backend.calibration.message_costs import (
    TRIM,
    Cost,
    Later,
    Progress,
    costs,
    global_all_reduce,
    job_of,
    never,
    probe,
)
from paceline.backend.calibration.probe_starts import ProbeStarts, start_s
from paceline.backend.calibration.probes import ProbeCollectives, ProbeMessages
from paceline.backend.emulation.emulated_network import Emulation, emulated
from paceline.backend.local.launch import Launch, run_job
from paceline.records.trace import Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.machine_profile import MESSAGE_LEGS, Asked, EmulatedProfile
from paceline.workloads.learners.timing_only import TimingOnly

LAUNCHES = 3
STEPS = 40
FEW = 16
"""numbers in a message whose transfer time is negligible"""


def probe_emulated(scenario: Scenario, asked: Sequence[Asked], *, progress: Progress | None = None) -> EmulatedProfile:
    """Returns a profile of this machine and of the network that it emulates for a scenario.

    Args:
        scenario: the scenario with the hosts, the workers, their device times, and the sizes of vectors.
        asked: the collectives of its runs.
        progress: called with what is being measured and the completed share, 0 … 1.

    Raises:
        InputError: its network cannot be emulated here.
    """
    report = progress or (lambda *_: None)
    plan = max(scenario.plans(paced=True), key=lambda plan: plan.job.workers)
    here = [one for one in asked if one.inside]
    machine = probe(scenario, [*here, global_all_reduce(plan.job)], progress=lambda what, done: report(what, done / 2))
    found = []
    for turn in range(LAUNCHES):
        report("the emulated network", (1 + turn / LAUNCHES) / 2)
        found.append(_probed(plan, turn + 1))
    message_s, all_reduce_s, leads_s, starts_s, packets = zip(*found, strict=True)
    return EmulatedProfile(
        machine=machine,
        message_s=max(0.0, median(message_s)),
        all_reduce_s=median(all_reduce_s),
        few_bytes=_few_bytes(plan.job),
        packet_bytes=packets[0],
        leads_s=tuple(median(leads) for leads in zip(*leads_s, strict=True)),
        start_s=median(starts_s),
    )


def _few_bytes(job: Job) -> int:
    """Returns the bytes of a few numbers of the job's number type."""
    initial = job.learner.initial()
    return FEW * int(initial.nbytes) // job.learner.layout.size


def _probed(plan: Plan, turn: int) -> tuple[float, float, list[float], float, int]:
    """Returns the results of one launch of each probe.

    Messages, all-reduces, how early each worker entered them, the time to start one, and the size of a packet.
    """
    pace = Later(plan, 20_000 * turn)
    few = TimingOnly(Layout((Layer("few", 0, FEW),)), plan.job.learner.num_samples)
    placement, workers = plan.cluster.placement, plan.job.workers
    asking = job_of(replace(plan.job, learner=few), placement, ProbeMessages(), STEPS * workers)
    all_reduce = replace(global_all_reduce(plan.job), nbytes=_few_bytes(plan.job))
    reducing = job_of(plan.job, placement, ProbeCollectives(asked=(all_reduce,)), STEPS)
    starting = job_of(plan.job, placement, ProbeStarts(few=FEW), STEPS)
    with emulated(replace(plan, job=asking)) as network:
        messages = run_job(_launch(asking, plan, pace, network))
        message_s = _handling_s(asking, messages, network)
        reduced = run_job(_launch(reducing, plan, pace, network)) if workers > 1 else None
        started = run_job(_launch(starting, plan, pace, network)) if workers > 1 else None
    if reduced is None or started is None:
        return message_s, 0.0, [], 0.0, network.packet_bytes
    all_reduce_s = float(np.mean(costs(reducing, reduced, pace)[Cost("AllReduce", workers, all_reduce.nbytes)]))
    return message_s, all_reduce_s, _leads_s(reduced), start_s(started), network.packet_bytes


def _leads_s(trace: Trace) -> list[float]:
    """Returns for each rank the median time by which it enters a collective before the last rank."""
    entries: dict[str, dict[int, float]] = defaultdict(dict)
    for span in trace.spans:
        if span.key is not None:
            entries[span.key][span.rank] = span.start_s
    ranks = sorted({rank for found in entries.values() for rank in found})
    return [median(max(found.values()) - found[rank] for found in entries.values()) for rank in ranks]


def _launch(job: Job, plan: Plan, pace: Later, network: Emulation) -> Launch:
    train = plan.scenario.train
    return Launch(
        job=job,
        schedule=never,
        pace=pace,
        torch_threads=train.torch_threads,
        cpu_affinity=train.cpu_affinity,
        shared_memory=False,
        hosts=network.hosts,
    )


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
