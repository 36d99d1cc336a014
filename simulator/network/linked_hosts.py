"""Hosts like a calibrated machine, joined by the network of a scenario.

Messages and collectives inside a host cost what was measured there, and collectives between hosts what was measured
between as many ranks. All others use the scenario's links, so clusters that were never measured can be predicted from
one of their hosts, and from a file with some collectives alone.
"""

from __future__ import annotations

import simpy

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork
from paceline.topologies.catalogue.machine_profile import Consulted


class LinkedHosts:
    """The network of several hosts of which one was calibrated.

    Args:
        plan: the run.
        inside: the measured costs inside a host.
        between: the links between hosts.
        costs: the costs of the machine, which say what was measured.
    """

    def __init__(self, plan: Plan, inside: MeasuredNetwork, between: ClusterNetwork, costs: Consulted) -> None:
        self._plan, self._inside, self.between, self._costs = plan, inside, between, costs
        self._hosts = MeasuredNetwork(costs.between_s, costs.message_s)
        self._said: dict[str, None] = {}

    def attach(self, env: simpy.Environment) -> None:
        for network in (self._inside, self.between, self._hosts):
            network.attach(env)

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        memory = self._plan.same_host(source, to)
        if not self._on_one_host((source, to)):
            return self.between.message(source, to, nbytes)
        if self._costs.profile.measured_messages(memory):
            return self._inside.message(source, to, nbytes)
        self._say("messages inside a host take the scenario's links; the file has none")
        return self.between.message(source, to, nbytes)

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        return self._for(op, nbytes).collective(op, nbytes, stream)

    def standing(self) -> list[str]:
        return self.between.standing()

    def warnings(self) -> list[str]:
        """Returns sentences on costs that the file does not have, or not for these sizes."""
        return list(self._said)

    def _for(self, op: Collective, nbytes: int) -> MeasuredNetwork | ClusterNetwork:
        """Returns the network of a collective: the measured one if it was measured."""
        name, members, profile = type(op).__name__, len(op.group), self._costs.profile
        if self._on_one_host(op.group.ranks):
            if name in {operation for operation, _ in profile.measured(self._plan.inside(op.group))}:
                return self._inside
            self._say(f"{name}s inside a host take the scenario's links; the file has none")
            return self.between
        if (points := profile.between.get((name, members))) is None:
            return self.between
        if not points[0][0] <= nbytes <= points[-1][0]:
            self._say(
                f"found {name} of {members} ranks on several hosts of {nbytes} bytes; measured were {points[0][0]} to "
                f"{points[-1][0]} bytes"
            )
        return self._hosts

    def _say(self, text: str) -> None:
        self._said[f"cluster.machine: {text}"] = None

    def _on_one_host(self, ranks: tuple[Rank, ...]) -> bool:
        node = self._plan.cluster.node_of
        return len({node(rank) for rank in ranks}) == 1
