"""Maps the ranks of a method to the processes of an externally launched run.

Rules of this file:

* The workers of a scenario's node stay together: they are placed on one host if any has enough free processes, because
  they share memory. Nodes are distributed to hosts evenly and in order.
* A server is placed on the host of its node, or on the first one with a free process: several servers are on the nodes
  in turn, and a single one is on the first.
* Processes that are left over take no part in the method.
* Every process computes the mapping from the same data, so it need not be communicated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Group, Rank


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the run.

    Args:
        name: for messages; several hosts may have the same name.
        processes: their numbers among all processes, in the order of their numbers on this host.
    """

    name: str
    processes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankMapping:
    """The ranks of one team, by process and host."""

    hosts: tuple[Host, ...]
    team: tuple[RankContext, ...]
    rank_of: Mapping[int, Rank]
    """the rank of each process that takes part"""

    def on(self, host: int) -> tuple[Rank, ...]:
        """Returns the ranks on a host."""
        return tuple(self.rank_of[process] for process in self.hosts[host].processes if process in self.rank_of)

    def host_of(self, rank: Rank) -> int:
        """Returns the host of a rank."""
        return next(index for index in range(len(self.hosts)) if rank in self.on(index))

    def whole(self, group: Group) -> bool:
        """Whether all members of a group are on one host."""
        return len({self.host_of(rank) for rank in group}) == 1

    def roles(self, rank: Rank) -> str:
        """Returns the roles of a rank: a worker may also lead its node if there are several."""
        me = self.team[rank]
        return f"{me.role}, leader" if rank in me.leaders and len(me.leaders) > 1 else me.role

    @property
    def lines(self) -> list[str]:
        """One line for each host.

        >>> from paceline.algorithms import find
        >>> from paceline.algorithms.core.method import build_team
        >>> from paceline.algorithms.core.values import Layout
        >>> team = build_team(find("async-sgd")(), [[Rank(0)], [Rank(1)]], Layout(()))
        >>> for line in map_ranks([Host("a", (0, 1)), Host("b", (2, 3))], team).lines:
        ...     print(line)
        host 0 (a): process 0 is rank 0 (worker, leader), process 1 is rank 2 (server)
        host 1 (b): process 2 is rank 1 (worker, leader), process 3 takes no part
        """
        return [
            f"host {index} ({host.name}): "
            + ", ".join(
                f"process {process} is rank {self.rank_of[process]} ({self.roles(self.rank_of[process])})"
                if process in self.rank_of
                else f"process {process} takes no part"
                for process in host.processes
            )
            for index, host in enumerate(self.hosts)
        ]

    def record(self) -> list[dict[str, Any]]:
        """Returns the entries of a run's record, one for each rank."""
        process_of = {rank: process for process, rank in self.rank_of.items()}
        return [
            {
                "rank": int(me.rank),
                "role": self.roles(me.rank),
                "process": process_of[me.rank],
                "host": self.host_of(me.rank),
                "name": self.hosts[self.host_of(me.rank)].name,
            }
            for me in self.team
        ]


def map_ranks(hosts: Sequence[Host], team: Sequence[RankContext]) -> RankMapping:
    """Maps every rank of a team to a process.

    Args:
        hosts: the hosts, with enough processes for the team.
        team: the ranks.
    """
    free = [list(host.processes) for host in hosts]
    rank_of: dict[int, Rank] = {}

    def take(rank: Rank, wanted: int | None = None) -> None:
        place = next(place for place in ([] if wanted is None else [free[wanted]]) + free if place)
        rank_of[place.pop(0)] = rank

    nodes, homes = list(dict.fromkeys(me.node for me in team if me.role == "worker")), list[int | None]()
    for number, node in enumerate(nodes):
        dealt = number * len(hosts) // len(nodes)
        order = [dealt, *range(len(hosts))]
        home = next((index for index in order if len(free[index]) >= len(node)), None)
        homes.append(home)
        for rank in node:
            take(rank, home)
    for me in team:
        if me.role != "worker":
            take(me.rank, homes[me.host] if me.shards else None)
    return RankMapping(tuple(hosts), tuple(team), rank_of)


def refuse(hosts: Sequence[Host], jobs: Mapping[str, Job]) -> None:
    """Checks that these processes can run all jobs, before any has started.

    Args:
        hosts: the hosts of the processes.
        jobs: the jobs by the names of their algorithms.

    Raises:
        InputError: there are too few processes, shared memory would have to reach from host to host, or servers of
            several hosts would have to be evaluated during the run.
    """
    count = sum(len(host.processes) for host in hosts)
    largest, needed = max(((name, len(job.team)) for name, job in jobs.items()), key=lambda pair: pair[1])
    if needed > count:
        servers = "servers" if jobs[largest].method.num_servers > 1 else "server"
        raise InputError(
            f"found {count} process{'es' * (count > 1)}, and {largest} has {needed} ranks, its {servers} included; "
            f"start {needed} or more (torchrun: --nnodes times --nproc-per-node; srun and mpirun: -n {needed})"
        )
    apart = [
        f"{name}: its {job.method.num_servers} servers are on more than one host, and the weights that they hold are "
        "evaluated together only after the run; expected no stop.accuracy and no stop.loss"
        for name, job in jobs.items()
        if job.team[0].shards and job.budget.measured().scored
        if not map_ranks(hosts, job.team).whole(Group(job.owners))
    ]
    if apart:
        raise InputError("\n".join(apart))
    torn = [
        f"{name}: its {len(job.team[0].workers)} workers share memory, and are on more than one host; give one host "
        f"{len(job.team[0].workers)} processes or more, or take a method with a server"
        for name, job in jobs.items()
        if job.method.shared and not map_ranks(hosts, job.team).whole(job.team[0].workers)
    ]
    if torn:
        raise InputError("\n".join(torn))
