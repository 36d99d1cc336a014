"""What the hosts of the ranks cost and share, apart from the network and from each rank's own work."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.simulator.interpreter.cpu_overheads import NO_HANDLING, Handling
from paceline.simulator.interpreter.loading import Supply
from paceline.simulator.network.interference import Processors
from paceline.simulator.network.node_memory import NodeMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """The costs of hosts; by default there are none.

    Args:
        supply: the storage from which batches are read; None if reading takes no time.
        handling: the processor time of ranks for messages and starts, and the threads of a server.
        cells: the memories of the nodes, which accesses to cells share; None: `Timing` states the time of each.
        staging: the memories that are copied from and to, as the cluster's `staging` says; None: copies take no time.
        processors: what gradients share with communication; None: nothing.
        snapshot_s: seconds in which the weights' owner stores weights that will be evaluated, before its next step.
    """

    supply: Supply | None = None
    handling: Handling = NO_HANDLING
    cells: NodeMemory | None = None
    staging: NodeMemory | None = None
    processors: Processors | None = None
    snapshot_s: float = 0.0


NO_COSTS = HostCosts()
