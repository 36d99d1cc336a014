"""Runs collectives in the simulator: its message patterns, on a fabric built from a machine that was read.

Rules of this file: every rank has an outgoing and an incoming port, and every node one of each to the network, so one
rank per node of a ring crosses. Latency and transfer are separated by simulating the pattern twice: with ports that
take no time, and with paths that take none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.collective_plan import CollectivePlan
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import Setting, build
from paceline.simulator.flows.fabric import Medium, Path
from paceline.topologies.catalogue.libraries import Library
from published_timings.machines import Machine

NO_TIME = 1e30
"""bytes per second of a port that takes no time"""


@dataclass
class MachineFabric:
    """The ranks of a machine, one node after the other.

    Args:
        machine: The machine that was read.
        share: The fraction of every port's bandwidth that carries data.
        limit_bytes_per_s: The maximum rate of a port.
    """

    machine: Machine
    share: float = 1.0
    limit_bytes_per_s: float = math.inf
    capacity: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        machine, limit = self.machine, min(self.limit_bytes_per_s, NO_TIME)
        inside = machine.inside.bytes_per_s if machine.workers_per_node > 1 else NO_TIME
        for way in ("out of", "into"):
            for rank in range(machine.ranks):
                self.capacity[f"{way} rank {rank}"] = min(self.share * inside, limit)
                self.capacity[f"{way} node {self.node_of(Rank(rank))}"] = min(
                    self.share * machine.between.bytes_per_s, limit
                )

    @property
    def mean_capacity(self) -> dict[str, float]:
        return self.capacity

    def node_of(self, rank: Rank) -> int:
        return int(rank) // self.machine.workers_per_node

    def reduce_cost(self, ranks: Sequence[Rank], nbytes: float, library: Library) -> float:
        return 0.0  # the plan of a collective has it

    def path(self, source: Rank, to: Rank, nbytes: float, flow: int = 0) -> Path:
        here, there = self.node_of(source), self.node_of(to)
        ends = f"out of rank {source}", f"into rank {to}"
        if here == there:
            return Path(ends, self.machine.inside.latency_s, self.machine.inside.medium)
        crossing = f"out of node {here}", f"into node {there}"
        return Path((ends[0], *crossing, ends[1]), self.machine.between.latency_s, "network")


def all_reduce_s(
    fabric: MachineFabric, name: str, nbytes: float, step_s: Callable[[Medium, float], float], adds_s: float = 0.0
) -> tuple[float, float]:
    """Returns the seconds of latency and of transfer of an all-reduce.

    Args:
        fabric: The fabric.
        name: The name of the pattern.
        nbytes: Bytes of one rank's vector.
        step_s: The latency of a message over a medium, by its bytes.
        adds_s: Seconds for each byte that a receiver adds.
    """
    ranks = tuple(map(Rank, range(fabric.machine.ranks)))
    nodes: dict[int, list[int]] = {}
    for rank in ranks:
        nodes.setdefault(fabric.node_of(rank), []).append(int(rank))
    pattern = build("AllReduce", name, Setting(len(ranks), nbytes, 0, tuple(map(tuple, nodes.values()))))

    def late(source: Rank, to: Rank, size: float) -> Path:
        path = fabric.path(source, to, size)
        return replace(path, latency_s=step_s(path.medium, size))

    def at_once(source: Rank, to: Rank, size: float) -> Path:
        return replace(fabric.path(source, to, size), latency_s=0.0)

    quiet = replace(fabric, share=NO_TIME, limit_bytes_per_s=math.inf, capacity={})
    latency_s = alone_s(CollectivePlan(pattern, ranks, late), quiet)
    transfer_s = alone_s(CollectivePlan(pattern, ranks, at_once, adds_s), fabric)
    return float(np.max(latency_s)), float(np.max(transfer_s))
