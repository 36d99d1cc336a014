"""Probes in the processes that a launcher has started: what they need, and the costs before a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from paceline.algorithms.core.errors import InputError
from paceline.backend.calibration.gradient_costs import available_cores, gradient_times
from paceline.backend.calibration.message_costs import Progress, message_tasks, probe_costs
from paceline.backend.calibration.probe_runner import Runner, refuse_torn
from paceline.backend.calibration.recorded_costs import pooled
from paceline.backend.multihost.rank_mapping import refuse
from paceline.backend.multihost.world import World
from paceline.backend.transports.launch_environment import RefusedElsewhere
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.machine_profile import Asked, JoinedHosts, MeasuredCosts


def probe_hosts(
    scenario: Scenario,
    asked: Sequence[Asked],
    world: World,
    *,
    progress: Progress | None = None,
    name: str = "probes",
) -> MeasuredCosts | None:
    """Returns the costs of the hosts for the runs of a scenario; None in processes other than the leading one.

    Args:
        scenario: the scenario; if the processes are on several hosts, its nodes are these hosts.
        asked: the collectives of its runs.
        world: the processes.
        progress: called with what is being measured and the completed share, 0 … 1.
        name: distinguishes the decisions of repeated probes.

    Raises:
        InputError: there are too few processes, or a node would be on several hosts.
    """
    refuse_probes(scenario, world)
    runner = Runner(world, name=name)
    found = probe_costs(scenario, asked, progress=progress, runner=runner)
    unpaced = scenario.train.pace == "none"
    gradients = gradient_times(scenario, progress=progress, runner=runner) if unpaced else ()
    if not world.leads:
        return None
    profile = replace(pooled(found), gradients=gradients, cores=cores_of(world))
    plan = max(scenario.plans(paced=not unpaced), key=lambda plan: plan.job.workers)
    placement = tuple(map(len, runner.workers_of_hosts(plan.job).values()))
    joined = JoinedHosts(pooled(found, between=True), placement) if placement else None
    return MeasuredCosts(profile, joined=joined)


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
    try:
        if scenario.train.network == "emulated":
            raise InputError(
                f"train.network: found emulated in processes that {world.joined.launcher} has started, which use the "
                "real network; expected local"
            )
        refuse(world.hosts, jobs)
    except InputError as error:
        if world.leads:
            raise
        raise RefusedElsewhere(str(error)) from error
    refuse_torn(world, max(jobs.values(), key=lambda job: len(job.team)))


def cores_of(world: World) -> int:
    """Returns the cores of a host; hosts that are one machine share its cores evenly."""
    most = max(Counter(world.machines).values())
    return max(1, available_cores() // most)
