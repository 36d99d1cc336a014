"""Hosts like a calibrated machine, joined by the network of a scenario.

Messages and collectives inside a host cost what was measured there. All others use the scenario's links, so clusters
that were never measured can be predicted from one of their hosts.
"""

from __future__ import annotations

import simpy

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork


class LinkedHosts:
    """The network of several hosts of which one was calibrated.

    Args:
        plan: the run.
        inside: the measured costs inside a host.
        between: the links between hosts.
    """

    def __init__(self, plan: Plan, inside: MeasuredNetwork, between: ClusterNetwork) -> None:
        self._plan, self._inside, self.between = plan, inside, between

    def attach(self, env: simpy.Environment) -> None:
        self._inside.attach(env)
        self.between.attach(env)

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        return self._of((source, to)).message(source, to, nbytes)

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        return self._of(op.group.ranks).collective(op, nbytes, stream)

    def standing(self) -> list[str]:
        return self.between.standing()

    def _of(self, ranks: tuple[Rank, ...]) -> MeasuredNetwork | ClusterNetwork:
        """Returns the network for these ranks: the measured one if they are on one host."""
        node = self._plan.cluster.node_of
        return self._inside if len({node(rank) for rank in ranks}) == 1 else self.between
