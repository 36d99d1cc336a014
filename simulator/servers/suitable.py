"""Which runs can be compiled."""

from __future__ import annotations

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.core.values import Null, Rank
from paceline.records.targets import SMOOTHING, Goal
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import Network
from paceline.simulator.servers.costs import supported

PAUSES_S = (1e-3, 1.0, 1e3)
"""pauses for which a timing is asked whether gradients take longer after them"""


def why_not(job: Job, timing: Timing, network: Network, schedule: Schedule, hosts: HostCosts) -> str | None:
    """Returns why a run cannot be compiled, as far as it is known without its programs; None if it can.

    Args:
        job: the method, its ranks, its learner and its budget.
        timing: the seconds of each rank's own work.
        network: the time of messages.
        schedule: when weights are evaluated.
        hosts: what the hosts of the ranks cost and share.
    """
    if job.team[-1].role != "server" or len(job.team) != job.workers + 1:
        return "the method has no server"
    if not isinstance(job.learner.initial(), Null):
        return "gradients are computed (learning is not none)"
    if _may_end(job) or schedule.probes is not None or schedule.drift is not None:
        return "weights are evaluated while it runs"
    if job.method.staleness_kind is StalenessKind.LOCAL_AGE:
        return "staleness is counted in local steps"
    if not job.even_batches:
        return "workers have different batches"
    return _costs(job, timing, hosts) or supported(network)


def _may_end(job: Job) -> bool:
    """Returns whether an evaluation may end the run: a learner without numbers always has the same evaluation."""
    goal, score = Goal(job.budget), job.learner.evaluate(job.learner.initial())
    return job.budget.scored and any(goal.reached(score) is not None for _ in range(SMOOTHING + 1))


def _costs(job: Job, timing: Timing, hosts: HostCosts) -> str | None:
    if job.deaths:
        return "workers die"
    if hosts.supply is not None:
        return "batches are read from storage"
    if hosts.staging is not None and hosts.staging.network.cluster.staging is not None:
        return "vectors and batches are copied between hosts and devices"
    if hosts.processors is not None and hosts.processors.used:
        return "gradients and messages share processors"
    if hosts.snapshot_s > 0:
        return "storing weights for their evaluation takes time"
    if hosts.handling.threads > 1:
        return "the server has several threads"
    if any(timing.paused_s(job.batches[0], pause_s) != 0 for pause_s in PAUSES_S):
        return "gradients take longer after a pause"
    if any(timing.timeline(Rank(rank)) is not None for rank in range(job.workers)):
        return "workers crash or are slowed down for a time"
    return None
