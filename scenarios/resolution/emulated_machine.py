"""The emulated network of a machine file: the costs of this network, and whether it is that of a scenario."""

from __future__ import annotations

from math import isclose

from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.sections.machine_file import EmulatedPart, LinePart, MachinePart
from paceline.topologies.catalogue.machine_profile import EmulatedProfile
from paceline.topologies.packet_lines import Lines, lines_of

ROUNDING = 1e-9
"""relative difference of quantities that are the same except for their text in a file"""


def emulated_part(plan: Plan, costs: EmulatedProfile) -> EmulatedPart:
    """Returns the costs of an emulated network as a section of a file.

    Args:
        plan: the run for which the network was emulated.
        costs: what was measured.
    """
    lines = emulated_lines(plan)
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


def emulated_profile(machine: MachinePart) -> EmulatedProfile:
    """Returns the costs of a machine with its emulated network.

    Raises:
        ValueError: the machine emulated no network.
    """
    found = machine.emulated
    if found is None:
        raise ValueError("the machine has no emulated network")
    return EmulatedProfile(
        machine=machine.profile(),
        message_s=found.message,
        all_reduce_s=found.all_reduce,
        few_bytes=found.bytes,
        packet_bytes=found.packet,
        leads_s=found.leads,
        start_s=found.start,
    )


def differences(found: EmulatedPart, plan: Plan) -> list[str]:
    """Returns how the network of a run differs from a measured one; empty if it is the same.

    Args:
        found: the measured network.
        plan: the run.
    """
    lines = emulated_lines(plan)
    mistakes = []
    if (hosts := _hosts(plan, lines)) != found.hosts:
        mistakes.append(
            f"--machine: found workers on the emulated hosts {_listed(found.hosts)}, expected those of cluster.nodes, "
            f"{_listed(hosts)}"
        )
    known = {line.name: line for line in found.lines}
    if known.keys() != {line.name for line in lines.lines}:
        names = _listed(line.name for line in lines.lines)
        mistakes.append(f"--machine: found the lines {_listed(known)}, expected those of cluster.network, {names}")
        return mistakes
    for line in lines.lines:
        one = known[line.name]
        same = isclose(one.bandwidth, line.bytes_per_s, rel_tol=ROUNDING)
        if not (same and isclose(one.latency, line.latency_s, rel_tol=ROUNDING)):
            mistakes.append(
                f"--machine: found {_words(one.bandwidth, one.latency)} on {line.name}, expected those of "
                f"cluster.network, {_words(line.bytes_per_s, line.latency_s)}"
            )
    return mistakes


def emulated_lines(plan: Plan) -> Lines:
    """Returns the lines between the hosts of a run."""
    routing = plan.scenario.cluster.network.routing
    return lines_of(plan.cluster, [me.rank for me in plan.job.team], routing, plan.time_dilation)


def _hosts(plan: Plan, lines: Lines) -> tuple[int, ...]:
    return tuple(lines.places[rank] for rank in plan.job.team[0].workers)


def _listed(values: object) -> str:
    return ", ".join(map(str, values)) or "none"  # type: ignore[call-overload]


def _words(bytes_per_s: float, latency_s: float) -> str:
    return f"{8e-6 * bytes_per_s:.4g} Mbit/s and {1e3 * latency_s:.4g} ms"
