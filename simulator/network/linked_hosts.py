"""Hosts like a calibrated machine, joined by what was measured between such hosts, or by the network of a scenario.

Messages and collectives inside a host cost what was measured there, if such were measured at all. Between hosts they
cost what was measured between hosts, if this operation, this number of members and a size at least as large were
measured with the same number of workers on each host. All others use the scenario's links, so clusters that were never
measured can be predicted from one of their hosts. An operation that takes the links does not wait for measured ones of
its group before it: it is an extrapolation.
"""

from __future__ import annotations

import simpy

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork
from paceline.topologies.catalogue.machine_profile import MESSAGE, Profile


class LinkedHosts:
    """The network of several hosts that were calibrated, one of them alone or all together.

    Args:
        plan: the run.
        machine: the costs of a host.
        inside: the network inside a host, with these costs.
        links: the links between hosts.
        between: the measured costs between hosts; None: there are none for this placement of workers.
    """

    def __init__(
        self,
        plan: Plan,
        machine: Profile,
        inside: MeasuredNetwork,
        links: ClusterNetwork,
        between: Profile | None = None,
    ) -> None:
        self._plan, self._machine, self._inside, self.links, self._costs = plan, machine, inside, links, between
        self._between = MeasuredNetwork(self._collective_s, self._message_s)
        self._unmeasured: dict[str, None] = {}

    def attach(self, env: simpy.Environment) -> None:
        for network in (self._inside, self.links, self._between):
            network.attach(env)

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        if self._joined((source, to)):
            return self._near(MESSAGE, inside=self._plan.same_host(source, to)).message(source, to, nbytes)
        return self._far(MESSAGE, 2, nbytes).message(source, to, nbytes)

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        name, ranks = type(op).__name__, op.group.ranks
        if len(ranks) < 2:
            return self._inside.collective(op, nbytes, stream)
        if self._joined(ranks):
            return self._near(name, inside=self._plan.inside(op.group)).collective(op, nbytes, stream)
        return self._far(name, len(ranks), nbytes).collective(op, nbytes, stream)

    def standing(self) -> list[str]:
        return self.links.standing()

    def extrapolated(self) -> list[str]:
        """Returns a sentence for each kind of operation that took the links although others were measured.

        Without any measured costs between hosts there is none: `machines.extrapolated` reports that.
        """
        return list(self._unmeasured)

    def _joined(self, ranks: tuple[Rank, ...]) -> bool:
        """Whether all ranks are on one host."""
        return len({self._plan.cluster.node_of(rank) for rank in ranks}) == 1

    def _near(self, operation: str, *, inside: bool) -> MeasuredNetwork | ClusterNetwork:
        """Returns the network inside a host for an operation."""
        machine = self._machine
        if operation == MESSAGE:
            measured = bool(machine.measured_messages(inside))
        else:
            measured = any(name == operation for name, _ in machine.measured(inside))
        if measured:
            return self._inside
        what = f"{MESSAGE}s" if operation == MESSAGE else operation
        self._unmeasured[
            f"cluster.machine: the scenario's links carry {what} inside a host, which calibration did not measure"
            + " in shared memory" * inside
        ] = None
        return self.links

    def _far(self, operation: str, members: int, nbytes: int) -> MeasuredNetwork | ClusterNetwork:
        """Returns the network between hosts for an operation."""
        if self._costs is None:
            return self.links
        points = self._costs.messages if operation == MESSAGE else self._costs.collectives.get((operation, members), ())
        if points and nbytes <= points[-1][0]:
            return self._between
        what = f"{MESSAGE}s" if operation == MESSAGE else f"{operation} of {members} ranks"
        measured = f"up to {points[-1][0]} bytes were measured" if points else "they were not measured"
        self._unmeasured[
            f"cluster.machine: the scenario's links carry {what} of {nbytes} bytes between hosts; {measured}"
        ] = None
        return self.links

    def _collective_s(self, operation: str, members: int, nbytes: int) -> float:
        assert self._costs is not None, "`_far` has checked it"
        return self._costs.collective_s(operation, members, nbytes)

    def _message_s(self, nbytes: int) -> float:
        assert self._costs is not None, "`_far` has checked it"
        return self._costs.message_s(nbytes)
