"""Predictions from the file of a calibrated machine: what it must fit, and what is extrapolated."""

from __future__ import annotations

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.sections.machine_file import MachinePart
from paceline.topologies.catalogue.machine_profile import LinkedProfile, Profile


def hosts_like(machine: MachinePart, scenario: Scenario) -> LinkedProfile:
    """Returns a network of hosts like the machine, joined by what was measured between them, or by a scenario's links.

    Args:
        machine: the calibrated host, or several.
        scenario: the scenario.

    Raises:
        InputError: the machine was calibrated for another model or number of threads; all mistakes are reported.
    """
    check(machine, scenario)
    return machine.linked()


def these_hosts(machine: MachinePart, scenario: Scenario) -> LinkedProfile:
    """Returns the machine for a run whose nodes are hosts like it; arguments and errors are those of `this_host`."""
    this_host(machine, scenario)
    return hosts_like(machine, scenario)


def this_host(machine: MachinePart, scenario: Scenario) -> Profile:
    """Returns the machine alone, for a run all of whose ranks are on it.

    Args:
        machine: the calibrated host.
        scenario: the scenario, whose runs are not paced and use no emulated network.

    Raises:
        InputError: the machine does not fit the scenario; all mistakes are reported.
    """
    mistakes = []
    if scenario.train.pace != "none":
        mistakes.append(
            f"train.pace: found {scenario.train.pace!r} with --machine, expected none: a calibrated machine predicts "
            "its own gradients; without --machine, paced runs are probed"
        )
    if scenario.train.network != "local":
        mistakes.append(f"train.network: found {scenario.train.network!r} with --machine, expected local")
    check(machine, scenario, mistakes)
    return machine.profile()


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


def extrapolated(plan: Plan, linked: LinkedProfile) -> list[str]:
    """Returns sentences on what a prediction from a calibrated machine takes from outside its measurements.

    Args:
        plan: the run.
        linked: the calibrated host, or several.
    """
    machine = linked.machine
    if not machine.gradients:
        return []
    found, batch = list[str](), plan.job.batch
    batches = [one.batch for one in machine.gradients]
    if not batches[0] <= batch <= batches[-1]:
        measured = " to ".join(str(size) for size in sorted({batches[0], batches[-1]}))
        found.append(f"cluster.machine: gradients of {batch} samples are extrapolated; measured were {measured}")
    placement = placement_of(plan)
    ranks = max(placement)
    most = machine.gradient(batch).busy[-1][0]
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
