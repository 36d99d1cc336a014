"""Runs probes in processes that are forked here, or in those that a launcher has started on one host or several.

Rules of this file:

* Every process that a launcher has started performs the same probes in the same order. Only the leading one has the
  records, so it makes all decisions (how many steps, whether another round begins), and the store distributes them.
* Costs between hosts are separated from those inside a host by the processes' true hosts. So that a prediction can use
  them, the nodes of the scenario have to be these hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.emulation.emulated_network import emulated
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.multihost.external_launch import run_external
from paceline.backend.multihost.rank_mapping import RankMapping, map_ranks
from paceline.backend.multihost.world import World
from paceline.records.trace import Trace
from paceline.scenarios.resolution.plan import Plan

T = TypeVar("T", bool, int, float)
Progress = Callable[[str, float], None]
"""called with what is being measured and the completed share, 0 … 1"""


@dataclass(eq=False)
class Runner:
    """Runs probes, and distributes the decisions of the leading process.

    Args:
        world: the processes that a launcher has started; None: each probe forks its own.
        name: distinguishes the decisions of several runners of a world.
    """

    world: World | None = None
    name: str = "probes"
    _numbers: Any = field(default_factory=count)

    def run(self, launch: Launch, plan: Plan | None = None) -> Trace | None:
        """Runs a probe; returns its record, or None if another process has it.

        Args:
            launch: the launch of the probe.
            plan: the run to be predicted, if the probe runs on the hosts that this run emulates.
        """
        if self.world is not None:
            return run_external(launch, self.world)
        if plan is None or plan.real.network == "local":
            return run_job(launch)
        with emulated(replace(plan, job=launch.job)) as network:
            return run_job(replace(launch, hosts=network.hosts))

    def decide(self, value: Callable[[], T]) -> T:
        """Returns a value that the leading process computes, in every process."""
        if self.world is None:
            return value()
        return self.world.decide(f"decided/{self.name}/{next(self._numbers)}", value)

    def hosts_of(self, job: Job) -> Mapping[Rank, int]:
        """Returns the host of every rank if they are on several hosts; otherwise nothing."""
        if self.world is None:
            return {}
        mapping = map_ranks(self.world.hosts, job.team)
        hosts = {me.rank: mapping.host_of(me.rank) for me in job.team}
        return hosts if len(set(hosts.values())) > 1 else {}

    def workers_of_hosts(self, job: Job) -> dict[int, tuple[int, ...]]:
        """Returns the workers of each host, in their order, if they are on several hosts; otherwise nothing."""
        hosts, workers = self.hosts_of(job), job.team[0].workers.ranks
        used_hosts = dict.fromkeys(hosts[rank] for rank in workers if rank in hosts)
        if len(used_hosts) < 2:
            return {}
        return {host: tuple(int(rank) for rank in workers if hosts[rank] == host) for host in used_hosts}


def refuse_torn(mapping: RankMapping) -> None:
    """Checks that the nodes of a job, if it is on several hosts, are these hosts.

    Args:
        mapping: the ranks of the job, by process and host.

    Raises:
        InputError: a node's ranks are on several hosts, or a host has several nodes.
    """
    workers = [me for me in mapping.team if me.role == "worker"]
    placed = {(me.host, mapping.host_of(me.rank)) for me in mapping.team}
    nodes, hosts = (len(set(column)) for column in zip(*placed, strict=True))
    if hosts == 1 or len(placed) == nodes == hosts:
        return
    sizes = ", ".join(str(len(node)) for node in dict.fromkeys(me.node for me in workers))
    processes = ", ".join(str(len(host.processes)) for host in mapping.hosts)
    raise InputError(
        f"cluster.nodes: found {nodes} node{'s' * (nodes > 1)} with {sizes} workers on {hosts} hosts with {processes} "
        "processes; to predict runs on several hosts, each node has to be one host: give as many nodes as hosts, and "
        "every host enough processes for the workers of a node, the first one also for a server"
    )
