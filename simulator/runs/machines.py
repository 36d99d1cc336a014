"""Predictions from the file of a calibrated machine: what it must fit, and what is extrapolated."""

from __future__ import annotations

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.resolution.emulated_machine import differences, emulated_profile
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.sections.machine_file import MachinePart
from paceline.topologies.catalogue.machine_profile import EmulatedProfile, LinkedProfile, Profile


def hosts_like(machine: MachinePart, scenario: Scenario) -> LinkedProfile:
    """Returns a network of hosts like the machine, joined by the links of a scenario.

    Args:
        machine: the calibrated host.
        scenario: the scenario.

    Raises:
        InputError: the machine was calibrated for another model or number of threads; all mistakes are reported.
    """
    check(machine, scenario)
    return LinkedProfile(machine.profile())


def this_host(machine: MachinePart, scenario: Scenario) -> Profile | EmulatedProfile:
    """Returns the machine alone, or with the network that it emulates, for a run all of whose ranks are on it.

    Args:
        machine: the calibrated host.
        scenario: the scenario, whose runs are not paced.

    Raises:
        InputError: the machine does not fit the scenario; all mistakes are reported.
    """
    mistakes = []
    if scenario.train.pace != "none":
        mistakes.append(
            f"train.pace: found {scenario.train.pace!r} with --machine, expected none: a calibrated machine predicts "
            "its own gradients; without --machine, paced runs are probed"
        )
    if (network := scenario.train.network) != (measured := "local" if machine.emulated is None else "emulated"):
        mistakes.append(
            f"train.network: found {network!r}, expected {measured!r} as in the calibration that wrote --machine; or "
            f"run `paceline calibrate` with `--set train.network={network}`"
        )
    elif machine.emulated is not None:
        found = (line for plan in scenario.plans() for line in differences(machine.emulated, plan))
        mistakes += dict.fromkeys(found)
    check(machine, scenario, mistakes)
    return machine.profile() if machine.emulated is None else emulated_profile(machine)


def check(machine: MachinePart, scenario: Scenario, mistakes: list[str] | None = None) -> None:
    """Checks that a machine was calibrated for a scenario.

    Args:
        machine: the machine.
        scenario: the scenario.
        mistakes: mistakes that were found before.

    Raises:
        InputError: there are mistakes; with all of them.
    """
    found = list(mistakes or [])
    if (model := str(scenario.workload.model)) != machine.model:
        found.append(f"--machine: found gradients of {machine.model}, expected those of workload.model, {model}")
    if (threads := scenario.train.torch_threads) != machine.torch_threads:
        found.append(
            f"--machine: found {machine.torch_threads} threads per rank, expected train.torch_threads, {threads}"
        )
    if found:
        raise InputError("\n".join(f"{scenario.name}: {line}" for line in found))


def extrapolated(plan: Plan, machine: Profile) -> list[str]:
    """Returns sentences on what a prediction from a calibrated machine takes from outside its measurements.

    Args:
        plan: the run.
        machine: the calibrated host.
    """
    if not machine.gradients:
        return []
    found, batch = list[str](), plan.job.batch
    batches = [one.batch for one in machine.gradients]
    if not batches[0] <= batch <= batches[-1]:
        measured = " to ".join(str(size) for size in sorted({batches[0], batches[-1]}))
        found.append(f"cluster.machine: gradients of {batch} samples are extrapolated; measured were {measured}")
    ranks = max(len(nodes) for nodes in plan.cluster.placement)
    most = machine.gradient(batch).busy[-1][0]
    if ranks > most:
        found.append(f"cluster.machine: {ranks} ranks of a host are extrapolated; measured were up to {most}")
    if len(plan.cluster.nodes) > 1:
        found.append(
            "cluster.machine: messages between hosts take the scenario's links, without the work of processors for "
            "them; only one host was measured"
        )
    return found
