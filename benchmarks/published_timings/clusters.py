"""Asks the product for a collective on the cluster of a machine that was read from a table.

Rules of this file: it prices nothing. The ways to run a collective are those that the tuner of `simulate` offers, and
their times are those of the simulation; only NCCL's are asked for, whose steps and bytes are a sum.
"""

from __future__ import annotations

import numpy as np

from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import Kind
from paceline.simulator.collectives.protocols import transport_of
from paceline.simulator.collectives.tuning import Tuner
from paceline.simulator.flows.fabric import GraphFabric
from paceline.topologies.catalogue.libraries import LATEST
from published_timings.cost_model import Cost
from published_timings.machines import Machine
from published_timings.parsing import Unread

KINDS: dict[str, Kind] = {
    "allreduce": "AllReduce",
    "reducescatter": "ReduceScatter",
    "allgather": "AllGather",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
PATTERNS = {"ring": ("ring", "ring-channels"), "double-tree": ("double-tree",), "nvls": ("nvls", "nvls-tree")}
"""patterns of the product by the algorithms that a row names"""


def costs_of(machine: Machine, kind: str, nbytes: float) -> tuple[Cost, ...]:
    """Returns the ways to run a collective, the product's choice first."""
    if kind not in KINDS:
        raise Unread(f"collective: found {kind!r}, which is not modelled")
    cluster = machine.cluster
    fabric = GraphFabric(cluster)
    tuner = Tuner(fabric, "auto", machine.library, transport_of(cluster.graph), machine.version or LATEST)
    group = Group(tuple(map(Rank, range(cluster.workers))))
    named = [pattern for name in machine.algorithms for pattern in PATTERNS.get(name, (name,))]
    found = list(tuner.offers(KINDS[kind], group, nbytes))
    kept = [one for one in found if one.algorithm in named] or found
    chosen = min(kept, key=lambda one: tuner.predicted_s(one.plan))
    costs = []
    for one in sorted(kept, key=lambda one: one is not chosen):
        steps_s = one.plan.base_s  # all of them, which do not overlap with bytes
        costs.append(Cost(one.label, steps_s, float(np.max(alone_s(one.plan, fabric))) - steps_s))
    return tuple(costs)
