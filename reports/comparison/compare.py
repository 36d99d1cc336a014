"""Predicts every algorithm of a scenario and measures it: on this machine, on joined hosts, or in stored runs.

* The prediction is made before the measurement and uses only the machine: if the real messages stay on this machine,
  the simulated network is this machine's, from a probe at the start; if they cross an emulated network, it is that
  network with the costs that this machine adds.
* Runs that are not paced depend on the speed of the machine, which changes while it is looked at: their calibration
  takes turns with them (`turns`), unless a machine file is given.
* Three simpler predictions are made for comparison: without message cost, without jitter, and by the α–β model. A
  prediction that is not better than they are proves nothing.
* In processes that a launcher has started, every process takes part in the probes and in the measured runs. The leading
  one predicts, between both, while the others wait for it, and has the result. A prediction for several hosts uses the
  costs between them that were measured with these nodes.
* Stored measured runs may differ in the algorithm and the seed only; their scenario is that of the comparison. The
  prediction uses the machine file and the scenario, and nothing that the runs have measured. Ranks of a run that a
  launcher started on several hosts are predicted on as many hosts like the calibrated one, joined by the links of the
  scenario; ranks of one host on that host.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from paceline.algorithms.core.errors import InputError, Mistakes
from paceline.checking.own_methods import check_own_methods
from paceline.records import Run
from paceline.records.machine import OtherLoad, least_disturbed
from paceline.records.store import read_run
from paceline.reports.comparison.comparison import ComparisonResult, assemble
from paceline.reports.comparison.predict import WRONG_MODELS, Prediction, Stage, predict
from paceline.reports.comparison.turns import MachineChange, change_of, renamed, take_turns
from paceline.reports.run_results import Source
from paceline.scenarios import Scenario, load
from paceline.scenarios.machine_file import MachinePart, load_machine
from paceline.scenarios.resolution.plan import Plan, refuse_simulated_only
from paceline.topologies.catalogue.machine_profile import MeasuredCosts

if TYPE_CHECKING:
    from paceline.backend.multihost.world import World


def compare(
    scenario: Source,
    *,
    machine: MachinePart | None = None,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
    explain: bool = False,
) -> ComparisonResult:
    """Predicts and measures every algorithm and seed of a scenario.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        machine: the machine as `paceline calibrate` measured it; None: `cluster.machine` of the scenario, or else it is
            probed first.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called with each simulated and measured run after its stage, to store it; returns the stored run.
        explain: whether to find out which part of the variation of steps makes workers wait; some short simulations.

    Returns:
        The comparison.

    Raises:
        InputError: the scenario is wrong or does not fit the machine, has sections that only simulations support, or
            its network cannot be emulated here.
        RunsFailed: a measured run failed.
    """
    from paceline.backend.training import train
    from paceline.scenarios.resolution.machine_costs import this_host

    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    refuse_simulated_only(scenario)
    keep = check_own_methods(scenario).marking(keep)
    if machine is None and scenario.cluster.machine is not None:
        machine = load_machine(scenario.cluster.machine)
    if machine is None and scenario.train.pace == "none":
        turns = take_turns(scenario, stage=stage, keep=keep, explain=explain)
        return _assembled(scenario, turns.prediction, turns.measured, turns.changes, turns.other_load)
    costs = this_host(machine, scenario) if machine is not None else probed_quietly(scenario, stage)
    predicted = predict(scenario, costs, stage=stage, keep=keep, explain=explain)
    with OtherLoad() as other:
        measured = train(scenario, progress=stage("measuring"), keep=keep)
    return _assembled(scenario, predicted, measured, _changes(measured, costs, predicted.simulated), other.share)


def _changes(
    measured: Sequence[Run], costs: MeasuredCosts, predicted: Sequence[Run]
) -> dict[tuple[str, int], MachineChange]:
    """Returns the changes of the machine's speed since its calibration, as far as they are known."""
    if costs.slowness is None or costs.paced:
        return {}
    changes = {(run.algorithm, run.seed): change_of(load(run.scenario), costs, run, predicted) for run in measured}
    return {key: change for key, change in changes.items() if change is not None}


def _assembled(
    scenario: Scenario,
    predicted: Prediction,
    measured: Sequence[Run],
    changes: Mapping[tuple[str, int], MachineChange],
    other_load: float,
) -> ComparisonResult:
    order = {plan.name: None for plan in scenario.plans()}
    return assemble(
        scenario.name,
        simulated=sorted(predicted.simulated, key=lambda run: list(order).index(run.algorithm)),
        measured=measured,
        wrong=predicted.wrong,
        other_load=other_load,
        variation=predicted.variation,
        changes=changes,
    )


def probed_quietly(scenario: Scenario, stage: Stage = lambda _: None) -> MeasuredCosts:
    """Returns the result of `probed`, repeated if other programs disturbed it; its verdict says so."""
    costs, verdict = least_disturbed(lambda: probed(scenario, stage))
    return costs.judged(verdict)


def probed(scenario: Scenario, stage: Stage = lambda _: None) -> MeasuredCosts:
    """Probes this machine, or its costs on top of the emulated network if the scenario requests one.

    Args:
        scenario: the scenario.
        stage: called with the name of each stage; returns the stage's progress callback.

    Raises:
        InputError: the network cannot be emulated here.
    """
    from paceline.backend.calibration.rounds import probe
    from paceline.backend.emulation.emulated_network import refuse_emulation
    from paceline.simulator.runs.consistency import consistent
    from paceline.simulator.runs.dry_run import dry_run

    plans, emulates = scenario.plans(paced=True), scenario.train.network == "emulated"
    for plan in plans if emulates else ():
        refuse_emulation(plan)
    what = "the emulated network" if emulates else "this machine"
    costs = probe(scenario, dry_run(plans), progress=stage(f"probing {what}"), consistent=consistent)
    assert costs is not None, "no other process has the result"
    return costs


# --- processes of a launcher -----------------------------------------------------------------------------------------


def compare_hosts(
    scenario: Scenario,
    world: World,
    *,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
    note: Callable[[str], None] = lambda _: None,
    explain: bool = False,
) -> ComparisonResult | None:
    """Predicts and measures every algorithm and seed of a scenario; every process of a launcher calls this.

    Args:
        scenario: the scenario; its `cluster.machine` is used if it has one, otherwise the hosts are probed first.
        world: the processes.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called in the leading process with each simulated and measured run, to store it; returns the stored run.
        note: called with lines about the placement of ranks.
        explain: as for `compare`.

    Returns:
        The comparison in the leading process, None in the others.

    Raises:
        InputError: the scenario is wrong or does not fit the machine or the processes; in the leading process.
        RefusedElsewhere: the same in the others.
        RunsFailed: a measured run failed.
    """
    from paceline.backend.calibration.probe_runner import Runner, refuse_torn
    from paceline.backend.calibration.rounds import probe
    from paceline.backend.multihost.rank_mapping import map_ranks, refuse
    from paceline.backend.multihost.world import HostLoads
    from paceline.backend.training import train
    from paceline.simulator.runs.dry_run import dry_run

    plans = scenario.plans(paced=scenario.train.pace == "device")
    with world.reported_once():
        refuse_simulated_only(scenario)
        keep = check_own_methods(scenario).marking(keep)
        refuse(world.hosts, {plan.name: plan.job for plan in plans})
        costs = _calibrated(scenario, plans, world)
        for plan in plans:
            refuse_torn(map_ranks(world.hosts, plan.job.team))
    if scenario.cluster.machine is None:
        asked = dry_run(plans, by_hosts=_several(plans, world))
        numbers = itertools.count(1)
        calibration, verdict = least_disturbed(
            lambda: probe(
                scenario, asked, world=world, progress=stage("probing the hosts"), name=f"probes {next(numbers)}"
            ),
            load=lambda number: HostLoads(world, f"probe {number}"),
            decide=Runner(world, name="probe again").decide,
        )
        costs = None if calibration is None else calibration.judged(verdict)
    predicted: list[Prediction] = []
    if costs is not None and world.leads:
        predicted.append(predict(scenario, costs, stage=stage, keep=keep, explain=explain))
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
        variation=predicted[0].variation,
        changes={} if costs is None else _changes(measured, costs, predicted[0].simulated),
    )


def _calibrated(scenario: Scenario, plans: Sequence[Plan], world: World) -> MeasuredCosts | None:
    """Returns the costs of the scenario's machine file; None if it has none."""
    if scenario.cluster.machine is None:
        return None
    from paceline.scenarios.resolution.machine_costs import these_hosts, this_host

    machine = load_machine(scenario.cluster.machine)
    if _several(plans, world):
        return these_hosts(machine, scenario)
    host = this_host(machine, scenario)
    assert host.emulation is None, "runs of joined processes have no emulated network"
    return host


def _several(plans: Sequence[Plan], world: World) -> bool:
    """Whether ranks of these runs are on several hosts."""
    from paceline.backend.calibration.probe_runner import Runner

    return any(Runner(world).hosts_of(plan.job) for plan in plans)


# --- stored runs -----------------------------------------------------------------------------------------------------

OWN_KEYS = ("algorithms", "hyperparameters", "seed", "seeds")
"""keys of a scenario in which the runs of a comparison may differ"""
EXPECTED = "expected a run of `paceline train`"


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A measured run, and the means to predict it.

    Args:
        run: the run.
        scenario: its scenario, with only its algorithm and seed.
        costs: the calibrated machine, alone or with its emulated network, or several like it.
    """

    run: Run
    scenario: Scenario
    costs: MeasuredCosts


def compare_measured(
    folders: Sequence[Path],
    machine: MachinePart,
    *,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
) -> ComparisonResult:
    """Predicts stored measured runs from a machine file, and compares both; runs of several seeds are pooled.

    Args:
        folders: the folders of the runs, or the run.json in them.
        machine: the machine on which they ran, as `paceline calibrate` measured it.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called with each simulated run, to store it; returns the stored run.

    Raises:
        InputError: a folder holds no complete measured run, the runs have different scenarios, or the machine does not
            fit them; all mistakes are reported.
    """
    runs = measured_runs(folders, machine)
    predicted: dict[tuple[str, int], Prediction] = {}
    for measured in runs:
        if (key := (measured.run.algorithm, measured.run.seed)) not in predicted:
            predicted[key] = renamed(
                predict(measured.scenario, measured.costs, stage=stage), measured.run.algorithm, keep
            )
    each = [predicted[measured.run.algorithm, measured.run.seed] for measured in runs]
    return assemble(
        runs[0].run.name,
        simulated=[run for prediction in each for run in prediction.simulated],
        measured=[measured.run for measured in runs],
        wrong={model: [run for prediction in each for run in prediction.wrong[model]] for model in WRONG_MODELS},
        other_load=fmean(measured.run.machine.get("other_load", 0.0) for measured in runs),
        predicts="calibrated machine",
        changes={
            (measured.run.algorithm, measured.run.seed): change
            for measured, prediction in zip(runs, each, strict=True)
            if (change := change_of(measured.scenario, measured.costs, measured.run, prediction.simulated)) is not None
        },
    )


def measured_runs(folders: Sequence[Path], machine: MachinePart) -> list[MeasuredRun]:
    """Reads measured runs and checks that a machine file can predict them.

    Args:
        folders: the folders of the runs, or the run.json in them.
        machine: the calibrated machine.

    Raises:
        InputError: as for `compare_measured`.
    """
    from paceline.backend.training import differences

    runs: list[MeasuredRun] = []
    with Mistakes() as mistakes:
        for folder in folders:
            with mistakes.noted(f"--measured {folder}: "):
                runs.append(_read(folder, machine))
        for other in runs[1:]:
            for line in differences(other.run.scenario, runs[0].run.scenario, OWN_KEYS):
                mistakes.append(f"--measured {other.run.path}: {line} as in {runs[0].run.path}")
    return runs


def _read(folder: Path, machine: MachinePart) -> MeasuredRun:
    from paceline.scenarios.resolution.machine_costs import hosts_like, this_host

    run = read_run(folder.parent if folder.name == "run.json" else folder)
    if run.kind != "measured":
        raise InputError(f"found a {run.kind} run, {EXPECTED}")
    if run.summary["stop_reason"] == "failure":
        raise InputError(f"found a run that failed, {EXPECTED} that has ended")
    scenario = load(run.scenario)
    run = check_own_methods(scenario).marked(run)
    refuse_simulated_only(scenario)
    here = this_host(machine, scenario)
    several = len({seat["host"] for seat in run.machine.get("seats", ())}) > 1
    return MeasuredRun(run, scenario, hosts_like(machine, scenario) if several else here)


def unlike(run: Run, machine: MachinePart) -> list[str]:
    """Returns notes on how the host of a run differs from the calibrated one.

    Args:
        run: a measured run.
        machine: the calibrated machine.
    """
    pairs = (
        ("processor", run.machine.get("processor"), machine.made.processor),
        ("number of cores", run.machine.get("cores"), machine.cores),
    )
    return [
        f"note: the {what} of the measured run is {other}, that of the machine file {ours}"
        for what, other, ours in pairs
        if other is not None and ours and other != ours
    ]
