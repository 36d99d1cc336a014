"""Launches a probe where the runs to be predicted are launched: on this host, or on the hosts that it emulates."""

from __future__ import annotations

from dataclasses import replace

from paceline.backend.emulation.emulated_network import emulated
from paceline.backend.local.launch import Launch, run_job
from paceline.records.trace import Trace
from paceline.scenarios.resolution.plan import Plan


def run_probe(plan: Plan, launch: Launch) -> Trace:
    """Runs a probe and returns its record.

    On an emulated network, its messages cross the network of the plan.

    Args:
        plan: the run to be predicted.
        launch: the launch of the probe, with ranks on the same nodes.
    """
    if plan.scenario.train.network == "local":
        return run_job(launch)
    with emulated(replace(plan, job=launch.job)) as network:
        return run_job(replace(launch, hosts=network.hosts))
