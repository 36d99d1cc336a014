"""Predicts and measures a scenario in processes that a launcher has started, on one host or on several.

Rules of this file:

* Every process takes part in the probes and in the measured runs. The leading one predicts, between both, while the
  others wait for it, and has the result.
* A prediction for several hosts uses the costs between them that were measured with these nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from paceline.algorithms.core.errors import InputError
from paceline.backend.calibration.probe_hosts import probe_hosts
from paceline.backend.calibration.probe_runner import Runner, refuse_torn
from paceline.backend.multihost.host_loads import HostLoads
from paceline.backend.multihost.rank_mapping import refuse
from paceline.backend.multihost.world import World
from paceline.backend.training.run import train
from paceline.backend.transports.launch_environment import RefusedElsewhere
from paceline.checking.own_methods import check_own_methods
from paceline.records import Run
from paceline.records.machine import least_disturbed
from paceline.reports.comparison.compare import Comparison, assemble, judged
from paceline.reports.comparison.predict import Prediction, Stage, predict
from paceline.scenarios import Scenario
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.real_run_validation import refuse_simulated_only
from paceline.scenarios.sections.machine_store import load_machine
from paceline.simulator.runs.dry_run import dry_run
from paceline.simulator.runs.machines import these_hosts, this_host
from paceline.topologies.catalogue.machine_profile import LinkedProfile, Profile


def compare_hosts(
    scenario: Scenario,
    world: World,
    *,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
    note: Callable[[str], None] = lambda _: None,
) -> Comparison | None:
    """Predicts and measures every algorithm and seed of a scenario; every process of a launcher calls this.

    Args:
        scenario: the scenario; its `cluster.machine` is used if it has one, otherwise the hosts are probed first.
        world: the processes.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called in the leading process with each simulated and measured run, to store it; returns the stored run.
        note: called with lines about the placement of ranks.

    Returns:
        The comparison in the leading process, None in the others.

    Raises:
        InputError: the scenario is wrong or does not fit the machine or the processes; in the leading process.
        RefusedElsewhere: the same in the others.
        RunsFailed: a measured run failed.
    """
    plans = scenario.plans(paced=scenario.train.pace == "device")
    try:
        refuse_simulated_only(scenario)
        keep = check_own_methods(scenario).marking(keep)
        refuse(world.hosts, {plan.name: plan.job for plan in plans})
        costs = _calibrated(scenario, plans, world)
    except InputError as error:
        if world.leads:
            raise
        raise RefusedElsewhere(str(error)) from error
    for plan in plans:
        refuse_torn(world, plan.job)
    if scenario.cluster.machine is None:
        asked = dry_run(plans, by_hosts=_several(plans, world))
        numbers = itertools.count(1)
        found, verdict = least_disturbed(
            lambda: probe_hosts(
                scenario, asked, world, progress=stage("probing the hosts"), name=f"probes {next(numbers)}"
            ),
            load=lambda number: HostLoads(world, f"probe {number}"),
            decide=Runner(world, name="probe again").decide,
        )
        costs = None if found is None else judged(found, verdict)
    predicted: list[Prediction] = []
    if costs is not None and world.leads:
        predicted.append(predict(scenario, costs, stage=stage, keep=keep))
    Runner(world, name="prediction").decide(lambda: True)  # the others wait until it is made
    with HostLoads(world, "comparison") as loads:
        measured = train(scenario, progress=stage("measuring"), keep=keep, world=world, note=note)
    if not predicted:
        return None
    return assemble(
        scenario.name,
        simulated=predicted[0].simulated,
        measured=measured,
        wrong=predicted[0].wrong,
        other_load=loads.share,
        predicts="hosts of this run",
    )


def _calibrated(scenario: Scenario, plans: Sequence[Plan], world: World) -> Profile | LinkedProfile | None:
    """Returns the costs of the scenario's machine file; None if it has none."""
    if scenario.cluster.machine is None:
        return None
    machine = load_machine(scenario.cluster.machine)
    if _several(plans, world):
        return these_hosts(machine, scenario)
    found = this_host(machine, scenario)
    assert isinstance(found, Profile), "runs of joined processes have no emulated network"
    return found


def _several(plans: Sequence[Plan], world: World) -> bool:
    """Whether ranks of these runs are on several hosts."""
    return any(Runner(world).hosts_of(plan.job) for plan in plans)
