"""The costs in the file of a calibrated machine: whether they fit a scenario, and those of its emulated network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose
from typing import TYPE_CHECKING, NamedTuple

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.machine_file import EmulatedPart, LinePart, MachinePart
from paceline.scenarios.resolution.plan import Plan
from paceline.topologies.catalogue.machine_profile import EmulationCosts, MeasuredCosts
from paceline.topologies.packet_lines import Lines

if TYPE_CHECKING:
    from paceline.scenarios.resolution.schema import Scenario

ROUNDING = 1e-9
"""relative difference of quantities that are the same except for their text in a file"""


@dataclass(frozen=True, slots=True, eq=False)
class ProbedSteps:
    """The program of a probe and the mean times of its steps on a machine, for a simulation of the same program.

    Args:
        plan: the probe as a run.
        step_s: seconds of a step.
        compute_s: seconds of the gradient in it.
        beside: whether several workers used the server beside each other's gradients.
        crosses: whether its ranks communicate in another way than runs do, so that it cannot be simulated alike.
    """

    plan: Plan
    step_s: float
    compute_s: float
    beside: bool = False
    crosses: bool = False


class Adjustment(NamedTuple):
    """Factors on costs that no probe measures alone.

    >>> from paceline.topologies.catalogue.machine_profile import Profile
    >>> Adjustment(beside=0.5).of(MeasuredCosts(Profile())).host.message_beside
    0.5
    """

    pauses: float = 1.0
    """on the time by which a gradient is longer after a wait"""
    beside: float = 1.0
    """on the speeds of messages and of a server's work beside gradients"""

    def of(self, costs: MeasuredCosts) -> MeasuredCosts:
        """Returns adjusted costs."""
        host = costs.host
        gradients = tuple(
            replace(times, pauses=tuple((pause_s, self.pauses * longer_s) for pause_s, longer_s in times.pauses))
            for times in host.gradients
        )
        speeds = {name: self.beside * getattr(host, name) for name in ("message_beside", "serve_beside")}
        return replace(costs, host=replace(host, gradients=gradients, **speeds))


def hosts_like(machine: MachinePart, scenario: Scenario) -> MeasuredCosts:
    """Returns a network of hosts like the machine, joined by what was measured between them, or by a scenario's links.

    Args:
        machine: the calibrated host, or several.
        scenario: the scenario.

    Raises:
        InputError: the machine was calibrated for another model or number of threads; all mistakes are reported.
    """
    return check(machine, scenario).joined()


def these_hosts(machine: MachinePart, scenario: Scenario) -> MeasuredCosts:
    """Returns the machine for a run whose nodes are hosts like it; arguments and errors are those of `this_host`."""
    return _comparable(machine, scenario).joined()


def this_host(machine: MachinePart, scenario: Scenario) -> MeasuredCosts:
    """Returns the machine alone, or with the network that it emulates, for a run all of whose ranks are on it.

    Args:
        machine: the calibrated host.
        scenario: the scenario, whose runs are not paced.

    Raises:
        InputError: the machine does not fit the scenario; all mistakes are reported.
    """
    return _comparable(machine, scenario).alone()


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
        differing = (line for plan in scenario.plans() for line in differences(machine.emulated, plan))
        mistakes += dict.fromkeys(differing)
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
    problems = list(mistakes or [])
    try:
        machine = machine.of_model(str(scenario.workload.model))
    except InputError as error:
        problems.append(f"--machine: {error}")
    if machine.gradients and (threads := scenario.train.torch_threads) != machine.torch_threads:
        problems.append(
            f"--machine: found {machine.torch_threads} threads per rank, expected train.torch_threads, {threads}"
        )
    if problems:
        raise InputError("\n".join(f"{scenario.name}: {line}" for line in problems))
    return machine


def emulated_part(plan: Plan, costs: EmulationCosts) -> EmulatedPart:
    """Returns the costs of an emulated network as a section of a file.

    Args:
        plan: the run for which the network was emulated.
        costs: what was measured.
    """
    lines = plan.lines
    return EmulatedPart.model_construct(
        hosts=_hosts(plan, lines),
        lines=tuple(
            LinePart.model_construct(name=line.name, bandwidth=line.bytes_per_s, latency=line.latency_s)
            for line in lines.lines
        ),
        message=costs.message_s,
        all_reduce=costs.all_reduce_s,
        bytes=costs.few_bytes,
        packet=costs.packet_bytes,
        leads=costs.leads_s,
        start=costs.start_s,
    )


def differences(emulated: EmulatedPart, plan: Plan) -> list[str]:
    """Returns how the network of a run differs from a measured one; empty if it is the same.

    Args:
        emulated: the measured network.
        plan: the run.
    """
    lines = plan.lines
    mistakes = []
    if (hosts := _hosts(plan, lines)) != emulated.hosts:
        mistakes.append(
            f"--machine: found workers on the emulated hosts {_listed(emulated.hosts)}, "
            f"expected those of cluster.nodes, {_listed(hosts)}"
        )
    known = {line.name: line for line in emulated.lines}
    if known.keys() != {line.name for line in lines.lines}:
        names = _listed(line.name for line in lines.lines)
        mistakes.append(f"--machine: found the lines {_listed(known)}, expected those of cluster.network, {names}")
        return mistakes
    for line in lines.lines:
        measured = known[line.name]
        same = isclose(measured.bandwidth, line.bytes_per_s, rel_tol=ROUNDING)
        if not (same and isclose(measured.latency, line.latency_s, rel_tol=ROUNDING)):
            mistakes.append(
                f"--machine: found {_words(measured.bandwidth, measured.latency)} on {line.name}, expected those of "
                f"cluster.network, {_words(line.bytes_per_s, line.latency_s)}"
            )
    return mistakes


def _hosts(plan: Plan, lines: Lines) -> tuple[int, ...]:
    return tuple(lines.places[rank] for rank in plan.job.team[0].workers)


def _listed(values: object) -> str:
    return ", ".join(map(str, values)) or "none"  # type: ignore[call-overload]


def _words(bytes_per_s: float, latency_s: float) -> str:
    return f"{8e-6 * bytes_per_s:.4g} Mbit/s and {1e3 * latency_s:.4g} ms"
