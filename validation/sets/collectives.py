"""Published times of collectives, predicted from the catalogue alone.

A row's words become a cluster of the product, and the time is that of the collective's simulation on it. Where a row
names the algorithm or the protocol, the library's tuner has only these to choose from. A library whose version is not
given gets the cheapest choice of each table of decisions that may be meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.pattern_time import alone_s, steps_s
from paceline.simulator.collectives.patterns import Kind
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.catalogue.libraries import LATEST
from paceline.topologies.closed_forms import ring_all_reduce_s
from paceline.validation.machines import Machine, Unread, number, read
from paceline.validation.outcome import ALPHA_BETA, LeftOut, Outcome
from paceline.validation.sets import Line, MeasurementSet

KINDS: dict[str, Kind] = {
    "allreduce": "AllReduce",
    "reducescatter": "ReduceScatter",
    "allgather": "AllGather",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
PATTERNS = {
    "ring": ("ring", "ring-channels"),
    "ring-whole": ("ring",),
    "double-tree": ("double-tree",),
    "nvls": ("nvls", "nvls-tree"),
    "recursive-doubling": ("recursive-doubling",),
    "halving-doubling": ("halving-doubling",),
}
"""patterns of the product by the algorithms that a row names"""
VERSIONS = {"mpi": ((1, 0), (4, 1))}
"""versions of which each may be meant if none is given; of other libraries, the latest"""


@dataclass(frozen=True, slots=True)
class Cost:
    """One way to run a collective."""

    name: str
    latency_s: float
    transfer_s: float

    def seconds(self) -> float:
        """Returns the time of the collective."""
        return self.latency_s + self.transfer_s


def kind_of(text: str) -> str:
    """Returns the collective that a word means. Raises `Unread`.

    >>> kind_of("All-Reduce"), kind_of("reduce_scatter_perf")
    ('allreduce', 'reducescatter')
    """
    word = "".join(letter for letter in text.lower() if letter.isalpha())
    for kind in KINDS:
        if kind in word:
            return kind
    if not word or "bcast" in word:
        return "broadcast" if word else "allreduce"
    raise Unread(f"collective: found {text!r}, which is not modelled")


def costs(machine: Machine, kind: str, nbytes: float) -> tuple[Cost, ...]:
    """Returns the ways in which the machine's library may run a collective, its choice first."""
    group = Group(tuple(map(Rank, range(machine.cluster.workers))))
    named = {pattern for name in machine.algorithms for pattern in PATTERNS.get(name, ())}
    ways = []
    for version in [machine.version] if machine.version else VERSIONS.get(machine.library, (LATEST,)):
        network = _machine_network(machine, version)
        offers = list(network.tuner.offers(KINDS[kind], group, nbytes))
        kept = [offer for offer in offers if offer.algorithm in named]
        if named and not kept and kind == "allreduce" and machine.library != "nccl":  # another one than by the table
            network = _machine_network(machine, version, min(named))
            kept = list(network.tuner.offers("AllReduce", group, nbytes))
        tuner, copies = network.tuner, _copies(network.fabric, machine, nbytes)
        chosen = min(kept or offers, key=lambda offer: tuner.predicted_s(offer.plan))
        for offer in kept or offers:
            ways.append((offer is not chosen, _cost(offer.label, offer.plan, network.fabric, copies)))
    return tuple(cost for _, cost in sorted(ways, key=lambda pair: (pair[0], pair[1].seconds())))


@cache
def _machine_network(machine: Machine, version: tuple[int, int], pattern: str = "auto") -> ClusterNetwork:
    """Returns the network of `simulate` for a machine, whose paths and channels are then looked up once."""
    return ClusterNetwork(machine.cluster, pattern, library=machine.library, version=version)


def _cost(name: str, plan: CollectivePlan, fabric: GraphFabric, copies: Cost) -> Cost:
    whole_s, latency_s = float(np.max(alone_s(plan, fabric, compiled=True))), steps_s(plan)
    return Cost(name, latency_s + copies.latency_s, whole_s - latency_s + copies.transfer_s)


def _copies(fabric: GraphFabric, machine: Machine, nbytes: float) -> Cost:
    """Returns the copies of a vector to the host and back, if the library works there."""
    latency_s = transfer_s = 0.0
    for rank, socket in list(fabric.buffers.copied.items())[:1]:
        path = fabric.between(machine.cluster.vertex_of(rank), socket, nbytes)
        latency_s = 2 * path.latency_s
        transfer_s = 2 * nbytes / min(fabric.capacity[port] for port in path.ports)
    return Cost("copies", latency_s, transfer_s)


def groups_of(lines: Sequence[Line]) -> tuple[list[list[Line]], list[LeftOut]]:
    """Returns the rows of each system."""
    systems: dict[str, list[Line]] = {}
    for line in lines:
        systems.setdefault(line["system"].strip() or "no system named", []).append(line)
    return list(systems.values()), []


def outcomes(lines: Sequence[Line]) -> list[Outcome | LeftOut]:
    """Predicts the rows of a system."""
    results: list[Outcome | LeftOut] = []
    for line in lines:
        try:
            results.append(_outcome(line))
        except PacelineError as error:
            results.append(LeftOut("collectives", f"line {line['line']}", str(error)))
    return results


def _outcome(line: Line) -> Outcome:
    machine, nbytes = read(line), number(line, "bytes")
    kind = kind_of(line.get("collective", ""))
    cost = costs(machine, kind, nbytes)[0]
    latency_s, bytes_per_s = machine.slowest
    ring_s = ring_all_reduce_s(machine.ranks, nbytes, latency_s, 1 / bytes_per_s)
    return Outcome(
        set="collectives",
        name=f"line {line['line']}: {kind} of {nbytes:.0f} B, {machine.ranks} ranks, {cost.name}",
        system=line["system"].strip() or "no system named",
        family=machine.library,
        unit="s",
        measured=number(line, "time_us") * 1e-6,
        predicted=cost.seconds(),
        simpler={ALPHA_BETA: ring_s if kind == "allreduce" else ring_s / 2},
        assumed=(*machine.assumed, *filter(None, [line.get("notes", "").strip()])),
        source=line.get("source", ""),
        chip=machine.device,
        network=machine.link.name if machine.nodes > 1 else "",
    )


SET = MeasurementSet(
    name="collectives",
    title="Published times of collectives, from the catalogue alone",
    file="published_collectives.csv",
    columns=frozenset({"system", "device", "topology", "nranks", "library", "bytes", "time_us"}),
    in_sight=True,
    aim=(0.28, None),
    groups=groups_of,
    predict=outcomes,
    quick=lambda groups: groups[:4],
)
