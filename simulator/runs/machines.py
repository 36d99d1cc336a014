"""Predictions from the file of a calibrated machine: what it must fit, and what is extrapolated."""

from __future__ import annotations

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.resolution.emulated_machine import differences, emulated_profile
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.sections.machine_file import MachinePart
from paceline.topologies.catalogue.machine_profile import EmulatedProfile, LinkedProfile, Profile


def hosts_like(machine: MachinePart, scenario: Scenario) -> LinkedProfile:
    """Returns a network of hosts like the machine, joined by what was measured between them, or by a scenario's links.

    Args:
        machine: the calibrated host, or several.
        scenario: the scenario.

    Raises:
        InputError: the machine was calibrated for another model or number of threads; all mistakes are reported.
    """
    return check(machine, scenario).linked()


def these_hosts(machine: MachinePart, scenario: Scenario) -> LinkedProfile:
    """Returns the machine for a run whose nodes are hosts like it; arguments and errors are those of `this_host`."""
    return _comparable(machine, scenario).linked()


def this_host(machine: MachinePart, scenario: Scenario) -> Profile | EmulatedProfile:
    """Returns the machine alone, or with the network that it emulates, for a run all of whose ranks are on it.

    Args:
        machine: the calibrated host.
        scenario: the scenario, whose runs are not paced.

    Raises:
        InputError: the machine does not fit the scenario; all mistakes are reported.
    """
    machine = _comparable(machine, scenario)
    return machine.profile() if machine.emulated is None else emulated_profile(machine)


def _comparable(machine: MachinePart, scenario: Scenario) -> MachinePart:
    """Returns the machine with the gradients of a scenario's model, after checking that its real runs are like it."""
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
    if not machine.gradients:
        mistakes.append(
            "--machine: found no gradients, which measured runs are compared by; expected the file of a calibration "
            "with gradients"
        )
    return check(machine, scenario, mistakes)


def check(machine: MachinePart, scenario: Scenario, mistakes: list[str] | None = None) -> MachinePart:
    """Returns a machine with the gradients of a scenario's model, after checking that it was calibrated for it.

    Args:
        machine: the machine.
        scenario: the scenario.
        mistakes: mistakes that were found before.

    Raises:
        InputError: there are mistakes; with all of them.
    """
    found = list(mistakes or [])
    try:
        machine = machine.of_model(str(scenario.workload.model))
    except InputError as error:
        found.append(f"--machine: {error}")
    if machine.gradients and (threads := scenario.train.torch_threads) != machine.torch_threads:
        found.append(
            f"--machine: found {machine.torch_threads} threads per rank, expected train.torch_threads, {threads}"
        )
    if found:
        raise InputError("\n".join(f"{scenario.name}: {line}" for line in found))
    return machine


def extrapolated(plan: Plan, linked: LinkedProfile) -> list[str]:
    """Returns sentences on what a prediction from a calibrated machine takes from outside its measurements.

    Args:
        plan: the run.
        linked: the calibrated host, or several.
    """
    machine, placement = linked.machine, placement_of(plan)
    found, own = [f"cluster.machine: {line}" for line in linked.assumed], sorted(set(plan.job.batches))
    if not machine.gradients:
        return [*found, "cluster.machine: gradients take the times of the scenario's devices; the file has none"]
    batches = [one.batch for one in machine.gradients]
    for batch in own:
        if batches[0] <= batch <= batches[-1]:
            continue
        measured = " to ".join(str(size) for size in sorted({batches[0], batches[-1]}))
        found.append(f"cluster.machine: gradients of {batch} samples are extrapolated; measured were {measured}")
    ranks = max(placement)
    most = machine.gradient(own[0]).busy[-1][0]
    if ranks > most:
        found.append(f"cluster.machine: {ranks} ranks of a host are extrapolated; measured were up to {most}")
    if len(placement) > 1 and linked.measured_between(placement) is None:
        only = "only one host was measured"
        if linked.placement:
            only = f"found {_ranks_of(placement)}; measured were {_ranks_of(linked.placement)}"
        found.append(
            "cluster.machine: messages between hosts take the scenario's links, without the work of processors for "
            f"them; {only}"
        )
    return found


def placement_of(plan: Plan) -> tuple[int, ...]:
    """Returns the number of workers of each node."""
    return tuple(len(node) for node in plan.cluster.placement)


def _ranks_of(placement: tuple[int, ...]) -> str:
    """Returns the placement in words.

    >>> _ranks_of((2, 2)), _ranks_of((1, 2))
    ('2 hosts with 2 workers', '2 hosts with 1, 2 workers')
    """
    each = ", ".join(str(count) for count in (placement[:1] if len(set(placement)) == 1 else placement))
    return f"{len(placement)} hosts with {each} worker{'s' * (each != '1')}"
