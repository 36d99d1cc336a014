"""Asks the product for a collective on the cluster of a machine that was read from a table.

Rules of this file:

* It prices nothing. The ways to run a collective are those that the tuner of `simulate` offers, and their times are
  those of the simulation.
* A `Cost` is one way to run it: an algorithm with a protocol. Its time is λ · latency_s + transfer_s / σ. The catalogue
  means λ = σ = 1, and only these two factors are ever fitted. Latency is the time of all steps without their bytes.
* A library whose version is not given gets the cheapest way of each table of decisions before Open MPI 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.pattern_time import alone_s, steps_s
from paceline.simulator.collectives.patterns import Kind
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.catalogue.libraries import LATEST
from published_timings.machines import Machine
from published_timings.parsing import Unread

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

    def seconds(self, latency_factor: float = 1.0, bandwidth_factor: float = 1.0) -> float:
        """Returns λ · latency + transfer / σ.

        >>> Cost("ring", 1.0, 4.0).seconds(2.0, 4.0)
        3.0
        """
        return latency_factor * self.latency_s + self.transfer_s / bandwidth_factor


def cheapest_s(costs: tuple[Cost, ...], latency_factor: float = 1.0, bandwidth_factor: float = 1.0) -> float:
    """Returns the seconds of the cheapest way."""
    return min(cost.seconds(latency_factor, bandwidth_factor) for cost in costs)


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
    found = []
    for version in [machine.version] if machine.version else VERSIONS.get(machine.library, (LATEST,)):
        network = _network(machine, version)
        offers = list(network.tuner.offers(KINDS[kind], group, nbytes))
        kept = [one for one in offers if one.algorithm in named]
        if named and not kept and kind == "allreduce" and machine.library != "nccl":  # another one than by the table
            network = _network(machine, version, min(named))
            kept = list(network.tuner.offers("AllReduce", group, nbytes))
        tuner, copies = network.tuner, _copies(network.fabric, machine, nbytes)
        chosen = min(kept or offers, key=lambda one: tuner.predicted_s(one.plan))
        for one in kept or offers:
            found.append((one is not chosen, _cost(one.label, one.plan, network.fabric, copies)))
    return tuple(cost for _, cost in sorted(found, key=lambda pair: (pair[0], pair[1].seconds())))


@cache
def _network(machine: Machine, version: tuple[int, int], pattern: str = "auto") -> ClusterNetwork:
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
