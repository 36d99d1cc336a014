"""Runs a job with the vectorised interpreter."""

from __future__ import annotations

from paceline.algorithms.core.job import Job
from paceline.records.trace import Schedule, Trace
from paceline.simulator.cohort.unsuitable import NotACohort
from paceline.simulator.interpreter.host_costs import NO_COSTS, HostCosts
from paceline.simulator.interpreter.weights_owner import Progress
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import Network


def simulate_cohort(
    job: Job,
    timing: Timing,
    network: Network,
    schedule: Schedule,
    progress: Progress | None = None,
    hosts: HostCosts = NO_COSTS,
) -> Trace:
    """Runs a job."""
    raise NotACohort("it is not written yet")
