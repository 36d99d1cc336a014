"""The time of a collective on a machine that was read from a table, separated into latency and bandwidth.

Rules of this file:

* A `Cost` is one way to run it: an algorithm with a protocol. Its time is λ · latency_s + transfer_s / σ. The catalogue
  means λ = σ = 1, and only these two factors are ever fitted.
* Rings of all-reduces, and all collectives of MPI with one rank per node, are run by the simulator (`simulated.py`).
  Trees of NCCL, NVLS, and several ranks per node use closed forms: those of NCCL's tuner, and those of
  `message_passing.py`.
* A library that takes the cheapest way gets all of them; a library that decides by a table gets only those of the
  table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.topologies.catalogue.libraries import (
    LIBRARIES,
    LL_LIMIT_GB_PER_S,
    Protocol,
)
from published_timings.machines import Machine
from published_timings.parsing import Unread
from published_timings.simulated import MachineFabric, all_reduce_s

STEPS = {"allreduce": 2.0, "reducescatter": 1.0, "allgather": 1.0, "broadcast": 1.0, "reduce": 1.0, "alltoall": 1.0}
"""number of times that data goes around a ring"""
PLATEAU = {"volta": 1.9}
"""growth of the latency of rings over the network for long messages: FOUND (NCCL's tuning.cc), else 1.4"""
LAUNCH_S = 10e-6
"""time of a kernel and of waiting for it: INFERENCE from FOUND floors of eight GPUs, 12.5 to 45 us where the tuner has
15
"""
BALANCED_SINCE = (2, 8)
"""trees between two nodes use cards in both directions since this version: MEMORY medium"""
NVLS_SHARE = {"blackwell": 0.74}
"""of the NVLinks' rate that carries data where the switch adds, else as in the protocol: FOUND (nvlsEfficiency in
NCCL's tuning.cc @5067397)"""
NVLS_TREE_SINCE = (2, 18)
"""NCCL's first version with trees between nodes whose switches add: MEMORY high"""
NVLS_TREE_STEP_S = 20.9e-6
"""a step of such a tree over the network: FOUND (NCCL's tuning.cc @5067397)"""
CHANNELS = 16
"""of NCCL's rings: MEMORY medium; only decides from which size on the plateau holds"""


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
    for kind in STEPS:
        if kind in word:
            return kind
    if not word or "bcast" in word:
        return "broadcast" if word else "allreduce"
    raise Unread(f"allreduce_algorithm: found {text!r}, which is not modelled")


def costs(machine: Machine, kind: str, nbytes: float) -> tuple[Cost, ...]:
    """Returns the ways in which the machine's library may run a collective. Raises `Unread` if there is none."""
    from published_timings.message_passing import gloo, message_passing

    make = {"nccl": _nccl, "mpi": message_passing, "gloo": gloo}[machine.library]
    found = tuple(make(machine, kind, nbytes))
    if not found:
        raise Unread(f"{machine.library} {machine.version} has no {' or '.join(machine.algorithms)} for {kind}")
    return found


def _nccl(machine: Machine, kind: str, nbytes: float) -> Iterator[Cost]:
    algorithms = set(machine.algorithms) & {"ring", "double-tree", "nvls"}
    version = machine.version or (999, 0)
    for protocol in LIBRARIES["nccl"].protocols:
        named = {"tree": "double-tree"}.get(protocol.algorithm, protocol.algorithm)
        if protocol.since > version or (algorithms and named not in algorithms):
            continue
        if protocol.name == "LL128" and not _has_ll128(machine):
            continue
        if protocol.algorithm == "ring":
            yield _nccl_ring(machine, protocol, kind, nbytes)
        elif kind == "allreduce" and protocol.algorithm == "tree" and machine.chip.year >= 2012:
            yield _nccl_tree(machine, protocol, nbytes)
        elif kind == "allreduce" and protocol.algorithm == "nvls" and _has_nvls(machine):
            yield _nccl_nvls(machine, protocol, nbytes)
    if "nvls" in algorithms and not machine.switched:
        yield _nccl_ring(machine, LIBRARIES["nccl"].protocols[-2], kind, nbytes)


def _has_ll128(machine: Machine) -> bool:
    """Whether the ranks of a node are joined by NVLink and are of the Volta generation or newer."""
    return machine.inside.medium == "nvlink" and machine.chip.year >= 2017


def _has_nvls(machine: Machine) -> bool:
    """Whether the switches of a node add, and between nodes the version has a tree of them."""
    in_time = machine.nodes == 1 or machine.version is None or machine.version >= NVLS_TREE_SINCE
    return machine.switched and machine.chip.year >= 2022 and in_time


def _ring_rate(machine: Machine) -> float:
    rates = [machine.inside.bytes_per_s] if machine.workers_per_node > 1 else []
    return min(rates + ([machine.between.bytes_per_s] if machine.nodes > 1 else []))


def _ll_limit(machine: Machine) -> float:
    column = min(machine.nodes, 3) - 1
    known = LL_LIMIT_GB_PER_S.get(machine.chip.generation, LL_LIMIT_GB_PER_S["volta"])
    return known[column] * 1e9


def _nccl_ring(machine: Machine, protocol: Protocol, kind: str, nbytes: float) -> Cost:
    p, m, around = machine.ranks, machine.nodes, STEPS[kind]
    steps, crossing = around * (p - 1), around * (m - 1)
    inside = protocol.step_s[machine.inside.medium if machine.workers_per_node > 1 else "network"]
    across = protocol.step_s["network"]
    if m > 1:  # the CPU posts every step of a ring between nodes, three times with a rendezvous
        inside = max(inside, 3e-6 if protocol.name == "Simple" else 1e-6)
        if machine.workers_per_node == 1:  # the latency of a tree step is not hidden
            across = LIBRARIES["nccl"].protocols[_index("tree", protocol.name)].step_s["network"]
        across += machine.between.latency_s
    limit = _ll_limit(machine) if protocol.name == "LL" else math.inf
    if kind == "allreduce":
        fabric = MachineFabric(machine, protocol.bandwidth_factor, limit)
        latency_s, transfer_s = all_reduce_s(
            fabric, "ring", nbytes, lambda medium, _: across if medium == "network" else inside
        )
    else:
        share = 1.0 if kind in ("broadcast", "reduce") else (p - 1) / p
        latency_s = (steps - crossing) * inside + crossing * across
        transfer_s = nbytes * share / min(_ring_rate(machine) * protocol.bandwidth_factor, limit)
    latency_s += LAUNCH_S + protocol.base_s
    if protocol.name == "Simple" and m > 1 and nbytes / (CHANNELS * p) >= 64:
        latency_s *= PLATEAU["volta"] if machine.chip.year < 2020 else 1.4
    return Cost(f"ring {protocol.name}", latency_s, transfer_s)


def _index(algorithm: str, name: str) -> int:
    known = [(one.algorithm, one.name) for one in LIBRARIES["nccl"].protocols]
    return known.index((algorithm, name))


def _nccl_tree(machine: Machine, protocol: Protocol, nbytes: float) -> Cost:
    """Returns the cost of two trees: between two nodes each byte leaves a node once, between more nodes twice.

    In a node the trees are chains. A rank sends each byte up and down through its own port, but over the only link
    from one half of a node to the other it passes once in each direction, as between two nodes (a maintainer in
    NVIDIA/nccl#209); a ring fills that link 2 (p - 1) / p times.
    """
    inside = protocol.step_s[machine.inside.medium] if machine.workers_per_node > 1 else 0.0
    levels = math.log2(machine.nodes)
    across = protocol.step_s["network"] + machine.between.latency_s
    latency_s = LAUNCH_S + protocol.base_s + 2 * ((machine.workers_per_node - 1) * inside + levels * across)
    inner = machine.inside
    rate = min(inner.port, 2 * inner.bytes_per_s) if machine.workers_per_node > 1 else math.inf
    if machine.nodes > 1:
        balanced = machine.nodes == 2 and (machine.version or BALANCED_SINCE) >= BALANCED_SINCE
        rate = min(rate, machine.between.bytes_per_s * (2 if balanced else 1))
    rate *= protocol.bandwidth_factor
    if protocol.name == "LL":
        rate = min(rate, _ll_limit(machine))
    rate *= protocol.data_share(nbytes) / protocol.bandwidth_factor
    return Cost(f"tree {protocol.name}", latency_s, 2 * nbytes / rate)


def _nccl_nvls(machine: Machine, protocol: Protocol, nbytes: float) -> Cost:
    """Returns the cost where the switch adds: a GPU sends its n bytes and a p-th of the sum, and receives as many.

    Between nodes a tree carries the sums, as `_nccl_tree`; its transfer overlaps with that inside the nodes.
    """
    rate = machine.inside.bytes_per_s * NVLS_SHARE.get(machine.chip.generation, protocol.bandwidth_factor)
    latency_s = LAUNCH_S + protocol.base_s + protocol.step_s["nvlink"]
    transfer_s = nbytes * (1 + 1 / machine.workers_per_node) / rate
    if machine.nodes == 1:
        return Cost("nvls", latency_s, transfer_s)
    latency_s += 2 * math.log2(machine.nodes) * (NVLS_TREE_STEP_S + machine.between.latency_s)
    passes = 1 if machine.nodes == 2 else 2
    return Cost("nvls tree", latency_s, max(transfer_s, passes * nbytes / machine.between.bytes_per_s))
